"""What a program over several periods chose: equal pools with their number and load in each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qmodel.candidates import Blend, Candidate, Column
from qmodel.types import FloatArray

__all__ = ["PeriodPools", "pools_by_period"]

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
    columns: Sequence[Column], blends: Sequence[Blend], points: Sequence[FloatArray]
) -> list[PeriodPools]:
    """Columns and blends that are used, with their counts and what they carry in each period.

    Args:
        columns, blends: in the order of their variables in the program of a single period.
        points: of that program, one for each period.
    """
    found = []
    for place, column in enumerate(columns):
        counts = tuple(int(point[place]) for point in points)
        shares = tuple({name: share * n for name, share in column.shares.items() if n} for n in counts)
        found.append(PeriodPools(candidate=column.candidate, replicas=column.replicas, counts=counts, shares=shares))
    place = len(columns)
    for blend in blends:
        size = blend.points.shape[0]
        counts = tuple(int(point[place]) for point in points)
        carried = [(point[place + 1 : place + 1 + size] @ blend.points).tolist() for point in points]
        shares = tuple(
            {name: share for name, share in zip(blend.names, each, strict=True) if share > _LEAST_PART}
            for each in carried
        )
        found.append(PeriodPools(candidate=blend.candidate, replicas=blend.replicas, counts=counts, shares=shares))
        place += 1 + size
    return [item for item in found if any(item.counts) and any(item.shares)]
