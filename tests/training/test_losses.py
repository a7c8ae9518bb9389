"""Losses against their formulas, written out once more, and what they are for."""

import math

import pytest
import torch

from truedraft.errors import ParameterError
from truedraft.training.losses import LOSSES, Guesses, Objective


def guesses(said, taught, token=None, state=None, true_state=None):
    said, taught = torch.as_tensor(said), torch.as_tensor(taught)
    count = len(said)
    return Guesses(
        said,
        taught,
        taught.softmax(-1),
        torch.zeros(count, dtype=torch.int64) if token is None else torch.tensor(token),
        torch.zeros(count, 2) if state is None else torch.tensor(state),
        torch.zeros(count, 2) if true_state is None else torch.tensor(true_state),
    )


Q, P = [0.5, 0.3, 0.2], [0.2, 0.7, 0.1]
BY_HAND = {
    "forward-kl": sum(p * math.log(p / q) for p, q in zip(P, Q, strict=True)),
    "cross-entropy": -sum(p * math.log(q) for p, q in zip(P, Q, strict=True)),
    "reverse-kl": sum(q * math.log(q / p) for p, q in zip(P, Q, strict=True)),
    "tv": 0.4,
    "acceptance": -math.log(0.6),
    "next-token": -math.log(0.3),
    "state": (0.5 * 0.5**2 + (3 - 0.5)) / 2,
}


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_by_hand(name):
    case = guesses([[math.log(q) + 7 for q in Q]], [[math.log(p) - 3 for p in P]], [1], [[0.5, 3.0]], [[0.0, 0.0]])
    assert float(LOSSES[name](case)) == pytest.approx(BY_HAND[name], rel=1e-5)


@pytest.mark.parametrize("name", ["forward-kl", "reverse-kl", "tv", "acceptance", "cross-entropy"])
def test_no_draft_is_better_than_the_target_itself(name):
    taught = torch.randn(8, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    said = taught.clone().requires_grad_()
    LOSSES[name](guesses(said, taught)).sum().backward()
    assert said.grad.abs().max() < 1e-9


def test_cross_entropy_pulls_as_forward_kl_does():
    generator = torch.Generator().manual_seed(2)
    taught = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    pulls = []
    for name in ("forward-kl", "cross-entropy"):
        said = torch.randn(4, 6, generator=generator.manual_seed(3), dtype=torch.float64).requires_grad_()
        LOSSES[name](guesses(said, taught)).sum().backward()
        pulls.append(said.grad)
    torch.testing.assert_close(*pulls)


def test_a_sum_of_losses():
    case = guesses([[1.0, 0.0]], [[0.0, 1.0]], [1], [[2.0, 0.0]], [[0.0, 0.0]])
    both = Objective.parse("state + 0.1*cross-entropy")
    assert str(both) == "state + 0.1*cross-entropy"
    torch.testing.assert_close(both(case), LOSSES["state"](case) + 0.1 * LOSSES["cross-entropy"](case))


@pytest.mark.parametrize("text", ["", "kl", "0*tv", "-1*tv", "nan*tv", "inf*tv", "a*tv", "tv +", "tv - state"])
def test_what_is_no_loss_is_refused_with_those_that_are(text):
    with pytest.raises(ParameterError, match="reverse-kl"):
        Objective.parse(text)
