import random
from dataclasses import replace

import pytest

from tests.planning.test_profile import roofline
from truedraft.planning.account import expected_tokens, speedup
from truedraft.planning.counts import Counts
from truedraft.planning.predict import overall_speedup, predicted_speedup, resampled
from truedraft.planning.profile import DraftCost, Profile


def chains(alpha, k, rounds=20_000, seed=0):
    """Counts of rounds that always draft k tokens, each accepted with probability alpha if all before were."""
    dice = random.Random(seed)
    accepted = [0] * (k + 1)
    for _ in range(rounds):
        accepted[next((place for place in range(k) if dice.random() >= alpha), k)] += 1
    tried = tuple(sum(accepted[level:]) for level in range(k))
    return Counts(drafted=(0,) * k + (rounds,), accepted=tuple(accepted), tried=tried, hits=(*tried[1:], accepted[k]))


def costing(c, ridge=1e9):
    return Profile(roofline(ridge).passes, (DraftCost("none", 1, 0.0, 0.0), DraftCost("model", 1, 0.0, c)))


@pytest.mark.parametrize(("alpha", "c", "k"), [(0.7, 0.1, 4), (0.7, 0.5, 4), (0.9, 0.1, 8)])
def test_on_flat_passes_it_is_the_account(alpha, c, k):
    account = speedup(expected_tokens(alpha, k), k, c)
    assert predicted_speedup(chains(alpha, k), costing(c), "model") == pytest.approx(account, rel=0.02)


def test_counts_of_long_chains_predict_shorter_ones():
    counts = chains(0.7, 8)
    for k in (1, 2, 4):
        account = speedup(expected_tokens(0.7, k), k, 0.1)
        assert predicted_speedup(counts, costing(0.1), "model", draft_tokens=k) == pytest.approx(account, rel=0.02)


def test_a_trees_steps_are_its_levels():
    tree = Counts(drafted=(0,) * 6 + (100,), accepted=(20, 30, 50), tried=(100, 80), hits=(80, 50))
    assert predicted_speedup(tree, costing(0.1), "model") == pytest.approx(tree.acceptance_length / 1.2)


def test_one_lucky_deep_round_does_not_make_every_round_pay_for_its_depth():
    tree = Counts(
        drafted=(0,) * 6 + (100,), accepted=(60, 39, 0, 0, 0, 1), tried=(100, 40, 1, 1, 1), deep=(0, 90, 9, 0, 0, 1)
    )
    levels = (90 + 2 * 9 + 5) / 100
    assert predicted_speedup(tree, costing(0.1), "model") == pytest.approx(tree.acceptance_length / (1 + 0.1 * levels))


def test_past_the_ridge_the_batch_pays_for_every_token():
    profile = costing(0.0, ridge=16)
    counts = chains(0.8, 3)
    tokens = counts.acceptance_length
    assert predicted_speedup(counts, profile, "model", batch=4) == pytest.approx(tokens)
    assert predicted_speedup(counts, profile, "model", batch=16) == pytest.approx(tokens / 4)


def test_a_batch_is_as_wide_as_its_longest_draft():
    half = Counts(drafted=(50, 0, 0, 0, 50), accepted=(100,))  # every other round drafts four, and none is right
    profile = costing(0.0, ridge=1)
    assert predicted_speedup(half, profile, "model", batch=1) == pytest.approx(1 / (1 + 4 * 0.5))
    assert predicted_speedup(half, profile, "model", batch=2) == pytest.approx(1 / (1 + 4 * 0.75))


def test_without_padding_a_batch_is_as_wide_as_its_mean_draft():
    half = Counts(drafted=(50, 0, 0, 0, 50), accepted=(100,))
    profile = replace(costing(0.0, ridge=1), model={"ragged": True})
    for batch in (1, 2, 16):
        assert predicted_speedup(half, profile, "model", batch=batch) == pytest.approx(1 / (1 + 4 * 0.5))


def test_what_is_not_sped_up_limits_the_whole():
    assert overall_speedup(3.0, 0.0) == 3.0
    assert overall_speedup(3.0, 0.5) == pytest.approx(1.5)
    assert overall_speedup(1e9, 0.25) == pytest.approx(4.0)
    assert overall_speedup(0.0, 0.25) == 0.0


def test_the_interval_covers_the_value_and_shrinks_with_the_sample():
    few = [chains(0.7, 4, rounds=20, seed=seed) for seed in range(5)]
    many = [chains(0.7, 4, rounds=20, seed=seed) for seed in range(80)]
    wide = resampled(few, lambda counts: counts.acceptance_length)
    narrow = resampled(many, lambda counts: counts.acceptance_length)
    assert narrow.low < expected_tokens(0.7, 4) < narrow.high
    assert narrow.high - narrow.low < wide.high - wide.low and wide.low < wide.value < wide.high
    assert str(narrow).startswith(f"{narrow.value:.2f} (")
