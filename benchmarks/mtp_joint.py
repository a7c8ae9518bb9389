"""Multi-token prediction from scratch: a module trained with its target against one trained on a finished target.

    python benchmarks/mtp_joint.py --texts texts.jsonl                    # about twenty minutes on two cores
    python benchmarks/mtp_joint.py --texts texts.jsonl --steps 30 --json mtp.json

A small Llama over bytes is trained from scratch on the strings of a JSON-lines file twice from the same weights
and in the same order of rows:

    joint       with its module, whose loss is auxiliary
    alone       without; then modules are trained on the frozen target, a quarter as many steps and as many again

Each module then drafts for its own target on held-out text: the chance that a draft drawn from it stands (sum of
min(p, q)) and how often its likeliest byte is the target's, by step, and tokens per pass of greedy chains. The loss of
the targets themselves is reported beside, because an auxiliary loss may cost or help.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM

from truedraft.core import Shape
from truedraft.decode import Decoder
from truedraft.drafters.eagle import EagleDrafter
from truedraft.model import Model
from truedraft.nets.eagle1 import Eagle1Config
from truedraft.nets.mtp import MtpNet
from truedraft.planning.fixed import Fixed
from truedraft.request import Facts
from truedraft.targets.cached import CachedModel
from truedraft.targets.torch_target import TorchTarget
from truedraft.training.joint import Lessons, Stand, foresight, train_from_scratch
from truedraft.verify.auto import rule_named

ARMS = {"post hoc, a quarter": 0.25, "post hoc, as many": 1.0}
"""Names of the arms that train a module afterwards, and their steps over those of the target."""

HELD_OUT = 64
PROMPT = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--ahead", type=int, default=3, help="steps that the module is unrolled over")
    parser.add_argument("--weight", type=float, default=0.3, help="of the module's loss in joint training")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--json", type=Path, default=None, help="write the figures to this file")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)

    console = Console()
    lessons = Lessons(args.steps, weight=args.weight, ahead=args.ahead, warmup=max(1, args.steps // 12))
    text, held_out = split(args.texts, lessons.length)
    model, net = fresh(args.hidden, args.layers)
    report: dict[str, Any] = {"steps": args.steps, "tokens_a_step": lessons.batch * lessons.length}

    joint, its_net = copy.deepcopy((model, net))
    seconds = train(joint, its_net, text, lessons, "joint", console)
    report["joint"] = {"steps": args.steps, "seconds": seconds, **examined(joint, its_net, held_out, args.ahead)}

    alone = copy.deepcopy(model)
    before = train(alone, None, text, lessons, "alone", console)
    for name, factor in ARMS.items():
        late, steps = copy.deepcopy(net), max(1, round(factor * args.steps))
        post_hoc = replace(lessons, steps=steps, warmup=max(1, steps // 12), together=False)
        seconds = before + train(alone, late, text, post_hoc, name, console)
        steps += args.steps
        report[name] = {"steps": steps, "seconds": seconds, **examined(alone, late, held_out, args.ahead)}
    console.print(table(report, args.ahead))
    if args.json:
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def split(path: Path, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes [N] to learn and rows [B, T] that are not learned, from the end of the file."""
    texts = []
    for line in path.read_text("utf-8").splitlines():
        texts.append("\n".join(value for value in json.loads(line).values() if isinstance(value, str)))
    data = torch.frombuffer(bytearray("\n\n".join(texts).encode()), dtype=torch.uint8).long()
    reserved = HELD_OUT * length
    return data[:-reserved], data[-reserved:].view(HELD_OUT, length)


def fresh(hidden: int, layers: int) -> tuple[Any, MtpNet]:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=hidden,
        intermediate_size=8 * hidden // 3 // 8 * 8,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config), MtpNet(Eagle1Config.like(config), generator=torch.Generator().manual_seed(0))


def train(model: Any, net: MtpNet | None, text: Any, lessons: Lessons, name: str, console: Console) -> float:
    """Returns its seconds."""
    start = time.perf_counter()

    def told(stand: Stand) -> None:
        if stand.step % 50 == 49 or stand.step == lessons.steps - 1:
            seconds = time.perf_counter() - start
            console.print(f"{name}: step {stand.step + 1}, {stand.main:.3f}, ahead {stand.ahead:.3f}, {seconds:.0f} s")

    train_from_scratch(model, net, text, lessons, told=told)
    return time.perf_counter() - start


def examined(model: Any, net: MtpNet, held_out: torch.Tensor, ahead: int) -> dict[str, Any]:
    """The target's own loss, what the module foresees, and what greedy drafting with it yields."""
    model, net = model.eval(), net.eval()
    with torch.no_grad():
        logits = model(held_out).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), held_out[:, 1:].flatten())
    seen = foresight(model, net, held_out, ahead)
    net = copy.deepcopy(net)
    net.share(model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    drafter = EagleDrafter(net, layers=model.config.num_hidden_layers)
    decoder = Decoder(TorchTarget(CachedModel(model)), drafter, rule_named("auto"), Fixed(Shape.chain(ahead)))
    prompts = [row[:PROMPT].tolist() for row in held_out[:8]]
    results = Model(decoder, Facts(vocabulary=256), batch=1).generate(prompts, max_new_tokens=128)
    rounds = sum(result.statistics.rounds for result in results)
    return {
        "loss": float(loss),
        "overlap": seen.overlap,
        "agreement": seen.agreement,
        "tokens_per_pass": sum(result.statistics.emitted for result in results) / rounds,
    }


def table(report: dict[str, Any], ahead: int) -> Table:
    shown = Table(title="modules on held-out text")
    shown.add_column("")
    columns = ["steps", "seconds", *(f"min(p, q) at {step + 1}" for step in range(ahead))]
    columns += ["agreement at 1", "tokens/pass", "target's loss"]
    for column in columns:
        shown.add_column(column, justify="right")
    for name, row in report.items():
        if isinstance(row, dict):
            overlaps = (f"{value:.3f}" for value in row["overlap"])
            figures = f"{row['agreement'][0]:.3f}", f"{row['tokens_per_pass']:.2f}", f"{row['loss']:.3f}"
            shown.add_row(name, f"{row['steps']}", f"{row['seconds']:.0f}", *overlaps, *figures)
    return shown


if __name__ == "__main__":
    main()
