"""The best GPUs for the ranks of a layout, found by branch and bound over groupings that differ."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count

from qmodel.topology.collectives import all_reduce
from qmodel.topology.costing import Placed, placed_costs
from qmodel.topology.placement import gpu_slots, tensor_groups
from qmodel.topology.routes import Routes
from qmodel.topology.symmetry import Colouring
from qmodel.topology.wiring import Wiring
from qmodel.types.layouts import Collective, Layout, LinkCosts

__all__ = ["Found", "StepTraffic", "search", "usual_traffic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTraffic:
    """What one step of a replica sends; calls of a kind that its layout has no group for cost nothing.

    Attributes:
        all_reduces: calls over each tensor-parallel group.
        all_reduce_bytes: payload of one.
        all_gathers: calls over each stage.
        all_gather_bytes: payload of one.
        all_to_alls: calls over each stage.
        all_to_all_bytes: payload of one.
        sends: hand-overs from stage to stage.
        send_bytes: what one GPU sends.
    """

    all_reduces: float = 0.0
    all_reduce_bytes: float = 0.0
    all_gathers: float = 0.0
    all_gather_bytes: float = 0.0
    all_to_alls: float = 0.0
    all_to_all_bytes: float = 0.0
    sends: float = 0.0
    send_bytes: float = 0.0

    def seconds(self, costs: LinkCosts) -> float:
        """Time of all of it, one call after the other, s."""
        parts = (
            (self.all_reduces, self.all_reduce_bytes, costs.tp_all_reduce),
            (self.all_gathers, self.all_gather_bytes, costs.stage_all_gather),
            (self.all_to_alls, self.all_to_all_bytes, costs.stage_all_to_all),
            (self.sends, self.send_bytes, costs.stage_send),
        )
        return sum(calls * _seconds(cost, payload) for calls, payload, cost in parts if calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The best placement that a search met.

    Attributes:
        ranks: GPU of each rank.
        costs: of its collectives.
        seconds: time of the traffic.
        bound_s: no grouping takes less; the order of ranks inside a group is that of a walk to the nearest.
        tried: partial placements looked at.
    """

    ranks: tuple[str, ...]
    costs: LinkCosts
    seconds: float
    bound_s: float
    tried: int


def usual_traffic(layout: Layout, *, layers: int = 64, hidden: int = 8192, tokens: int = 256) -> StepTraffic:
    """A decode step of a large model: two collectives a layer, one hand-over a stage, 16-bit activations.

    The sizes are an assumption; they weigh the collectives of a layout against each other and do nothing else.
    """
    payload = 2.0 * hidden * tokens
    exchanged = layout.dp > 1
    return StepTraffic(
        all_reduces=2.0 * layers if layout.tp > 1 else 0.0,
        all_reduce_bytes=payload / layout.dp,
        all_gathers=2.0 * layers if exchanged and layout.ep == 1 else 0.0,
        all_gather_bytes=payload,
        all_to_alls=2.0 * layers if exchanged and layout.ep > 1 else 0.0,
        all_to_all_bytes=payload / layout.stage_gpus,
        sends=layout.pp - 1.0,
        send_bytes=payload / layout.stage_gpus,
    )


def search(
    layout: Layout,
    wiring: Wiring,
    traffic: StepTraffic,
    *,
    free: Collection[str],
    beside: Sequence[Placed] = (),
    limit: int,
) -> Found | None:
    """The placement with the least time of its traffic.

    Ranks get GPUs one after the other. Of GPUs that are interchangeable one is tried, and a partial placement that is
    like one seen before is dropped. Complete groups and stages alone bound the time from below, as more groups only
    load links more; the search goes on with the least bound and ends when no bound is below the best time.

    Args:
        layout: degrees of the replica.
        wiring: devices and links.
        traffic: what is made small.
        free: GPUs that may be used.
        beside: other replicas that load the links.
        limit: partial placements looked at.

    Returns:
        The best that was found, with a bound that is its own time where the search came to its end; None where no
        choice of free GPUs has a path between all members of each group.
    """
    task = _Task(layout, wiring, traffic, free, beside)
    best = task.first()
    numbers = count()
    heap: list[tuple[float, int, int, tuple[str, ...]]] = [(0.0, 0, next(numbers), ())]
    seen: set[object] = set()
    tried = 0
    while heap and tried < limit:
        bound, _, _, ranks = heapq.heappop(heap)
        if best is not None and bound >= best[0]:
            heap = []
            break
        for more in task.children(ranks, seen):
            tried += 1
            below = task.bound_s(more, bound)
            if below is None or (best is not None and below >= best[0]):
                continue
            if len(more) < layout.gpus:
                heapq.heappush(heap, (below, -len(more), next(numbers), more))
            else:
                best = (below, more)
    if best is None:
        return None
    seconds, ranks = best
    return Found(
        ranks=ranks,
        costs=placed_costs(layout, task.routes, ranks, beside),
        seconds=seconds,
        bound_s=min(seconds, heap[0][0]) if heap else seconds,
        tried=tried,
    )


class _Task:
    def __init__(
        self, layout: Layout, wiring: Wiring, traffic: StepTraffic, free: Collection[str], beside: Sequence[Placed]
    ) -> None:
        self.layout, self.traffic, self.beside = layout, traffic, beside
        self.routes = Routes(wiring)
        self.free = [name for name in wiring.gpus() if name in free]
        self.colouring = Colouring(wiring, set(wiring.gpus()) - set(self.free))
        self.others = [group for placed, gpus in beside for group in tensor_groups(placed, gpus)]
        self.wiring = wiring
        self._place = {name: place for place, name in enumerate(self.free)}
        self._last_group = layout.stage_gpus if layout.tp == 1 else layout.tp

    def first(self) -> tuple[float, tuple[str, ...]] | None:
        """The free GPUs in order, each stage in one island where it fits; something to compare with."""
        sizes: dict[int, int] = {}
        for name in self.free:
            island = self.wiring.vertices[name].island
            sizes[island] = sizes.get(island, 0) + 1
        slots = gpu_slots(self.layout, island_gpus=max(sizes.values()))
        if slots[-1] >= len(self.free):
            slots = list(range(self.layout.gpus))
        ranks = tuple(self.free[slot] for slot in slots)
        seconds = self.bound_s(ranks, 0.0)
        return None if seconds is None else (seconds, ranks)

    def children(self, ranks: tuple[str, ...], seen: set[object]) -> list[tuple[str, ...]]:
        """One more rank placed, in every way that differs; or all the rest, where they are one group that fills up."""
        rest = self.layout.gpus - len(ranks)
        if len(self.free) == self.layout.gpus and rest <= self._last_group:
            return [self._ordered((*ranks, *(name for name in self.free if name not in ranks)))]
        colours, _ = self._colours(ranks)
        found: dict[int, tuple[str, ...]] = {}
        for name in self.free:
            if name not in ranks and colours[name] not in found:
                found[colours[name]] = self._ordered((*ranks, name))
        fresh = []
        for more in found.values():
            _, certificate = self._colours(more)
            if certificate not in seen:
                seen.add(certificate)
                fresh.append(more)
        return fresh

    def bound_s(self, ranks: tuple[str, ...], known_s: float) -> float | None:
        """Least time of any placement that starts like this one; None where a group has no path."""
        layout = self.layout
        if len(ranks) % layout.tp:
            return known_s
        try:
            if len(ranks) == layout.gpus:
                return self.traffic.seconds(placed_costs(layout, self.routes, ranks, self.beside))
            stages = len(ranks) // layout.stage_gpus
            whole = Layout(tp=layout.tp, pp=stages, ep=layout.ep, dp=layout.dp, cp=layout.cp)
            costs = placed_costs(whole, self.routes, ranks[: whole.gpus], self.beside) if stages else LinkCosts()
            reduce = all_reduce(self.routes, tensor_groups(layout, ranks), self.others)
        except ValueError:
            return None
        parts = LinkCosts(
            tp_all_reduce=reduce,
            stage_all_gather=costs.stage_all_gather,
            stage_all_to_all=costs.stage_all_to_all,
            stage_send=costs.stage_send,
        )
        return max(known_s, self.traffic.seconds(parts))

    def _colours(self, ranks: Sequence[str]) -> tuple[dict[str, int], object]:
        return self.colouring.colours(tensor_groups(self.layout, ranks), self.layout.dp * self.layout.cp)

    def _ordered(self, ranks: tuple[str, ...]) -> tuple[str, ...]:
        """The group that is being filled in the order of a walk from each GPU to the nearest one left."""
        start = (len(ranks) - 1) // self.layout.tp * self.layout.tp
        left = sorted(ranks[start:], key=self._place.__getitem__)
        walk = [left.pop(0)]
        while left:
            walk.append(min(left, key=lambda name: self._distance(walk[-1], name)))
            left.remove(walk[-1])
        return (*ranks[:start], *walk)

    def _distance(self, one: str, other: str) -> tuple[float, int]:
        try:
            hops = self.routes.hops(one, other)
        except ValueError:
            return math.inf, 0
        return sum(self.wiring.links[a][b].latency_us for a, b in hops), len(hops)


def _seconds(cost: Collective, payload_bytes: float) -> float:
    return cost.seconds(payload_bytes)
