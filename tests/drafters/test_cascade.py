"""The cascade: who drafts when, who is told what, and that no text changes by it."""

from __future__ import annotations

import pytest

from tests import folders
from tests.drafters.helpers import make
from tests.drafters.toys import repeating
from tests.enumeration import EXACT, PAIRS, gap
from tests.nets.heads import tiny_head
from tests.tiny import tiny_model
from truedraft import build
from truedraft.core import Draft, Drafter, Law, Shape, Tree, Verdict
from truedraft.decode import Decoder
from truedraft.drafters.bets import Bet
from truedraft.drafters.cascade import CascadeDrafter, within
from truedraft.drafters.count_table import CountTable
from truedraft.drafters.eagle import EagleDrafter
from truedraft.drafters.heads import kind_of
from truedraft.drafters.pass_cost import FREE, USUAL, PassCost
from truedraft.drafters.recycle import RecycleDrafter
from truedraft.drafters.suffix import SuffixDrafter
from truedraft.errors import ParameterError, UnknownModelError, UnsupportedModelError
from truedraft.model import Model
from truedraft.planning.fixed import Fixed
from truedraft.request import Facts
from truedraft.toy import TabularDrafter, TabularTarget, random_language
from truedraft.verify import target_only, token

CHAIN = Shape.chain(4)


class Sure:
    """A bettor that always drafts 1, 1 with the chances it is told."""

    taps = ()

    def __init__(self, *chances):
        self.chances, self.seen, self.released = chances, [], []

    def bet(self, session, shape, *, batch=1):
        return Bet(Draft(Tree.chain((session.root, *[1] * len(self.chances)))), (1.0, *self.chances))

    def observe(self, sessions, verdicts, scores):
        self.seen.append((sessions, verdicts, scores))

    def release(self, session):
        self.released.append(session)


class Other(Sure):
    """A drafter that drafts `nodes` times 2 and remembers whom it was asked about, and how many share the pass."""

    taps = (3, 5)

    def __init__(self, nodes=3):
        super().__init__()
        self.nodes, self.asked, self.batches = nodes, [], []

    def propose(self, sessions, shapes, *, batch=None):
        self.asked.append((list(sessions), list(shapes)))
        self.batches.append(batch)
        return [Draft(Tree.chain((session.root, *[2] * self.nodes))) for session in sessions]


def settle(drafter, session, emitted):
    drafter.observe([session], [Verdict(tuple(range(1, emitted)), (7,) * emitted)], ["scores"])


def play(drafter, rounds, emitted):
    """Rounds of one text, in which the other drafter's drafts emit so many tokens and all others one.

    Returns the rounds that it drafted.
    """
    session, drafted = make([5]), []
    for number in range(rounds):
        before = len(drafter._other.asked)
        drafter.propose([session], [CHAIN])
        if len(drafter._other.asked) > before:
            drafted.append(number)
        settle(drafter, session, emitted if len(drafter._other.asked) > before else 1)
    return drafted


def watched(model, monkeypatch):
    """How often the other drafter of a model that was loaded is asked, by what it drafted."""
    drafter, drafts = model.decoder.drafter, []
    assert isinstance(drafter, CascadeDrafter)
    real = drafter._other.propose

    def propose(*args, **options):
        found = real(*args, **options)
        drafts.extend(len(draft) for draft in found)
        return found

    monkeypatch.setattr(drafter._other, "propose", propose)
    return drafts


def test_a_sure_bet_spares_the_other_drafter():
    other = Other()
    drafter, session = CascadeDrafter(Sure(0.9, 0.8), other), make([5])
    assert drafter.propose([session], [CHAIN])[0].tree.tokens == (5, 1, 1)
    assert other.asked == []


def test_an_unsure_bet_leaves_the_round_to_the_other():
    other = Other()
    drafter, session = CascadeDrafter(Sure(0.3), other, passes=FREE, usual=1.5), make([5])
    assert drafter.propose([session], [CHAIN])[0].tree.tokens == (5, 2, 2, 2)
    assert other.asked == [([session], [CHAIN])]


@pytest.mark.parametrize(("chances", "first"), [((0.6,), True), ((0.4,), False)])
def test_the_choice_is_by_expected_tokens_over_cost(chances, first):
    drafter = CascadeDrafter(Sure(*chances), Other(), passes=FREE, usual=1.5)
    assert (drafter.propose([make([5])], [CHAIN])[0].tree.tokens[1] == 1) == first
    dear = CascadeDrafter(Sure(*chances), Other(), passes=FREE, usual=1.5, effort=1.0)
    drafted = play(dear, 20, emitted=2)  # for four passes' worth
    assert drafted[:1] == ([] if first else [0]) and len(drafted) < 5
    wide = CascadeDrafter(Sure(*chances), Other(), passes=PassCost.even(0.5), usual=1.5)
    assert wide.propose([make([5])], [CHAIN])[0].tree.tokens[1] == 2  # its own node costs half a pass


def test_the_other_drafter_is_judged_by_what_it_does_in_the_session():
    drafter, session, newcomer = CascadeDrafter(Sure(0.5), Other(), passes=FREE, usual=2.0), make([5]), make([5])
    drafted = []
    for _ in range(10):
        drafted.append(drafter.propose([session], [CHAIN])[0].tree.tokens[1])
        settle(drafter, session, emitted=1)
    assert drafted[0] == 2 and drafted[-1] == 1
    assert drafted == sorted(drafted, reverse=True)
    assert drafter.propose([newcomer], [CHAIN])[0].tree.tokens[1] == 2
    better, session = CascadeDrafter(Sure(0.5), Other(), passes=FREE, usual=1.4), make([5])
    assert better.propose([session], [CHAIN])[0].tree.tokens[1] == 1
    better.observe([session], [Verdict((), (7,))], ["scores"])  # the bettor's bad luck is not held against the other
    assert better.propose([session], [CHAIN])[0].tree.tokens[1] == 1


def test_an_empty_draft_of_the_other_leaves_the_bettors():
    drafter, session = CascadeDrafter(Sure(0.2), Other(nodes=0), passes=FREE, usual=1.5), make([5])
    assert drafter.propose([session], [CHAIN])[0].tree.tokens == (5, 1)
    for _ in range(30):
        drafter.propose([session], [CHAIN])
        settle(drafter, session, emitted=2)
    asked = len(drafter._other.asked)
    drafter.propose([session], [CHAIN])
    assert len(drafter._other.asked) == asked  # it has shown that it does not bet


def test_a_drafter_that_is_always_right_comes_to_draft_every_round():
    """However dear its levels are, and although it has nothing to say at first, as heads have not."""
    for effort in (0.05, 0.3):
        drafter = CascadeDrafter(Sure(0.3), Other(nodes=4), passes=USUAL, effort=effort)
        assert len(play(drafter, 100, emitted=5)) == 100

    class Late(Other):
        def propose(self, sessions, shapes, *, batch=None):
            self.nodes = 4 if self.asked else 0
            return super().propose(sessions, shapes, batch=batch)

    assert len(play(CascadeDrafter(Sure(0.3), Late(), effort=0.05), 100, emitted=5)) == 100


def test_a_drafter_that_is_never_right_costs_almost_nothing_and_is_asked_again_now_and_then():
    drafter = CascadeDrafter(Sure(), Other(nodes=4), passes=USUAL, effort=0.08)
    drafted = play(drafter, 500, emitted=1)
    spent = len(drafted) * (USUAL.among(1)[4] - 1 + 4 * 0.08)
    assert spent < 0.02 * 500
    late = [number for number in drafted if number >= 100]
    assert 1 <= len(late) <= 6


def test_a_drafter_that_has_lost_comes_back_when_it_is_right():
    drafter, session = CascadeDrafter(Sure(), Other(nodes=4), passes=USUAL, effort=0.08), make([5])
    asked = []
    for number in range(400):
        before = len(drafter._other.asked)
        drafter.propose([session], [CHAIN])
        asked.append(len(drafter._other.asked) > before)
        settle(drafter, session, (5 if number >= 100 else 1) if asked[-1] else 1)
    assert sum(asked[50:100]) <= 2 and all(asked[300:])


def test_a_trial_does_not_take_the_place_of_a_sure_bet():
    drafter = CascadeDrafter(Sure(0.9, 0.8), Other(), passes=FREE)
    assert play(drafter, 300, emitted=4) == []


def test_a_drafter_that_rests_spends_nothing():
    """It is asked in every round in which there is no other bet, as long as it says nothing."""
    drafter = CascadeDrafter(Sure(), Other(nodes=0), effort=0.5)
    assert len(play(drafter, 100, emitted=1)) == 100


def test_the_other_hears_how_many_texts_share_the_pass():
    class Picky(Sure):
        def bet(self, session, shape, *, batch=1):
            return super().bet(session, shape) if session.root % 2 else Bet.none(session.root)

    for alone in (False, True):
        other = Other()
        drafter = CascadeDrafter(Picky(0.9, 0.9), other, passes=FREE, alone=alone)
        drafter.propose([make([root]) for root in (1, 2, 3, 4, 5)], [CHAIN] * 5)
        assert other.batches == [5] and len(other.asked[0][0]) == 2


def test_nodes_of_a_text_are_priced_in_the_whole_batch():
    """Recycling drafts for one of many texts: as few nodes as if it drafted for all."""
    text, shape = [*range(10, 16), 1, 2, 3, *range(20, 26), 1, 2, 3, 30, 1, 2, 3], Shape(8, width=4, nodes=16)

    class Unless(Sure):
        def bet(self, session, shape, *, batch=1):
            return Bet.none(session.root) if session.tokens == text else super().bet(session, shape)

    def recycling():
        return RecycleDrafter(CountTable(1 << 10, 1000))

    sessions = [make(text), *(make([number]) for number in range(63))]
    alone, among = (recycling().propose([make(text)] * batch, [shape] * batch)[0] for batch in (1, 64))
    drafted = CascadeDrafter(Unless(0.9, 0.9, 0.9, 0.9), recycling(), passes=FREE).propose(sessions, [shape] * 64)
    assert len(drafted[0]) == len(among) < len(alone)


def test_all_sessions_of_the_other_are_asked_at_once_and_order_is_kept():
    class Picky(Sure):
        def bet(self, session, shape, *, batch=1):
            return super().bet(session, shape) if session.root % 2 else Bet.none(session.root)

    other, sessions = Other(), [make([root]) for root in (1, 2, 3, 4)]
    shapes = [Shape.chain(depth) for depth in (3, 4, 5, 6)]
    drafts = CascadeDrafter(Picky(0.9, 0.9), other).propose(sessions, shapes)
    assert [draft.tree.tokens[:2] for draft in drafts] == [(1, 1), (2, 2), (3, 1), (4, 2)]
    assert other.asked == [([sessions[1], sessions[3]], [shapes[1], shapes[3]])]


def test_no_depth_asks_nobody():
    other, session = Other(), make([5])
    drafter = CascadeDrafter(SuffixDrafter(), other)
    assert len(drafter.propose([session], [Shape(0)])[0]) == 0
    assert other.asked == []


def test_both_see_every_round_and_both_forget():
    first, other, session = Sure(0.9), Other(), make([5])
    drafter = CascadeDrafter(first, other)
    assert drafter.taps == other.taps
    drafter.propose([session], [CHAIN])
    settle(drafter, session, emitted=2)
    assert first.seen == other.seen and len(first.seen) == 1
    drafter.release(session)
    assert first.released == other.released == [session]
    drafter.release(session)


@pytest.mark.parametrize(("wrong", "name"), [({"effort": -1}, "effort"), ({"usual": 0}, "u")])
def test_parameters_are_checked(wrong, name):
    with pytest.raises(ParameterError, match=name):
        CascadeDrafter(SuffixDrafter(), Other(), **wrong)


# ── in the round ──────────────────────────────────────────────────────────────────────────────────────────────────


def generate(shape, prompts, *, law=Law.CHOSEN, rule=target_only.RULE, batch=1, **parameters):
    drafter = CascadeDrafter(SuffixDrafter(), TabularDrafter(random_language(8, order=3, seed=4), law))
    assert isinstance(drafter, Drafter)
    decoder = Decoder(TabularTarget(repeating(8, 3)), drafter, rule, Fixed(shape))
    return Model(decoder, Facts(vocabulary=8), batch=batch).generate(prompts, **parameters)


@pytest.mark.parametrize("shape", [Shape.chain(1), Shape.chain(4), Shape(3, 2, 6)], ids=str)
@pytest.mark.parametrize("batch", [1, 4])
def test_greedy_text_is_plain_decodings(shape, batch):
    prompts = [[2] * 6, [1, 2, 3, 1, 2, 3], [5], [7, 6, 5, 4, 7, 6]]
    plain = generate(Shape(0), prompts, max_new_tokens=40)
    drafted = generate(shape, prompts, batch=batch, max_new_tokens=40)
    assert [result.token_ids for result in drafted] == [result.token_ids for result in plain]
    assert sum(result.statistics.accepted for result in drafted) > 10


@pytest.mark.parametrize("pair", ["V=2", "V=3", "zeros in q"])
@pytest.mark.parametrize("usual", [1.0, 1.3, 9.0])
def test_the_joint_law_is_the_targets_whoever_drafts(pair, usual, monkeypatch):
    """Chosen and sampled drafts in one text, each under the rule for its law."""

    class Mixed:
        laws = frozenset((Law.CHOSEN, Law.SAMPLED))

        def verify(self, draft, p, dice):
            rule = target_only.RULE if draft.law is Law.CHOSEN else token.RULE
            return rule.verify(draft, p, dice)

    p, q = PAIRS[pair]
    asked = []
    monkeypatch.setattr(
        TabularDrafter, "propose", lambda *said, real=TabularDrafter.propose: asked.append(1) or real(*said)
    )

    def draft(table, text, dice):
        session = make([0, 1, 0, 0, 1, *text])
        session.dice = dice
        other = TabularDrafter(lambda context: q(context[5:]).log(), Law.SAMPLED)
        first = SuffixDrafter(passes=FREE)
        made = CascadeDrafter(first, other, passes=FREE, usual=usual).propose([session], [Shape.chain(2)])[0]
        return made

    assert gap(Mixed(), draft, (p, q), length=3, rounds=2) < EXACT
    if usual != 1.3:  # then it is now one and now the other
        assert bool(asked) == (usual > 1)


@pytest.mark.parametrize(
    ("shape", "reach", "expected"),
    [
        (Shape(16, 8, 16), Shape.chain(3), Shape.chain(3)),
        (Shape.chain(2), Shape(4, 4, 8), Shape(2, 1, 2)),
        (Shape.tree(3, 2, 1), Shape.chain(2), Shape.tree(3, 2, 1).clip(2)),
    ],
)
def test_the_other_is_asked_for_what_it_can_reach(shape, reach, expected):
    assert within(shape, reach) == expected
    other, session = Other(nodes=2), make([1, 2])
    CascadeDrafter(Sure(), other, reach=reach).propose([session], [shape])
    assert other.asked == [([session], [expected])]


@pytest.mark.parametrize("kind", ["eagle3", "eagle1", "medusa"])
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.8, "seed": 3}], ids=["greedy", "sampled"])
def test_a_head_may_follow_suffix_decoding(tmp_path, kind, settings, monkeypatch):
    model = tiny_model(vocab_size=48)
    head = tiny_head(kind, model)
    head.save(tmp_path)
    prompts = [[5, 6, 7, 5, 6, 7, 5], [9, 8, 1, 2, 3, 4], [3, 3, 3, 3]]

    def texts(prompts, **options):
        loaded = build.load(model, **options)
        if options["drafter"] == "cascade":
            by_the_head.append(watched(loaded, monkeypatch))
        results = loaded.generate(prompts, max_new_tokens=25, ignore_eos=True, **settings)
        return [result.token_ids for result in results], sum(result.statistics.drafted for result in results)

    by_the_head: list[list[int]] = []
    together, drafted = texts(prompts, drafter="cascade", head=tmp_path)
    assert drafted > sum(by_the_head[0]) > 0
    if settings:
        alone = [texts([prompt], drafter="cascade", head=tmp_path)[0][0] for prompt in prompts]
        assert together == alone
    else:
        assert together == texts(prompts, drafter="none")[0]


@pytest.mark.parametrize("alone", [True, False])
def test_who_drafts_for_a_text_may_not_depend_on_its_neighbours(alone):
    """Where the other drafter draws, that would change how a text's dice are used; else it is as well to know them."""
    other = Other(nodes=2)
    drafter = CascadeDrafter(Sure(0.9, 0.9, 0.9), other, usual=2.0, alone=alone)
    drafter.propose([make([1, 2])], [CHAIN])
    assert not other.asked, "three likely nodes are worth more than two tokens for one"
    drafter.propose([make([1, 2]) for _ in range(64)], [CHAIN] * 64)
    assert bool(other.asked) != alone, "and not in a batch, where every node is paid for"


def test_what_a_heads_level_costs_is_the_heads(tmp_path):
    for kind in ("eagle3", "eagle1"):
        tiny_head(kind, tiny_model()).save(tmp_path / kind)
        drafter = build.load(tiny_model(), drafter="cascade", head=tmp_path / kind).decoder.drafter
        assert isinstance(drafter._other, EagleDrafter)
        assert drafter._effort == drafter._other.level > 0


def test_a_small_model_that_is_right_drafts_most_rounds(tmp_path, monkeypatch):
    """The target itself, as its own small model: four tokens and a bonus where it is asked."""
    folder = folders.folder(tmp_path, context=256)
    loaded = build.load(folder, drafter="cascade", draft_model=folder)
    drafts = watched(loaded, monkeypatch)
    result = loaded.generate([9, 8, 1, 2, 3, 4], max_new_tokens=60, ignore_eos=True)
    assert (
        result.token_ids
        == build.load(folder, drafter="none").generate([9, 8, 1, 2, 3, 4], max_new_tokens=60, ignore_eos=True).token_ids
    )
    assert len(drafts) > 0.5 * result.statistics.rounds and result.statistics.tokens_per_pass > 3


def test_a_seeds_text_does_not_depend_on_its_neighbours(tmp_path, monkeypatch):
    """Who drafts decides how a text's dice are used, so it may not depend on who writes beside it."""
    folder = folders.folder(tmp_path / "small", seed=4)
    target = folders.folder(tmp_path / "target", context=256)
    prompts = [[*range(40, 60)] * 3, [9, 8, 1, 2, 3, 4], [7] * 30, [5, 6, 7, 5, 6, 7, 5] * 12]
    loaded = build.load(target, drafter="cascade", draft_model=folder, batch=4)
    drafts = watched(loaded, monkeypatch)
    settings = {"max_new_tokens": 40, "ignore_eos": True, "temperature": 0.8}
    each = [{"seed": seed} for seed in range(4)]
    together = loaded.generate(prompts, each=each, **settings)
    assert {len(result.token_ids) for result in together} == {40} and sum(drafts) > 20
    for result, prompt, own in zip(together, prompts, each, strict=True):
        assert loaded.generate(prompt, **own, **settings).token_ids == result.token_ids


def test_a_folder_tells_its_kind(tmp_path):
    for kind, name in {"eagle3": "eagle3", "eagle1": "eagle2", "medusa": "medusa"}.items():
        tiny_head(kind, tiny_model()).save(tmp_path / kind)
        assert kind_of(tmp_path / kind) == name
    with pytest.raises(UnknownModelError):
        kind_of(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text('{"architectures": ["Bert"]}')
    with pytest.raises(UnsupportedModelError, match="Bert"):
        kind_of(tmp_path)
