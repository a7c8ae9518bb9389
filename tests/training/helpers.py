"""A tiny teacher, its greedy answers, and rows with features made by it."""

import torch

from tests.tiny import tiny_model
from truedraft.training.features import Row
from truedraft.training.rows import AnswerRow
from truedraft.training.teacher import Teacher

LAYERS, TAPS = 3, (0, 1, 2, 3)


def teacher(**changes):
    return Teacher(tiny_model("llama", **changes), TAPS)


def answers(count=6, *, seed=0, prompt=4, answer=9, temperature=0.0):
    """Rows of random tokens, prompts that begin alike, answers of different lengths."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for place in range(count):
        prompt_ids = [1, 5, *torch.randint(3, 48, (prompt - 2 + place % 3,), generator=generator).tolist()]
        answer_ids = torch.randint(3, 48, (answer - place % 4,), generator=generator).tolist()
        rows.append(AnswerRow(f"row-{seed}-{place}", (), tuple(prompt_ids), tuple(answer_ids), temperature))
    return rows


def featured(rows, target):
    """Rows with their features."""
    return [
        Row(
            row.id,
            torch.tensor(row.tokens),
            target.features(torch.tensor([row.tokens]))[0].to(torch.bfloat16),
            len(row.prompt_ids),
            row.temperature == 0,
        )
        for row in rows
    ]


def write(path, rows):
    path.write_text("".join(row.to_json() + "\n" for row in rows), "utf-8")
    return path
