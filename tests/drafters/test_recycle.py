"""Recycling: what scores teach, whom they teach it, and that no text changes by it."""

from __future__ import annotations

import gc
import math
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.drafters.helpers import assert_within, make, words
from tests.drafters.toys import repeating
from tests.enumeration import EXACT, PAIRS, gap
from truedraft.core import Drafter, FinishReason, Law, Scores, Shape, Verdict
from truedraft.decode import Decoder
from truedraft.drafters import recycle
from truedraft.drafters.bets import Bettor
from truedraft.drafters.count_table import WIDTH, CountTable
from truedraft.drafters.pass_cost import FREE, PassCost
from truedraft.drafters.recycle import RecycleDrafter, top_shares
from truedraft.errors import VocabularyError
from truedraft.model import Model
from truedraft.planning.fixed import Fixed
from truedraft.request import Facts
from truedraft.toy import TabularTarget, random_language
from truedraft.verify import target_only

VOCABULARY = 8
texts = st.lists(st.integers(0, 2), min_size=1, max_size=30)
shapes = st.one_of(
    st.integers(0, 8).map(Shape.chain),
    st.builds(Shape, st.integers(1, 5), st.integers(1, 3), st.integers(1, 12)),
    st.lists(st.integers(1, 3), min_size=1, max_size=3).map(lambda branching: Shape.tree(*branching)),
)
WIDE = Shape(1, width=30, nodes=30)


def empty(vocabulary=VOCABULARY):
    return CountTable(1 << 10, vocabulary)


def row_of(**shares):
    """Logits of the tokens named t0, t1, ...; what is left is spread over the others."""
    named = {int(name[1:]): share for name, share in shares.items()}
    rest = (1 - sum(named.values())) / (VOCABULARY - len(named))
    return torch.tensor([named.get(token, rest) for token in range(VOCABULARY)]).log()


def see(drafter, session, rows, path, emitted):
    """One round: the target's rows at every node, the accepted path, the emitted tokens."""
    session.extend(emitted)
    drafter.observe([session], [Verdict(tuple(path), tuple(emitted))], [Scores(torch.stack(rows))])


def chances(bet):
    return dict(zip(bet.draft.tree.tokens[1:], bet.chances[1:], strict=True))


# ── guesses ───────────────────────────────────────────────────────────────────────────────────────────────────────


def latest_most(rows):
    """The running mean in which the newest row counts as documented."""
    mean = {}
    for seen, shares in enumerate(rows, start=1):
        news = max(1 / seen, recycle._NEWS)
        mean = {t: mean.get(t, 0.0) * (1 - news) + shares.get(t, 0.0) * news for t in {*mean, *shares}}
    return mean


def favouring(said, rows):
    """The plain mean, with the tokens that were said before in favour."""
    mean = {t: sum(shares.get(t, 0.0) for shares in rows) / len(rows) for shares in rows for t in shares}
    favoured = {t: share * (recycle._SAID if t in said else 1) for t, share in mean.items()}
    return {t: share * sum(mean.values()) / sum(favoured.values()) for t, share in favoured.items()}


def expected_guesses(text, own, table):
    """Interpolated back-off over lists of (context, shares), plainly."""
    left, found = 1.0, {}
    for order in range(min(recycle._ORDERS, len(text)), 0, -1):
        for memory, trusts in ((own, recycle._OWN_TRUST), (table, recycle._TABLE_TRUST)):
            rows = [shares for context, shares in memory if context[-order:] == text[-order:] and len(context) >= order]
            if not rows:
                continue
            trust = left * trusts[order - 1][min(len(rows), recycle._SURE)]
            for token, share in (latest_most(rows) if memory is own else favouring(set(text), rows)).items():
                found[token] = found.get(token, 0.0) + trust * share
            left -= trust
    return found


@given(texts)
def test_a_prompt_teaches_what_followed_its_contexts(text):
    taught = [(text[:end], {text[end]: 1.0}) for end in range(len(text))]
    bet = RecycleDrafter(empty(), passes=FREE).bet(make(text), WIDE)
    assert chances(bet) == pytest.approx(expected_guesses(text, taught, []))


@given(texts, st.lists(st.integers(0, 2), min_size=1, max_size=12), st.booleans())
def test_scores_teach_the_targets_own_probabilities(text, emitted, share):
    drafter, session, table = RecycleDrafter(empty(), passes=FREE, share=share), make(text), []
    taught = [(text[:end], {text[end]: 1.0}) for end in range(len(text))]
    language = random_language(VOCABULARY, order=3, seed=2, scale=2.0)
    for token in emitted:
        logits = language(tuple(session.tokens))
        shares = dict(enumerate(logits.softmax(0).tolist()))
        taught.append((list(session.tokens), shares))
        table.append((list(session.tokens), shares))
        see(drafter, session, [logits], [], [token])
    found = chances(drafter.bet(session, WIDE))
    expected = expected_guesses(session.tokens, taught, table if share else [])
    assert found == pytest.approx(expected, abs=1e-3)


@given(texts, shapes)
def test_a_draft_keeps_to_its_shape_without_doubles_in_likely_order(text, shape):
    session = make(text)
    bet = RecycleDrafter(empty(), passes=FREE).bet(session, shape)
    assert bet.draft.law is Law.CHOSEN
    assert_within(bet.draft, session, shape)
    assert len(words(bet.draft)) == len(bet.draft)
    for node, children in enumerate(bet.draft.tree.children):
        likelihood = [bet.chances[child] for child in children]
        assert likelihood == sorted(likelihood, reverse=True)
        assert sum(likelihood) <= bet.chances[node] + 1e-9


def test_the_rows_of_an_accepted_path_teach_the_contexts_along_it():
    drafter, session = RecycleDrafter(empty(), passes=FREE), make([5])
    rows = [row_of(t1=0.9), row_of(t7=0.9), row_of(t2=0.9), row_of(t3=0.9)]  # of root, wrong sibling, 1, 2
    see(drafter, session, rows, [2, 3], [1, 2, 3])
    session.extend([4, 5])
    draft = drafter.bet(session, Shape.chain(3)).draft
    assert draft.tree.tokens == (5, 1, 2, 3)


def test_runners_up_are_drafted_as_siblings():
    drafter, session = RecycleDrafter(empty(), passes=PassCost.even(0.05)), make([5])
    see(drafter, session, [row_of(t1=0.5, t2=0.4)], [], [1])
    session.extend([5])
    assert drafter.bet(session, Shape(1, width=2, nodes=2)).draft.tree.tokens == (5, 1, 2)
    assert drafter.bet(session, Shape.chain(1)).draft.tree.tokens == (5, 1)


def test_a_longer_context_speaks_before_a_shorter_one():
    drafter, session = RecycleDrafter(empty(), passes=FREE), make([1, 5, 2, 5, 2, 5, 2])
    assert drafter.bet(session, Shape.chain(1)).draft.tree.tokens == (2, 5)
    session = make([3, 4, 5, 1, 0, 5, 2, 0, 5, 2, 0, 4, 5])
    bet = drafter.bet(session, Shape(1, 9, 9))
    assert bet.draft.tree.tokens[1] == 1  # once after (4, 5), against twice 2 after 5


def test_a_warm_table_drafts_at_once_and_certain_rows_count_more():
    table = empty()
    teacher = RecycleDrafter(table, share=True)
    for _ in range(20):
        see(teacher, make([0, 5]), [row_of(t1=0.97)], [], [1])
    see(teacher, make([0, 6]), [row_of(t1=0.97)], [], [1])
    pupil = RecycleDrafter(table, passes=FREE)
    often, once = (pupil.bet(make([0, last]), Shape.chain(1)).chances[1] for last in (5, 6))
    assert 1 > often > once > 0.1


def test_nothing_known_nothing_is_drafted():
    drafter = RecycleDrafter(empty(1000))
    assert len(drafter.propose([make(range(50))], [Shape.chain(5)])[0]) == 0
    assert len(drafter.propose([make([5])], [Shape.tree(3, 3)])[0]) == 0
    assert len(drafter.propose([make([5, 5, 5])], [Shape(0)])[0]) == 0


def test_trust_grows_with_the_count():
    for trusts in (recycle._OWN_TRUST, recycle._TABLE_TRUST):
        assert len(trusts) == recycle._ORDERS
        for trust in trusts:
            assert trust[0] == 0 and all(0 < each < 1 for each in trust[1:])


def test_rows_of_a_session_stay_small():
    text = [token for step in range(2, 400) for token in (1, step)]
    bet = RecycleDrafter(empty(5000), passes=FREE).bet(make([*text, 1]), Shape(1, width=500, nodes=500))
    assert 0 < len(bet.draft) <= 30


def test_of_a_long_prompt_the_end_is_learned(monkeypatch):
    monkeypatch.setattr(recycle, "_LONGEST", 10)
    drafter, text = RecycleDrafter(empty(100), passes=FREE), [1, 2, 3, *range(20, 40), 1]
    session = make(text)
    assert len(drafter.bet(session, Shape.chain(1)).draft) == 0
    session.extend([35])
    assert drafter.bet(session, Shape.chain(1)).draft.tree.tokens == (35, 36)


# ── scores ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_top_shares_are_the_softmaxs_largest(dtype):
    logits = (4 * torch.randn(5, 50, generator=torch.Generator().manual_seed(0))).to(dtype)
    found = top_shares(Scores(logits), (0, 3))
    for node, (tokens, shares) in zip((0, 3), found, strict=True):
        row = logits[node].float().softmax(0)
        assert tokens == row.topk(WIDTH).indices.tolist()
        assert shares == pytest.approx(row.topk(WIDTH).values.tolist(), rel=1e-4)


def test_a_vocabulary_smaller_than_a_row_is_fine():
    tokens, shares = top_shares(Scores(torch.tensor([[0.0, 1.0, -math.inf]])), (0,))[0]
    assert tokens[:2] == [1, 0] and len(tokens) == 3 and sum(shares) == pytest.approx(1)
    table = CountTable(64, 3)
    drafter, session = RecycleDrafter(table, share=True), make([0], vocabulary=3)
    session.extend([1])
    drafter.observe([session], [Verdict((), (1,))], [Scores(torch.tensor([[0.0, 1.0, -math.inf]]))])
    assert len(table) == 1


def test_scores_of_another_vocabulary_are_refused():
    drafter, session = RecycleDrafter(CountTable(64, VOCABULARY - 1)), make([5])
    with pytest.raises(VocabularyError, match=str(VOCABULARY)):
        see(drafter, session, [row_of(t1=0.9)], [], [1])


# ── texts that change ─────────────────────────────────────────────────────────────────────────────────────────────


@given(texts, texts)
def test_an_edited_text_is_drafted_for_as_a_new_one(text, edited):
    drafter, session, shape = RecycleDrafter(empty(), passes=FREE), make(text), Shape(3, width=2, nodes=6)
    drafter.bet(session, shape)
    session.tokens[:] = edited
    fresh = RecycleDrafter(empty(), passes=FREE).bet(make(edited), shape)
    assert drafter.bet(session, shape).chances == pytest.approx(fresh.chances)


def test_a_text_cut_by_its_end_teaches_what_was_scored():
    table = empty()
    drafter, session = RecycleDrafter(table, share=True), make([4, 5], max_new_tokens=1)
    drafter.propose([session], [Shape(0)])
    session.extend([1])
    assert session.finish is FinishReason.LENGTH
    rows = [row_of(t1=0.9), row_of(t2=0.9)]
    drafter.observe([session], [Verdict((1,), (1, 2))], [Scores(torch.stack(rows))])
    drafter.release(session)
    assert RecycleDrafter(table).bet(make([4, 5]), Shape.chain(2)).draft.tree.tokens == (5, 1, 2)


def test_rounds_in_which_another_drafted_are_learned_from():
    asked, watching = (RecycleDrafter(empty(), passes=FREE) for _ in range(2))
    one, other = make([5, 6]), make([5, 6])
    for drafter, session in ((asked, one), (watching, other)):
        for emitted in ([1, 2], [5, 6], [1]):
            if drafter is asked:
                drafter.bet(session, WIDE)
            rows = [row_of(**{f"t{token}": 0.8}) for token in emitted]
            see(drafter, session, rows, range(1, len(emitted)), emitted)
    assert asked.bet(one, WIDE).chances == watching.bet(other, WIDE).chances


# ── whose scores ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_one_request_taught_is_no_other_requests_draft():
    table = empty()
    drafter = RecycleDrafter(table, passes=FREE)
    secret = make([3, 1, 4, 3, 1, 4])
    for token in (3, 1, 4):
        drafter.bet(secret, WIDE)
        see(drafter, secret, [row_of(t3=0.3, t1=0.3, t4=0.3)], [], [token])
    assert len(drafter.bet(make([3]), WIDE).draft) == 0  # while it runs
    drafter.release(secret)
    assert len(drafter.bet(make([3]), WIDE).draft) == 0  # and after
    assert len(table) == 0


def test_what_is_shared_is_drafted_for_others_but_prompts_are_not():
    table = empty()
    drafter = RecycleDrafter(table, passes=FREE, share=True)
    session = make([3, 1, 4, 1])
    drafter.bet(session, WIDE)
    see(drafter, session, [row_of(t5=0.9)], [], [5])
    drafter.release(session)
    assert drafter.bet(make([1]), Shape.chain(1)).draft.tree.tokens == (1, 5)
    assert len(drafter.bet(make([3]), WIDE).draft) == 0


def test_sessions_share_nothing_and_keep_their_order():
    drafter = RecycleDrafter(empty(), passes=FREE)
    one, other, third = make([1, 2, 1]), make([1, 5, 1]), make([1, 7])
    drafts = drafter.propose([one, other, third], [Shape.chain(1)] * 3)
    assert [words(draft) for draft in drafts] == [{(2,)}, {(5,)}, set()]
    drafts = drafter.propose([third, one], [Shape.chain(1)] * 2)
    assert [words(draft) for draft in drafts] == [set(), {(2,)}]


def test_a_session_is_released():
    drafter, session = RecycleDrafter(empty()), make([1, 2, 1])
    drafter.release(session)
    drafter.propose([session], [Shape.chain(1)])
    drafter.release(session)
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None


# ── in the round ──────────────────────────────────────────────────────────────────────────────────────────────────


def generate(language, prompts, shape, batch=1, **parameters):
    drafter = RecycleDrafter(empty(), passes=FREE, share=True)
    assert isinstance(drafter, Drafter) and isinstance(drafter, Bettor)
    decoder = Decoder(TabularTarget(language), drafter, target_only.RULE, Fixed(shape))
    return Model(decoder, Facts(vocabulary=VOCABULARY), batch=batch).generate(prompts, **parameters)


@pytest.mark.parametrize("shape", [*map(Shape.chain, range(1, 6)), Shape.tree(2, 2, 1), Shape(6, 3, 10)], ids=str)
@pytest.mark.parametrize("batch", [1, 4])
def test_greedy_text_is_plain_decodings(shape, batch):
    language = repeating(VOCABULARY, 3)
    prompts = [[2] * 6, [1, 2, 3, 1, 2, 3], [5], [7, 6, 5, 4, 7, 6]]
    plain = generate(language, prompts, Shape(0), max_new_tokens=40)
    drafted = generate(language, prompts, shape, batch=batch, max_new_tokens=40)
    assert [result.token_ids for result in drafted] == [result.token_ids for result in plain]
    assert sum(result.statistics.accepted for result in drafted) > 10
    assert sum(result.statistics.drafted - result.statistics.accepted for result in drafted) > 10


def test_a_language_of_short_contexts_is_learned_by_listening():
    language = random_language(VOCABULARY, order=2, seed=5)
    result = generate(language, [1, 2], Shape(4, 2, 8), temperature=1.0, seed=1, max_new_tokens=600)
    late = generate(language, [1, 2], Shape(4, 2, 8), temperature=1.0, seed=1, max_new_tokens=100)
    assert result.statistics.tokens_per_pass > late.statistics.tokens_per_pass > 1.2


@pytest.mark.parametrize("room", range(1, 8))
def test_the_limit_is_reached_exactly(room):
    result = generate(repeating(VOCABULARY, 1), [3, 3, 3, 3], Shape.chain(6), max_new_tokens=room)
    assert len(result.token_ids) == room
    assert result.finish_reason == "length"


@pytest.mark.parametrize("pair", ["V=2", "V=3", "zeros in p", "one-hot p"])
@pytest.mark.parametrize("shape", [Shape.chain(2), Shape(2, width=2, nodes=4)], ids=str)
def test_the_joint_law_is_the_targets(pair, shape):
    table = CountTable(64, 4)
    generate_with = RecycleDrafter(table, share=True)
    for text in ([0, 1, 0], [0, 0, 1, 1], [0, 1, 1]):
        see(generate_with, make(text), [torch.tensor([2.0, 1.5, 0.0, -1.0])], [], [0])

    def draft(q, text, dice):
        return RecycleDrafter(table, passes=FREE).propose([make(text)], [shape])[0]

    assert len(draft(None, (0, 1), None)) > 0
    assert gap(target_only.RULE, draft, PAIRS[pair], length=4, rounds=2) < EXACT
