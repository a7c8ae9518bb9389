"""Every rule, under every law it is proved for, emits exactly the target's law; enumerated, not sampled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from _pytest.mark.structures import ParameterSet

from tests.enumeration import DEEP, EXACT, PAIRS, SHAPES, SINGLE, THIN, emitted_law, gap, grow
from truedraft import drawing
from truedraft.core import Draft, Law, Tree
from truedraft.verify import kseq, target_only
from truedraft.verify.auto import RULES

EXACT_RULES = [rule for rule in RULES.values() if rule.lossless and rule.name not in {"auto", "coupled"}]
BY_Q = [rule for rule in EXACT_RULES if rule.name != "target-only"]
DRAWN = [Law.CHOSEN, Law.SAMPLED, Law.SAMPLED_WITHOUT_REPLACEMENT, Law.GREEDY_DRAFT]
THIN_SHAPES = [(1, 1), (2,), (3,), (2, 1)]
SMALL = {name: pair for name, pair in PAIRS.items() if name not in {"V=4", "zeros", "disjoint"}}


@pytest.fixture(scope="module", autouse=True)
def remembered() -> Iterator[None]:
    """The threshold of the same rows is not searched for again on every walk: it is the same number."""
    known: dict[tuple[bytes, bytes, int], tuple[float, float]] = {}
    real = kseq.threshold

    def threshold(p: torch.Tensor, q: torch.Tensor, k: int) -> tuple[float, float]:
        said = p.numpy().tobytes(), q.numpy().tobytes(), k
        if said not in known:
            known[said] = real(p, q, k)
        return known[said]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kseq, "threshold", threshold)
        yield


def _combinations(shapes: list[tuple[int, ...]], pairs: dict, *, rules: list = EXACT_RULES) -> Iterator[ParameterSet]:
    """rule x law x shape x pair; those that take long are marked slow."""
    for rule in rules:
        for law in DRAWN:
            for shape in shapes:
                if law not in rule.laws or (rule.chains and set(shape) != {1}):
                    continue
                for name, pair in pairs.items():
                    many = name == "V=4" and shape in {(2, 2), (3, 1)}
                    marks = [pytest.mark.slow] if many else []
                    yield pytest.param(rule, law, shape, pair, id=f"{rule.name}-{law}-{shape}-{name}", marks=marks)


@pytest.mark.parametrize(("rule", "law", "shape", "pair"), list(_combinations(SHAPES, PAIRS)))
def test_one_round(rule, law, shape, pair):
    assert gap(rule, grow(law, shape), pair, length=len(shape) + 1) < EXACT


@pytest.mark.parametrize(("rule", "law", "shape", "pair"), list(_combinations(DEEP, {"V=2": PAIRS["V=2"]})))
def test_deep_trees(rule, law, shape, pair):
    assert gap(rule, grow(law, shape), pair, length=len(shape) + 1) < EXACT


@pytest.mark.parametrize(("rule", "law", "shape", "pair"), list(_combinations(THIN_SHAPES, THIN, rules=BY_Q)))
def test_what_little_is_left_of_a_certain_q(rule, law, shape, pair):
    """Without the tokens that went before, q may have less mass than one over float32's largest number."""
    assert gap(rule, grow(law, shape), pair, length=len(shape) + 1) < SINGLE


@pytest.mark.parametrize("name", ["greedy-draft", "traversal", "auto"])
def test_a_low_temperature_leaves_the_second_token_its_chance(name):
    p, q = torch.tensor([0.3, 0.7, 0.0]), torch.softmax(torch.tensor([8.0, 0.0, -20.0]) / 0.1, 0)
    law = emitted_law(RULES[name], grow(Law.GREEDY_DRAFT, (2,)), lambda text: p, lambda text: q, length=1)
    assert law[(1,)] == pytest.approx(0.7, abs=SINGLE)


@pytest.mark.parametrize(("rule", "law", "shape", "pair"), list(_combinations([(1, 1), (2,), (2, 1)], SMALL)))
def test_two_rounds(rule, law, shape, pair):
    """The second round drafts after whatever the first one emitted."""
    assert gap(rule, grow(law, shape), pair, length=4, rounds=2) < EXACT


def _shape_by_path(law):
    """A tree whose shape depends on the path to a node: an even token is followed by children, an odd one is not."""
    draw = {Law.SAMPLED: drawing.sampled, Law.SAMPLED_WITHOUT_REPLACEMENT: drawing.without_replacement}[law]

    def draft(q, text, dice):
        tokens, parents, texts, rows = [text[-1]], [-1], [text], []
        for node in range(100):
            if node == len(tokens):
                break
            depth = len(texts[node]) - len(text)
            width = 2 if depth == 0 else 1 + tokens[node] if depth == 1 and tokens[node] % 2 == 0 else 0
            drawn = draw(q(texts[node]), width, dice)
            rows.append(q(texts[node]) if drawn else None)
            for token in drawn:
                tokens.append(token)
                parents.append(node)
                texts.append((*texts[node], token))
        return Draft(Tree(tuple(tokens), tuple(parents)), law, tuple(rows))

    return draft


def _chain_by_confidence(q, text, dice):
    """A chain that goes on only while the token just drawn, which it keeps, was likely."""
    tokens, rows = [text[-1]], []
    while len(rows) < 3:
        row = q((*text, *tokens[1:]))
        tokens.append(dice.categorical(row))
        rows.append(row)
        if row[tokens[-1]] < 0.4:
            break
    return Draft(Tree.chain(tokens), Law.SAMPLED, (*rows, None))


@pytest.mark.parametrize("pair", SMALL.values(), ids=SMALL.keys())
@pytest.mark.parametrize("name", ["token", "block", "traversal", "kseq", "auto"])
def test_a_chain_may_stop_after_an_unlikely_token_that_it_keeps(name, pair):
    assert gap(RULES[name], _chain_by_confidence, pair, length=4) < EXACT


@pytest.mark.parametrize("pair", SMALL.values(), ids=SMALL.keys())
@pytest.mark.parametrize("law", [Law.SAMPLED, Law.SAMPLED_WITHOUT_REPLACEMENT])
@pytest.mark.parametrize("name", ["token", "traversal", "auto"])
def test_a_trees_shape_may_depend_on_the_path(name, law, pair):
    assert gap(RULES[name], _shape_by_path(law), pair, length=3) < EXACT


def _merged(q, text, dice):
    """Draws of two drafters, merged without duplicates, an unlikely one left out; the rule knows nothing of it."""
    first, second = grow(Law.SAMPLED, (2, 1))(q, text, dice).tree, dice.categorical(q(text))
    tokens, parents, seen = [text[-1]], [-1], {}
    for node, parent in enumerate(first.parents[1:], start=1):
        place = (0 if parent == 0 else seen.get(first.tokens[parent], 0), first.tokens[node])
        if place not in seen:
            seen[place] = seen[first.tokens[node]] = len(tokens)
            tokens.append(first.tokens[node])
            parents.append(place[0])
    if q(text)[second] > 0.3 and (0, second) not in seen:
        tokens.append(second)
        parents.append(0)
    return Draft(Tree(tuple(tokens), tuple(parents)))


def _ragged(q, text, dice):
    """A chosen tree of uneven branches, the second one the deepest, one of them a token of q = 0 perhaps."""
    size = len(q(text))
    return Draft(Tree((text[-1], 0, 1, 1 % size, 0, size - 1), (-1, 0, 0, 2, 3, 4)))


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
@pytest.mark.parametrize("drafting", [_merged, _ragged])
def test_target_only_takes_any_tree(drafting, pair):
    assert gap(target_only.RULE, drafting, pair, length=4) < EXACT


@pytest.mark.parametrize("pair", SMALL.values(), ids=SMALL.keys())
@pytest.mark.parametrize("rule", [*EXACT_RULES, RULES["typical-lossy"]], ids=lambda rule: rule.name)
def test_an_empty_draft_is_plain_decoding(rule, pair):
    assert gap(rule, lambda q, text, dice: Draft.empty(text[-1]), pair, length=2) < EXACT


def test_typical_acceptance_is_lossy_and_says_so():
    rule = RULES["typical-lossy"]
    assert not rule.lossless
    assert gap(rule, grow(Law.CHOSEN, (2,)), PAIRS["V=4"], length=2) > 0.05
