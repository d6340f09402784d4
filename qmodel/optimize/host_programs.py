"""The integer program that puts replicas on hosts: splits, their parts by rack, and packings of hosts.

Parts of equal size are interchangeable, and so are hosts of one rack with as many free GPUs. So the program counts: how
many replicas of a pool take a split, how many groups of parts of a kind lie in a rack, and how many hosts of a kind are
packed in a way. Own construction; packings as in Gilmore and Gomory (1961).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qmodel.optimize.programs import Program, ProgramBuilder
from qmodel.topology.splits import Split
from qmodel.types import FloatArray, Host

__all__ = ["Demand", "HostProgram", "PlacedSplit", "host_program"]

_PACKED_GPUS = 16  # hosts of more free GPUs are filled one by one instead of by lists of packings

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Replicas of one pool.

    Attributes:
        pool: its name.
        unit_gpus: GPUs of one tensor-parallel group.
        replica_gpus: GPUs of one replica.
        replicas: how many are to be placed.
        splits: ways to spread one.
    """

    pool: str
    unit_gpus: int
    replica_gpus: int
    replicas: int
    splits: Sequence[Split]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSplit:
    """One replica: the split it takes, and a host for each of its parts."""

    pool: str
    split: Split
    hosts: tuple[Host, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostProgram:
    """The program and what its variables mean.

    Attributes:
        program: arrays and names; the first variables count replicas left out, where they may be.
        takes: variable of each pool (by place) and split (by place).
        lies: variable of each group of part sizes, in GPUs, and rack.
        packs: variable of each rack, number of free GPUs, and packing.
        fills: variable of each host of many GPUs and part size.
        out: variable of each pool.
    """

    demands: Sequence[Demand]
    hosts: Sequence[Host]
    program: Program
    takes: dict[tuple[int, int], int]
    lies: dict[tuple[Sizes, str], int]
    packs: dict[tuple[str, int, Sizes], int]
    fills: dict[tuple[str, int], int]
    out: dict[int, int]

    def left_out(self, values: FloatArray) -> dict[str, int]:
        """Replicas of each pool that found no host."""
        return {
            demand.pool: count
            for place, demand in enumerate(self.demands)
            if (count := round(values[self.out[place]]) if self.out else 0)
        }

    def read(self, values: FloatArray) -> list[PlacedSplit]:
        """A host for every part of every replica that is placed."""
        slots = self._slots(values)
        regions: dict[Sizes, list[str]] = {}
        for (sizes, rack), variable in self.lies.items():
            regions.setdefault(sizes, []).extend([rack] * round(values[variable]))
        placed: list[PlacedSplit] = []
        for (place, number), variable in self.takes.items():
            demand = self.demands[place]
            split = demand.splits[number]
            for _ in range(round(values[variable])):
                hosts: list[Host] = []
                for units in split.racks:
                    sizes = _sizes(units, demand.unit_gpus)
                    rack = regions[sizes].pop()
                    hosts += [slots[rack, size].pop() for size in sizes]
                placed.append(PlacedSplit(pool=demand.pool, split=split, hosts=tuple(hosts)))
        return placed

    def _slots(self, values: FloatArray) -> dict[tuple[str, int], list[Host]]:
        """Hosts by rack and part size, one entry for each part that its packing has room for."""
        slots: dict[tuple[str, int], list[Host]] = {}
        alike: dict[tuple[str, int], list[Host]] = {}
        by_name = {host.name: host for host in self.hosts}
        for host in self.hosts:
            alike.setdefault((host.rack, host.gpus), []).append(host)
        for (rack, gpus, packing), variable in self.packs.items():
            for _ in range(round(values[variable])):
                host = alike[rack, gpus].pop()
                for size in packing:
                    slots.setdefault((rack, size), []).append(host)
        for (name, size), variable in self.fills.items():
            host = by_name[name]
            slots.setdefault((host.rack, size), []).extend([host] * round(values[variable]))
        return slots


def host_program(demands: Sequence[Demand], hosts: Sequence[Host], *, may_leave_out: bool) -> HostProgram:
    """Build the program for hosts of one GPU type.

    Args:
        demands: pools with their splits.
        hosts: hosts with free GPUs.
        may_leave_out: count GPUs of replicas left out instead of traffic, to find what fits at all.
    """
    builder = ProgramBuilder()
    racks = sorted({host.rack for host in hosts})
    out = {
        place: builder.variable(
            f"out {demand.pool}",
            cost=float(demand.replica_gpus),
            upper=float(demand.replicas),
            integer=True,
        )
        for place, demand in enumerate(demands if may_leave_out else ())
    }
    takes: dict[tuple[int, int], int] = {}
    lies: dict[tuple[Sizes, str], int] = {}
    wanted: dict[Sizes, dict[int, float]] = {}
    for place, demand in enumerate(demands):
        for number, split in enumerate(demand.splits):
            cost = 0.0 if may_leave_out else split.weight
            variable = builder.variable(
                f"take {demand.pool} {number}", cost=cost, upper=float(demand.replicas), integer=True
            )
            takes[place, number] = variable
            for sizes, count in Counter(_sizes(units, demand.unit_gpus) for units in split.racks).items():
                wanted.setdefault(sizes, {})[variable] = float(count)
        row = {takes[place, number]: 1.0 for number in range(len(demand.splits))}
        builder.row(f"no more {demand.pool}", dict(row), "<=", float(demand.replicas))
        if may_leave_out:
            row[out[place]] = 1.0
        builder.row(f"place {demand.pool}", row, ">=", float(demand.replicas))
    room = _room(hosts)
    for sizes, users in sorted(wanted.items()):
        most = sum(demand.replicas for demand in demands) * float(max(users.values()))
        for rack in racks:
            upper = min(most, float(room[rack] // sum(sizes)))
            if upper >= 1.0:
                name = f"lie {rack} {'_'.join(map(str, sizes))}"
                lies[sizes, rack] = builder.variable(name, cost=0.0, upper=upper, integer=True)
        row = {lies[sizes, rack]: 1.0 for rack in racks if (sizes, rack) in lies}
        row.update({variable: -count for variable, count in users.items()})
        builder.row(f"region {'_'.join(map(str, sizes))}", row, ">=", 0.0)
    packs, fills = _pack(builder, hosts, lies)
    return HostProgram(
        demands=demands,
        hosts=hosts,
        program=builder.build(),
        takes=takes,
        lies=lies,
        packs=packs,
        fills=fills,
        out=out,
    )


def _pack(
    builder: ProgramBuilder, hosts: Sequence[Host], lies: dict[tuple[Sizes, str], int]
) -> tuple[dict[tuple[str, int, Sizes], int], dict[tuple[str, int], int]]:
    """Variables and rows that give every part in a rack a place on one of its hosts."""
    sizes = sorted({size for parts, _ in lies for size in parts}, reverse=True)
    packs: dict[tuple[str, int, Sizes], int] = {}
    fills: dict[tuple[str, int], int] = {}
    for (rack, gpus), count in sorted(Counter((host.rack, host.gpus) for host in hosts).items()):
        if 0 < gpus <= _PACKED_GPUS:
            for packing in _packings(gpus, [size for size in sizes if size <= gpus]):
                name = f"pack {rack} {gpus} {'_'.join(map(str, packing))}"
                packs[rack, gpus, packing] = builder.variable(name, cost=0.0, upper=float(count), integer=True)
            row = {variable: 1.0 for (at, free, _), variable in packs.items() if (at, free) == (rack, gpus)}
            if row:
                builder.row(f"hosts {rack} {gpus}", row, "<=", float(count))
    for host in hosts:
        if host.gpus > _PACKED_GPUS:
            fitting = [size for size in sizes if size <= host.gpus]
            for size in fitting:
                upper = float(host.gpus // size)
                fills[host.name, size] = builder.variable(
                    f"fill {host.name} {size}", cost=0.0, upper=upper, integer=True
                )
            row = {fills[host.name, size]: float(size) for size in fitting}
            if row:
                builder.row(f"host {host.name}", row, "<=", float(host.gpus))
    rack_of = {host.name: host.rack for host in hosts}
    for rack in sorted({host.rack for host in hosts}):
        for size in sizes:
            row = {variable: -float(parts.count(size)) for (parts, at), variable in lies.items() if at == rack}
            row = {variable: value for variable, value in row.items() if value}
            if not row:
                continue
            for (at, _, packing), variable in packs.items():
                if at == rack and size in packing:
                    row[variable] = float(packing.count(size))
            for (name, held), variable in fills.items():
                if rack_of[name] == rack and held == size:
                    row[variable] = 1.0
            builder.row(f"room {rack} {size}", row, ">=", 0.0)
    return packs, fills


def _packings(room: int, sizes: Sequence[int]) -> Iterator[Sizes]:
    """Multisets of sizes that fit and leave no room for one more."""
    if not sizes:
        return
    first, rest = sizes[0], sizes[1:]
    for count in range(room // first, -1, -1):
        left = room - count * first
        if not rest:
            if count == room // first and count:
                yield (first,) * count
            continue
        if left < rest[-1]:
            if count:
                yield (first,) * count
            continue
        for more in _packings(left, rest):
            if sum(more) + first > left:  # else another of the first would fit
                yield (first,) * count + more


def _room(hosts: Sequence[Host]) -> dict[str, int]:
    room: dict[str, int] = {}
    for host in hosts:
        room[host.rack] = room.get(host.rack, 0) + host.gpus
    return room


def _sizes(units: Sequence[int], unit_gpus: int) -> Sizes:
    return tuple(sorted((count * unit_gpus for count in units), reverse=True))
