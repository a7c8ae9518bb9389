"""How often the next token is one of k drafted siblings, by rule: closed forms at one node, no simulation.

p and q [V] are the target's and the draft's distribution after the node. Rules and laws whose acceptance has no closed
form (recursive rejection without replacement beyond two siblings, coupled siblings beyond one) are not here.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from truedraft import drawing
from truedraft.verify import kseq
from truedraft.verify.acceptance import remaining, without

__all__ = [
    "ACCEPTANCE",
    "chosen",
    "coupled",
    "greedy_draft",
    "k_sequential",
    "recursive",
    "recursive_without_replacement",
    "single",
]


def single(p: Tensor, q: Tensor) -> float:
    """One drawn sibling: sum_x min(p, q) = 1 - TV(p, q), the most that is possible."""
    return _sum(torch.minimum(p, q))


def chosen(p: Tensor, q: Tensor, k: int) -> float:
    """Target-only on the k most probable tokens of q: p of that set."""
    return _sum(p[drawing.chosen(q, k)])


def recursive(p: Tensor, q: Tensor, k: int) -> float:
    """Token-level rejection, k independent siblings: what is left of p does not depend on which token was rejected."""
    left, missed = p.double(), 1.0
    for _ in range(k):
        accepted = single(left, q)
        missed *= 1.0 - accepted
        surplus = (left - q).clamp_(min=0.0)
        if missed <= 0.0 or not surplus.any():
            return 1.0
        left = surplus / surplus.sum()
    return 1.0 - missed


def recursive_without_replacement(p: Tensor, q: Tensor) -> float:
    """Token-level rejection, two siblings drawn without replacement.

    A first sibling x is rejected in [q - p]+(x) of all cases; the second one then comes from q / (1 - q(x)) without x,
    and what is left of p, r, is 0 at x. So sum_y min(r(y), q(y) c) is needed at many c: prefix sums by r/q give all.
    """
    p, q = p.double() / _sum(p), q.double() / _sum(q)
    rejected, left = (q - p).clamp(min=0.0), (p - q).clamp(min=0.0)
    if not left.any():
        return 1.0
    left = left / left.sum()
    first = rejected > 0.0
    rest, likeliest = 1.0 - q, int(q.argmax())
    rest[likeliest] = without(q, [likeliest])[1]  # by subtraction the rest of a large q would be rounding
    scale = torch.where(rest > 0.0, 1.0 / rest, 0.0)[first]  # of a q that knows one token there is no second
    ratio, order = torch.sort(torch.where(q > 0.0, left / q, torch.inf))
    below = torch.searchsorted(ratio, scale, right=True)
    left_below = torch.nn.functional.pad(left[order].cumsum(0), (1, 0))[below]
    q_above = torch.nn.functional.pad(q[order].flip(0).cumsum(0).flip(0), (0, 1))[below]
    # The rejected token itself has r/q = 0: it is below, where it adds nothing.
    return single(p, q) + _sum(rejected[first] * (left_below + q_above * scale))


def k_sequential(p: Tensor, q: Tensor, k: int) -> float:
    """k-SEQ on k independent siblings: 1 - (1 - beta)^k."""
    _, beta = kseq.threshold(p, q, k)
    return 1.0 - (1.0 - beta) ** k


def greedy_draft(p: Tensor, q: Tensor, k: int) -> float:
    """Greedy-draft verification: p of the chosen siblings and sum min(p, q') outside, the optimum of its law."""
    top = drawing.chosen(q, k)[:-1]
    rest, mass = remaining(q, top) if top else (q, 1.0)
    return _sum(p[top]) + single(p, rest / mass)


def coupled(p: Tensor, q: Tensor) -> float:
    """One coupled sibling: sum_x 1 / sum_y max(p(y)/p(x), q(y)/q(x)) (Daliri et al. 2025).

    The inner sum is p(x) or q(x) of the tokens on either side of x in the order of p/q, so it takes prefix sums only.
    """
    p, q = p.double(), q.double()
    both = (p > 0.0) & (q > 0.0)
    extra_p, extra_q = _sum(p[~both]), _sum(q[~both])
    order = torch.argsort(p[both] / q[both])
    p_some, q_some = p[both][order], q[both][order]
    q_below, p_above = q_some.cumsum(0) + extra_q, p_some.flip(0).cumsum(0).flip(0) - p_some + extra_p
    return _sum(1.0 / (q_below / q_some + p_above / p_some))


def _sum(values: Tensor) -> float:
    return float(values.sum(dtype=torch.float64))


ACCEPTANCE: dict[str, Callable[[Tensor, Tensor, int], float]] = {
    "target-only chosen": chosen,
    "token sampled": recursive,
    "kseq sampled": k_sequential,
    "greedy-draft greedy-draft": greedy_draft,
}
"""Rule and law to the acceptance of k siblings."""
