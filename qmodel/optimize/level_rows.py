"""Many classes of one model in the relaxation: replicas by the time per token of their strictest class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qmodel.candidates import Candidate, ColumnSet
from qmodel.optimize.limit_rows import Ledger
from qmodel.types import FloatArray, Limits, RequestClass

__all__ = ["Flow", "Strain", "add_levels"]

_SAME = 1e-9  # relative

Strain = Mapping[tuple[str, int, int], float]  # by group, position of the candidate and level


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Flow:
    """Pools of one candidate and count in the relaxation, and where the program holds what they carry.

    Attributes:
        group: of classes that may share pools.
        position: of the candidate among those of its model.
        replicas: count of the shared pool whose corners these are; 0 where no mix was looked at.
        shares: variable of each class's share, by position of the class in its group.
        parts: variable of each corner's part; empty where no mix was looked at.
        corners: the corners, shape (Q, K).
        count: variable of the pools or replicas.
        level: among those of the candidate where replicas are counted by level, else -1.
    """

    group: str
    position: int
    replicas: int
    shares: Mapping[int, int]
    parts: tuple[int, ...]
    corners: FloatArray
    count: int
    level: int = -1


def add_levels(
    ledger: Ledger, group: str, found: ColumnSet, classes: Sequence[RequestClass], strain: Strain | None = None
) -> list[Flow]:
    """Replicas of each candidate and level, with what they carry.

    Integer counts n_jl and flows x_kjl: each row of a level gives sum_k w_k x_kjl <= n_jl, each class alone
    x_kjl <= r_kj n_jl. A pool that meets its targets is one of a level, so that levels may be counted apart.

    Args:
        ledger: of the relaxation.
        group: of the classes.
        found: its columns.
        classes: that pools may share, shape (K,).
        strain: factors on rows, for a program that is no relaxation any more but looks for fleets.
    """
    ratios = np.array([found.ratios[item.name] for item in classes])
    alone = np.divide(1.0, ratios, out=np.full(ratios.shape, np.inf), where=ratios > 0)
    able = []
    for position, levels in enumerate(found.levels):
        for number, level in enumerate(levels):
            usable = tuple(k for k in level.classes if alone[k, position] < np.inf)
            if usable:
                rows = level.rows * (strain or {}).get((group, position, number), 1.0)
                able.append(
                    _Able(
                        position=position,
                        candidate=found.candidates[position],
                        number=number,
                        limit_s=level.limit_s,
                        rows=rows,
                        alone=alone[:, position],
                        usable=usable,
                    )
                )
    return [_added(ledger, group, classes, item) for item in _needed(able, ledger.limits)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Able:
    """Replicas of a candidate at one level, and the classes that they can serve."""

    position: int
    candidate: Candidate
    number: int
    limit_s: float
    rows: FloatArray
    alone: FloatArray
    usable: tuple[int, ...]

    def all_rows(self) -> FloatArray:
        """What its classes take, together and each alone; infinite for other classes, shape (R + K, K)."""
        rows = np.vstack([self.rows, np.diag(np.where(np.isfinite(self.alone), self.alone, 0.0))])
        rows[:, [k for k in range(self.alone.size) if k not in self.usable]] = np.inf
        return rows


def _added(ledger: Ledger, group: str, classes: Sequence[RequestClass], item: _Able) -> Flow:
    builder, candidate, alone = ledger.builder, item.candidate, item.alone
    layout = f"{candidate.gpu} {candidate.layout} {candidate.precision or ''} {candidate.model}"
    label = f"{layout} within {1e3 * item.limit_s:.0f}"
    usable = list(item.usable)
    most = float(np.ceil(np.maximum(item.rows.max(axis=0), alone)[usable].sum()))
    count = ledger.replicas(f"replicas {label}", candidate, most=most)
    carried: dict[int, int] = {}
    for k in usable:
        name = classes[k].name
        carried[k] = builder.variable(f"flow {name} {label}", cost=0.0, upper=1.0, integer=False)
        ledger.carries(count, carried[k], {name: 1.0}, model=candidate.model)
        if float(alone[k]) > float(item.rows[:, k].max()) * (1.0 + _SAME):
            builder.row(f"alone {name} {label}", {carried[k]: float(alone[k]), count: -1.0}, "<=", 0.0)
    for row in item.rows:
        builder.row(f"together {label}", {**{carried[k]: float(row[k]) for k in usable}, count: -1.0}, "<=", 0.0)
    return Flow(
        group=group,
        position=item.position,
        replicas=0,
        shares=carried,
        parts=(),
        corners=np.zeros((0, len(classes))),
        count=count,
        level=item.number,
    )


def _needed(able: Sequence[_Able], limits: Limits) -> list[_Able]:
    """Without those in whose place whole replicas of another carry all that they do at no more cost."""
    if limits.change is not None or any(limits.of(item.candidate.gpu).counts_nodes for item in able):
        return list(able)
    free = not limits.caps and not any(limits.of(item.candidate.gpu).mixes_offers for item in able)
    usd = np.array([item.candidate.cost_usd_per_hour for item in able])
    rows = [item.all_rows() for item in able]
    served = [frozenset(item.usable) for item in able]
    kept: list[int] = []
    for one in np.argsort(usd, kind="stable").tolist():
        usable = list(able[one].usable)
        own = rows[one][:, usable]
        if not any(
            served[one] <= served[other]
            and (count := _in_place(able[other].candidate, able[one].candidate, usd[other], usd[one], free=free)) >= 1.0
            and bool((rows[other][:, None, usable] <= own * (count * (1.0 + _SAME))).all(axis=2).any(axis=1).all())
            for other in kept
        ):
            kept.append(one)
    return [able[place] for place in sorted(kept)]


def _in_place(other: Candidate, one: Candidate, its_usd: float, own_usd: float, *, free: bool) -> float:
    """Replicas of ``other`` that are no dearer than one of ``one``, and take no more of what is limited; 0: none."""
    if own_usd <= 0.0 or other.spare > one.spare or (other.spot is None) != (one.spot is None):
        return 0.0
    count = own_usd / its_usd if its_usd > 0.0 else 1.0
    if not free:
        count = min(count, one.taken_gpus / other.taken_gpus) if one.gpu == other.gpu else 0.0
    return float(np.floor(count * (1.0 + _SAME)))
