"""The formulas and rules of the pages are twins of the Python ones: the same numbers, the same verdicts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from truedraft.core import Dice, Draft, Law, Rule, Tree
from truedraft.planning import account
from truedraft.verify import block, target_only, token

EXACT = 1e-12
RULES: dict[str, tuple[Rule, Law]] = {
    "token": (token.RULE, Law.SAMPLED),
    "block": (block.RULE, Law.SAMPLED),
    "target-only": (target_only.RULE, Law.CHOSEN),
}
IN_PAGE = {"token": "token", "block": "block", "target-only": "targetOnly"}


@pytest.fixture
def page(scripts: Callable[[str], Any]) -> Any:
    return scripts("dice")


class Rows:
    """The target's distribution after each node of a chain."""

    position = 1

    def __init__(self, rows: list[list[float]]) -> None:
        self._rows = torch.tensor(rows, dtype=torch.float64)

    def __getitem__(self, node: int) -> Tensor:
        return self._rows[node]

    def only(self, node: int) -> int | None:
        return None


class Recorder:
    """Dice that throw given numbers and remember what they were asked."""

    def __init__(self, uniform: Callable[[], float]) -> None:
        self._uniform = uniform
        self.asked: list[list[float]] = []

    def coin(self, probability: float) -> bool:
        self.asked.append([min(1.0, probability)])
        return self._uniform() < probability

    def categorical(self, weights: Tensor) -> int:
        shares = (weights / weights.sum()).tolist()
        self.asked.append(shares)
        return pick(weights.tolist(), self._uniform())


def pick(weights: list[float], u: float) -> int:
    left, last = sum(weights) * u, 0
    for x, weight in enumerate(weights):
        if weight > 0:
            left, last = left - weight, x
            if left < 0:
                break
    return last


def draft_of(tokens: list[int], q: list[list[float]], law: Law) -> Draft:
    """A chain; its root is a token that nobody looks at."""
    rows = (*(torch.tensor(row, dtype=torch.float64) for row in q), None)
    return Draft(Tree.chain((0, *tokens)), law, None if law is Law.CHOSEN else rows)


# ── the account ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_account_agrees(page: Any) -> None:
    dice = random.Random(1)
    cases = []
    for _ in range(300):
        k = dice.randint(1, 12)
        rates = [round(dice.random(), 2) if dice.random() < 0.1 else dice.random() for _ in range(k)]
        load = {"batch": dice.choice([1, 1, 3, 40]), "ridge": dice.choice([1e300, 0.9, 17.5, 295.2])}
        cases.append(
            {"alpha": dice.random(), "decay": dice.random(), "c": dice.random(), "k": k, "rates": rates} | load
        )
    theirs = page.evaluate(
        """cases => cases.map(({alpha, decay, c, k, rates, batch, ridge}) => {
            const tokens = Account.expectedTokensByPosition(rates), load = {batch, ridge};
            const best = Account.sweetSpot(rates, c, load);
            return [Account.advise(rates, c, k, load), Account.expectedTokens(alpha, k), tokens,
                    Account.alphaFrom(tokens, k), Account.speedup(tokens, k, c, load), best.k, best.gain,
                    Account.passCost(batch * k, ridge), Account.ridgeOf(alpha, decay, c),
                    ...Account.decayedRates(alpha, decay, k)];
        })""",
        cases,
    )
    for case, row in zip(cases, theirs, strict=True):
        advice, *numbers = _account(**case)
        assert row[0] == advice
        assert row[1:] == pytest.approx(numbers, rel=EXACT)


def _account(*, alpha: float, decay: float, c: float, k: int, rates: list[float], **load: Any) -> list[Any]:
    tokens = account.expected_tokens_by_position(rates)
    return [
        str(account.advise(rates, c, k, **load)),
        account.expected_tokens(alpha, k),
        tokens,
        account.alpha_from(tokens, k),
        account.speedup(tokens, k, c, **load),
        *account.sweet_spot(rates, c, **load),
        account.pass_cost(load["batch"] * k, load["ridge"]),
        account.ridge_of(alpha, decay, c),
        *account.decayed_rates(alpha, decay, k),
    ]


# ── the rules ─────────────────────────────────────────────────────────────────────────────────────────────────────

REPLAY = """([name, cases]) => cases.map(({tokens, p, q, numbers}) => {
    const asked = [];
    let at = 0;
    const dice = {
        coin(probability) { asked.push([Math.min(1, probability)]); return numbers[at++] < probability; },
        categorical(weights) {
            const all = Array.from(weights), total = all.reduce((sum, weight) => sum + weight, 0);
            asked.push(all.map(weight => weight / total));
            return Random.pick(weights, numbers[at++]);
        },
    };
    const {accepted, token} = Rules[name]({tokens, q}, p, dice);
    return {accepted, token, asked};
})"""


@pytest.mark.parametrize("name", RULES)
def test_rules_ask_the_same_questions_and_give_the_same_verdicts(page: Any, name: str) -> None:
    rule, law = RULES[name]
    cases = list(rounds(law, count=300))
    theirs = page.evaluate(REPLAY, [IN_PAGE[name], cases])
    reached = set()
    for case, answer in zip(cases, theirs, strict=True):
        dice = Recorder(iter(case["numbers"]).__next__)
        verdict = rule.verify(draft_of(case["tokens"], case["q"], law), Rows(case["p"]), dice)
        assert (answer["accepted"], answer["token"]) == (len(verdict.path), verdict.tokens[-1])
        assert [len(row) for row in answer["asked"]] == [len(row) for row in dice.asked]
        for here, there in zip(dice.asked, answer["asked"], strict=True):
            assert there == pytest.approx(here, abs=EXACT)
        reached.add(len(verdict.path))
    assert reached >= {0, 1, 2, 3}  # rejections, corrections further down and bonus tokens all occurred


def rounds(law: Law, *, count: int) -> Iterator[dict[str, Any]]:
    """Chains on random pairs of p and q: some alike, some strangers, some with zeros."""
    dice = random.Random(f"rounds {law}")
    for number in range(count):
        k, size = number % 4 + 1, dice.randint(2, 7)
        p = [_row(dice, size) for _ in range(k + 1)]
        q = [_near(dice, row) if number % 3 else _row(dice, size) for row in p[:k]]
        tokens = [pick(row, dice.random()) for row in q]
        yield {"tokens": tokens, "p": p, "q": q, "numbers": [dice.random() for _ in range(2 * k + 2)]}


def _row(dice: random.Random, size: int) -> list[float]:
    weights = [dice.choice([0.0, dice.random(), dice.random() ** 4]) for _ in range(size)]
    weights[dice.randrange(size)] += 0.1
    return [weight / sum(weights) for weight in weights]


def _near(dice: random.Random, row: list[float]) -> list[float]:
    weights = [share * dice.uniform(0.5, 1.5) for share in row]
    return [weight / sum(weights) for weight in weights]


# ── the seeded run ────────────────────────────────────────────────────────────────────────────────────────────────


def sfc32(seed: int) -> Iterator[float]:
    """The generator of `random.js`."""
    mask = 0xFFFFFFFF
    a, b, c, counter = 0x9E3779B9, 0x243F6A88, seed & mask, 1

    def word() -> int:
        nonlocal a, b, c, counter
        out = (a + b + counter) & mask
        counter = (counter + 1) & mask
        a = b ^ (b >> 9)
        b = (c + (c << 3)) & mask
        c = (((c << 21) | (c >> 11)) + out) & mask
        return out

    for _ in range(16):
        word()
    while True:
        high = word() >> 5
        yield (high * 2**26 + (word() >> 6)) / 2**53


@pytest.mark.parametrize("seed", [0, 1, 2, 4294967295])
def test_generator_is_sfc32(page: Any, seed: int) -> None:
    theirs = page.evaluate("seed => {const u = Random.seeded(seed); return Array.from({length: 200}, u);}", seed)
    assert theirs == list(itertools.islice(sfc32(seed), 200))


@pytest.mark.parametrize("name", RULES)
def test_a_seeded_run_is_the_same_run(page: Any, name: str) -> None:
    """The whole game again, with Python's rules on the generator above: every count agrees."""
    pairs = page.evaluate("() => Presets.copy('story')")
    tally = page.evaluate(
        """rule => {
            const game = Simulation.create({pairs: Presets.copy("story"), k: 5, rule, seed: 11});
            Simulation.run(game, 400);
            return game.tally;
        }""",
        name,
    )
    rule, law = RULES[name]
    p, q, uniform = Rows(pairs["p"][:6]), pairs["q"][:5], sfc32(11).__next__
    counts = [[0] * 6 for _ in range(6)]
    for _ in range(400):
        dice: Dice = Recorder(uniform)
        tokens = [row.index(max(row)) if law is Law.CHOSEN else pick(row, uniform()) for row in q]
        verdict = rule.verify(draft_of(tokens, q, law), p, dice)
        for position, emitted in enumerate(verdict.tokens):
            counts[position][emitted] += 1
    assert tally["counts"] == counts
    assert tally["emitted"] == sum(map(sum, counts))


# ── theory and statistics ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("k", [1, 2, 3])
def test_survival_under_block_verification_by_enumeration(page: Any, k: int) -> None:
    """Pr(at least i tokens stand), summed over every drafted chain with Python's own chances of ending."""
    pairs = page.evaluate("() => Presets.copy('story')")
    p, q = pairs["p"][: k + 1], pairs["q"][:k]
    survival = [0.0] * (k + 1)
    for tokens in itertools.product(range(6), repeat=k):
        weight = 1.0
        for row, x in zip(q, tokens, strict=True):
            weight *= row[x]
        for length, chance in enumerate(_block_lengths(list(tokens), p, q)):
            for i in range(length + 1):
                survival[i] += weight * chance
    theirs = page.evaluate("([p, q]) => Rules.blockSurvival(p, q)", [p, q])
    assert theirs == pytest.approx(survival, abs=EXACT)


def _block_lengths(tokens: list[int], p: list[list[float]], q: list[list[float]]) -> list[float]:
    """Pr(exactly i tokens stand), i = 0 .. k, from the coins that the rule asks for when it always hears no."""
    asked: list[float] = []

    class Refusing:
        def coin(self, probability: float) -> bool:
            asked.append(min(1.0, probability))
            return probability >= 1.0

        def categorical(self, weights: Tensor) -> int:
            return int(weights.argmax())

    block.RULE.verify(draft_of(tokens, q, Law.SAMPLED), Rows(p), Refusing())
    lengths, left = [0.0] * (len(tokens) + 1), 1.0
    ends = len(block_ratios(tokens, p, q)) - 1
    for length, chance in zip(range(ends, -1, -1), asked, strict=False):
        lengths[length] = left * chance
        left *= 1 - chance
    return lengths


def block_ratios(tokens: list[int], p: list[list[float]], q: list[list[float]]) -> list[float]:
    ratios = [1.0]
    for x, over, under in zip(tokens, p, q, strict=False):
        if over[x] <= 0:
            break
        ratios.append(min(1.0, ratios[-1] * over[x] / under[x]))
    return ratios


def test_chi_square_tail_agrees_with_scipy(page: Any) -> None:
    cases = [(value, df) for df in (1, 2, 5, 30, 45, 200) for value in (0.01, 0.5, 3, 20, 45, 150, 700)]
    theirs = page.evaluate("cases => cases.map(([value, df]) => Statistics.chiSquareTail(value, df))", cases)
    for (value, df), tail in zip(cases, theirs, strict=True):
        assert tail == pytest.approx(float(stats.chi2.sf(value, df)), rel=1e-10, abs=1e-300)


def test_chi_square_statistic(page: Any) -> None:
    evaluate = "([counts, p]) => Statistics.chiSquare(counts, p)"
    counts, p = [30, 50, 20], [0.25, 0.55, 0.2]
    expected = stats.chisquare(counts, [25, 55, 20])
    ours = page.evaluate(evaluate, [counts, p])
    assert (ours["value"], ours["tail"]) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-10)
    pooled = page.evaluate(evaluate, [[60, 36, 2, 2], [0.6, 0.34, 0.03, 0.03]])  # the last two expect 3 each
    assert (pooled["df"], pooled["value"]) == (2, pytest.approx(4 / 34 + 4 / 6))
    joined = page.evaluate(evaluate, [[60, 38, 2], [0.6, 0.38, 0.02]])
    assert (joined["df"], joined["value"]) == (1, 0)
    assert page.evaluate(evaluate, [[99, 1], [1, 0]])["tail"] == 0  # what p excludes was emitted
    assert page.evaluate(evaluate, [[100, 0], [1, 0]])["df"] == 0
    assert page.evaluate(evaluate, [[0, 0], [0.5, 0.5]])["tail"] == 1
