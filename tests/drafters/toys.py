"""Languages and requests on which drafters that cost nothing have something to find."""

from __future__ import annotations

import torch

from tests.drafters.helpers import make
from truedraft.core import Shape, Verdict
from truedraft.toy import Language, random_language


def repeating(vocabulary: int, period: int) -> Language:
    """A language that mostly repeats what stood `period` tokens before, and now and then does not."""
    surprise = random_language(vocabulary, order=3, seed=4)

    def logits(context: tuple[int, ...]) -> torch.Tensor:
        row = surprise(context)
        if len(context) >= period:
            row = row + 1.5 * torch.eye(vocabulary, dtype=row.dtype)[context[-period]]
        return row

    return logits


def serve(drafter, prompt, output):
    """A request that emitted this output, a token a round, from first sight to release. No scores are seen."""
    session = make(prompt)
    for token in output:
        drafter.propose([session], [Shape.chain(4)])
        session.extend([token])
        drafter.observe([session], [Verdict((), (token,))], [])
    drafter.release(session)
