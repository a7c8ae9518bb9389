"""Values between measured points. This file refuses to know what was measured."""

from __future__ import annotations

from itertools import pairwise

__all__ = ["Curve", "along"]

Curve = list[tuple[float, float]]
"""(place, value), places ascending."""


def along(curve: Curve, place: float) -> float:
    """A value on a curve of (place, value) in ascending order: linear, never falling past its end."""
    if place <= curve[0][0] or len(curve) == 1:
        return curve[0][1]
    for (left, low), (right, high) in pairwise(curve):
        if place <= right:
            return low + (high - low) * (place - left) / (right - left)
    (left, low), (right, high) = curve[-2:]
    return high + max(0.0, (high - low) / (right - left)) * (place - right)
