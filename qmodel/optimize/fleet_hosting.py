"""Which hosts of a cluster each replica of a fleet takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from qmodel.optimize.host_programs import Demand, PlacedSplit, host_program
from qmodel.optimize.solvers import SolverOptions, check_solver, solve_integer
from qmodel.topology import nearest_layout
from qmodel.topology.splits import (
    ReplicaTraffic,
    Split,
    replica_splits,
    split_weight,
    units_of,
    usual_replica_traffic,
)
from qmodel.types import Cluster, Fleet, Host, Pool

__all__ = ["FleetPlacement", "HostShare", "PlacedReplica", "place_fleet"]

_MORE_HOSTS = 3  # beyond the fewest, on the second try
_FIT_GAP = 0.02  # of the GPUs of replicas left out; they only tell how much is missing
_EXACT = 1e-9
_TOO_SOON = "the time limit came before it was known whether all fits; raise time_limit_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostShare:
    """GPUs of one host that a replica takes."""

    host: str
    rack: str
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedReplica:
    """One replica and its hosts.

    Attributes:
        pool: its pool.
        number: 0 for the first replica of the pool.
        shares: hosts in the order of its tensor-parallel groups, stage by stage.
        traffic: bytes between hosts times their weight, in the unit of the traffic that was given.
    """

    pool: str
    number: int
    shares: tuple[HostShare, ...]
    traffic: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlacement:
    """Where a fleet goes.

    Attributes:
        status: ``optimal`` (within the gap that was asked for of the bound), ``feasible``, ``infeasible`` or ``limit``
            (a limit was hit with no placement).
        replicas: hosts of every replica; of those that fit where not all do.
        traffic: weighted traffic between hosts of all of them.
        bound: no placement of the whole fleet in the scope of the search has less; None where there is none.
        left_out: replicas of each pool that find no host.
        why: one sentence where the fleet does not fit, else empty.
    """

    status: Literal["optimal", "feasible", "infeasible", "limit"]
    replicas: tuple[PlacedReplica, ...]
    traffic: float
    bound: float | None
    left_out: Mapping[str, int]
    why: str = ""

    @property
    def gap(self) -> float | None:
        """Traffic above the bound, over the traffic; None without a bound."""
        if self.bound is None:
            return None
        return 0.0 if self.traffic <= self.bound + _EXACT else (self.traffic - self.bound) / self.traffic

    @property
    def used(self) -> dict[str, int]:
        """GPUs taken on each host that is used."""
        used: dict[str, int] = {}
        for placed in self.replicas:
            for share in placed.shares:
                used[share.host] = used.get(share.host, 0) + share.gpus
        return dict(sorted(used.items()))


def place_fleet(
    fleet: Fleet,
    cluster: Cluster,
    *,
    traffic: Mapping[str, ReplicaTraffic] | None = None,
    solver: SolverOptions | None = None,
) -> FleetPlacement:
    """Put every replica of a fleet on hosts, so that the least traffic leaves them.

    A tensor-parallel group stays on one host. Stages and attention ranks may be spread, over hosts of a rack before
    racks. First as many GPUs as possible are placed; where the whole fleet fits, weighted traffic is made least.

    Args:
        fleet: pools with their replicas; routing is not looked at.
        cluster: hosts with their free GPUs.
        traffic: what a replica of each pool moves; a pool left out has `usual_replica_traffic` of its layout.
        solver: solver, gap and time for all programs together; None: HiGHS, 1 %, 10 s.

    Returns:
        Hosts of every replica with the traffic and a bound; where the fleet does not fit, what fits, what is left out
        and the nearest change that would help. Replicas of more than six tensor-parallel groups are spread over at most
        one host more than they need, or three where that does not fit; the bound is for that.

    Raises:
        SolverUnavailableError: if the solver is not installed.
        ValueError: if ``traffic`` names a pool that the fleet has not.

    Example:
        >>> from qmodel.types import Cluster, Fleet, Layout, Pool
        >>> pools = {"wide": Pool(name="wide", model="m", gpu="h100-sxm", layout=Layout(tp=8, pp=2), replicas=2),
        ...          "small": Pool(name="small", model="m", gpu="h100-sxm", layout=Layout(tp=2), replicas=3)}
        >>> cluster = Cluster.of_equal_hosts(6, gpu="h100-sxm", gpus=8, hosts_per_rack=2, used=(2,))
        >>> found = place_fleet(Fleet(pools=pools, routing={}), cluster)
        >>> found.status, found.traffic, found.used["host-0"]
        ('optimal', 2.0, 6)

    Reference: docs/theory/topology.md.
    """
    unknown = [name for name in traffic or () if name not in fleet.pools]
    if unknown:
        raise ValueError(f"traffic: no pool {unknown[0]!r} in the fleet; it has {', '.join(fleet.pools)}")
    solver = solver or SolverOptions(mip_gap=0.01, time_limit_s=10.0)
    check_solver(solver.name)
    moved = {
        name: (traffic or {}).get(name) or usual_replica_traffic(pool.layout) for name, pool in fleet.pools.items()
    }
    parts = []
    types = list(dict.fromkeys(pool.gpu for pool in fleet.pools.values()))
    share = replace(solver, time_limit_s=solver.time_limit_s / max(len(types), 1))
    for gpu in types:
        pools = [pool for pool in fleet.pools.values() if pool.gpu == gpu and pool.replicas > 0]
        hosts = [host for host in cluster.hosts if host.gpu == gpu]
        if pools:
            parts.append(_place_type(pools, hosts, cluster, moved, share))
    return _joined(parts)


def _place_type(
    pools: Sequence[Pool],
    hosts: Sequence[Host],
    cluster: Cluster,
    traffic: Mapping[str, ReplicaTraffic],
    solver: SolverOptions,
) -> FleetPlacement:
    """Pools and hosts of one GPU type; types share nothing.

    Tensor-parallel groups alone say whether all fits, as a replica may be spread over any hosts.
    """
    seconds = solver.time_limit_s / 4  # of each program; at most four are solved
    largest = max((host.gpus for host in hosts), default=0)
    out = {pool.name: pool.replicas for pool in pools if pool.layout.tp * pool.layout.cp > largest}
    kept = [pool for pool in pools if pool.name not in out]
    if not kept:
        return _placement("infeasible", (), None, out, _why(pools, hosts, out))
    pooled = [replace(host, rack="") for host in hosts]
    groups = host_program([_groups_of(pool) for pool in kept], pooled, may_leave_out=True)
    packed = solve_integer(groups.program, solver=solver.name, mip_gap=0.0, time_limit_s=seconds)
    if out or packed.values is None or groups.left_out(packed.values):
        status: Literal["infeasible", "limit"] = "infeasible" if out or packed.outcome == "optimal" else "limit"
        return _as_many(pools, kept, hosts, cluster, traffic, solver, status, out)
    for more in [1] if all(_is_listed_whole(pool) for pool in kept) else [1, _MORE_HOSTS]:
        demands = [_demand(pool, hosts, cluster, traffic[pool.name], more) for pool in kept]
        # the solver's tolerances are absolute
        scale = max((split.weight for demand in demands for split in demand.splits), default=0.0) or 1.0
        least = host_program([_scaled(demand, scale) for demand in demands], hosts, may_leave_out=False)
        solved = solve_integer(least.program, solver=solver.name, mip_gap=solver.mip_gap / 2, time_limit_s=seconds)
        if solved.values is not None:
            rows = _rows(least.read(solved.values), pools, cluster, traffic)
            found = _placement("feasible", rows, max(solved.bound, 0.0) * scale, {})
            is_best = found.gap is not None and found.gap <= solver.mip_gap
            return replace(found, status="optimal") if is_best else found
    rows = _rows(_gathered(groups.read(packed.values), kept, hosts), pools, cluster, traffic)
    wider = [_with_splits_of(demand, rows) for demand in demands]
    scale = max(split.weight for demand in wider for split in demand.splits) or 1.0
    least = host_program([_scaled(demand, scale) for demand in wider], hosts, may_leave_out=False)
    solved = solve_integer(least.program, solver=solver.name, mip_gap=solver.mip_gap / 2, time_limit_s=seconds)
    if solved.values is not None:
        better = _rows(least.read(solved.values), pools, cluster, traffic)
        rows = min(rows, better, key=lambda found: sum(row.traffic for row in found))
    return _placement("feasible", rows, _least_traffic(kept, demands), {})


def _with_splits_of(demand: Demand, rows: Sequence[PlacedReplica]) -> Demand:
    """The splits of a demand, and those that replicas of its pool have been found to take."""
    known = {split.racks for split in demand.splits}
    added: dict[tuple[tuple[int, ...], ...], Split] = {}
    for row in rows:
        if row.pool == demand.pool:
            racks: dict[str, dict[str, int]] = {}
            for share in row.shares:
                held = racks.setdefault(share.rack, {})
                held[share.host] = held.get(share.host, 0) + share.gpus // demand.unit_gpus
            shape = tuple(sorted((tuple(sorted(held.values(), reverse=True)) for held in racks.values()), reverse=True))
            if shape not in known:
                added[shape] = Split(racks=shape, weight=row.traffic)
    return replace(demand, splits=[*demand.splits, *added.values()])


def _least_traffic(pools: Sequence[Pool], demands: Sequence[Demand]) -> float | None:
    """Every replica on as few hosts as the cluster allows; None where the best order of its groups is not known."""
    if any(pool.layout.pp > 1 and pool.layout.dp > 1 for pool in pools):
        return None
    return sum(demand.replicas * min(split.weight for split in demand.splits) for demand in demands)


def _as_many(
    pools: Sequence[Pool],
    kept: Sequence[Pool],
    hosts: Sequence[Host],
    cluster: Cluster,
    traffic: Mapping[str, ReplicaTraffic],
    solver: SolverOptions,
    status: Literal["infeasible", "limit"],
    out: dict[str, int],
) -> FleetPlacement:
    """As many GPUs of whole replicas as fit, within a gap."""
    demands = [_demand(pool, hosts, cluster, traffic[pool.name], 1) for pool in kept]
    fit = host_program(demands, hosts, may_leave_out=True)
    fitted = solve_integer(fit.program, solver=solver.name, mip_gap=_FIT_GAP, time_limit_s=solver.time_limit_s / 4)
    if fitted.values is None:
        out.update({pool.name: pool.replicas for pool in kept})
        return _placement(status, (), None, out, _why(pools, hosts, out) if status == "infeasible" else _TOO_SOON)
    out.update(fit.left_out(fitted.values))
    rows = _rows(fit.read(fitted.values), pools, cluster, traffic)
    if not out:
        return _placement("feasible", rows, None, out)
    return _placement(status, rows, None, out, _why(pools, hosts, out) if status == "infeasible" else _TOO_SOON)


def _groups_of(pool: Pool) -> Demand:
    """Each tensor-parallel group of a pool on its own."""
    unit_gpus = pool.layout.tp * pool.layout.cp
    return Demand(
        pool=pool.name,
        unit_gpus=unit_gpus,
        replica_gpus=unit_gpus,
        replicas=pool.replicas * units_of(pool.layout),
        splits=(Split(racks=((1,),), weight=0.0),),
    )


def _gathered(placed: Sequence[PlacedSplit], pools: Sequence[Pool], hosts: Sequence[Host]) -> list[PlacedSplit]:
    """Replicas of groups that were placed one by one, neighbours together."""
    order = {host.name: (host.rack, place) for place, host in enumerate(hosts)}
    by_name = {host.name: host for host in hosts}
    gathered = []
    for pool in pools:
        own = sorted((item.hosts[0].name for item in placed if item.pool == pool.name), key=order.__getitem__)
        units = units_of(pool.layout)
        for start in range(0, len(own), units):
            names = own[start : start + units]
            split = Split(racks=tuple((1,) for _ in names), weight=0.0)
            gathered.append(PlacedSplit(pool=pool.name, split=split, hosts=tuple(by_name[name] for name in names)))
    return gathered


def _placement(
    status: Literal["feasible", "infeasible", "limit"],
    replicas: Sequence[PlacedReplica],
    bound: float | None,
    left_out: Mapping[str, int],
    why: str = "",
) -> FleetPlacement:
    total = sum(row.traffic for row in replicas)
    return FleetPlacement(
        status=status,
        replicas=tuple(replicas),
        traffic=total,
        bound=None if bound is None else min(bound, total),
        left_out=dict(left_out),
        why=why,
    )


def _demand(pool: Pool, hosts: Sequence[Host], cluster: Cluster, traffic: ReplicaTraffic, more: int) -> Demand:
    unit_gpus = pool.layout.tp * pool.layout.cp
    largest = max(host.gpus for host in hosts)
    racks: dict[str, int] = {}
    for host in hosts:
        racks[host.rack] = racks.get(host.rack, 0) + (host.gpus >= unit_gpus)
    splits = replica_splits(
        pool.layout,
        traffic,
        largest=largest // unit_gpus,
        racks=sum(count > 0 for count in racks.values()),
        hosts_per_rack=max(racks.values()),
        between_hosts=cluster.between_hosts,
        between_racks=cluster.between_racks,
        more_hosts=more,
    )
    return Demand(
        pool=pool.name,
        unit_gpus=unit_gpus,
        replica_gpus=pool.layout.gpus,
        replicas=pool.replicas,
        splits=splits,
    )


def _scaled(demand: Demand, scale: float) -> Demand:
    return replace(demand, splits=[replace(split, weight=split.weight / scale) for split in demand.splits])


def _is_listed_whole(pool: Pool) -> bool:
    """Whether every number of hosts was tried for a replica of the pool."""
    return pool.layout.pp * pool.layout.dp <= 6


def _rows(
    placed: Sequence[PlacedSplit], pools: Sequence[Pool], cluster: Cluster, traffic: Mapping[str, ReplicaTraffic]
) -> list[PlacedReplica]:
    """Rows with the traffic computed again from the hosts, and the room of the hosts checked again."""
    layouts = {pool.name: pool.layout for pool in pools}
    room = {host.name: host.gpus for host in cluster.hosts}
    rows: list[PlacedReplica] = []
    numbers: dict[str, int] = {}
    for item in placed:
        layout = layouts[item.pool]
        unit_gpus = layout.tp * layout.cp
        counts = [units for rack in item.split.racks for units in rack]
        shares = tuple(
            HostShare(host=host.name, rack=host.rack, gpus=units * unit_gpus)
            for host, units in zip(item.hosts, counts, strict=True)
        )
        for share in shares:
            room[share.host] -= share.gpus
            assert room[share.host] >= 0, f"host {share.host} holds more than it has"
        units = [share for share, count in zip(shares, counts, strict=True) for _ in range(count)]
        weight = split_weight(
            layout,
            traffic[item.pool],
            [share.host for share in units],
            [share.rack for share in units],
            cluster.between_hosts,
            cluster.between_racks,
        )
        number = numbers.get(item.pool, 0)
        numbers[item.pool] = number + 1
        rows.append(PlacedReplica(pool=item.pool, number=number, shares=shares, traffic=weight))
    return rows


def _why(pools: Sequence[Pool], hosts: Sequence[Host], left_out: Mapping[str, int]) -> str:
    """The first pool that does not fit, what there is, and a change that helps."""
    pool = next(pool for pool in pools if pool.name in left_out)
    count = left_out[pool.name]
    what = f"pool {pool.name}: {count} of {pool.replicas} replicas of {pool.layout} find no host"
    if not hosts:
        return f"{what}: the cluster has no {pool.gpu}; add hosts of that type"
    unit_gpus = pool.layout.tp * pool.layout.cp
    largest = max(host.gpus for host in hosts)
    free = sum(host.gpus for host in hosts)
    needed = sum(other.gpus for other in pools)
    if unit_gpus > largest:
        narrower = nearest_layout(replace(pool.layout, pp=1, dp=1, ep=1), largest)
        change = f"use tp{narrower.tp}" if narrower is not None else "free some GPUs"
        return (
            f"{what}: a tensor-parallel group takes {unit_gpus} GPUs of one host, the emptiest has {largest} free;"
            f" {change}, or free {unit_gpus} GPUs of one host"
        )
    if needed > free:
        return f"{what}: the fleet takes {needed} {pool.gpu}, {free} are free; free {needed - free} more GPUs"
    fitting = sum(host.gpus // unit_gpus for host in hosts)
    return (
        f"{what}: {free} {pool.gpu} are free, in pieces: hosts have room for {fitting} tensor-parallel groups of"
        f" {unit_gpus} without the other pools; use a smaller tp, or free {unit_gpus} GPUs of one host for each group"
    )


def _joined(parts: Sequence[FleetPlacement]) -> FleetPlacement:
    order = ("limit", "infeasible", "feasible", "optimal")
    left_out: dict[str, int] = {}
    for part in parts:
        left_out.update(part.left_out)
    bounds = [part.bound for part in parts]
    return FleetPlacement(
        status=min((part.status for part in parts), key=order.index, default="optimal"),
        replicas=tuple(row for part in parts for row in part.replicas),
        traffic=sum(part.traffic for part in parts),
        bound=None if any(bound is None for bound in bounds) else sum(bound for bound in bounds if bound is not None),
        left_out=left_out,
        why="; ".join(part.why for part in parts if part.why),
    )
