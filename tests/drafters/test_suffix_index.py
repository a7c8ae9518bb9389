"""Suffix automata against lists of all substrings, on texts that repeat themselves a lot."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truedraft.drafters.suffix_index import NOWHERE, ROOT, History, Place, SuffixAutomaton
from truedraft.errors import ParameterError

texts = st.lists(st.integers(0, 2), max_size=24)
depths = st.sampled_from([1, 2, 3, 5, 64])


def built(all_texts, depth=64):
    automaton = SuffixAutomaton(depth)
    for text in all_texts:
        automaton.begin()
        automaton.feed(text)
    return automaton


def substrings(all_texts):
    """How often every substring occurs."""
    return Counter(
        tuple(text[start:end])
        for text in all_texts
        for start in range(len(text))
        for end in range(start + 1, len(text) + 1)
    )


def state_of(automaton, word):
    state = ROOT
    for token in word:
        state = automaton.after(state, token)
        if state == NOWHERE:
            break
    return state


def longest_known(known, text, most=10**9):
    """The longest ending of a text that is among the known substrings."""
    return next((n for n in range(min(len(text), most), 0, -1) if tuple(text[-n:]) in known), 0)


# ── one automaton ─────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(texts, min_size=1, max_size=4), depths)
def test_every_substring_is_known_and_counted_and_nothing_else(all_texts, depth):
    automaton, counts = built(all_texts, depth), substrings(all_texts)
    for word, count in counts.items():
        state = state_of(automaton, word)
        assert state > ROOT
        if len(word) <= depth:
            assert automaton.count(state) == count
        else:
            assert automaton.count(state) >= 1
        assert automaton.length(automaton.link(state)) < len(word) <= automaton.length(state)
        foreign = (*word, 0), (*word, 1), (*word, 2)
        assert [state_of(automaton, each) != NOWHERE for each in foreign] == [each in counts for each in foreign]
    assert automaton.size == sum(map(len, all_texts))


@given(st.lists(texts, min_size=1, max_size=4), depths)
def test_ways_on_are_what_followed(all_texts, depth):
    automaton, counts = built(all_texts, depth), substrings(all_texts)
    for word in [(), *counts]:
        ways = automaton.ways(state_of(automaton, word), 3)
        assert {token for token, _ in ways} == {token for token in range(3) if (*word, token) in counts}
        assert len(ways) == len({token for token, _ in ways})
        if len(word) < depth:
            assert {token: automaton.count(target) for token, target in ways} == {
                token: counts[(*word, token)] for token, _ in ways
            }


@given(st.lists(st.integers(0, 40), max_size=120), st.lists(st.integers(0, 40), max_size=60))
def test_states_with_many_ways_on_work_as_those_with_few(one, other):
    automaton, counts = built([one, other]), substrings([one, other])
    for word, count in counts.items():
        if len(word) <= 3:
            assert automaton.count(state_of(automaton, word)) == count
    singles = {token for token in (*one, *other)}
    assert {token for token, _ in automaton.ways(ROOT, 1000)} == singles
    assert [token for token in range(41) if automaton.after(ROOT, token) != NOWHERE] == sorted(singles)


def test_a_state_with_more_ways_on_than_wanted_says_nothing():
    automaton = built([list(range(20))])
    assert len(automaton.ways(ROOT, 20)) == 20
    assert automaton.ways(ROOT, 19) == []


@given(texts)
def test_the_repeated_ending_is_the_longest_that_stands_elsewhere_too(text):
    automaton, seen = SuffixAutomaton(), []
    for token in text:
        automaton.feed([token])
        seen.append(token)
        counts = substrings([seen])
        longest = next((n for n in range(len(seen), 0, -1) if counts[tuple(seen[-n:])] > 1), 0)
        place = automaton.repeated
        assert place.length == longest
        assert place.state == state_of(automaton, seen[len(seen) - longest :])


def test_a_text_of_one_token_costs_a_bounded_time_each():
    automaton = SuffixAutomaton(depth=8)
    automaton.feed([5] * 1000)
    assert [automaton.count(state_of(automaton, [5] * n)) for n in (1, 4, 8, 9)] == [1000, 997, 993, 1]


def test_states_and_edges_are_linear_in_the_text():
    text = [(i * i * 7919) % 101 % 5 for i in range(3000)]
    automaton = built([text])
    assert automaton.nbytes < 3000 * 120


def test_depth_is_checked():
    with pytest.raises(ParameterError, match="depth"):
        SuffixAutomaton(0)


# ── places ────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(texts, min_size=1, max_size=3), texts)
def test_a_place_follows_the_longest_known_ending(all_texts, text):
    automaton, known = built(all_texts), substrings(all_texts)
    place = Place(automaton)
    for end, token in enumerate(text, start=1):
        place = place.follow(token)
        assert place.length == longest_known(known, text[:end])
        assert place.state == state_of(automaton, text[end - place.length : end])


@given(texts, texts, texts)
def test_a_place_stays_right_while_the_automaton_grows(first, second, text):
    automaton, place = built([first]), Place(built([]))
    place = Place(automaton)
    for token in text:
        place = place.follow(token)
    automaton.begin()
    for token in second:
        automaton.feed([token])
        settled = place.settle()
        assert settled.length == place.length
        assert settled.state == state_of(automaton, text[len(text) - place.length :])


@given(st.lists(texts, min_size=1, max_size=3), texts)
def test_shorter_places_are_endings_that_occur_more_often(all_texts, text):
    automaton, counts = built(all_texts), substrings(all_texts)
    place = Place(automaton)
    for token in text:
        place = place.follow(token)
    while place.length:
        shorter = place.shorter()
        ends = {n: counts[tuple(text[-n:])] for n in range(1, place.length + 1)}
        expected = max((n for n in ends if ends[n] > ends[place.length]), default=0)
        assert shorter.length == expected
        place = shorter


# ── memory ────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(texts, max_size=12), st.integers(2, 40))
def test_history_remembers_the_latest_tokens_and_never_too_many(all_texts, capacity):
    history = History(capacity)
    for at, text in enumerate(all_texts, start=1):
        history.add(text)
        assert history.size <= capacity
        kept = [each[-(capacity // 2) :] for each in all_texts[:at]]
        latest, tokens = [], 0
        for each in reversed(kept):  # what fits the younger half alone is there for certain
            tokens += len(each)
            if tokens > capacity // 2:
                break
            latest.append(each)
        if not latest:
            latest = kept[-1:]
        found = {word for automaton in history.automata for word in substrings(latest) if state_of(automaton, word) > 0}
        assert found == set(substrings(latest))


def test_history_forgets_the_oldest_and_everything_when_told():
    history = History(8)
    for start in (0, 4, 8):
        history.add(range(start, start + 4))
    assert history.size == 8
    assert [state_of(each, [0, 1]) for each in history.automata] == [NOWHERE, NOWHERE]
    assert max(state_of(each, [4, 5]) for each in history.automata) > ROOT
    history.clear()
    assert history.size == 0 and history.nbytes < 100


def test_capacity_is_checked():
    with pytest.raises(ParameterError, match="capacity"):
        History(1)
