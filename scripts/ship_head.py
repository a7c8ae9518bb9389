"""Put a trained head among those that ship, with a model card made from what the head says of itself.

    python scripts/ship_head.py runs/eagle3/best runs/one runs/two      # the head, then the runs that made it, in order

The card goes beside the weights as README.md: target, data, steps, command, held-out figures, licences of the prompts.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from truedraft.drafters.heads import HEADS
from truedraft.training.record import Record

HEADS_FOLDER = Path(__file__).parent.parent / "src" / "truedraft" / "heads"
KINDS = {"LlamaForCausalLMEagle3": "eagle3", "LlamaForCausalLM": "eagle1", "MedusaModel": "medusa", "MtpModule": "mtp"}

PROMPTS = """\
Prompts (only their texts were used; all answers are the target's own, greedy): databricks-dolly-15k (CC BY-SA 3.0,
Databricks, Inc. and Wikipedia editors), GSM8K's training set (MIT), GPTeacher role-play and code (MIT; written by
GPT-4), Open Assistant evaluation prompts (Apache-2.0), MBPP (CC BY 4.0), Self-Instruct seed tasks (Apache-2.0). None is
a prompt of an evaluation set. The weights are under this project's licence."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("head", type=Path)
    parser.add_argument("runs", type=Path, nargs="*", help="folders of the runs that made it, for their logs")
    args = parser.parse_args()

    config = json.loads((args.head / "config.json").read_text("utf-8"))
    kind = KINDS[config["architectures"][0]]
    assert kind in HEADS
    out = HEADS_FOLDER / config["truedraft"]["target"] / kind
    out.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(args.head / name, out / name)
    (out / "README.md").write_text(card(kind, config, args.runs), "utf-8")
    print(out)


def card(kind: str, config: dict[str, Any], runs: list[Path]) -> str:
    """The model card."""
    notes = config["truedraft"]
    tokens = (
        config.get("draft_vocab_size") or config.get("truncated_vocab_size") or len(notes.get("draft_vocabulary", []))
    )
    layout = "this project's own layout" if kind == "mtp" else "the layout that serving engines load"
    rates = " ".join(f"{rate:.3f}" for rate in notes.get("held_out_acceptance", []))
    return f"""\
# {kind} head for {notes["target"]}

A drafter: it guesses what the target says next, and the target's texts stay exactly its own. Weights in bfloat16, in
{layout}; {tokens:,} of {config["vocab_size"]:,} tokens can be drafted.

Held-out answers, greedy: acceptance by position {rates}.

{stages(kind, notes, runs)}

{PROMPTS}
"""


def stages(kind: str, notes: dict[str, Any], runs: list[Path]) -> str:
    """The runs that made a head, the earliest first: from what it says of them, and from their logs."""
    lines = ["| run | rows of answers | steps | tokens seen | unrolled | peak rate | loss |", "|" + "---|" * 7]
    for number, run in enumerate([*notes.get("earlier", []), notes], start=1):
        figures = [f"{run[name]:,}" for name in ("rows", "steps", "training_tokens", "unroll")]
        lines.append(f"| {number} | {' | '.join(figures)} | {run['rate']:g} | `{run['loss']}` |")
    logs = [Record.read(run / "log.csv")[-1] for run in runs]
    if logs:
        seconds, tokens = (sum(float(log[name]) for log in logs) for name in ("seconds", "tokens"))
        lines.append(
            f"\nIn all {tokens:,.0f} tokens, in {seconds / 60:.0f} minutes on two cores of a CPU with other work."
        )
    command = f"truedraft train {kind} --data answers --out run --bf16 --init-from EARLIER/last"
    lines.append(f"\nEach run is `{command}`, the first without `--init-from`, with these settings.")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
