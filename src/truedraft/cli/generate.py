"""`truedraft generate`: write a text, show the bets, compare with plain decoding."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from truedraft.build import load
from truedraft.cli import options as opt
from truedraft.cli.progress import RichProgress
from truedraft.cli.show import LEGEND, Painter, comparison, summary
from truedraft.cli.trace import TraceWriter
from truedraft.core import Shape
from truedraft.drafters.none import NoDrafter
from truedraft.errors import PromptError
from truedraft.model import Model, Stream
from truedraft.models import DEFAULT
from truedraft.planning.fixed import Fixed
from truedraft.request import text_decoder
from truedraft.results import Chunk, Result

__all__ = ["generate", "prompt_of"]

_WARM_UP_TOKENS = 8
"""Enough rounds before a comparison for buffers and kernels to be in place in both arms."""


def generate(
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads it from standard input.")],
    model: opt.ModelName = DEFAULT,
    drafter: opt.DrafterName = opt.DEFAULT_DRAFTER,
    draft_model: opt.DraftModel = None,
    translate: opt.Translate = None,
    draft_tokens: opt.DraftTokens = None,
    tree: opt.TreeShape = None,
    share: opt.Share = False,
    memory: opt.Memory = None,
    layers: opt.Layers = None,
    head: opt.Head = None,
    rule: opt.RuleName = "auto",
    policy: opt.PolicyName = "fixed",
    profile: opt.ProfileFile = None,
    dtype: opt.Dtype = "auto",
    weights: opt.Weights = "auto",
    device: opt.Device = "auto",
    attention: opt.Attention = "auto",
    exact: opt.Exact = None,
    threads: opt.Threads = None,
    offline: opt.Offline = False,
    trust_remote_code: opt.TrustRemoteCode = False,
    allow_pickle: opt.AllowPickle = False,
    max_new_tokens: opt.MaxNewTokens = 256,
    temperature: opt.Temperature = 0.0,
    top_k: opt.TopK = 0,
    top_p: opt.TopP = 1.0,
    min_p: opt.MinP = 0.0,
    repetition_penalty: opt.RepetitionPenalty = 1.0,
    seed: opt.Seed = None,
    stop: opt.Stop = None,
    logprobs: Annotated[int | None, typer.Option("--logprobs", help="Alternatives to report a token (JSON).")] = None,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Write on past the end token.")] = False,
    system: opt.System = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the prompt as text, without the chat template.")] = False,
    show_rounds: Annotated[bool, typer.Option("--show-rounds", help="Colour tokens by where they come from.")] = False,
    compare: Annotated[bool, typer.Option("--compare", help="Decode plainly as well and print the ratio.")] = False,
    trace: opt.Trace = None,
    json_: opt.Json = False,
) -> int:
    """Write a text with speculative decoding."""
    console = Console(stderr=json_, highlight=False)
    with RichProgress(console) as progress:
        loaded = load(
            model,
            progress=progress,
            drafter=drafter,
            draft_model=draft_model,
            translate=translate,
            draft_tokens=draft_tokens,
            tree=tree,
            share=share,
            memory=memory,
            layers=layers,
            head=head,
            rule=rule,
            policy=policy,
            profile=profile,
            dtype=dtype,
            weights=weights,
            device=device,
            attention=attention,
            exact=exact,
            threads=threads,
            offline=offline,
            trust_remote_code=trust_remote_code,
            allow_pickle=allow_pickle,
        )
    parameters: dict[str, Any] = {
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "seed": seed,
        "stop": stop or (),
        "logprobs": logprobs,
        "ignore_eos": ignore_eos,
    }
    job = _Job(loaded, prompt_of(prompt, loaded, system=system, raw=raw), parameters, console)
    return job.run(compare=compare, colour=show_rounds, trace=trace, as_json=json_)


def prompt_of(text: str, model: Model, *, system: str | None, raw: bool) -> Any:
    """The prompt in the form the model expects: chat messages if it has a template, unless raw."""
    text = _read(text)
    if not text:
        raise PromptError("the prompt is empty: expected some text")
    if raw or not getattr(model.facts.tokenizer, "chat_template", None):
        return text if system is None else f"{system}\n\n{text}"
    messages = [] if system is None else [{"role": "system", "content": system}]
    return [*messages, {"role": "user", "content": text}]


def _read(text: str) -> str:
    """The prompt itself, from standard input for "-". A terminal that is not UTF-8 hands over parts of characters."""
    try:
        text = sys.stdin.read() if text == "-" else text
        text.encode("utf-8")
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise PromptError(f"the prompt is not UTF-8 text ({error.reason}): convert it, as with iconv") from error
    return text


class _Job:
    """One prompt on one model, once or twice."""

    def __init__(self, model: Model, prompt: Any, parameters: dict[str, Any], console: Console) -> None:
        self._model = model
        self._prompt = prompt
        self._parameters = parameters
        self._console = console

    def run(self, *, compare: bool, colour: bool, trace: Path | None, as_json: bool) -> int:
        if compare:
            self._warm_up()
        with ExitStack() as stack:
            model = self._model if trace is None else self._model.tracing()
            stream = stack.enter_context(model.stream(self._prompt, **self._parameters))
            watchers = self._watchers(stream, stack, colour=colour, trace=trace, as_json=as_json)
            interrupted = _follow(stream, watchers)
        report = stream.result.to_json() | {"exact": self._model.exact}
        plain = None
        if compare and not interrupted:
            plain, interrupted = self._plain()
            report |= self._compared(stream.result, plain)
        if as_json:
            print(json.dumps(report, ensure_ascii=False))
        else:
            self._print(stream.result, plain, report, colour=colour)
        return 130 if interrupted else 0

    def _warm_up(self) -> None:
        few = {**self._parameters, "max_new_tokens": _WARM_UP_TOKENS}
        for model in (self._model, _plainly(self._model)):
            model.generate(self._prompt, **few)

    def _watchers(
        self, stream: Stream, stack: ExitStack, *, colour: bool, trace: Path | None, as_json: bool
    ) -> list[Callable[[Chunk], None]]:
        """What happens with every chunk."""
        watchers: list[Callable[[Chunk], None]] = []
        tokenizer: Any = self._model.facts.tokenizer
        if trace is not None:
            watchers.append(stack.enter_context(TraceWriter.open(trace, tokenizer, self._header(stream))).write)
        if not as_json:
            painter = Painter(self._console, text_decoder(tokenizer), colour=colour)
            watchers.append(painter.show)
        return watchers

    def _header(self, stream: Stream) -> dict[str, Any]:
        """What a trace says about its run."""
        tokens = list(stream.prompts[0])
        tokenizer: Any = self._model.facts.tokenizer
        return {
            "model": self._model.name,
            "drafter": self._model.drafter_name,
            "rule": getattr(self._model.decoder.rule, "name", type(self._model.decoder.rule).__name__),
            "prompt": tokenizer.decode(tokens),
            "prompt_tokens": tokens,
            "parameters": {name: value if value != () else [] for name, value in self._parameters.items()},
        }

    def _plain(self) -> tuple[Result, bool]:
        """Plain decoding of the same prompt."""
        with _plainly(self._model).stream(self._prompt, **self._parameters) as stream:
            if self._console.is_terminal:
                with self._console.status("decoding plainly, to compare"):
                    interrupted = _follow(stream, [])
            else:
                interrupted = _follow(stream, [])
        return stream.result, interrupted

    def _compared(self, fast: Result, plain: Result) -> dict[str, Any]:
        speed = plain.tokens_per_second
        return {
            "plain_tokens_per_second": speed,
            "speedup": fast.tokens_per_second / speed if speed else None,
            "identical": fast.token_ids == plain.token_ids if self._parameters["temperature"] == 0 else None,
        }

    def _print(self, fast: Result, plain: Result | None, report: dict[str, Any], *, colour: bool) -> None:
        self._console.print()
        if colour:
            self._console.print(LEGEND)
        self._console.print(summary(fast), style="dim")
        for note in self._model.notes:
            self._console.print(f"note: {note}", style="dim")
        if plain is not None:
            identical = report["identical"]
            note = "" if identical is not None else "sampled: the same distribution, not the same text"
            if identical is False:
                note = self._tie(fast, plain)
            self._console.print(comparison(fast, plain, identical=identical, note=note))

    def _tie(self, fast: Result, plain: Result) -> str:
        """How close the two best tokens were where greedy texts part."""
        pairs = zip(fast.token_ids, plain.token_ids, strict=False)
        at = next((place for place, (a, b) in enumerate(pairs) if a != b), None)
        if at is None:
            return "one text is the beginning of the other"
        few = {**self._parameters, "max_new_tokens": at + 1, "logprobs": 2}
        entries = list(_plainly(self._model).generate(self._prompt, **few).logprobs or ())
        best, second = entries[-1].top
        gap = best[1] - second[1]
        return f"they part at token {at}, where the two best tokens are {gap:.2g} apart in log-probability"


def _plainly(model: Model) -> Model:
    """The same target without a drafter."""
    return replace(model, decoder=replace(model.decoder, drafter=NoDrafter(), policy=Fixed(Shape(0)), trace=False))


def _follow(stream: Stream, watchers: list[Callable[[Chunk], None]]) -> bool:
    """Run a stream to its end; True if the user interrupted it, which keeps the text so far."""
    try:
        for chunk in stream:
            for watch in watchers:
                watch(chunk)
    except KeyboardInterrupt:
        stream.close()
        return True
    return False
