"""What a rule refuses, and what it does at the edges of floating point."""

from __future__ import annotations

import math

import pytest
import torch

from truedraft import drawing
from truedraft.core import Draft, Law, Rule, Tree, Verdict
from truedraft.dice import RandomDice
from truedraft.errors import LawError, ParameterError
from truedraft.noise import NoisyDice, SeededNoise, winners
from truedraft.verify.auto import RULES, best_rule, rule_named
from truedraft.verify.enumeration import Rows, expected_accepted, grow, outcomes, random_table
from truedraft.verify.typical import typical

LARGE = 151_936
"""A vocabulary at which float32 sums go wrong."""

each_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())


class Given:
    """Distributions from a list of rows."""

    def __init__(self, *rows: torch.Tensor, position: int = 1) -> None:
        self.rows = rows
        self.position = position

    def __getitem__(self, node: int) -> torch.Tensor:
        return self.rows[node]

    def only(self, node: int) -> int | None:
        return None


class Certain(Given):
    """The same where it is known that only one token can follow each node."""

    def only(self, node: int) -> int | None:
        return int(self.rows[node].argmax())


@pytest.mark.parametrize(
    ("law", "tokens"), [*((law, tokens) for law in Law for tokens in ((), (1,), (2, 1), (2, 3))), (Law.SAMPLED, (1, 1))]
)
def test_where_one_token_can_follow_it_does_under_every_law_and_nothing_is_drawn(law, tokens):
    """What the best rule makes of one-hot rows, without the rows; also with a sibling that was drawn twice."""
    rows = [torch.nn.functional.one_hot(torch.tensor(token), 4).double() for token in (1, 3, 0, 0)]
    draft = draft_of(law, torch.full((4,), 0.25, dtype=torch.float64), *tokens)
    rule = RULES["auto"]
    expected = rule.verify(draft, Given(*rows), dice())
    assert rule.verify(draft, Certain(*rows), dice=None) == expected
    if 1 in tokens:
        assert expected.tokens == (1, rows[expected.path[0]].argmax())


def test_a_drafted_token_of_no_probability_is_an_error_in_greedy_decoding_too():
    rows = torch.eye(3, dtype=torch.float64)
    draft = draft_of(Law.SAMPLED, rows[0], 1)
    with pytest.raises(LawError, match="q is 0"):
        RULES["auto"].verify(draft, Certain(rows[1], rows[2]), dice())


def test_where_one_node_on_the_way_leaves_a_choice_the_rule_decides():
    class Half(Certain):
        def only(self, node: int) -> int | None:
            return None if node else super().only(node)

    rows = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]], dtype=torch.float64)
    draft = draft_of(Law.CHOSEN, rows[0], 1)
    seen = {RULES["auto"].verify(draft, Half(*rows), dice(seed)).tokens for seed in range(40)}
    assert seen == {(1, 0), (1, 2)}


def dice(seed: int = 0) -> NoisyDice:
    return NoisyDice(RandomDice(seed), SeededNoise(seed))


def draft_of(law: Law, q: torch.Tensor, *tokens: int) -> Draft:
    """Siblings below a root."""
    tree = Tree((0, *tokens), (-1,) + (0,) * len(tokens))
    return Draft(tree, law, None if law is Law.CHOSEN else (q,) + (None,) * len(tokens))


# ── laws ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@each_rule
def test_a_rule_is_a_rule(rule):
    assert isinstance(rule, Rule)
    assert rule.lossless == ("lossy" not in rule.name)


@each_rule
@pytest.mark.parametrize("law", Law)
def test_a_law_without_a_proof_is_refused(rule, law):
    draft, p = draft_of(law, torch.tensor([0.5, 0.5]), 1), Given(*[torch.tensor([0.5, 0.5])] * 2)
    if law in rule.laws:
        assert rule.verify(draft, p, dice()).tokens
    else:
        with pytest.raises(LawError, match=rf"{rule.name} rule .* got a {law} draft"):
            rule.verify(draft, p, dice())


def test_the_laws_are_those_of_the_proofs():
    laws = {name: {str(law) for law in rule.laws} for name, rule in RULES.items()}
    every = {"chosen", "sampled", "sampled-without-replacement", "greedy-draft", "coupled"}
    assert laws == {
        "auto": every,
        "target-only": every - {"coupled"},
        "token": {"sampled", "sampled-without-replacement"},
        "block": {"sampled", "sampled-without-replacement", "greedy-draft"},
        "traversal": {"sampled", "sampled-without-replacement", "greedy-draft"},
        "greedy-draft": {"greedy-draft"},
        "kseq": {"sampled"},
        "coupled": every,
        "typical-lossy": every,
    }


def test_block_refuses_a_tree_that_branches():
    half = torch.tensor([0.5, 0.5])
    with pytest.raises(LawError, match="chains"):
        RULES["block"].verify(draft_of(Law.SAMPLED, half, 0, 1), Given(half, half, half), dice())


@pytest.mark.parametrize("name", ["token", "block", "traversal", "greedy-draft", "kseq", "auto"])
def test_a_drafted_token_of_no_probability_is_an_error(name):
    law = Law.GREEDY_DRAFT if name == "greedy-draft" else Law.SAMPLED
    p = Given(*[torch.tensor([0.5, 0.5])] * 2)
    for impossible in (0.0, math.nan):
        with pytest.raises(LawError, match="token 1 was drafted, yet its q is"):
            RULES[name].verify(draft_of(law, torch.tensor([1.0, impossible]), 1), p, dice())


def test_siblings_drawn_without_replacement_are_not_equal():
    half = torch.tensor([0.5, 0.5])
    zero = torch.tensor([0.0, 1.0])
    for name in ("token", "traversal"):
        with pytest.raises(LawError, match="token 0 was drafted"):
            RULES[name].verify(draft_of(Law.SAMPLED_WITHOUT_REPLACEMENT, half, 0, 0), Given(zero, zero, zero), dice())


@pytest.mark.parametrize("name", ["greedy-draft", "traversal"])
def test_nothing_is_drawn_once_q_is_exhausted(name):
    """The chosen sibling is all that q knows, so the other one cannot have been drawn."""
    p, q = torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0])
    with pytest.raises(LawError, match="token 1 was drafted, yet its q is 0"):
        RULES[name].verify(draft_of(Law.GREEDY_DRAFT, q, 0, 1), Given(p, p, p), dice())


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rules_by_name():
    assert next(iter(RULES)) == "auto"
    assert all(rule_named(name).name == name for name in RULES)
    with pytest.raises(ParameterError, match=r"'blok': expected one of auto, target-only"):
        rule_named("blok")


@pytest.mark.parametrize("is_chain", [True, False])
@pytest.mark.parametrize("law", Law)
def test_the_best_rule_is_lossless_and_proved(law, is_chain):
    best = best_rule(law, is_chain)
    assert best.lossless and law in best.laws and (is_chain or not best.chains)


@pytest.mark.parametrize("shape", [(1,), (1, 1), (2,), (2, 1)])
@pytest.mark.parametrize("law", [Law.CHOSEN, Law.SAMPLED, Law.SAMPLED_WITHOUT_REPLACEMENT, Law.GREEDY_DRAFT])
def test_no_rule_for_trees_accepts_more_than_the_best(law, shape):
    """Over random pairs, on average; k-SEQ may win on independent siblings, which nobody needs."""
    rules = [
        rule
        for rule in RULES.values()
        if rule.lossless and law in rule.laws and rule.name not in {"coupled", "kseq"} and not rule.chains
    ]
    pairs = [(random_table(3, seed), random_table(3, seed + 50)) for seed in range(8)]
    accepted = {rule.name: sum(expected_accepted(rule, grow(law, shape), p, q) for p, q in pairs) for rule in rules}
    assert max(accepted.values()) <= accepted["auto"] + 1e-9


# ── one-hot ───────────────────────────────────────────────────────────────────────────────────────────────────────


def hot(token: int, size: int = 5, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(token), size).to(dtype)


@each_rule
def test_greedy_decoding_accepts_exactly_what_the_target_says(rule):
    """p one-hot: the path is right up to the first wrong bet, wherever that stands, and the target's token follows."""
    answers = (3, 1, 4)
    for wrong in range(4):
        tokens = [answer if place < wrong else 0 for place, answer in enumerate(answers)]
        for law in rule.laws:
            q = None if law is Law.CHOSEN else (*[torch.full((5,), 0.2)] * 3, None)
            draft = Draft(Tree.chain((2, *tokens)), law, q)
            rows = Given(*map(hot, answers), hot(2))
            if rule.lossless:
                assert rule.verify(draft, rows, dice()) == Verdict(
                    tuple(range(1, wrong + 1)), (*answers, 2)[: wrong + 1]
                )


@pytest.mark.parametrize("name", ["token", "traversal", "kseq", "target-only", "auto"])
def test_duplicates_among_siblings(name):
    """A one-hot q draws the same token again and again; p decides once."""
    p, q = torch.tensor([0.25, 0.75], dtype=torch.float64), hot(0, 2, torch.float64)
    draft = draft_of(Law.SAMPLED, q, 0, 0, 0)
    chances = {0: 0.0, 1: 0.0}
    for chance, verdict in outcomes(lambda dice: RULES[name].verify(draft, Given(p, p, p, p), dice)):
        chances[verdict.tokens[0]] += chance
        assert (len(verdict.path) == 1) == (verdict.tokens[0] == 0)
    assert chances == pytest.approx({0: 0.25, 1: 0.75}, abs=1e-12)


# ── float32 and large vocabularies ────────────────────────────────────────────────────────────────────────────────


def rows(spread: float, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """p and q of a large vocabulary in float32; with a large spread most tokens underflow to 0."""
    generator = torch.Generator().manual_seed(0)
    logits = spread * torch.randn(LARGE, generator=generator)
    noisy = logits + torch.randn(LARGE, generator=generator)
    return torch.softmax(logits / temperature, 0), torch.softmax(noisy / temperature, 0)


DRAWS = {
    Law.SAMPLED: drawing.sampled,
    Law.SAMPLED_WITHOUT_REPLACEMENT: drawing.without_replacement,
    Law.GREEDY_DRAFT: drawing.greedy_draft,
    Law.CHOSEN: lambda q, k, dice: drawing.chosen(q, k),
    Law.COUPLED: lambda q, k, dice: drawing.coupled(q, k, dice.noise, 1),
}


@each_rule
@pytest.mark.parametrize(("spread", "temperature"), [(1.0, 1.0), (4.0, 0.6), (30.0, 0.1), (0.0, 1.0)])
def test_large_vocabularies_give_tokens_and_no_nan(rule, spread, temperature):
    p, q = rows(spread, temperature)
    for pair in ((p, q), (q, p), (p, p), (p, p * (1 + 1e-6)), (hot(7, LARGE), q), (p, hot(7, LARGE))):
        for law in rule.laws:
            for k in (1, 3):
                if rule.chains and k > 1:
                    continue
                chances = dice(k)
                drawn = DRAWS[law](pair[1], k, chances)
                verdict = rule.verify(draft_of(law, pair[1], *drawn), Given(*[pair[0]] * (len(drawn) + 1)), chances)
                assert all(0 <= token < LARGE for token in verdict.tokens)
                assert not rule.lossless or float(pair[0][verdict.tokens[0]]) > 0


@pytest.mark.parametrize("name", ["token", "block", "traversal", "greedy-draft", "kseq"])
def test_equal_distributions_are_always_accepted(name):
    p, _ = rows(4.0, 0.6)
    rule, chances = RULES[name], dice()
    law = Law.GREEDY_DRAFT if name == "greedy-draft" else Law.SAMPLED
    for _ in range(20):
        draft = draft_of(law, p, chances.categorical(p))
        assert rule.verify(draft, Given(p, p), chances).path == (1,)


def test_a_block_of_impossible_bets_is_rejected_without_underflow():
    """Ratios of 1e-30 multiply to less than float64 can hold."""
    p = torch.tensor([1e-30, 1.0])
    q = torch.tensor([1.0, 1e-30])
    draft = Draft(Tree.chain([1] + [0] * 20), Law.SAMPLED, (*[q] * 20, None))
    for name in ("block", "traversal", "token"):
        assert RULES[name].verify(draft, Given(*[p] * 21), dice()) == Verdict((), (1,))


# ── coupled ───────────────────────────────────────────────────────────────────────────────────────────────────────


def written(p, dice_, length):
    """Plain decoding with seeded noise."""
    text = (0,)
    while len(text) <= length:
        text += (winners(p(text), 1, dice_.noise, len(text))[0],)
    return text[1 : length + 1]


@pytest.mark.parametrize("law", Law)
def test_coupled_text_does_not_depend_on_the_drafter(law):
    """Token for token plain seeded sampling, over many rounds, whatever the law and the shape of the drafts."""

    def grown(text, chances):
        if law is not Law.COUPLED:
            return grow(law, (2, 2))(q, text, chances)
        first = drawing.coupled(q(text), 2, chances.noise, len(text))
        second = drawing.coupled(q((*text, first[0])), 2, chances.noise, len(text) + 1)
        tree = Tree((text[-1], *first, *second), (-1, 0, 0, 1, 1))
        return Draft(tree, law, (q(text), q((*text, first[0])), None, None, None))

    p, q = random_table(4, 1), random_table(4, 2)
    accepted = 0
    for seed in range(10):
        chances, text = dice(seed), (0,)
        while len(text) <= 30:
            draft = grown(text, chances)
            verdict = RULES["coupled"].verify(draft, Rows(p, text, draft.tree), chances)
            text += verdict.tokens
            accepted += len(verdict.path)
        assert text[1:31] == written(p, dice(seed), 30)
    assert accepted > 100


def test_coupled_needs_dice_with_noise():
    half = torch.tensor([0.5, 0.5])
    with pytest.raises(ParameterError, match="RandomDice"):
        RULES["coupled"].verify(draft_of(Law.CHOSEN, half, 1), Given(half, half), RandomDice(0))


# ── typical ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_typical_acceptance_keeps_the_longest_path_of_typical_tokens():
    tree = Tree((0, 1, 2, 3, 4), (-1, 0, 0, 2, 1))
    sure = torch.tensor([0.0, 0.45, 0.45, 0.05, 0.05])
    p = Given(sure, sure, torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0]), hot(1), sure)
    assert RULES["typical-lossy"].verify(Draft(tree), p, dice()) == Verdict((2, 3), (2, 3, 1))
    surprising = Draft(Tree((0, 3, 4), (-1, 0, 0)))
    assert RULES["typical-lossy"].verify(surprising, p, dice()).path == ()
    assert typical(epsilon=0.04).verify(surprising, p, dice()).path == (1,)


@pytest.mark.parametrize("thresholds", [(0.0, 0.3), (0.09, 1.0), (-1.0, 0.5), (math.nan, 0.5)])
def test_typical_thresholds_lie_between_0_and_1(thresholds):
    with pytest.raises(ParameterError, match="epsilon and delta"):
        typical(*thresholds)
