"""What a birth-death chain of a pool is made of at its nodes, and chains of different replicas side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qmodel.types import FloatArray, IntArray

__all__ = ["Nodes", "side_by_side"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Nodes:
    """What the chain is made of; nothing of it depends on the load that a search varies.

    Attributes:
        number, weight, batch, tau, speed: as :func:`chain_states` gives them, shapes (C, K).
        log_speeds: log of the product of what one over the speeds is up to each node, shape (C, K).
        measures: b, b tau, b tau^2, b^2, and 1 where a replica is empty, shape (5, C, K).
        blocked: probability that memory has no room for an arrival, shape (C, K); None without a limit.
    """

    number: FloatArray
    weight: FloatArray
    batch: FloatArray
    tau: FloatArray
    speed: FloatArray
    log_speeds: FloatArray
    measures: FloatArray
    blocked: FloatArray | None

    def means(self, seen: FloatArray) -> tuple[FloatArray, ...]:
        """Means of b, b tau, b tau^2, b^2 and of idleness under each law, shapes (C,)."""
        if self.batch.shape[0] == 1:
            return tuple((seen @ self.measures[:, 0].T).T)
        return tuple(np.einsum("ck,vck->vc", seen, self.measures))


def side_by_side(parts: Sequence[tuple[IntArray, Nodes]]) -> Nodes:
    """Chains of different lengths in one array; shorter ones repeat their last state, which weighs nothing in between.

    Args:
        parts: rows of the cases, together 0 to C - 1, with the nodes of each or of all of them.
    """
    cases = sum(rows.size for rows, _ in parts)
    width = max(found.number.shape[1] for _, found in parts)
    measures = np.empty((parts[0][1].measures.shape[0], cases, width))
    weight = np.zeros((cases, width))
    for rows, found in parts:
        size = found.number.shape[1]
        measures[:, rows, :size] = found.measures
        measures[:, rows, size:] = found.measures[:, :, -1:]
        weight[rows, :size] = found.weight
        if size < width:  # the tail is counted at the last node, which stands for half a state
            weight[rows, size - 1] -= 0.5
            weight[rows, -1] += 0.5

    def together(name: str) -> FloatArray:
        whole = np.empty((cases, width))
        for rows, found in parts:
            item: FloatArray = getattr(found, name)
            whole[rows, : item.shape[1]] = item
            whole[rows, item.shape[1] :] = item[:, -1:]
        return whole

    return Nodes(
        number=together("number"),
        weight=weight,
        batch=together("batch"),
        tau=together("tau"),
        speed=together("speed"),
        log_speeds=together("log_speeds"),
        measures=measures,
        blocked=None if parts[0][1].blocked is None else together("blocked"),
    )
