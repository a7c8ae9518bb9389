"""How much any lossless rule can accept at one node with k drawn children: the optimal-transport bound.

Source: Sun et al. 2023 (SpecTr) for the transport problem; Hu et al. 2025, "Towards Optimal Multi-draft Speculative
Decoding", for its dual and for the order in which it need be searched. With H a set of tokens,

    bound = 1 + min over H of ( p(H) - Pr(all drafted tokens lie in H) )

and of all sets only those that hold the tokens of smallest p/q need be tried. Independent draws all lie in H with
probability q(H)^k. Draws without replacement are the first k arrivals of a race in which x arrives at rate q(x). With
lambda = 1 - q(H), and e_j the elementary symmetric polynomials of e^(q(x) t) - 1 over the x in H, they all lie in H
with probability

    1 - lambda * integral over t > 0 of e^(-t) (e_0 + e_1 + ... + e_(k-1))

The first two terms have closed forms; the others are summed over a logarithmic grid of t, which for these integrands is
exact to rounding. This page refuses to draw anything.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from truedraft.errors import ParameterError

__all__ = ["independent_bound", "without_replacement_bound"]

_Array = npt.NDArray[np.float64]

_STEP = 0.25
"""Of the grid of log t: the trapezoidal rule errs by about e^(-pi^2 / step), 1e-17."""
_NOTHING = 1e-10
"""Draws that happen less often than this are taken to never happen."""
_SAFE_EXPONENT = 300.0
"""Beyond it the products of exponentials are formed as sums of logarithms."""


def independent_bound(p: Tensor, q: Tensor, k: int) -> float:
    """The bound for k independent draws from q [V]. O(V log V)."""
    p_sorted, q_sorted = _by_ratio(p, q, k)
    inside = np.minimum(1.0, q_sorted.cumsum()) ** k
    return _bound(p_sorted, inside)


def without_replacement_bound(p: Tensor, q: Tensor, k: int) -> float:
    """The bound for k draws without replacement from q [V]. O(V log V) up to k = 2, else about 70 passes over V."""
    p_sorted, q_sorted = _by_ratio(p, q, k)
    if k >= len(q_sorted):  # every token that can be drafted is
        return float(p_sorted.sum())
    return _bound(p_sorted, _all_inside(q_sorted, k))


def _bound(p_sorted: _Array, inside: _Array) -> float:
    """1 + the minimum over all prefixes, the empty one included."""
    return 1.0 + min(0.0, float((p_sorted.cumsum() - inside).min()))


def _by_ratio(p: Tensor, q: Tensor, k: int) -> tuple[_Array, _Array]:
    """p and q where q > 0, by p/q ascending. The tokens that are never drafted belong in no H."""
    if k < 1:
        raise ParameterError(f"the bound is for at least one draft token, got k = {k}")
    p_all, q_all = p.double().cpu().numpy(), q.double().cpu().numpy()
    p_some, q_some = p_all[q_all > 0] / p_all.sum(), q_all[q_all > 0] / q_all.sum()
    order = np.argsort(p_some / q_some, kind="stable")
    return p_some[order], q_some[order]


def _all_inside(q: _Array, k: int) -> _Array:
    """Pr(the first k draws without replacement lie in the first n tokens), for every n; k < len(q)."""
    if k == 1:
        return np.asarray(np.minimum(1.0, q.cumsum()))
    order = np.argsort(q, kind="stable")
    tails = q[order].cumsum()[::-1]  # tails[j]: the mass without the j largest
    for sure in range(1, k):
        if tails[sure] < _NOTHING:
            return _after_sure_draws(q, k, order[-sure:])
    outside = np.append(q[:0:-1].cumsum()[::-1], 0.0)
    rest = np.where(q < 0.5, 1.0 - q, tails[1])  # by subtraction the rest of a large q would be rounding
    terms = 1.0 + (q / rest).cumsum()
    for j in range(2, k):
        terms += _integral(q, j, float(tails[j]))
    return np.asarray(np.clip(1.0 - outside * terms, 0.0, 1.0))


def _after_sure_draws(q: _Array, k: int, sure: npt.NDArray[np.intp]) -> _Array:
    """The same where these tokens hold all mass but `_NOTHING`: they are drawn first, the others from what is left."""
    others = np.delete(q, sure)
    inside = np.append(0.0, _all_inside(others / others.sum(), k - len(sure)))
    drawn_others = np.arange(1, len(q) + 1) - (np.arange(len(q))[:, None] >= sure).sum(1)
    return np.where(np.arange(len(q)) >= sure.max(), inside[drawn_others], 0.0)


def _integral(q: _Array, order: int, rest: float) -> _Array:
    """The integral of e^(-t) e_order over t, for every prefix of q; rest: 1 - the largest exponent's rate."""
    grid = np.arange(-40.0 / (order + 1), math.log(40.0 / rest), _STEP)
    total = np.zeros_like(q)
    for t in np.exp(grid):
        total += t * _STEP * (_scaled(q, order, t) if q.max() * t < _SAFE_EXPONENT else _scaled_by_log(q, order, t))
    return total


def _scaled(q: _Array, order: int, t: float) -> _Array:
    """e^(-t) e_order for every prefix of q."""
    odds = np.expm1(q * t)
    terms = np.full_like(q, math.exp(-t))
    for _ in range(order):
        terms = odds * terms
        terms = terms.cumsum() if _ == order - 1 else np.append(0.0, terms.cumsum()[:-1])
    return terms


def _scaled_by_log(q: _Array, order: int, t: float) -> _Array:
    """The same from logarithms, where exponentials would overflow."""
    odds = torch.from_numpy(q * t + np.log(-np.expm1(-q * t)))
    terms = torch.full_like(odds, -t)
    nothing = torch.full((1,), -math.inf, dtype=odds.dtype)
    for _ in range(order):
        terms = torch.logcumsumexp(odds + terms, 0)
        terms = terms if _ == order - 1 else torch.cat([nothing, terms[:-1]])
    return np.asarray(terms.exp().numpy())
