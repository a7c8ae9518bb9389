from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from truedraft.dice import RandomDice
from truedraft.errors import ParameterError
from truedraft.noise import Noise, NoisyDice, SeededNoise, noise_of, winners

ALPHA = 1e-6
"""Every seed is fixed, so a test fails always or never; this is how unlikely a failure was when it was written."""


def uniforms(seed: int, position: int, tokens: int = 40_000) -> np.ndarray:
    return np.exp(-SeededNoise(seed).exponential(position, torch.arange(tokens)).numpy())


@pytest.mark.parametrize(("seed", "position"), [(0, 0), (0, 1), (1, 0), (12345, 4096), (2**63, 7), (2**70 + 1, 10**9)])
def test_the_noise_is_uniform_after_its_exponential(seed, position):
    counts, _ = np.histogram(uniforms(seed, position), bins=200, range=(0, 1))
    assert stats.chisquare(counts).pvalue > ALPHA


PAIRS = {
    "tokens": (uniforms(3, 5)[:-1], uniforms(3, 5)[1:]),
    "tokens, 2 apart": (uniforms(3, 5)[:-2], uniforms(3, 5)[2:]),
    "tokens, 64 apart": (uniforms(3, 5)[:-64], uniforms(3, 5)[64:]),
    "positions": (uniforms(3, 5), uniforms(3, 6)),
    "position and token": (uniforms(3, 5)[1:], uniforms(3, 6)[:-1]),
    "seeds": (uniforms(3, 5), uniforms(4, 5)),
    "seed and position": (uniforms(3, 5), uniforms(4, 4)),
    "seed and position swapped": (uniforms(3, 5), uniforms(5, 3)),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
def test_neighbours_are_independent(pair):
    counts, _, _ = np.histogram2d(*pair, bins=20, range=((0, 1), (0, 1)))
    assert stats.chi2_contingency(counts).pvalue > ALPHA
    assert stats.pearsonr(*pair).pvalue > ALPHA


def test_one_token_at_many_positions_is_uniform_too():
    token = torch.tensor([17])
    times = [float(SeededNoise(8).exponential(position, token)) for position in range(4000)]
    assert stats.kstest(times, "expon").pvalue > ALPHA


def test_a_token_has_the_same_noise_whoever_is_with_it():
    noise = SeededNoise(1)
    everyone = noise.exponential(9, torch.arange(50_000))
    some = torch.tensor([49_999, 3, 3, 8191, 8192, 20_000])
    assert torch.equal(noise.exponential(9, some), everyone[some])
    assert torch.equal(
        noise.exponential(9, torch.arange(100_000)[::2]), noise.exponential(9, torch.arange(0, 100_000, 2))
    )
    assert noise.exponential(9, torch.tensor([], dtype=torch.long)).shape == (0,)


def test_the_number_of_threads_changes_nothing():
    threads = torch.get_num_threads()
    one_or_two = []
    for count in (1, 2):
        torch.set_num_threads(count)
        one_or_two.append(SeededNoise(1).exponential(9, torch.arange(70_000)))
    torch.set_num_threads(threads)
    assert torch.equal(*one_or_two)


def mixed(word: int) -> int:
    """SplitMix64's finaliser in plain integers."""
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
    return word ^ word >> 31


def word(seed: int, position: int, stream: int, counter: int) -> int:
    stride, key = 0x9E3779B97F4A7C15, 0
    for number in (seed, position, stream):
        key = mixed((key + number * stride) % 2**64)
    return mixed((counter * stride + key) % 2**64)


def time_of(bits: int) -> float:
    return -np.log(((bits >> 11) + 0.5) / 2**53)


@pytest.mark.parametrize("token", [0, 1, 31, 40, 151_935])
@pytest.mark.parametrize(("seed", "position"), [(42, 100), (2**64 - 1, 10**6), (0, 0)])
def test_the_noise_is_fixed_for_ever(seed, position, token):
    """A seed that a user wrote down gives the same text in every later version."""
    group = word(seed, position, 0, token // 64)
    expected = time_of(group) / 64
    if group % 64 != token % 64:
        expected += time_of(word(seed, position, 1, token))
    assert float(SeededNoise(seed).exponential(position, torch.tensor([token]))) == pytest.approx(expected, rel=1e-14)


def test_the_earliest_of_a_group_is_one_of_its_members():
    noise = SeededNoise(6)
    for position in range(5):
        times = noise.exponential(position, torch.arange(640)).view(10, 64)
        assert torch.equal(times.amin(1), noise.earliest(position, 10))


def test_the_place_of_the_earliest_is_uniform():
    noise = SeededNoise(6)
    places = noise.exponential(3, torch.arange(64 * 5000)).view(5000, 64).argmin(1)
    assert stats.chisquare(np.bincount(places.numpy(), minlength=64)).pvalue > ALPHA


@pytest.mark.parametrize("size", [1, 63, 64, 65, 1000, 49_152])
@pytest.mark.parametrize("spread", [0.0, 2.0, 12.0])
def test_winners_are_the_fastest_of_all(size, spread):
    """The plain race over the whole vocabulary, without leaving anyone out."""
    generator = torch.Generator().manual_seed(size)
    weights = torch.softmax(spread * torch.randn(size, generator=generator, dtype=torch.float64), 0)
    for position in range(10):
        speed = weights / SeededNoise(9).exponential(position, torch.arange(size))
        for k in (1, 3):
            first = speed.topk(min(k, size)).indices.tolist()
            assert winners(weights, k, SeededNoise(9), position) == first


def test_the_winner_is_distributed_as_the_weights():
    weights = torch.tensor([0.5, 0.0, 0.125, 1.0, 0.375])
    first = [winners(weights, 1, SeededNoise(2), position)[0] for position in range(8_000)]
    counts = np.bincount(first, minlength=5)
    assert counts[1] == 0
    share = weights.numpy()[[0, 2, 3, 4]] / 2.0
    assert stats.chisquare(counts[[0, 2, 3, 4]], share * 8_000).pvalue > ALPHA


def test_winners_are_successive_draws():
    weights = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    orders = [tuple(winners(weights, 2, SeededNoise(3), position)) for position in range(8_000)]
    pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    chance = [float(weights[a] * weights[b] / (1 - weights[a])) for a, b in pairs]
    assert stats.chisquare([orders.count(pair) for pair in pairs], np.array(chance) * 8_000).pvalue > ALPHA


def test_there_are_no_more_winners_than_tokens_with_weight():
    weights = torch.tensor([0.0, 0.7, 0.0, 0.3])
    assert sorted(winners(weights, 4, SeededNoise(0), 0)) == [1, 3]
    assert winners(weights, 0, SeededNoise(0), 0) == []
    assert winners(torch.zeros(3), 1, SeededNoise(0), 0) == []


def test_scaling_the_weights_changes_no_winner():
    weights = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    for position in range(50):
        assert winners(weights, 3, SeededNoise(4), position) == winners(weights / 8, 3, SeededNoise(4), position)


def test_dice_carry_the_noise():
    dice = NoisyDice(RandomDice(0), SeededNoise(1))
    assert isinstance(dice, Noise)
    assert torch.equal(noise_of(dice).exponential(3, torch.arange(5)), SeededNoise(1).exponential(3, torch.arange(5)))
    twin = RandomDice(0)
    assert [dice.coin(0.5) for _ in range(20)] == [twin.coin(0.5) for _ in range(20)]
    assert dice.categorical(torch.ones(50)) == twin.categorical(torch.ones(50))


def test_dice_without_noise_are_refused():
    class Plain:
        def coin(self, probability):
            return True

        def categorical(self, weights):
            return 0

    with pytest.raises(ParameterError, match="Plain"):
        noise_of(Plain())
