"""What pools take and carry, and the rows that follow: cover of classes, limits of the fleet, whole nodes, open pools.

Both the master and the relaxation write their variables into a :class:`Ledger`, so that one limit is one row in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from qmodel.candidates import PoolKind
from qmodel.optimize.alternatives import add_model_shares, share_limits
from qmodel.optimize.programs import ProgramBuilder, Standing
from qmodel.types import Cap, Limits, RequestClass

__all__ = ["Ledger"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """What one unit of a variable takes: replicas, spare ones included, and pools; and its largest value."""

    position: int
    candidate: PoolKind
    replicas: int
    pools: int
    most: float


@dataclass(slots=True, kw_only=True)
class _Group:
    """Variables that carry load in replicas of one candidate and together are at most one pool."""

    label: str
    candidate: PoolKind
    carried: list[tuple[int, Mapping[str, float]]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Variables of a program with what they take of the limits and what they carry of the classes.

    Attributes:
        builder: takes variables and rows.
        limits: of the fleet.
        by_replica: what stands is counted in replicas of a candidate, whatever their pools; else in equal pools.
    """

    builder: ProgramBuilder
    limits: Limits
    by_replica: bool = False
    _uses: list[_Use] = field(default_factory=list)
    _covers: list[tuple[int, Mapping[str, float], str]] = field(default_factory=list)
    _groups: dict[int, _Group] = field(default_factory=dict)

    def pools(self, label: str, candidate: PoolKind, serving: int, *, most: float, names: Sequence[str] = ()) -> int:
        """An integer variable that counts pools of ``serving`` replicas and their spare ones; its position.

        Args:
            label: of the variable.
            candidate: of the pools.
            serving: replicas beside those to spare.
            most: pools.
            names: of the classes that they serve.
        """
        replicas = candidate.pool_replicas(serving)
        family = f"{_of(candidate)} for {' '.join(names)}"
        position = self._counted(label, candidate, replicas, most, Standing(family=family, size=serving))
        self._uses.append(_Use(position=position, candidate=candidate, replicas=replicas, pools=1, most=most))
        return position

    def _counted(
        self, label: str, candidate: PoolKind, replicas: int, most: float, standing: Standing | None = None
    ) -> int:
        """An integer variable of which one takes so many replicas."""
        if self.by_replica:
            standing = Standing(family=_of(candidate), units=float(replicas))
        usd = self._paid(candidate, replicas)
        return self.builder.variable(label, cost=usd, upper=most, integer=True, standing=standing)

    def replicas(self, label: str, candidate: PoolKind, *, most: float) -> int:
        """An integer variable that counts serving replicas of one pool; its position.

        Where pools are counted or have replicas to spare, opening the pool is a variable of its own: what the pool
        carries of a class is then at most what its replicas carry, and nothing while it is not open.
        """
        position = self._counted(label, candidate, 1, most)
        self._uses.append(_Use(position=position, candidate=candidate, replicas=1, pools=0, most=most))
        if candidate.spare or self.limits.max_pools is not None:
            self._groups[position] = _Group(label=label, candidate=candidate)
        return position

    def carries(self, pool: int, variable: int, shares: Mapping[str, float], *, model: str = "") -> None:
        """One unit of a variable carries shares of the classes in the pool or replicas of another (or the same).

        Args:
            pool: variable of the pool or its replicas.
            variable: what carries.
            shares: of the classes, by name.
            model: that the pool serves; empty: of classes with one model.
        """
        if pool in self._groups:
            self._groups[pool].carried.append((variable, shares))
        else:
            self._covers.append((variable, shares, model))

    def close(self, classes: Sequence[RequestClass], parts: Sequence[str] = ()) -> None:
        """Write the rows: cover of each class, then each of ``limits.caps``, then what ties variables together.

        Args:
            classes: to be carried whole.
            parts: names of which no more may be taken than is carried.
        """
        opened = [self._opened(group) for group in self._groups.values()]
        nodes = self._nodes()
        offers = self._offers(nodes)
        changes = self._changes()
        covers: dict[str, dict[int, float]] = {name: {} for name in (*(item.name for item in classes), *parts)}
        by_model = add_model_shares(self.builder, classes)
        served: dict[tuple[str, str], dict[int, float]] = {key: {} for key in by_model}
        for position, shares, model in self._covers:
            for name, share in shares.items():
                row = served.get((name, model), covers[name])
                row[position] = row.get(position, 0.0) + share
        for (name, _), position in by_model.items():
            covers[name][position] = 1.0
        for item in classes:
            self.builder.row(f"cover {item.name}", covers[item.name], ">=", 1.0)
        for cap in self.limits.caps:
            name = f"{cap.kind} {cap.name}".strip()
            self.builder.row(name, self._taken(cap, nodes, offers), "<=", float(cap.most))
        for gpu, position in nodes.items():
            size = self.limits.of(gpu).node_gpus
            assert size is not None  # nodes are counted only where their size is known
            held = {use.position: float(use.candidate.taken_gpus * use.replicas) for use in self._uses_of(gpu)}
            self.builder.row(f"packed {gpu}", {**held, position: -float(size)}, "<=", 0.0)
        for gpu, positions in offers.items():
            self.builder.row(
                f"bought {gpu}", {**self._paid_gpus(gpu, nodes), **dict.fromkeys(positions.values(), -1.0)}, "<=", 0.0
            )
        for name in parts:
            self.builder.row(f"part {name}", covers[name], ">=", 0.0)
        for rows in opened:
            for name, row in rows:
                self.builder.row(name, row, "<=", 0.0)
        for name, row, most in (*changes, *share_limits(classes, by_model)):
            self.builder.row(name, row, "<=", most)
        for (name, model), row in served.items():
            self.builder.row(f"served {name} by {model}", {**row, by_model[name, model]: -1.0}, ">=", 0.0)

    def _changes(self) -> list[tuple[str, dict[int, float], float]]:
        """Variables for replicas started and stopped of each kind that runs already, and the rows that hold them.

        Replicas of other kinds pay for their start themselves; what runs and has no variable is stopped for sure.
        """
        change = self.limits.change
        rows: list[tuple[str, dict[int, float], float]] = []
        for item in () if change is None else change.running:
            assert change is not None
            key = item.key
            held = {use.position: float(use.replicas) for use in self._uses if use.candidate.key == key}
            most = item.replicas + sum(use.most * use.replicas for use in self._uses if use.position in held)
            start, stop = (key.gpus * usd for usd in (change.start_usd_per_gpu_hour, change.stop_usd_per_gpu_hour))
            started = self.builder.variable(f"started {key.label}", cost=start, upper=most, integer=False)
            stopped = self.builder.variable(f"stopped {key.label}", cost=stop, upper=most, integer=False)
            rows.append((f"started {key.label}", {**held, started: -1.0}, float(item.replicas)))
            less = {position: -count for position, count in held.items()}
            rows.append((f"stopped {key.label}", {**less, stopped: -1.0}, -float(item.replicas)))
        return rows

    def _opened(self, group: _Group) -> list[tuple[str, dict[int, float]]]:
        """The variable that opens a pool of single replicas, those of what it carries, and the rows between them."""
        spare = group.candidate.spare
        open_pool = self._counted(f"open {group.label}", group.candidate, spare, 1.0)
        self._uses.append(_Use(position=open_pool, candidate=group.candidate, replicas=spare, pools=1, most=1.0))
        rows: list[tuple[str, dict[int, float]]] = []
        for name in dict.fromkeys(name for _, shares in group.carried for name in shares):
            flow = self.builder.variable(f"carried {name} {group.label}", cost=0.0, upper=1.0, integer=False)
            row = {flow: 1.0}
            for position, shares in group.carried:
                if name in shares:
                    row[position] = row.get(position, 0.0) - shares[name]
            rows.append((f"carried {name} {group.label}", row))
            rows.append((f"open {name} {group.label}", {flow: 1.0, open_pool: -1.0}))
            self._covers.append((flow, {name: 1.0}, group.candidate.model))
        return rows

    def _nodes(self) -> dict[str, int]:
        """An integer variable per GPU type whose nodes are counted: the nodes taken."""
        found = {}
        for gpu in sorted({use.candidate.gpu for use in self._uses}):
            item = self.limits.of(gpu)
            if item.counts_nodes and item.node_gpus is not None:
                held = sum(use.candidate.taken_gpus * use.replicas * use.most for use in self._uses_of(gpu))
                usd = item.usd_per_gpu_hour * item.node_gpus if item.whole_nodes and not item.mixes_offers else 0.0
                most = float(ceil(held / item.node_gpus))
                found[gpu] = self.builder.variable(f"nodes {gpu}", cost=usd, upper=most, integer=True)
        return found

    def _offers(self, nodes: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """A variable per offer of each GPU type that mixes them, by type and term: the GPUs bought.

        They need not be integers: what is paid for is, and the cheapest are bought first.
        """
        found: dict[str, dict[str, int]] = {}
        most = {use.position: use.most for use in self._uses} | {
            position: self.builder.upper(position) for position in nodes.values()
        }
        for gpu in sorted({use.candidate.gpu for use in self._uses}):
            item = self.limits.of(gpu)
            if item.mixes_offers:
                largest = sum(gpus * most[position] for position, gpus in self._paid_gpus(gpu, nodes).items())
                found[gpu] = {
                    offer.term: self.builder.offer(gpu, offer.term, cost=offer.usd_per_gpu_hour, upper=largest)
                    for offer in item.offers
                }
        return found

    def _paid_gpus(self, gpu: str, nodes: Mapping[str, int]) -> dict[int, float]:
        """GPUs of one type that are paid for with one unit of each variable."""
        if self.limits.of(gpu).whole_nodes and gpu in nodes:
            return {nodes[gpu]: float(self.limits.of(gpu).lot)}
        return {use.position: float(use.candidate.layout.gpus * use.replicas) for use in self._uses_of(gpu)}

    def _taken(self, cap: Cap, nodes: Mapping[str, int], offers: Mapping[str, Mapping[str, int]]) -> dict[int, float]:
        """What one unit of each variable takes of a limit."""
        if cap.kind == "pools":
            return {use.position: float(use.pools) for use in self._uses if use.pools}
        if cap.kind == "nodes":
            return {nodes[cap.name]: 1.0} if cap.name in nodes else {}
        if cap.kind == "offer":
            (gpu,) = cap.gpus
            return {offers[gpu][cap.term]: 1.0} if gpu in offers else self._paid_gpus(gpu, nodes)
        if cap.kind == "usd":
            uses = [use for use in self._uses if use.candidate.gpu in cap.gpus]
            paid = {use.position: self._rent(use.candidate, use.replicas) for use in uses}
            apart = [nodes[gpu] for gpu in cap.gpus if gpu in nodes]
            apart += [place for gpu in cap.gpus for place in offers.get(gpu, {}).values()]
            paid |= {place: self.builder.cost(place) for place in apart}
            return {place: usd for place, usd in paid.items() if usd}
        row: dict[int, float] = {}
        for gpu in dict.fromkeys(use.candidate.gpu for use in self._uses):
            item = self.limits.of(gpu)
            if not cap.concerns(gpu):
                continue
            each = item.kw_per_gpu or 0.0 if cap.kind == "power" else 1.0
            if item.whole_nodes and gpu in nodes:
                row[nodes[gpu]] = each * (item.node_gpus or 0)
            else:
                row |= {use.position: each * use.candidate.taken_gpus * use.replicas for use in self._uses_of(gpu)}
        return row

    def _uses_of(self, gpu: str) -> list[_Use]:
        return [use for use in self._uses if use.candidate.gpu == gpu and use.replicas]

    def _rent(self, candidate: PoolKind, replicas: int) -> float:
        """Of replicas, USD/h, without what nodes that hold them, or GPUs at several prices, cost apart."""
        apart = candidate.whole_nodes or self.limits.of(candidate.gpu).mixes_offers
        return 0.0 if apart else candidate.cost_usd_per_hour * replicas

    def _paid(self, candidate: PoolKind, replicas: int) -> float:
        """The same with the cost of starting them where none of their kind runs: no seller is paid that."""
        change, usd = self.limits.change, self._rent(candidate, replicas)
        if change is None or change.replicas(candidate.key):
            return usd
        return usd + change.start_usd_per_gpu_hour * candidate.layout.gpus * replicas


def _of(candidate: PoolKind) -> str:
    return f"{candidate.gpu} {candidate.layout} {candidate.variant} {candidate.model}"
