"""Columns: a candidate, a count and the class shares it carries. What the integer program chooses from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from qmodel.candidates.enumeration import Candidate
from qmodel.candidates.frontiers import frontier, least_counts, unit_loads
from qmodel.types import FloatArray, RequestClass

__all__ = ["Column", "ColumnSet", "columns_for_model"]

_MOST_CLASSES = 4  # classes in one mix
_ALL_SIZES = 12  # up to here every count becomes a column; beyond, a spread of counts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Column:
    """A pool with its count and what it carries.

    Attributes:
        candidate: the pool without its count.
        replicas: its count.
        shares: share of each class's demand carried with every target met, at most 1.
        upper: the same just beyond the frontier; optimistic, for the bound.
    """

    candidate: Candidate
    replicas: int
    shares: Mapping[str, float]
    upper: Mapping[str, float]

    @property
    def cost_usd_per_hour(self) -> float:
        """Of the whole pool."""
        return self.candidate.cost_usd_per_hour * self.replicas

    @property
    def gpus(self) -> int:
        """GPUs of the whole pool."""
        return self.candidate.layout.gpus * self.replicas


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnSet:
    """Columns of one model.

    Attributes:
        columns: candidates for the integer program.
        complete: every useful count of every useful candidate is there, so that for a
            model with one class the columns are the whole problem.
        least: for each class alone, the least count of each candidate (0: it cannot), by candidate position.
        candidates: all candidates of the model, positions as in ``least``.
        ratios: for each class alone, an upper bound on the share of its demand one replica carries.
    """

    columns: tuple[Column, ...]
    complete: bool
    least: Mapping[str, tuple[int, ...]]
    candidates: tuple[Candidate, ...]
    ratios: Mapping[str, FloatArray]


def columns_for_model(candidates: Sequence[Candidate], classes: Sequence[RequestClass]) -> ColumnSet:
    """Columns for the classes of one model: each alone, and all mixes of up to four in proportion to their demand.

    Args:
        candidates: pools that serve the model.
        classes: its classes.
    """
    columns: list[Column] = []
    least: dict[str, tuple[int, ...]] = {}
    ratios: dict[str, FloatArray] = {}
    complete = True
    best_alone: dict[str, float] = {}
    for size in range(1, min(len(classes), _MOST_CLASSES) + 1):
        for mix in combinations(classes, size):
            budget = sum(best_alone.get(item.name, np.inf) for item in mix) if size > 1 else np.inf
            found = _direction(candidates, mix, budget)
            columns += found.columns
            complete = complete and found.complete
            if size == 1:
                name = mix[0].name
                least[name], ratios[name] = tuple(int(n) for n in found.least), found.ratios
                best_alone[name] = found.best_usd_per_hour
    return ColumnSet(
        columns=tuple(columns), complete=complete, least=least, candidates=tuple(candidates), ratios=ratios
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Direction:
    columns: list[Column]
    least: np.ndarray[tuple[int], np.dtype[np.int64]]
    ratios: FloatArray
    best_usd_per_hour: float
    complete: bool


def _direction(candidates: Sequence[Candidate], mix: Sequence[RequestClass], budget: float) -> _Direction:
    """Columns of one mix. A count is kept while it could still be part of a cheapest fleet."""
    cost = np.array([item.cost_usd_per_hour for item in candidates])
    known: dict[tuple[int, int], tuple[float, float]] = {}
    least = least_counts(candidates, mix, known)
    load = unit_loads(candidates, mix)
    alone = np.where(least > 0, cost * least, np.inf)
    best = min(float(alone.min(initial=np.inf)), budget)
    # serving the rest of the demand costs at least this much per unit of load
    cheapest = float(np.min(cost * np.where(np.isfinite(load), load, np.inf), initial=np.inf))
    positions, counts, complete = [], [], True
    for position, item in enumerate(candidates):
        if not np.isfinite(load[position]):
            continue
        most = int(least[position]) or item.max_replicas
        if np.isfinite(best):
            most = min(most, int(np.floor(best / cost[position] * (1 + 1e-9))))
        sizes = np.arange(1, most + 1) if most <= _ALL_SIZES else _spread(most)
        complete = complete and most <= _ALL_SIZES
        carried = np.minimum(sizes / load[position], 1.0)
        useful = cost[position] * sizes + (1.0 - carried) * cheapest <= best * (1 + 1e-9)
        positions += [position] * int(useful.sum())
        counts += sizes[useful].tolist()
    found = frontier([candidates[p] for p in positions], mix, np.array(counts, dtype=int), known) if positions else None
    columns = []
    ratios = np.zeros(len(candidates))
    if found is not None:
        for position, count, low, high in zip(positions, counts, found.low, found.high, strict=True):
            ratios[position] = max(ratios[position], float(high) / count)
            if low > 0:
                share, upper = min(float(low), 1.0), min(float(high), 1.0)
                if count == least[position]:
                    share = upper = 1.0
                columns.append(
                    Column(
                        candidate=candidates[position],
                        replicas=int(count),
                        shares={item.name: share for item in mix},
                        upper={item.name: upper for item in mix},
                    )
                )
    return _Direction(
        columns=_undominated(columns),
        least=least,
        ratios=ratios,
        best_usd_per_hour=float(alone.min(initial=np.inf)),
        complete=complete,
    )


def _spread(most: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """A spread of counts with the small ones and the largest, for pools too large to try every count."""
    return np.unique(np.concatenate([[1, 2, 3, 4], np.round(np.geomspace(5, most, 6)), [most - 1, most]]).astype(int))


def _undominated(columns: list[Column]) -> list[Column]:
    """Without columns that take no fewer GPUs of the same type, cost no less and carry no more than another."""
    kept: list[Column] = []
    ordered = sorted(columns, key=lambda c: (c.candidate.gpu, c.cost_usd_per_hour, c.gpus, -min(c.shares.values())))
    for column in ordered:
        share, upper = min(column.shares.values()), min(column.upper.values())
        if not any(
            other.candidate.gpu == column.candidate.gpu
            and other.gpus <= column.gpus
            and min(other.shares.values()) >= share
            and min(other.upper.values()) >= upper
            for other in kept
        ):
            kept.append(column)
    return kept
