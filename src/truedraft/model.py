"""A loaded model as users hold it: prompts in, text out.

This file joins requests, the decoder and results. It refuses to know how models and drafters are found and built.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, overload

from truedraft.core import FinishReason, Round, Session
from truedraft.decode import Decoder
from truedraft.errors import ParameterError
from truedraft.request import Facts, Parameters, Prompt, is_batch, make_session
from truedraft.results import Chunk, Result
from truedraft.text import TextEnding

__all__ = ["Model", "Stream"]

Each = Sequence[Mapping[str, Any]] | None


class Stream(Iterator[Chunk]):
    """Texts as they grow: iterate for chunks, read `results` at any time, `close` to stop early."""

    def __init__(self, decoder: Decoder, sessions: Sequence[Session], *, batch: int, lossless: bool = True) -> None:
        self._sessions = sessions
        self._places = {session: place for place, session in enumerate(sessions)}
        self._lossless = lossless
        self._clock = decoder.clock
        self._started = decoder.clock()
        self._ended: dict[Session, float] = {}
        self._shown = dict.fromkeys(sessions, 0)
        self._rounds = decoder.run(sessions, batch=batch)
        self._chunks: Iterator[Chunk] = iter(())

    def __next__(self) -> Chunk:
        for chunk in self._chunks:
            return chunk
        step = next(self._rounds)
        self._chunks = iter([self._chunk(session, record) for session, record in step])
        return next(self._chunks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def prompts(self) -> list[tuple[int, ...]]:
        """The prompts' token ids."""
        return [tuple(session.tokens[: session.prompt_length]) for session in self._sessions]

    @property
    def result(self) -> Result:
        """The first result; for streams of one prompt."""
        return self.results[0]

    @property
    def results(self) -> list[Result]:
        """All texts so far, in the order of the prompts; unfinished ones count as interrupted."""
        return [self._result(session) for session in self._sessions]

    def cancel(self, index: int) -> None:
        """Stop one text before its next round; the others go on."""
        session = self._sessions[index]
        if session.finish is None:
            session.finish = FinishReason.INTERRUPTED
            self._end(session)

    def close(self) -> None:
        """Stop all texts and free what they hold."""
        self._rounds.close()
        for session in self._sessions:
            if session.finish is None:
                session.finish = FinishReason.INTERRUPTED
                self._end(session)

    def _chunk(self, session: Session, record: Round) -> Chunk:
        if session.finish is not None:
            self._end(session)
        fresh = session.output[len(session.output) - max(record.emitted, 0) :]
        ready = _ending(session).ready
        text, self._shown[session] = ready[self._shown[session] :], len(ready)
        return Chunk(self._places[session], text, tuple(fresh), record, session.finish)

    def _end(self, session: Session) -> None:
        _ending(session).close()
        self._ended.setdefault(session, self._clock())

    def _result(self, session: Session) -> Result:
        return Result(
            text=_ending(session).text,
            token_ids=tuple(session.output),
            finish_reason=session.finish or FinishReason.INTERRUPTED,
            prompt_tokens=session.prompt_length,
            statistics=session.statistics,
            seconds=self._ended.get(session, self._clock()) - self._started,
            lossless=self._lossless,
            logprobs=None if session.top_logprobs is None else tuple(session.logprobs),
        )


def _ending(session: Session) -> TextEnding:
    """The sessions of this file end by text rules; this tells the type checker."""
    assert isinstance(session.ending, TextEnding)
    return session.ending


def _listed(each: Any, count: int) -> list[Mapping[str, Any]]:
    """The parameters of single prompts, of which there are `count`; None is none."""
    if isinstance(each, str) or not isinstance(each, Sequence):
        raise ParameterError(f"each is {each!r}: expected a list with one mapping of parameters a prompt")
    if len(each) != count:
        raise ParameterError(f"each has {len(each)} entries for {count} prompts: expected one a prompt")
    options = [own or {} for own in each]
    for own in options:
        if not isinstance(own, Mapping):
            raise ParameterError(f"each holds {own!r}: expected a mapping of parameters, such as {{'seed': 1}}")
    return options


@dataclass(frozen=True)
class Model:
    """A target with its drafter. Make one with `truedraft.load`.

    batch: most prompts decoded at once. facts: vocabulary, context length, end tokens and tokenizer of the target.
    name, drafter_name: what they were loaded by, for records. exact: whether logits are the same bits however a text is
    drafted, batched and cut; notes: what could not be had when the model was made fast, a line each.
    """

    decoder: Decoder
    facts: Facts
    batch: int = 8
    name: str = ""
    drafter_name: str = ""
    exact: bool = False
    notes: tuple[str, ...] = ()

    @overload
    def generate(self, prompts: Prompt, *, each: Each = None, **parameters: Any) -> Result: ...
    @overload
    def generate(self, prompts: Sequence[Prompt], *, each: Each = None, **parameters: Any) -> list[Result]: ...
    def generate(self, prompts: Any, *, each: Each = None, **parameters: Any) -> Result | list[Result]:
        """Text for a prompt (`Result`) or for a list of prompts (`list[Result]`).

        prompts: text, token ids or chat messages, or a list of those. parameters: see `request.Parameters`.
        each: parameters of single prompts, one mapping a prompt, over the common ones.
        Raises `PromptError` and `ParameterError` before anything is computed.
        """
        with self.stream(prompts, each=each, **parameters) as stream:
            for _ in stream:
                pass
            return stream.results if is_batch(prompts) else stream.result

    def stream(self, prompts: Any, *, each: Each = None, **parameters: Any) -> Stream:
        """The same, round by round. Raises `OutOfMemoryError` before anything is computed if the texts cannot fit."""
        batch = prompts if is_batch(prompts) else [prompts]
        options = [{}] * len(batch) if each is None else _listed(each, len(batch))
        sessions = [
            make_session(prompt, Parameters.of({**parameters, **own}), self.facts)
            for prompt, own in zip(batch, options, strict=True)
        ]
        longest = max(len(session.tokens) + session.ending.room for session in sessions)
        self.decoder.target.require(min(self.batch, len(sessions)), longest)
        return Stream(self.decoder, sessions, batch=self.batch, lossless=self.lossless)

    @property
    def lossless(self) -> bool:
        """Whether texts are distributed as if the target had written them alone."""
        return bool(getattr(self.decoder.rule, "lossless", True))

    def tracing(self) -> Model:
        """The same model, recording p and q of every drafted token in its rounds."""
        return replace(self, decoder=replace(self.decoder, trace=True))
