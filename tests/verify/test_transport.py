"""The bound against brute force and linear programming; rules against the bound and against each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from tests.enumeration import expected_accepted, grow, random_table
from truedraft.core import Law
from truedraft.errors import ParameterError
from truedraft.verify import expected, transport
from truedraft.verify.auto import RULES

K = (1, 2, 3, 4)


def random_pair(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sharp and flat, some with impossible tokens."""
    generator = np.random.default_rng(seed)
    p, q = (generator.dirichlet(np.full(size, generator.choice([0.3, 1.0, 3.0]))) for _ in range(2))
    if seed % 4 == 0:
        q[generator.integers(size)] = 0.0
    if seed % 5 == 0:
        p[generator.integers(size)] = 0.0
    return p / p.sum(), q / q.sum()


def drafts(q: np.ndarray, k: int, *, replace: bool) -> dict[frozenset[int], float]:
    """Probability of every set of drafted tokens, by enumeration."""
    sets: dict[frozenset[int], float] = {}
    support = [int(token) for token in np.flatnonzero(q)]
    orders = itertools.product(support, repeat=k) if replace else itertools.permutations(support, min(k, len(support)))
    for order in orders:
        chance, left = 1.0, set(support)
        for token in order:
            chance *= q[token] if replace else q[token] / sum(q[other] for other in left)
            left.discard(token)
        sets[frozenset(order)] = sets.get(frozenset(order), 0.0) + chance
    return sets


def by_programming(p: np.ndarray, sets: dict[frozenset[int], float]) -> float:
    """Most mass that can flow from sets to tokens in them: the transport problem itself."""
    flows = [(place, token) for place, tokens in enumerate(sets) for token in tokens]
    limits = np.zeros((len(sets) + len(p), len(flows)))
    for column, (place, token) in enumerate(flows):
        limits[place, column] = limits[len(sets) + token, column] = 1.0
    return -float(linprog(-np.ones(len(flows)), A_ub=limits, b_ub=[*sets.values(), *p]).fun)


def by_subsets(p: np.ndarray, sets: dict[frozenset[int], float]) -> float:
    """The dual over all subsets of the vocabulary."""
    tokens = range(len(p))
    subsets = [set(some) for size in range(len(p) + 1) for some in itertools.combinations(tokens, size)]
    return 1.0 + min(
        sum(p[token] for token in subset) - sum(chance for inside, chance in sets.items() if inside <= subset)
        for subset in subsets
    )


BOUNDS = {True: transport.independent_bound, False: transport.without_replacement_bound}


@pytest.mark.parametrize("k", K)
@pytest.mark.parametrize("replace", [True, False], ids=["independent", "without-replacement"])
def test_the_bound_is_the_optimum(replace, k):
    for seed in range(20):
        p, q = random_pair(3 + seed % 4, seed)
        bound = BOUNDS[replace](torch.tensor(p), torch.tensor(q), k)
        sets = drafts(q, k, replace=replace)
        assert bound == pytest.approx(by_subsets(p, sets), abs=1e-12)
        assert bound == pytest.approx(by_programming(p, sets), abs=1e-9)


@pytest.mark.parametrize("k", K)
def test_the_bound_of_certain_drafters(k):
    """q so sharp that some draws are certain and others come from what float64 can hardly tell from nothing."""
    p = np.array([0.1, 0.2, 0.3, 0.15, 0.25])
    for q in ([1.0, 1e-30, 3e-30, 1e-32, 0.0], [0.6, 0.4, 2e-17, 1e-17, 3e-20], [1 - 3e-6, 1e-6, 2e-6, 1e-19, 1e-15]):
        q = np.array(q) / sum(q)
        bound = transport.without_replacement_bound(torch.tensor(p), torch.tensor(q), k)
        assert bound == pytest.approx(by_subsets(p, drafts(q, k, replace=False)), abs=1e-9)


def test_the_bound_at_a_large_vocabulary():
    """Equal tokens can be split without changing the problem, if the draft never holds two parts of one."""
    p, q = (torch.tensor(row) for row in random_pair(6, 1))
    many = 25_000
    whole = transport.independent_bound(p, q, 3)
    assert transport.independent_bound(p.repeat(many) / many, q.repeat(many) / many, 3) == pytest.approx(
        whole, abs=1e-9
    )
    parts = transport.without_replacement_bound(p.repeat(many) / many, q.repeat(many) / many, 3)
    assert parts == pytest.approx(whole, abs=1e-4)


def test_no_draft_has_no_bound():
    half = torch.tensor([0.5, 0.5])
    for bound in BOUNDS.values():
        with pytest.raises(ParameterError, match="k = 0"):
            bound(half, half, 0)


# ── closed forms ──────────────────────────────────────────────────────────────────────────────────────────────────


def accepted(rule: str, law: Law, p: np.ndarray, q: np.ndarray, k: int) -> float:
    """By enumeration."""
    rows = torch.tensor(p), torch.tensor(q)
    return expected_accepted(RULES[rule], grow(law, (k,)), lambda text: rows[0], lambda text: rows[1])


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("k", [1, 2, 3])
def test_closed_forms_are_what_the_rules_do(k, seed):
    p, q = random_pair(4, seed)
    rows = torch.tensor(p), torch.tensor(q)
    for name, form in expected.ACCEPTANCE.items():
        rule, law = name.split()
        rounding = 1e-3 if rule == "kseq" else 1e-12  # its threshold is rounded up
        assert form(*rows, k) == pytest.approx(accepted(rule, Law(law), p, q, k), abs=rounding), name
    assert expected.single(*rows) == pytest.approx(accepted("token", Law.SAMPLED, p, q, 1), abs=1e-12)
    pair = accepted("token", Law.SAMPLED_WITHOUT_REPLACEMENT, p, q, 2)
    assert expected.recursive_without_replacement(*rows) == pytest.approx(pair, abs=1e-12)


CERTAIN = [[1.0, 1e-20, 3e-20, 1e-22], [1e-40, 3e-40, 1.0, 1e-50], [1.0, 0.0, 0.0, 0.0], [1e-20, 1.0, 0.0, 0.0]]


@pytest.mark.parametrize("q", CERTAIN, ids=str)
def test_closed_forms_of_certain_drafters(q):
    """The second of two siblings comes from what float64 can hardly tell from nothing."""
    p, q = np.array([0.1, 0.2, 0.3, 0.4]), np.array(q)
    rows = torch.tensor(p), torch.tensor(q)
    pair = accepted("token", Law.SAMPLED_WITHOUT_REPLACEMENT, p, q, 2)
    assert expected.recursive_without_replacement(*rows) == pytest.approx(pair, abs=1e-12)
    assert expected.greedy_draft(*rows, 2) == pytest.approx(accepted("greedy-draft", Law.GREEDY_DRAFT, p, q, 2))


def test_coupled_acceptance_against_its_definition_and_its_bounds():
    for seed in range(20):
        p, q = random_pair(5, seed)
        both = [token for token in range(5) if p[token] > 0 and q[token] > 0]
        direct = sum(1 / sum(max(p[y] / p[x], q[y] / q[x]) for y in range(5)) for x in both)
        distance = np.abs(p - q).sum() / 2
        form = expected.coupled(torch.tensor(p), torch.tensor(q))
        assert form == pytest.approx(direct, abs=1e-12)
        assert (1 - distance) / (1 + distance) - 1e-12 <= form <= 1 - distance + 1e-12


# ── who accepts more ──────────────────────────────────────────────────────────────────────────────────────────────

TABLES = [(random_table(3, seed), random_table(3, seed + 100)) for seed in range(6)]


def in_one_round(rule: str, law: Law, shape: tuple[int, ...], pair: tuple) -> float:
    return expected_accepted(RULES[rule], grow(law, shape), *pair)


@pytest.mark.parametrize("pair", TABLES, ids=range(6))
@pytest.mark.parametrize("shape", [(1, 1), (1, 1, 1)])
def test_a_block_never_accepts_less_than_its_tokens(shape, pair):
    token, block, traversal = (in_one_round(rule, Law.SAMPLED, shape, pair) for rule in ("token", "block", "traversal"))
    assert token < block + 1e-12
    assert traversal == pytest.approx(block, abs=1e-12)


BY_NODE = {
    Law.SAMPLED: "token",
    Law.SAMPLED_WITHOUT_REPLACEMENT: "token",
    Law.GREEDY_DRAFT: "greedy-draft",
}


@pytest.mark.parametrize("pair", TABLES, ids=range(6))
@pytest.mark.parametrize("law", BY_NODE)
@pytest.mark.parametrize("shape", [(2,), (2, 1), (2, 2)])
def test_traversal_never_accepts_less_than_node_by_node(shape, law, pair):
    by_node, traversal = (in_one_round(rule, law, shape, pair) for rule in (BY_NODE[law], "traversal"))
    assert by_node < traversal + 1e-12
    assert len(shape) > 1 or traversal == pytest.approx(by_node, abs=1e-12)


@pytest.mark.parametrize("law", [Law.SAMPLED, Law.SAMPLED_WITHOUT_REPLACEMENT])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_no_rule_accepts_more_than_the_bound(k, law):
    for seed in range(8):
        p, q = random_pair(4, seed)
        bound = BOUNDS[law is Law.SAMPLED](torch.tensor(p), torch.tensor(q), k)
        for rule in RULES.values():
            if rule.lossless and law in rule.laws and rule.name != "coupled" and (k == 1 or not rule.chains):
                assert accepted(rule.name, law, p, q, k) <= bound + 1e-12, rule.name


def test_the_toy_of_the_block_verification_paper():
    """Two tokens, p = (1/3, 2/3), q = (2/3, 1/3), two drafts: 10/9 accepted token by token, 11/9 as a block."""
    rows = torch.tensor([[1 / 3, 2 / 3], [2 / 3, 1 / 3]], dtype=torch.float64)
    pair = (lambda text: rows[0], lambda text: rows[1])
    assert in_one_round("token", Law.SAMPLED, (1, 1), pair) == pytest.approx(10 / 9, abs=1e-12)
    assert in_one_round("block", Law.SAMPLED, (1, 1), pair) == pytest.approx(11 / 9, abs=1e-12)
