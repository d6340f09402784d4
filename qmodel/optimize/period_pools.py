"""What a program over several periods chose: equal pools with their number and load in each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from qmodel.candidates import Blend, Candidate, Column
from qmodel.types import FloatArray

__all__ = ["PeriodPools", "pools_by_period", "pools_of_regimes"]

_LEAST_PART = 1e-6  # of a class: less is rounding


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PeriodPools:
    """Equal pools of one column or blend, with their number and what all of them carry in each period.

    Attributes:
        counts: pools in each period, shape (P,).
        shares: of each class's largest demand, by class name, in each period.
    """

    candidate: Candidate
    replicas: int
    counts: tuple[int, ...]
    shares: tuple[Mapping[str, float], ...]


def pools_by_period(
    columns: Sequence[Column], blends: Sequence[Blend], points: Sequence[FloatArray | None]
) -> list[PeriodPools]:
    """Columns and blends that are used, with their counts and what they carry in each period.

    Args:
        columns, blends: in the order of their variables in the program of a single period.
        points: of that program, one for each period; None for a period that has another.
    """
    found = []
    for place, column in enumerate(columns):
        counts = tuple(0 if point is None else int(point[place]) for point in points)
        shares = tuple({name: share * n for name, share in column.shares.items() if n} for n in counts)
        found.append(PeriodPools(candidate=column.candidate, replicas=column.replicas, counts=counts, shares=shares))
    place = len(columns)
    for blend in blends:
        size = blend.points.shape[0]
        counts = tuple(0 if point is None else int(point[place]) for point in points)
        shares = tuple(
            {} if point is None else _carried(blend, point[place + 1 : place + 1 + size]) for point in points
        )
        found.append(PeriodPools(candidate=blend.candidate, replicas=blend.replicas, counts=counts, shares=shares))
        place += 1 + size
    return [item for item in found if any(item.counts) and any(item.shares)]


def _carried(blend: Blend, parts: FloatArray) -> dict[str, float]:
    carried = (parts @ blend.points).tolist()
    return {name: share for name, share in zip(blend.names, carried, strict=True) if share > _LEAST_PART}


def pools_of_regimes(by_regime: Sequence[Sequence[PeriodPools]]) -> list[PeriodPools]:
    """One fleet whose periods have columns of several regimes: a pool of one takes the place of one of the others.

    Pools of one candidate and the same classes are lined up by size: the largest of each regime are one pool, as large
    as the largest of them, and so on.

    Args:
        by_regime: pools of each regime, with counts above 0 in its own periods only.

    Returns:
        Pools one by one, or together where replicas add up, with the same count in every period.
    """
    alike: dict[tuple[int, frozenset[str]], list[list[PeriodPools]]] = {}
    for number, pools in enumerate(by_regime):
        for item in pools:
            names = frozenset(name for own in item.shares for name in own)
            alike.setdefault((id(item.candidate), names), [[] for _ in by_regime])[number].append(item)
    found = []
    for members in alike.values():
        first = next(item for own in members for item in own)
        periods = range(len(first.counts))
        if first.candidate.adds_up:
            shares = tuple(_summed(item.shares[period] for own in members for item in own) for period in periods)
            count = max(sum(item.replicas * max(item.counts) for item in own) for own in members)
            found.append(replace(first, replicas=1, counts=(count,) * len(periods), shares=shares))
            continue
        single = [
            sorted((part for item in own for part in _one_by_one(item)), key=lambda part: -part[0]) for own in members
        ]
        for place in range(max(len(parts) for parts in single)):
            mine = [parts[place] for parts in single if place < len(parts)]
            shares = tuple(_summed(part[period] for _, part in mine) for period in periods)
            size = max(size for size, _ in mine)
            found.append(replace(first, replicas=size, counts=(1,) * len(periods), shares=shares))
    return found


def _one_by_one(item: PeriodPools) -> list[tuple[int, tuple[Mapping[str, float], ...]]]:
    """The replicas of each of equal pools, and what it carries in each period."""
    part = tuple(
        {name: share / count for name, share in own.items()} if count else {}
        for own, count in zip(item.shares, item.counts, strict=True)
    )
    return [(item.replicas, part)] * max(item.counts)


def _summed(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in parts:
        for name, share in part.items():
            found[name] = found.get(name, 0.0) + share
    return found
