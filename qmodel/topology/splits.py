"""The ways to spread one replica over hosts and racks, and the traffic that then leaves them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import numpy.typing as npt

from qmodel.types.layouts import Layout

__all__ = ["ReplicaTraffic", "Split", "replica_splits", "split_weight", "units_of", "usual_replica_traffic"]

_ALL_WAYS = 6  # units of a replica up to which every number of hosts is tried
_ALL_ORDERS = 5  # parts up to which every order is tried


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaTraffic:
    """Bytes that a replica moves between its tensor-parallel groups, in any unit that all replicas share.

    Attributes:
        handed_on: from each pipeline stage to the next.
        exchanged: among the attention ranks of each stage, with what stays on a rank.
    """

    handed_on: float
    exchanged: float

    def __post_init__(self) -> None:
        for name, value in (("handed_on", self.handed_on), ("exchanged", self.exchanged)):
            if not 0.0 <= value < float("inf"):
                raise ValueError(f"{name} must be at least 0 and finite (got {value})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One way to spread a replica.

    Attributes:
        racks: for each rack the tensor-parallel groups that each of its hosts gets.
        weight: traffic between hosts times its weight.
    """

    racks: tuple[tuple[int, ...], ...]
    weight: float


def units_of(layout: Layout) -> int:
    """Tensor-parallel groups of a replica, which are never split."""
    return layout.pp * layout.dp


def usual_replica_traffic(
    layout: Layout, *, layers: int = 60, experts_per_token: int = 8, rate: float = 1.0
) -> ReplicaTraffic:
    """Activation vectors that a token of the replica moves, times a rate of tokens.

    One vector from stage to stage. In each layer twice (there and back) one for each expert of the token where experts
    are spread, else one to each other attention rank.

    Args:
        layout: degrees of the replica.
        layers: of the model.
        experts_per_token: experts one token visits in a layer.
        rate: tokens per second, or any number in proportion.

    Source: own construction.
    """
    copies = 0.0
    if layout.dp > 1:
        copies = float(experts_per_token if layout.ep > 1 else layout.dp)
    return ReplicaTraffic(handed_on=rate, exchanged=rate * 2.0 * layers / layout.pp * copies)


def replica_splits(
    layout: Layout,
    traffic: ReplicaTraffic,
    *,
    largest: int,
    racks: int,
    hosts_per_rack: int,
    between_hosts: float,
    between_racks: float,
    more_hosts: int = 1,
) -> list[Split]:
    """Every way to spread a replica over few hosts, with its weight.

    Hosts are alike here; which of them have room is for the caller to find. Replicas of up to six groups are spread
    over any number of hosts, others over at most ``more_hosts`` more than they need.

    Args:
        layout: degrees of the replica.
        traffic: what it moves.
        largest: tensor-parallel groups that the emptiest host can take, at least 1.
        racks: racks there are.
        hosts_per_rack: hosts of the largest rack.
        between_hosts: weight of a byte between hosts of one rack.
        between_racks: weight of a byte between racks.
        more_hosts: hosts beyond the fewest.

    Example:
        >>> traffic = ReplicaTraffic(handed_on=1.0, exchanged=0.0)
        >>> found = replica_splits(Layout(tp=4, pp=2), traffic, largest=2, racks=2, hosts_per_rack=4, between_hosts=1.0,
        ...                        between_racks=3.0)
        >>> [(split.racks, split.weight) for split in found]
        [(((2,),), 0.0), (((1, 1),), 1.0), (((1,), (1,)), 3.0)]
    """
    units = units_of(layout)
    fewest = -(-units // largest)
    most = units if units <= _ALL_WAYS else min(units, fewest + more_hosts)
    fewest_racks = -(-fewest // hosts_per_rack)
    most_racks = min(racks, most if units <= _ALL_WAYS else fewest_racks + 1)
    found: list[Split] = []
    for count in range(fewest, most + 1):
        for parts in _partitions(units, count, largest):
            for grouped in _groupings(parts, most_racks, hosts_per_rack):
                weight = _least_weight(layout, traffic, grouped, between_hosts, between_racks)
                found.append(Split(racks=grouped, weight=weight))
    return found


def split_weight(
    layout: Layout, traffic: ReplicaTraffic, hosts: Sequence[object], racks: Sequence[object], near: float, far: float
) -> float:
    """Weighted traffic of a replica whose groups lie on given hosts and racks, stage by stage.

    Args:
        layout: degrees of the replica.
        traffic: what it moves.
        hosts: host of each tensor-parallel group, attention ranks innermost.
        racks: rack of each.
        near: weight of a byte between hosts of one rack.
        far: weight of a byte between racks.
    """
    _, host = np.unique([str(item) for item in hosts], return_inverse=True)
    _, rack = np.unique([str(item) for item in racks], return_inverse=True)
    distance = np.where(rack[:, None] != rack, far, np.where(host[:, None] != host, near, 0.0))
    return _weight(layout, traffic, distance)


def _weight(layout: Layout, traffic: ReplicaTraffic, distance: npt.NDArray[np.float64]) -> float:
    dp = layout.dp
    total = 0.0
    for stage in range(layout.pp):
        own = slice(stage * dp, (stage + 1) * dp)
        total += traffic.exchanged / dp**2 * float(distance[own, own].sum())
        if stage + 1 < layout.pp:
            following = slice((stage + 1) * dp, (stage + 2) * dp)
            total += traffic.handed_on / dp * float(np.trace(distance[own, following]))
    return total


def _least_weight(
    layout: Layout, traffic: ReplicaTraffic, racks: tuple[tuple[int, ...], ...], near: float, far: float
) -> float:
    """Groups fill the hosts in order, stage by stage; the best order of the hosts counts.

    With one rank to a stage or one stage every order is as good.
    """
    parts = [(number, units) for number, found in enumerate(racks) for units in found]
    mixed = layout.pp > 1 and layout.dp > 1 and len(parts) <= _ALL_ORDERS
    orders = set(permutations(range(len(parts)))) if mixed else [tuple(range(len(parts)))]
    weights = []
    for order in orders:
        hosts = [place for place in order for _ in range(parts[place][1])]
        weights.append(split_weight(layout, traffic, hosts, [parts[place][0] for place in hosts], near, far))
    return min(weights)


def _partitions(total: int, count: int, largest: int) -> Iterator[tuple[int, ...]]:
    """Falling sequences of ``count`` positive numbers with a given sum."""
    if count == 0:
        if total == 0:
            yield ()
        return
    for first in range(min(largest, total - count + 1), 0, -1):
        if first * count < total:
            return
        for rest in _partitions(total - first, count - 1, first):
            yield (first, *rest)


def _groupings(parts: tuple[int, ...], most: int, width: int) -> list[tuple[tuple[int, ...], ...]]:
    """Ways to group the parts into at most ``most`` racks of at most ``width`` hosts, like ones once."""
    grouped: set[tuple[tuple[int, ...], ...]] = {()}
    for part in parts:
        wider = set()
        for racks in grouped:
            for place, rack in enumerate(racks):
                if len(rack) < width:
                    joined = tuple(sorted((*rack, part), reverse=True))
                    wider.add(_sorted((*racks[:place], joined, *racks[place + 1 :])))
            if len(racks) < most:
                wider.add(_sorted((*racks, (part,))))
        grouped = wider
    return sorted(grouped, key=lambda racks: (len(racks), racks))


def _sorted(racks: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(sorted(racks, reverse=True))
