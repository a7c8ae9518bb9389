"""Counting rounds: against a count by hand, with short last rounds, early stops and drafts of any length."""

from dataclasses import replace

import pytest

from tests.drafters.helpers import make
from truedraft.core import Draft, Round, Shape, Timings, Tree, Verdict
from truedraft.decode import Decoder
from truedraft.planning.counts import Counts
from truedraft.planning.fixed import Fixed
from truedraft.toy import Script, TabularTarget, random_language
from truedraft.verify import target_only

TARGET = TabularTarget(random_language(4, seed=7))


def decode(drafter, *, k=4, tokens=30, **parameters):
    session = make([0, 1], vocabulary=4, max_new_tokens=tokens, **parameters)
    rounds = [
        record
        for step in Decoder(TARGET, drafter, target_only.RULE, Fixed(Shape.chain(k))).run([session])
        for _, record in step
    ]
    return session, rounds


def oracle(right=None):
    plain, _ = decode(Script([], vocabulary=4), tokens=60)
    return Script([plain.tokens], vocabulary=4, right=right)


def test_an_oracle_has_acceptance_length_k_plus_one_and_rate_one():
    counts = Counts.of(decode(oracle(), tokens=30)[1])
    assert (counts.rounds, counts.acceptance_length, counts.acceptance_rate) == (6, 5.0, 1.0)
    assert counts.by_position == (1.0,) * 4 == counts.survival


def test_a_wrong_drafter_has_acceptance_length_one_and_rate_zero():
    counts = Counts.of(decode(oracle(right=0), tokens=10)[1])
    assert counts.acceptance_length == 1.0 and counts.acceptance_rate == 0.0
    assert counts.by_position == (0.0,) and counts.rounds == 10
    assert counts.drafted_per_round == pytest.approx((6 * 4 + 3 + 2 + 1 + 0) / 10)


def test_a_short_last_round_counts_what_it_drafted():
    counts = Counts.of(decode(oracle(), tokens=7)[1])  # 5 tokens, then a round with room for 2: one draft and a bonus
    assert counts.drafted == (0, 1, 0, 0, 1) and counts.accepted == (0, 1, 0, 0, 1)


def test_drafts_cut_by_a_stop_are_not_accepted():
    _, plain = decode(Script([], vocabulary=4), tokens=8)
    ids = [record.verdict.tokens[0] for record in plain]
    place = next(place for place in range(1, 4) if ids[place] not in ids[:place])
    session, rounds = decode(oracle(), tokens=8, stop_token_ids=[ids[place]])
    counts = Counts.of(rounds)
    assert len(session.output) == place + 1
    assert counts.accepted == (0,) * (place + 1) + (1,) and counts.tried == (1,) * (place + 1)
    assert sum(counts.ranked) == place + 1, "children behind the end were never tested"


def record(parents, path, emitted):
    tree = Tree(tuple(range(len(parents))), parents)
    verdict = Verdict(path, (*path, 9))
    return Round(0, Shape(3, 3, 9), Draft(tree), verdict, emitted, Timings())


def test_ranks_are_counted_at_every_accepted_node():
    # root -> 1, 2, 3; 2 -> 4, 5
    counts = Counts.of([record((-1, 0, 0, 0, 2, 2), (2, 4), 3), record((-1, 0, 0, 0, 2, 2), (2,), 2)])
    assert counts.ranked == (4, 4, 2) and counts.chosen == (1, 2)
    assert counts.by_rank == (0.25, 0.5, 0.0)
    assert counts.by_position == (1.0, 0.5)


def test_levels_are_counted_whatever_became_of_them():
    wide, deep = record((-1, 0, 0, 0), (), 1), record((-1, 0, 1, 2, 3), (), 1)
    none = record((-1,), (), 1)
    counts = Counts.of([wide, wide, deep, none])
    assert counts.deep == (1, 2, 0, 0, 1) and counts.levels_per_round == pytest.approx(6 / 4)


def test_counts_of_a_time_when_levels_were_not_counted_are_read():
    counts = Counts.of([record((-1, 0, 0, 0), (), 1)] * 3)
    entry = counts.to_json()
    del entry["deep"]
    old = Counts.from_json(entry)
    assert old == replace(counts, deep=()) and old.levels_per_round == 1.0
    assert (old + counts).levels_per_round == 1.0
    with pytest.raises(KeyError):
        Counts.from_json({"deep": [1]})


def test_counts_add_up_and_survive_json():
    one = Counts.of(decode(oracle(right=2), tokens=20)[1])
    other = Counts.of(decode(oracle(), tokens=20)[1])
    both = one + other
    assert both.rounds == one.rounds + other.rounds
    assert both.acceptance_length == pytest.approx(
        (one.acceptance_length * one.rounds + other.acceptance_length * other.rounds) / both.rounds
    )
    assert Counts.from_json(both.to_json()) == both and Counts() + one == one


def test_no_rounds_are_no_acceptance():
    assert (Counts().rounds, Counts().acceptance_rate, Counts().acceptance_length) == (0, 0.0, 1.0)
    assert Counts().by_position == Counts().survival == ()
