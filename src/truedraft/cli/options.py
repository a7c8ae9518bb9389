"""The options that commands share, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from truedraft.drafters import DEFAULT as DEFAULT_DRAFTER
from truedraft.drafters import NAMES

__all__ = [
    "DEFAULT_DRAFTER",
    "AllowPickle",
    "Attention",
    "Batch",
    "Device",
    "DraftModel",
    "DraftTokens",
    "DrafterName",
    "Dtype",
    "Exact",
    "Head",
    "Json",
    "Layers",
    "MaxNewTokens",
    "Memory",
    "MinP",
    "ModelName",
    "Offline",
    "PolicyName",
    "ProfileFile",
    "RepetitionPenalty",
    "RuleName",
    "Seed",
    "Share",
    "Stop",
    "System",
    "Temperature",
    "Threads",
    "TopK",
    "TopP",
    "Trace",
    "Translate",
    "TreeShape",
    "TrustRemoteCode",
    "Weights",
]

_LOAD, _SAMPLE = "Model and drafter", "Sampling"

ModelName = Annotated[
    str, typer.Option("--model", "-m", help="Name, folder, GGUF file or hub id.", rich_help_panel=_LOAD)
]
DrafterName = Annotated[str, typer.Option("--drafter", "-d", help=f"{', '.join(NAMES)}.", rich_help_panel=_LOAD)]
DraftModel = Annotated[
    str | None, typer.Option("--draft-model", help="The small model of --drafter model.", rich_help_panel=_LOAD)
]
Translate = Annotated[
    str | None,
    typer.Option("--translate", help="The small model's tokenizer differs: tokens or text.", rich_help_panel=_LOAD),
]
DraftTokens = Annotated[
    int | None, typer.Option("--draft-tokens", "-k", help="Drafted tokens a round (depth).", rich_help_panel=_LOAD)
]
TreeShape = Annotated[
    str | None,
    typer.Option("--tree", help="Children a level (3x2x1, or 3x), or a number of nodes (16).", rich_help_panel=_LOAD),
]
Share = Annotated[
    bool,
    typer.Option("--share", help="Draft for one prompt from what another one said.", rich_help_panel=_LOAD),
]
Memory = Annotated[
    Path | None,
    typer.Option("--memory", help="File in which recycling keeps what it learns.", rich_help_panel=_LOAD),
]
Layers = Annotated[
    str | None,
    typer.Option("--layers", help="Those of layer-skip: 0-3,28 or a file of find-layers.", rich_help_panel=_LOAD),
]
Head = Annotated[
    str | None,
    typer.Option("--head", help="Folder of a trained head (medusa, eagle1-3, mtp).", rich_help_panel=_LOAD),
]
PolicyName = Annotated[
    str, typer.Option("--policy", help="fixed, auto, or rows: [[1, 4, 5], [5, 99, 0]].", rich_help_panel=_LOAD)
]
ProfileFile = Annotated[Path | None, typer.Option("--profile", help="Costs for --policy auto.", rich_help_panel=_LOAD)]
RuleName = Annotated[str, typer.Option("--rule", help="Acceptance rule.", rich_help_panel=_LOAD)]
Dtype = Annotated[str, typer.Option("--dtype", help="auto, float32, bfloat16 or float16.", rich_help_panel=_LOAD)]
Weights = Annotated[
    str,
    typer.Option(
        "--weights", help="Round the layers' weights: float16, bfloat16, int8 or int4.", rich_help_panel=_LOAD
    ),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.", rich_help_panel=_LOAD)]
Attention = Annotated[str, typer.Option("--attention", help="auto, sdpa or eager.", rich_help_panel=_LOAD)]
Exact = Annotated[
    bool | None,
    typer.Option("--exact/--no-exact", help="Logits of the same bits whatever is drafted.", rich_help_panel=_LOAD),
]
Batch = Annotated[int, typer.Option("--batch", help="Most prompts decoded at once.", rich_help_panel=_LOAD)]
Threads = Annotated[int | None, typer.Option("--threads", help="CPU threads.", rich_help_panel=_LOAD)]
Offline = Annotated[bool, typer.Option("--offline", help="Use only what is on this machine.", rich_help_panel=_LOAD)]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with a model.", rich_help_panel=_LOAD)
]
AllowPickle = Annotated[
    bool, typer.Option("--allow-pickle", help="Load pickled weights, which can run code.", rich_help_panel=_LOAD)
]
System = Annotated[str | None, typer.Option("--system", help="System message.")]
MaxNewTokens = Annotated[
    int, typer.Option("--max-new-tokens", "-n", help="Most tokens to write.", rich_help_panel=_SAMPLE)
]
Temperature = Annotated[float, typer.Option("--temperature", "-t", help="0 is greedy.", rich_help_panel=_SAMPLE)]
TopK = Annotated[int, typer.Option("--top-k", help="0 is off.", rich_help_panel=_SAMPLE)]
TopP = Annotated[float, typer.Option("--top-p", help="1 is off.", rich_help_panel=_SAMPLE)]
MinP = Annotated[float, typer.Option("--min-p", help="0 is off.", rich_help_panel=_SAMPLE)]
RepetitionPenalty = Annotated[float, typer.Option("--repetition-penalty", help="1 is off.", rich_help_panel=_SAMPLE)]
Seed = Annotated[int | None, typer.Option("--seed", help="Of the random draws.", rich_help_panel=_SAMPLE)]
Stop = Annotated[
    list[str] | None, typer.Option("--stop", help="Cut before this string; repeatable.", rich_help_panel=_SAMPLE)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Trace = Annotated[Path | None, typer.Option("--trace", help="Write every round to this file, a JSON object a line.")]
