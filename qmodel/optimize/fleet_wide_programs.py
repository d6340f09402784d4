"""Programs where targets hold over all pools of a class together: excesses add up to nothing, in both of them.

Own construction, see docs/theory/optimizer.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from qmodel.candidates import Column, FleetWideColumns, LoadCurve
from qmodel.evaluation import allowances
from qmodel.optimize.limit_rows import Ledger
from qmodel.optimize.programs import Program, ProgramBuilder
from qmodel.types import FloatArray, Limits, RequestClass

__all__ = ["Part", "Place", "SharedPart", "WideProgram", "wide_bound", "wide_master"]

_MOST_EXCESS = 50.0  # of what a target allows: a mean that is off by more is of no use in a fleet
_MARGIN = 3e-6  # of what a target allows: more than a solver's tolerance

Place = tuple[str, int, bool, int]  # of a curve: group, class, whether a largest pool, number


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """A part of a pool's curve in a program, and what passes it.

    Attributes:
        group: of classes that may share pools.
        place: of the class in the group.
        top: whether the curve is that of a largest pool, which stands for all counts.
        curve: position among the pools, or largest pools, of the class.
        part: of the curve: from this look to the next in the relaxation, this look in the master.
        count, flow: variables of the pools, or replicas, and of the share of the class.
    """

    group: str
    place: int
    top: bool
    curve: int
    part: int
    count: int
    flow: int

    @property
    def of(self) -> Place:
        """The curve that it is a part of."""
        return self.group, self.place, self.top, self.curve


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedPart:
    """A pool of several classes in the master: variables of the pools, and of the share of each class by name."""

    column: Column
    count: int
    flows: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WideProgram:
    """A program with where it holds what."""

    program: Program
    parts: tuple[Part, ...]
    shared: tuple[SharedPart, ...] = ()


@dataclass(slots=True)
class _Writer:
    """Variables and rows of one program as they are collected."""

    limits: Limits
    margin: float
    builder: ProgramBuilder = field(default_factory=ProgramBuilder)
    parts: list[Part] = field(default_factory=list)
    shared: list[SharedPart] = field(default_factory=list)
    rows: list[tuple[str, dict[int, float], float]] = field(default_factory=list)
    excess: dict[str, list[dict[int, float]]] = field(default_factory=dict)
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(builder=self.builder, limits=self.limits)

    def flow(self, count: int, curve: LoadCurve, excess: FloatArray, label: str) -> int:
        """A share of the class that passes a part of a curve, at so much beyond each of its targets."""
        item = curve.item
        position = self.builder.variable(f"flow {item.name} {label}", cost=0.0, upper=1.0, integer=False)
        self.ledger.carries(count, position, {item.name: 1.0}, model=curve.candidate.model)
        rows = self.excess.setdefault(item.name, [{} for _ in item.slos])
        for row, value in zip(rows, (excess / allowances(item)).tolist(), strict=True):
            row[position] = value
        return position

    def closed(self, classes: Sequence[RequestClass]) -> WideProgram:
        """The program with its last rows: sum of flow times excess at most 0, for each class and target."""
        self.ledger.close(classes)
        for name, row, most in self.rows:
            self.builder.row(name, row, "<=", most)
        for item in classes:
            for slo, row in zip(item.slos, self.excess.get(item.name, []), strict=False):
                self.builder.row(f"excess {item.name} {slo.key}", row, "<=", -self.margin)
        return WideProgram(program=self.builder.build(), parts=tuple(self.parts), shared=tuple(self.shared))


def wide_master(
    groups: Mapping[str, FleetWideColumns],
    classes: Sequence[RequestClass],
    limits: Limits,
    *,
    only: Mapping[Place, int] | None = None,
) -> WideProgram:
    """Choose counts of pools at loads that were looked at, and the share of the class that each serves, at least cost.

    A pool may serve less than it was looked at with; it then exceeds its targets by no more. Pools that classes share
    keep every target in themselves: they count with no excess.

    Args:
        groups: by name of classes that may share pools.
        classes: to be covered.
        limits: of the fleet.
        only: pools of one class that may be chosen, with the most of each; None: all.
    """
    writer = _Writer(limits=limits, margin=_MARGIN)
    for group, found in groups.items():
        for place, wide in enumerate(found.classes):
            for number, curve in enumerate(wide.pools):
                start = Part(group=group, place=place, top=False, curve=number, part=0, count=-1, flow=-1)
                most = None if only is None else only.get(start.of, 0)
                if most != 0:
                    _add_loads(writer, start, curve, most)
        for column in found.shared:
            _add_shared(writer, column)
    return writer.closed(classes)


def _add_loads(writer: _Writer, start: Part, curve: LoadCurve, most: int | None) -> None:
    """Pools at each load that was looked at, counted for themselves: x_i <= load_i n_i."""
    useful = np.all(curve.excess <= _MOST_EXCESS * allowances(curve.item), axis=1)
    together: dict[int, float] = {}
    for part in np.flatnonzero(useful)[1:].tolist():
        load, label = float(curve.loads[part]), f"{_label(curve)} {part}"
        enough = float(np.ceil(1.0 / load))
        count = _counted(writer, curve, label, most=enough if most is None else min(enough, float(most)))
        flow = writer.flow(count, curve, curve.excess[part], label)
        writer.rows.append((f"carried {label}", {flow: 1.0, count: -load}, 0.0))
        writer.parts.append(replace(start, part=part, count=count, flow=flow))
        together[count] = 1.0
    if most is not None:
        writer.rows.append((f"most {_label(curve)}", together, float(most)))


def wide_bound(
    groups: Mapping[str, FleetWideColumns], classes: Sequence[RequestClass], limits: Limits, *, apart: bool
) -> WideProgram:
    """A relaxation: its optimum is no more than the cost of any fleet whose targets hold over all pools.

    Of a pool at a load between two looks the lower one says how far it exceeds its targets at least, the upper one
    what it carries at most. Where a class has its pools to itself each count is a variable of its own; where classes
    share pools, each class is taken to meet what it would meet alone, and together they take no more than their step
    time.

    Args:
        groups: by name of classes that may share pools.
        classes: to be covered.
        limits: of the fleet.
        apart: every pool is at one load, in one part of its curve; else its load may lie between those of several,
            which takes fewer whole numbers and says less.
    """
    writer = _Writer(limits=limits, margin=0.0)
    for group, found in groups.items():
        if found.alone:
            _add_whole_pools(writer, group, found, apart=apart)
        else:
            _add_shared_replicas(writer, group, found)
    return writer.closed(classes)


def _add_whole_pools(writer: _Writer, group: str, found: FleetWideColumns, *, apart: bool) -> None:
    (wide,) = found.classes
    standing = {id(curve.candidate) for curve in wide.tops}
    for number, curve in enumerate(wide.pools):
        if id(curve.candidate) in standing:
            continue
        start = Part(group=group, place=0, top=False, curve=number, part=0, count=-1, flow=-1)
        if apart:
            _add_parts_apart(writer, start, curve)
        else:
            count = _counted(writer, curve, _label(curve), most=float(np.ceil(1.0 / curve.ends[0])))
            _add_parts(writer, replace(start, count=count), curve, 1)
    for number, curve in enumerate(wide.tops):
        most = float(np.ceil(curve.replicas / curve.ends[0]))
        count = writer.ledger.replicas(f"replicas {_label(curve)}", curve.candidate, most=most)
        part = Part(group=group, place=0, top=True, curve=number, part=0, count=count, flow=-1)
        _add_parts(writer, part, curve, curve.replicas)


def _add_parts_apart(writer: _Writer, start: Part, curve: LoadCurve) -> None:
    """Pools in each part of a curve, counted for themselves: x_i <= load_i n_i."""
    for part, (end, excess) in enumerate(zip(curve.ends.tolist(), curve.excess, strict=True)):
        label = f"{_label(curve)} {part}"
        count = _counted(writer, curve, label, most=float(np.ceil(1.0 / end)))
        flow = writer.flow(count, curve, excess, label)
        writer.rows.append((f"carried {label}", {flow: 1.0, count: -end}, 0.0))
        writer.parts.append(replace(start, part=part, count=count, flow=flow))


def _add_shared_replicas(writer: _Writer, group: str, found: FleetWideColumns) -> None:
    """Replicas of each candidate that all classes share, each class as far as it alone would come."""
    users: dict[int, list[tuple[int, int, LoadCurve]]] = {}
    for place, wide in enumerate(found.classes):
        for number, curve in enumerate(wide.tops):
            users.setdefault(id(curve.candidate), []).append((place, number, curve))
    positions = {id(one): row for row, one in enumerate(found.candidates)}
    for key, members in users.items():
        most = sum(float(np.ceil(curve.replicas / curve.ends[0])) for _, _, curve in members)
        candidate = members[0][2].candidate
        label = f"replicas {candidate.gpu} {candidate.layout} {candidate.precision or ''} {candidate.model}"
        count = writer.ledger.replicas(label, candidate, most=most)
        time = {count: -1.0}
        for place, number, curve in members:
            part = Part(group=group, place=place, top=True, curve=number, part=0, count=count, flow=-1)
            share = float(found.times[place, positions[key]])
            time |= dict.fromkeys(_add_parts(writer, part, curve, curve.replicas), share)
        writer.rows.append((f"time {label}", time, 0.0))


def _add_parts(writer: _Writer, start: Part, curve: LoadCurve, replicas: int) -> list[int]:
    """Flows through every part of a curve, sum_i x_i / load_i <= n: within a part the pool carries at most its end."""
    label = f"{_label(curve)} {'each' if start.top else ''}"
    row = {start.count: -1.0}
    flows = []
    for part, (end, excess) in enumerate(zip(curve.ends.tolist(), curve.excess, strict=True)):
        flow = writer.flow(start.count, curve, excess, f"{label} {part}")
        row[flow] = replicas / end
        flows.append(flow)
        writer.parts.append(replace(start, part=part, flow=flow))
    writer.rows.append((f"carried {curve.item.name} {label}", row, 0.0))
    return flows


def _add_shared(writer: _Writer, column: Column) -> None:
    label = f"{column.candidate.gpu} {column.candidate.layout} x{column.replicas} {' '.join(column.shares)}"
    most = float(np.ceil(1.0 / min(column.shares.values())))
    count = writer.ledger.pools(f"pool {label}", column.candidate, column.replicas, most=most)
    flows = {}
    for name, share in column.shares.items():
        flow = writer.builder.variable(f"flow {name} {label}", cost=0.0, upper=1.0, integer=False)
        writer.ledger.carries(count, flow, {name: 1.0}, model=column.candidate.model)
        writer.rows.append((f"carried {name} {label}", {flow: 1.0, count: -share}, 0.0))
        flows[name] = flow
    writer.shared.append(SharedPart(column=column, count=count, flows=flows))


def _counted(writer: _Writer, curve: LoadCurve, label: str, *, most: float) -> int:
    """A variable that counts pools, or the replicas of one where pools add up."""
    if curve.candidate.adds_up and curve.replicas == 1:
        return writer.ledger.replicas(f"pool {label}", curve.candidate, most=most)
    return writer.ledger.pools(f"pool {label}", curve.candidate, curve.replicas, most=most)


def _label(curve: LoadCurve) -> str:
    one = curve.candidate
    return f"{one.gpu} {one.layout} {one.precision or ''} x{curve.replicas} {curve.item.name}"
