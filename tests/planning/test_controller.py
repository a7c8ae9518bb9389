"""The controller: it does not bias the text, it bets where that pays and stops where it does not."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from tests.bench.toys import FACTS, PROMPTS, Clock, model, oracle, written
from truedraft.bench.arms import Order
from truedraft.core import Draft, Law, Policy, Round, Session, Shape, Timings, Tree, Verdict
from truedraft.decode import Decoder
from truedraft.drafters.none import NoDrafter
from truedraft.planning.controller import Controller
from truedraft.planning.costs import RoundCosts
from truedraft.planning.fixed import Fixed
from truedraft.planning.levels import Seen, Yield, allowed_level, ladder
from truedraft.planning.profile import PassTime, Profile
from truedraft.request import Parameters, make_session
from truedraft.toy import Script, TabularDrafter, TabularTarget, random_language
from truedraft.verify import token
from truedraft.verify.auto import rule_named
from truedraft.verify.enumeration import outcomes, total_variation


def profile(ridge=1e9, slope=0.0):
    points = [(batch, width) for batch in (1, 2, 4, 8, 16, 32) for width in (1, 2, 3, 5, 9, 17)]
    return Profile(
        tuple(
            PassTime(64, *point, max(1.0, point[0] * point[1] / ridge) + slope * (point[0] * point[1] - 1))
            for point in points
        )
    )


# ── ladders, yields, costs ────────────────────────────────────────────────────────────────────────────────────────


def test_ladders_lead_to_the_whole_shape():
    assert ladder(Shape.chain(3)) == (Shape.chain(1), Shape.chain(2), Shape.chain(3))
    assert ladder(Shape.tree(3, 2)) == (Shape.tree(3), Shape.tree(3, 2))
    sizes = ladder(Shape(depth=8, width=4, nodes=12))
    assert [level.nodes for level in sizes] == [1, 2, 4, 8, 12] and sizes[-1] == Shape(8, 4, 12)
    assert ladder(Shape(0)) == ()
    assert [allowed_level(sizes, shape) for shape in (Shape(0), Shape(1, 1, 1), Shape(4, 4, 5), Shape(8, 4, 99))] == [
        0,
        1,
        3,
        5,
    ]


def record(drafted, accepted, *, shape=None, emitted=None):
    tree = Tree.chain([0] * (drafted + 1))
    verdict = Verdict(tuple(range(1, accepted + 1)), (0,) * (accepted + 1))
    return Round(1, shape or Shape.chain(4), Draft(tree), verdict, emitted or accepted + 1, Timings())


NEVER = 1.0 - 1e-9
"""A fading that forgets nothing."""


def taught(levels, records, fading=NEVER, *, chained=True):
    """What is known of one text after these rounds."""
    known = Yield(len(levels), fading, chained=chained)
    for item in records:
        known.learn(Seen.of(item, levels))
    return known


def test_yields_are_counted_by_rung():
    rounds = [record(4, 2), record(1, 1), record(4, 0, shape=Shape.chain(2)), record(0, 0, shape=Shape(0))]
    seen = taught(ladder(Shape.chain(4)), rounds)
    gained, filled = seen.rates(1e-9)
    assert gained[:2] == pytest.approx([2 / 3, 1 / 3], abs=1e-6) and max(gained[2:]) < 1e-6
    assert filled == pytest.approx([1, 2 / 3, 1 / 2, 1 / 2], abs=1e-6)
    assert seen.weight == pytest.approx([3, 3, 2, 2])
    assert seen.tests == pytest.approx([3, 2, 1, 0])


def test_a_round_that_lost_its_first_bet_says_nothing_of_the_second():
    """Ten drafts that were wrong at once, then two of one token that was right: the second is as good as unknown."""
    seen = taught(ladder(Shape.chain(4)), [record(4, 0)] * 10 + [record(1, 1, shape=Shape.chain(1))] * 2)
    assert seen.tests == pytest.approx([12, 0, 0, 0])
    gained, _ = seen.rates(8.0, ([0.5, 0.4, 0.32, 0.25], [1.0] * 4))
    assert gained[0] == pytest.approx((2 + 8 * 0.5) / 20)
    ratios = [after / before for before, after in pairwise(gained)]
    assert ratios == pytest.approx([0.8, 0.8, 0.25 / 0.32]), "as the prior has it"


def test_old_rounds_fade():
    seen = taught(ladder(Shape.chain(2)), [record(2, 2, shape=Shape.chain(2)), record(2, 0, shape=Shape.chain(2))], 0.5)
    assert seen.weight == [1.5, 1.5] and seen.tests == [1.5, 0.5] and seen.gained == [0.5, 0.5]


def drawn(shape, path, nodes):
    """A round of a tree that was drawn, its nodes side by side in chains."""
    tree = Tree((0,) * (nodes + 1), (-1, *(max(0, node - 2) for node in range(1, nodes + 1))))
    q = (torch.ones(1),) * (nodes + 1)
    return Round(1, shape, Draft(tree, Law.SAMPLED, q), Verdict(path, (0,) * (len(path) + 1)), len(path) + 1, Timings())


def test_a_drawn_tree_tells_about_its_own_rung_alone():
    """Two chains of four: the fourth token has the number seven, and a tree of four would have been one chain."""
    levels = ladder(Shape(4, 2, 8))
    assert [level.nodes for level in levels] == [1, 2, 4, 8]
    seen = taught(levels, [drawn(levels[-1], (1, 3, 5, 7), 8)] * 60, fading=0.9, chained=False)
    assert seen.weight[:3] == [0, 0, 0]
    gained, filled = seen.rates(0.01)
    assert sum(gained) == pytest.approx(4.0, rel=0.05) and filled[-1] == pytest.approx(1.0)
    for _ in range(60):
        seen.learn(Seen.of(drawn(levels[-1], (), 8), levels))
    assert seen.rates(1.0)[0][-1] < 0.05 and min(seen.rates(1.0)[0]) >= 0.0


def test_fixed_trees_and_chains_tell_about_all_rungs_also_when_they_are_drawn():
    for shape, path in ((Shape.tree(2, 1), (1, 3)), (Shape.chain(2), (1, 2))):
        seen = taught(ladder(shape), [drawn(shape, path, shape.nodes)])
        assert seen.weight == [1, 1] and seen.rates(1e-9)[0] == pytest.approx([1, 1], abs=1e-6)


def test_what_was_never_tried_carries_on_what_is_below():
    levels = ladder(Shape.chain(6))
    seen = taught(levels, [record(2, 2, shape=Shape.chain(2))] * 40, fading=0.9)
    gained = seen.rates(2.0)[0]
    assert gained[1] > 0.8 and 0.5 < gained[3] < gained[2] < gained[1]
    for _ in range(40):
        seen.learn(Seen.of(record(2, 0, shape=Shape.chain(2)), levels))
    assert max(seen.rates(2.0)[0]) < 0.1


def test_costs_follow_the_passes_seen():
    costs = RoundCosts(profile(), [0, 1, 2, 4])
    assert costs.passes(1, 64) == pytest.approx([1, 1, 1, 1])
    for _ in range(20):
        costs.learn(1, [0], 64, 2.0)
        costs.learn(1, [4], 64, 5.0)
    seconds = costs.passes(1, 64)
    assert seconds[0] == pytest.approx(2.0, rel=0.3) and seconds[3] == pytest.approx(5.0, rel=0.2)
    assert seconds[0] <= seconds[1] <= seconds[2] <= seconds[3]
    before = costs.passes(1, 64)[0]
    costs.learn(1, [0], 64, 1000.0)
    assert costs.passes(1, 64)[0] < 1.2 * before, "one slow pass is forgiven"


def test_a_few_slow_passes_say_little_of_what_a_width_costs():
    costs = RoundCosts(profile(), [0, 1, 2, 4])
    for _ in range(20):
        costs.learn(1, [0], 64, 1.0)
    for _ in range(2):
        costs.learn(1, [4], 64, 1.5)  # a neighbour of the machine was busy
    assert costs.passes(1, 64)[3] < 1.25


@pytest.mark.parametrize(("ragged", "width"), [(False, 5), (True, 2)])
def test_a_pass_is_as_wide_as_its_longest_draft_or_its_mean_one(ragged, width):
    costs = RoundCosts(replace(profile(slope=1.0), model={"ragged": ragged}), [0, 1, 2, 4])
    for _ in range(50):
        costs.learn(4, [4, 0, 0, 0], 64, 2.0 * profile(slope=1.0).pass_seconds(width, batch=4))
    expected = 2.0 * profile(slope=1.0).pass_seconds(1, batch=4)
    assert costs.passes(4, 64)[0] == pytest.approx(expected, rel=0.1)


def test_costs_outside_the_pass_grow_with_the_draft():
    costs = RoundCosts(profile(), [0, 1, 2, 4])
    assert costs.outside(3) == pytest.approx([0, 0, 0, 0])
    costs.learn_outside(1, 0, 0.1)
    costs.learn_outside(1, 2, 0.5)
    assert costs.outside(1) == pytest.approx([0.1, 0.3, 0.5, 0.9])
    assert costs.outside(7) == pytest.approx(costs.outside(1))


# ── what it decides ───────────────────────────────────────────────────────────────────────────────────────────────


def run(policy, drafter, *, batch=1, tokens=60, ridge=1e9, slope=0.0, prompts=PROMPTS):
    """Seconds, and drafted tokens a round."""
    clock = Clock()
    decoder = model(clock, drafter, policy=policy, ridge=ridge, slope=slope, reading=0.0).decoder
    sessions = [
        make_session(list(prompts[n % len(prompts)]), Parameters(max_new_tokens=tokens), FACTS) for n in range(batch)
    ]
    drafted = [max(len(item.draft) for _, item in step) for step in decoder.run(sessions, batch=batch)]
    return clock.now, drafted


def best_fixed(drafter, depth=8, **options):
    return min(run(Fixed(Shape.chain(k)), drafter, **options)[0] for k in range(depth + 1))


def test_it_is_a_policy():
    assert isinstance(Controller(Shape.chain(4), profile()), Policy)
    session = make_session([0], Parameters(), FACTS)
    assert Controller(Shape(0), profile()).shape([session], {}) == [Shape(0)]


def test_with_an_oracle_it_climbs_to_the_top():
    seconds, drafted = run(Controller(Shape.chain(8), profile()), oracle())
    assert drafted[-2] >= 6 and seconds <= best_fixed(oracle()) + 3


def test_with_a_hopeless_drafter_it_stops_and_loses_little():
    drafter = oracle(right=0)
    options = {"tokens": 60, "slope": 0.1, "batch": 4}
    plain = run(Fixed(Shape(0)), drafter, **options)[0]
    seconds, drafted = run(Controller(Shape.chain(8), profile(slope=0.1)), drafter, **options)
    assert drafted.count(0) > 40 and seconds <= plain / 0.97 + 3, "a few first rounds aside"


def test_it_finds_the_middle_where_drafts_are_right_for_two_tokens():
    options = {"tokens": 60, "slope": 0.2}
    seconds, drafted = run(Controller(Shape.chain(8), profile(slope=0.2)), oracle(right=2), **options)
    assert sorted(drafted[8:])[len(drafted[8:]) // 2] == 2
    assert seconds <= 1.15 * best_fixed(oracle(right=2), **options)


def test_past_the_ridge_it_does_not_bet():
    drafter = oracle(right=1)
    seconds, drafted = run(Controller(Shape.chain(4), profile(ridge=4)), drafter, batch=16, ridge=4)
    plain = run(Fixed(Shape(0)), drafter, batch=16, ridge=4)[0]
    assert drafted[5:].count(0) > 0.9 * len(drafted[5:]) and seconds <= plain / 0.97 + 12
    _, bets = run(Controller(Shape.chain(4), profile(ridge=4)), drafter, batch=1, ridge=4)
    assert sorted(bets[5:-1])[2] >= 1


def test_it_corrects_a_profile_that_is_wrong():
    flat = Controller(Shape.chain(8), profile())  # believes that passes are free, where each token costs a pass
    seconds, drafted = run(flat, oracle(right=1), batch=2, slope=1.0)
    assert sum(drafted[10:]) <= len(drafted[10:])
    assert seconds <= 1.35 * run(Fixed(Shape(0)), oracle(right=1), batch=2, slope=1.0)[0]


class Turning:
    """Right from some length on, wrong before."""

    taps = ()

    def __init__(self, turn):
        self._turn, self._right, self._wrong = turn, oracle(), oracle(right=0)

    def propose(self, sessions, shapes):
        return [
            (self._right if len(session.tokens) >= self._turn else self._wrong).propose([session], [shape])[0]
            for session, shape in zip(sessions, shapes, strict=True)
        ]

    def observe(self, *_):
        pass

    release = observe


def test_it_comes_back_when_the_text_becomes_easy():
    seconds, drafted = run(Controller(Shape.chain(8), profile(slope=0.1)), Turning(32), slope=0.1)
    assert drafted[22:28].count(0) >= 4 and max(drafted[-4:]) >= 4
    plain = run(Fixed(Shape(0)), Turning(32), slope=0.1)[0]
    assert seconds < 0.85 * plain, "half of the text is easy, and it has to notice"


def test_after_a_hard_load_easy_texts_get_their_bets_back_within_a_few_rounds():
    """A batch of hard texts, then four easy ones: whoever is accepted whole bets twice as much, whatever others did."""
    controller = Controller(Shape.chain(8), profile(slope=0.08))
    run(controller, oracle(right=0), batch=32, slope=0.08)
    assert max(run(controller, oracle(), batch=4, slope=0.08)[1][:4]) == 8


class Silent(Turning):
    """Drafts nothing where it would be wrong."""

    def propose(self, sessions, shapes):
        drafts = super().propose(sessions, shapes)
        return [
            draft if len(session.tokens) >= self._turn else Draft.empty(session.root)
            for session, draft in zip(sessions, drafts, strict=True)
        ]


def test_who_drafts_only_where_it_is_right_may_try_whenever_it_likes():
    """After a hard load trials are rare; but one in which nothing is drafted costs nothing, so it may be had again."""
    controller = Controller(Shape.chain(8), profile(slope=0.08))
    run(controller, oracle(right=0), batch=32, slope=0.08)
    drafted = run(controller, Silent(20), batch=4, slope=0.08)[1]
    turned = next(place for place, count in enumerate(drafted) if count)
    assert turned <= 20 and max(drafted[turned : turned + 5]) == 8


def test_a_hard_load_is_left_alone_after_what_its_trials_may_cost():
    controller = Controller(Shape.chain(8), profile(slope=0.08))
    run(controller, oracle(right=0), batch=32, slope=0.08)
    plain = run(Fixed(Shape(0)), oracle(right=0), batch=4, slope=0.08)[0]
    for _ in range(3):  # every text is a new one, and tries on the credit of its time
        assert run(controller, oracle(right=0), batch=4, slope=0.08)[0] <= 1.03 * plain


def test_two_streams_on_one_controller_pay_for_their_trials():
    """Each finds the other's rounds between its own: a trial that nobody reports on stays paid."""
    controller = Controller(Shape.chain(8), profile(slope=0.08))
    run(controller, oracle(right=0), batch=32, slope=0.08)
    clock = Clock()
    decoder = model(clock, oracle(right=0), policy=controller, slope=0.08, reading=0.0).decoder
    streams = [
        decoder.run([make_session(list(prompt), Parameters(max_new_tokens=60), FACTS)]) for prompt in PROMPTS[:2]
    ]
    bets = [item.shape.depth for steps in zip(*streams, strict=True) for step in steps for _, item in step]
    assert sum(depth > 0 for depth in bets) < 0.4 * len(bets)


def test_a_text_that_drafts_nothing_does_not_keep_others_from_their_trials():
    class Half(Turning):
        def propose(self, sessions, shapes):
            drafts = super().propose(sessions, shapes)
            return [
                draft if session.tokens[:2] == [0, 1] else Draft.empty(session.root)
                for session, draft in zip(sessions, drafts, strict=True)
            ]

    controller = Controller(Shape.chain(8), profile(slope=0.08))
    run(controller, oracle(right=0), batch=32, slope=0.08)
    drafted = run(controller, Half(20), batch=2, slope=0.08)[1]
    assert max(drafted[:45]) == 8


def test_siblings_on_several_rungs_are_no_chain():
    """Of two children the second is right whenever the first is not: no rung brings more than its one node."""
    shape = Shape(2, 2, 2)
    levels = ladder(shape)
    assert [level.nodes for level in levels] == [1, 2]
    tree = Tree((0, 5, 6), (-1, 0, 0))
    right = Round(1, shape, Draft(tree), Verdict((2,), (6, 0)), 2, Timings())
    known = Yield(2, 0.97, chained=Controller(shape, profile())._chained)
    for _ in range(60):
        known.learn(Seen.of(right, levels))
    gained = known.rates(4.0)[0]
    assert gained[0] < 0.1 and 0.8 < gained[1] <= 1.0
    assert known.rates(8.0, (gained, [1.0, 1.0]))[0] == pytest.approx(gained, abs=0.2)


def test_what_a_bet_brings_is_worth_plain_rounds_not_its_own_dear_ones():
    """A new text tries while its prompt is read, which takes as long as forty passes: one token does not pay for it."""
    controller = Controller(Shape.chain(8), profile(slope=0.08))
    run(controller, oracle(right=0), batch=32, slope=0.08)
    clock = Clock()
    decoder = model(clock, oracle(right=1), policy=controller, slope=0.08, reading=40.0).decoder
    session = make_session(list(PROMPTS[0]), Parameters(max_new_tokens=40), FACTS)
    before = None
    for _ in decoder.run([session]):
        before = controller._credit if before is None else before
        if controller._trial is not None and controller._trial.rung > 2:
            controller._learn([session], {})
        if len(session.output) > 4:
            break
    assert controller._credit < 2.0, "seconds saved are no more than what trials may cost"


def test_debts_of_a_large_batch_do_not_silence_a_small_one():
    controller = Controller(Shape.chain(8), profile(slope=0.08))
    run(controller, oracle(right=0), batch=32, slope=0.08)
    controller._credit = -50.0
    drafted = run(controller, Turning(2), batch=1, tokens=60, slope=0.01)[1]
    assert max(drafted) >= 1 and controller._credit > -2.0


def test_a_head_that_has_not_read_the_prompt_yet_is_not_known_to_draft_little():
    class Late(Turning):
        def propose(self, sessions, shapes):
            drafts = super().propose(sessions, shapes)
            return [
                Draft.empty(session.root) if not session.output else draft
                for session, draft in zip(sessions, drafts, strict=True)
            ]

    controller = Controller(Shape.chain(8), profile(slope=0.08))
    run(controller, Late(2), batch=32, tokens=2, slope=0.08)
    assert sum(controller._common.weight) == sum(controller._lately.weight) == 0.0


def test_a_first_draft_that_costs_a_block_of_rows_is_known_to():
    ragged = replace(profile(slope=0.02), model={"ragged": True})
    plain, one = ragged.pass_seconds(1, batch=16), ragged.pass_seconds(1 + 2 / 16, batch=16)
    costs = RoundCosts(ragged, [0, 1, 2, 4])
    for _ in range(20):
        costs.learn(16, [0] * 16, 64, plain)
        costs.learn(16, [1, 1, *[0] * 14], 64, one + 0.3)
    assert costs.entry(16, 64, costs.passes(16, 64)) == pytest.approx(0.25, abs=0.06), "most of it"
    assert costs.entry(8, 64, costs.passes(8, 64)) == 0.0, "nothing was seen there"
    padded = RoundCosts(profile(slope=0.02), [0, 1, 2, 4])
    padded.learn(16, [1, 1, *[0] * 14], 64, 3.0)
    assert padded.entry(16, 64, padded.passes(16, 64)) == 0.0


def test_it_stops_where_few_drafts_cost_all_texts_much():
    """Of sixteen texts two draft, and are right; that takes a third of a pass, for an eighth of the tokens more."""

    class Few(Turning):
        def propose(self, sessions, shapes):
            drafts = super().propose(sessions, shapes)
            return [
                draft if place < 2 else Draft.empty(session.root)
                for place, (session, draft) in enumerate(zip(sessions, drafts, strict=True))
            ]

    class Blocks(Controller):
        """The toy target is padded; here what its passes take is told as that of blocks of rows."""

        def _learn_costs(self, fresh):
            records = list(fresh.values())
            drafted = sum(len(record.draft) for record in records)
            seconds = 1.0 + 0.002 * drafted + (0.35 if drafted else 0.0)
            self._costs.learn(len(records), [len(record.draft) for record in records], 64, seconds)

    flat = replace(profile(), model={"ragged": True})
    controller = Blocks(Shape.chain(1), flat)
    drafted = run(controller, Few(2), batch=16, tokens=60)[1]
    assert drafted[20:50].count(0) > 20


def test_time_outside_the_pass_never_falls_with_what_is_drafted():
    costs = RoundCosts(profile(), [0, 1, 8, 32])
    costs.learn_outside(1, 0, 0.05)  # a hiccup
    costs.learn_outside(1, 2, 0.01)
    assert costs.outside(1) == pytest.approx([0.05] * 4)


def test_where_bets_promise_much_and_passes_are_as_foreseen_it_does_not_stop_to_look():
    drafted = run(Controller(Shape.chain(8), profile(slope=0.02)), oracle(), slope=0.02)[1]
    assert min(drafted[:-2]) > 0


def test_hard_texts_do_not_keep_easy_ones_from_their_bets():
    easy = Script([written(PROMPTS[0])], vocabulary=4)
    wrong = Script([written(prompt) for prompt in PROMPTS[1:]], vocabulary=4, right=0)

    class Both(Turning):
        def propose(self, sessions, shapes):
            return [
                (easy if session.tokens[:2] == [0, 1] else wrong).propose([session], [shape])[0]
                for session, shape in zip(sessions, shapes, strict=True)
            ]

    controller = Controller(Shape.chain(4), profile(slope=0.02))
    clock = Clock()
    decoder = model(clock, Both(0), policy=controller, slope=0.02, reading=0.0).decoder
    sessions = [make_session(list(prompt), Parameters(max_new_tokens=60), FACTS) for prompt in PROMPTS[:2]]
    bets = {session: [] for session in sessions}
    for step in decoder.run(sessions, batch=2):
        if len(step) == 2:
            for session, item in step:
                bets[session].append(item.shape.depth)
    assert sum(bets[sessions[0]]) >= 3 * len(bets[sessions[0]]), "looks aside"


def test_where_nothing_is_padded_one_easy_text_in_a_batch_may_bet():
    """Sixteen texts near the ridge: padded, one draft of four costs what sixteen would; ragged, it costs itself."""
    costly = profile(ridge=24, slope=0.0)
    for ragged in (False, True):
        controller = Controller(Shape.chain(4), replace(costly, model={"ragged": ragged}))
        rates = [([0.9 if place == 0 else 0.009] * 4, [1.0] * 4) for place in range(16)]
        passes, outside = controller._costs.passes(16, 64.0), controller._costs.outside(16)
        chosen, _ = controller._best(rates, passes, outside)
        assert chosen[1:] == [0] * 15 and (chosen[0] > 0) == ragged


# ── what it must not do ───────────────────────────────────────────────────────────────────────────────────────────

LENGTH = 3
LANGUAGE, DRAFTS = random_language(2, seed=1), random_language(2, seed=2)


def law_of_text(policy, drafter, target=None):
    """The law of the first three tokens, by walking every outcome of drafts and verdicts."""
    law = {}

    def write(dice):
        session = make_session([0], Parameters(max_new_tokens=LENGTH, temperature=1.0), FACTS2)
        session = Session(session.tokens, session.sampler, dice, session.ending)
        ticks = iter(range(10**6))
        decoder = Decoder(target or TabularTarget(LANGUAGE), drafter, token.RULE, policy(), clock=lambda: next(ticks))
        for _ in decoder.run([session]):
            pass
        return tuple(session.output)

    for chance, text in outcomes(write):
        law[text] = law.get(text, 0.0) + chance
    return law


FACTS2 = type(FACTS)(vocabulary=2)


def test_the_text_keeps_its_law():
    drafter = TabularDrafter(DRAFTS, Law.SAMPLED)
    own = law_of_text(lambda: Fixed(Shape(0)), NoDrafter())
    shapes = set()

    class Watched(Controller):
        def shape(self, sessions, history):
            chosen = super().shape(sessions, history)
            shapes.update(shape.depth for shape in chosen)
            return chosen

    for ridge in (1e9, 1.5, 0.7):
        found = law_of_text(lambda ridge=ridge: Watched(Shape.chain(3), profile(ridge)), drafter)
        assert total_variation(found, own) < 1e-12
    assert {0, 1} <= shapes and max(shapes) >= 2, "what it chose has changed from outcome to outcome"


def test_whoever_looks_at_the_draw_biases_it():
    """p(A) = 0.7, q(A) = 0.5: a drafter that drops a drawn B makes A come out with 0.85, where 0.70 is right."""

    def language(p):
        return lambda context: torch.tensor([p, 1 - p], dtype=torch.float64).log()

    class Looking(TabularDrafter):
        def propose(self, sessions, shapes):
            drafts = super().propose(sessions, shapes)
            return [draft if draft.tree.tokens[1:] == (0,) else Draft.empty(draft.tree.tokens[0]) for draft in drafts]

    target = TabularTarget(language(0.7))

    def first(policy, drafter):
        return sum(chance for text, chance in law_of_text(policy, drafter, target).items() if text[0] == 0)

    looking = first(lambda: Fixed(Shape.chain(1)), Looking(language(0.5), Law.SAMPLED))
    assert looking == pytest.approx(0.85, abs=1e-12)
    honest = first(lambda: Controller(Shape.chain(1), profile()), TabularDrafter(language(0.5), Law.SAMPLED))
    assert honest == pytest.approx(0.70, abs=1e-12)


def test_it_is_given_past_rounds_only():
    """The policy is asked before anything is drafted, with rounds that are over."""
    seen = []

    class Spy(Controller):
        def shape(self, sessions, history):
            seen.append({session: record.index for session, record in history.items()})
            return super().shape(sessions, history)

    order = Order(PROMPTS[:1], (0,), tokens=8)
    clock = Clock()
    arm = model(clock, oracle(), policy=Spy(Shape.chain(2), profile()))
    result = arm.generate(list(order.prompts[0]), max_new_tokens=8)
    assert [list(rounds.values()) for rounds in seen] == [[], *([n] for n in range(result.statistics.rounds - 1))]
    assert rule_named("auto") is arm.decoder.rule
