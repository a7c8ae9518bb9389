"""`truedraft chat`: a conversation in the terminal. Each turn reads only what is new; the cache keeps the rest."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console

from truedraft.build import load
from truedraft.cli import options as opt
from truedraft.cli.progress import RichProgress
from truedraft.cli.show import LEGEND, Painter, summary
from truedraft.errors import PromptError, UnsupportedModelError
from truedraft.model import Model
from truedraft.models import DEFAULT
from truedraft.request import text_decoder

__all__ = ["chat"]

_HELP = "Type a message. /reset starts over, /exit or Ctrl-D leaves, Ctrl-C stops an answer."


def chat(
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
    dtype: opt.Dtype = "auto",
    weights: opt.Weights = "auto",
    device: opt.Device = "auto",
    attention: opt.Attention = "auto",
    exact: opt.Exact = None,
    threads: opt.Threads = None,
    offline: opt.Offline = False,
    trust_remote_code: opt.TrustRemoteCode = False,
    allow_pickle: opt.AllowPickle = False,
    max_new_tokens: opt.MaxNewTokens = 512,
    temperature: opt.Temperature = 0.0,
    top_k: opt.TopK = 0,
    top_p: opt.TopP = 1.0,
    min_p: opt.MinP = 0.0,
    seed: opt.Seed = None,
    system: opt.System = None,
    show_rounds: Annotated[bool, typer.Option("--show-rounds", help="Colour tokens by where they come from.")] = False,
) -> int:
    """Talk with a model."""
    console = Console(highlight=False)
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
    if not getattr(loaded.facts.tokenizer, "chat_template", None):
        raise UnsupportedModelError(f"{model} has no chat template, so it cannot chat; use truedraft generate --raw")
    parameters = {
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "seed": seed,
    }
    console.print(_HELP, style="dim")
    if show_rounds:
        console.print(LEGEND)
    _converse(loaded, parameters, console, system=system, colour=show_rounds)
    return 0


def _converse(model: Model, parameters: dict[str, Any], console: Console, *, system: str | None, colour: bool) -> None:
    """Read, answer, repeat."""
    opening = [] if system is None else [{"role": "system", "content": system}]
    messages = list(opening)
    while True:
        try:
            line = console.input("[bold]> [/bold]").strip()
        except (EOFError, KeyboardInterrupt):
            console.print()
            return
        if line in ("/exit", "/quit"):
            return
        if line == "/reset":
            messages = list(opening)
        elif line:
            messages.append({"role": "user", "content": line})
            try:
                messages.append({"role": "assistant", "content": _answer(model, messages, parameters, console, colour)})
            except PromptError as error:
                messages.pop()
                console.print(f"{error}; /reset starts over", style="red")


def _answer(
    model: Model, messages: list[dict[str, str]], parameters: dict[str, Any], console: Console, colour: bool
) -> str:
    """Stream one answer; Ctrl-C keeps what is there."""
    painter = Painter(console, text_decoder(model.facts.tokenizer), colour=colour)
    with model.stream(list(messages), **parameters) as stream:
        try:
            for chunk in stream:
                painter.show(chunk)
        except KeyboardInterrupt:
            stream.close()
    console.print()
    console.print(summary(stream.result), style="dim")
    return stream.result.text
