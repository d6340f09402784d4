"""Columns for many classes of one model: some of them together, each whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qmodel.candidates.resources import tpot_limit_s
from qmodel.types import RequestClass

__all__ = ["groups_of"]


def groups_of(classes: Sequence[RequestClass]) -> list[tuple[int, ...]]:
    """Groups of classes worth a pool of their own, as positions; each has at least two, none stands twice.

    All classes; in the order of how tight their targets are, all up to one and all from one on; all but one. A fleet
    that keeps strict classes from lenient ones, or one class from the rest, is made of these and of classes alone.
    There are about three times as many as classes, where subsets would be 2**K.

    Args:
        classes: of one model, shape (K,).

    Example:
        >>> from qmodel.types import Law, Lengths, RequestClass, Slo
        >>> lengths = Lengths.independent(Law.constant(100), Law.constant(50))
        >>> groups_of([
        ...     RequestClass(name=f"{target_s}", model="m", rate_rps=1.0, lengths=lengths,
        ...                  slos=(Slo(metric="tpot", p=None, target_s=target_s),))
        ...     for target_s in (0.03, 0.05, 0.02)
        ... ])
        [(0, 1, 2), (0, 2), (0, 1), (1, 2)]
    """
    order = sorted(range(len(classes)), key=lambda place: _tightness(classes[place]))
    found = [tuple(order)]
    found += [tuple(order[:cut]) for cut in range(2, len(order))]
    found += [tuple(order[cut:]) for cut in range(1, len(order) - 1)]
    found += [tuple(order[:cut] + order[cut + 1 :]) for cut in range(len(order))]
    return list(dict.fromkeys(tuple(sorted(group)) for group in found if len(group) > 1))


def _tightness(item: RequestClass) -> tuple[float, float, str]:
    """Time per token first: it bounds the batch that all classes of a pool share."""
    others = min((slo.target_s for slo in item.slos if slo.metric != "tpot"), default=np.inf)
    return tpot_limit_s(item), others, item.name
