"""Another engine as an arm, through its OpenAI-style HTTP endpoint, with the speculation metrics that it publishes.

vLLM counts drafts, drafted and accepted tokens, in all and by position. SGLang publishes a mean acceptance length and
no counts; no round is made up from a mean, so of its rounds nothing is said. Texts are streamed, so the first token's
time is seen; ids are not, so equality cannot be said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPException
from itertools import pairwise
from time import perf_counter
from typing import Any
from urllib.request import Request, urlopen

from truedraft.bench.arms import AtOnce, Order, Sample, each_of
from truedraft.errors import ParameterError
from truedraft.planning.counts import Counts

__all__ = ["EndpointArm", "counts_between", "metrics_of", "served_model"]

_SECONDS = 600
_FAULTS = (OSError, HTTPException, ValueError, RecursionError)
"""What asking may end in: nobody there, no HTTP, an answer that breaks off, is no JSON, or is nested without end."""
_METRIC = re.compile(r"^(?P<name>[\w:]+)(?:\{(?P<labels>[^}]*)\})?\s+(?P<value>\S+)", re.MULTILINE)
_POSITION = re.compile(r'position="(\d+)"')


@dataclass(frozen=True)
class EndpointArm(AtOnce):
    """An engine at a base address such as http://127.0.0.1:8000. Prompts are sent as token ids to its completions."""

    address: str
    model: str
    comparable: bool = False
    clock: Callable[[], float] = field(default=perf_counter, repr=False)

    @property
    def name(self) -> str:
        """What it is called in reports."""
        return f"endpoint {self.model}"

    def write(self, order: Order) -> Sample:
        """All texts at once, each on a connection of its own."""
        before = metrics_of(self.address)
        start = self.clock()
        with ThreadPoolExecutor(len(order.prompts)) as pool:
            answers = list(pool.map(lambda place: self._answer(order, place, start), range(len(order.prompts))))
        seconds = self.clock() - start
        counts = counts_between(before, metrics_of(self.address))
        first = sum(answer.first for answer in answers) / len(answers)
        tokens = sum(answer.tokens for answer in answers)
        decoded, decoding = tokens - len(answers), max(answer.last for answer in answers) - first
        each = each_of([(answer.tokens, answer.first, answer.last) for answer in answers])
        known = () if counts is None else (counts,)
        return Sample(None, tokens, seconds, first, decoded, decoding, counts=known, each=each)

    def _answer(self, order: Order, place: int, start: float) -> _Answer:
        """One text."""
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": list(order.prompts[place]),
            "max_tokens": order.tokens,
            "temperature": order.temperature,
            "seed": order.seeds[place],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if order.fixed_length:
            body |= {"min_tokens": order.tokens, "ignore_eos": True}
        first = last = None
        tokens = 0
        for has_text, written in self._events(body):
            if has_text:
                last = self.clock() - start
                first = last if first is None else first
                tokens += 1
            tokens = tokens if written is None else written
        if first is None or last is None or tokens < 1:
            raise ParameterError(f"endpoint {self.address} sent an empty text: look at its log")
        return _Answer(tokens, first, last)

    def _events(self, body: Mapping[str, Any]) -> Iterator[tuple[bool, int | None]]:
        """The server-sent events of a completion, as `_told` reads them."""
        request = Request(
            f"{self.address}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urlopen(request, timeout=_SECONDS) as reply:
                for line in reply:
                    data = line.decode().strip().removeprefix("data:").strip()
                    if data and data != "[DONE]" and line.startswith(b"data:"):
                        yield _told(json.loads(data))
        except _FAULTS as error:
            raise ParameterError(f"endpoint {self.address} did not answer a completion ({error})") from error


@dataclass(frozen=True)
class _Answer:
    """Tokens of a text, and seconds to its first and last."""

    tokens: int
    first: float
    last: float


def _told(event: Any) -> tuple[bool, int | None]:
    """Whether an event brings text, and how many tokens it says were written in all; null is as good as nothing.

    Raises `ValueError` for another JSON than that of a completion, such as an error that comes after the first tokens.
    """
    try:
        has_text = any(choice.get("text") for choice in event.get("choices") or ())
        written = (event.get("usage") or {}).get("completion_tokens")
        if not event.get("error") and (written is None or isinstance(written, int)):
            return has_text, written
    except (AttributeError, TypeError):
        pass  # somewhere an object or a list is something else
    raise ValueError(f"expected events with choices and usage, and it sent {json.dumps(event)[:80]}")


def served_model(address: str) -> str:
    """The name of the first model that an endpoint serves. Raises `ParameterError` where none answers."""
    try:
        with urlopen(f"{address}/v1/models", timeout=_SECONDS) as reply:
            return str(json.load(reply)["data"][0]["id"])
    except (*_FAULTS, KeyError, IndexError, TypeError) as error:
        raise ParameterError(
            f"endpoint is {address!r}: expected the base address of an OpenAI-style server ({error})"
        ) from error


Metrics = dict[str, dict[str, float]]
"""Metric to labels to value; labels as they were written."""


def metrics_of(address: str) -> Metrics:
    """What an endpoint publishes at /metrics; nothing where it does not."""
    try:
        with urlopen(f"{address}/metrics", timeout=_SECONDS) as reply:
            text = reply.read().decode("utf-8", "replace")
    except _FAULTS:
        return {}
    found: Metrics = {}
    for match in _METRIC.finditer(text):
        try:
            found.setdefault(match["name"], {})[match["labels"] or ""] = float(match["value"])
        except ValueError:
            continue  # a page, and none of metrics
    return found


def counts_between(before: Metrics, after: Metrics) -> Counts | None:
    """The rounds between two readings as counts; None where the engine publishes no counts of them.

    Drafted tokens of vLLM are known in all only, and spread over its drafts as evenly as whole tokens can be.
    """
    drafts = _grown("vllm:spec_decode_num_drafts_total", before, after)
    if not drafts:
        return None
    by_position = _by_position(before, after)
    drafted = round(_grown("vllm:spec_decode_num_draft_tokens_total", before, after))
    return _counts(round(drafts), drafted, [round(hits) for hits in by_position])


def _grown(name: str, before: Metrics, after: Metrics) -> float:
    """By how much a counter grew, all labels together."""
    return sum(after.get(name, {}).values()) - sum(before.get(name, {}).values())


def _by_position(before: Metrics, after: Metrics) -> list[float]:
    """Accepted tokens by position, unconditional, as vLLM counts them."""
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    grown: dict[int, float] = {}
    for labels, value in after.get(name, {}).items():
        if match := _POSITION.search(labels):
            place = int(match[1])
            grown[place] = grown.get(place, 0.0) + value - before.get(name, {}).get(labels, 0.0)
    return [grown[place] for place in sorted(grown)]


def _counts(rounds: int, drafted: int, hits: Sequence[int]) -> Counts:
    """Counts of chains from how many rounds accepted every position, and the tokens that all rounds drafted."""
    each, longer = divmod(drafted, rounds)
    levels = [rounds, *hits, 0]
    accepted = tuple(here - beyond for here, beyond in pairwise(levels))
    by_length = (0,) * each + (rounds - longer,) + ((longer,) if longer else ())
    return Counts(by_length, accepted, (rounds, *hits[:-1]), tuple(hits))
