"""What is said about a run before it starts: its data in figures, and one row with what is supervised in it."""

from __future__ import annotations

from typing import Any

from truedraft.training.batches import supervised
from truedraft.training.prepare import Plan, Prepared

__all__ = ["describe", "sample"]


def describe(plan: Plan, prepared: Prepared) -> str:
    """Rows, tokens, supervised guesses, draft vocabulary and size of the head."""
    rows, net, material = prepared.rows, prepared.trainer.net, prepared.trainer.material
    tokens = sum(map(len, rows.training))
    answers = sum(len(row) - row.prompt_length for row in rows.training)
    guesses = sum(map(material.guesses, rows.training))
    weights = sum(parameter.numel() for parameter in net.parameters())
    return "\n".join(
        [
            f"{plan.kind}: {weights / 1e6:.1f}M weights, {material.unroll} steps, {plan.recipe.loss}",
            f"rows: {len(rows.training)} to learn, {len(rows.held_out)} held out, {rows.dropped} dropped; "
            f"{tokens} tokens, {answers} of them in answers; {guesses} supervised guesses",
            f"draft vocabulary: {len(net.vocabulary)} of {net.vocabulary.size} tokens, which are "
            f"{100 * prepared.coverage:.1f} % of the {'held-out answers' if rows.held_out else 'answers'}",
            *([] if rows.held_out else [_UNMEASURED]),
        ]
    )


_UNMEASURED = (
    "no greedy answer is held out: acceptance is not measured, the latest head counts as the best, and only the number "
    "of steps ends the run; have the model answer more prompts with --temperature 0 to measure it"
)


def sample(prepared: Prepared, tokenizer: Any, *, tokens: int = 12) -> str:
    """One row around the beginning of its answer: for every slot what it reads, and what each step guesses."""
    material = prepared.trainer.material
    row = min(material.rows, key=len)
    spans = supervised(len(row), row.prompt_length if material.begin is None else material.begin, material.unroll)
    text = [_piece(tokenizer, token) for token in row.tokens.tolist()]
    first = max(0, row.prompt_length - 5)
    lines = [f"row {row.id}: {len(row)} tokens, the answer begins at {row.prompt_length}; ~ is not supervised"]
    for slot in range(first, min(len(row) - 1, first + tokens)):
        guesses = []
        for span in spans:
            place = slot + span.step + 2
            guess = text[place] if place < len(row) else "(end)"
            guesses.append(guess if span.first <= slot < span.last else f"~{guess}")
        lines.append(f"  slot {slot:4d} reads state {slot} and {text[slot + 1]:>14}, guesses {'  '.join(guesses)}")
    return "\n".join(lines)


def _piece(tokenizer: Any, token: int) -> str:
    return str(token) if tokenizer is None else repr(tokenizer.decode([token]))
