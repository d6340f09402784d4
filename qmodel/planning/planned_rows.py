"""Pools in a row: from chosen stage columns to pools and paths, then grown or trimmed until the exact metrics agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from qmodel.candidates import Chain, Column, StageCandidate
from qmodel.evaluation import MOVED_BY, TOLERANCE, PoolCase, links_into, predict_paths, value_of
from qmodel.planning.planned_pools import PlannedKind
from qmodel.problem import Instance, at_confidence
from qmodel.types import MIXED, Fleet, Holding, Limits, Path, Pool, RequestClass

__all__ = ["NO_ROW", "PlannedRow", "PlannedStage", "grown_row", "pool_of", "row_of", "settled_row"]

_MOST_REPAIRS = 20  # replicas a row may grow by before its columns must have been wrong
_FAR = 100.0  # prediction over target: more says nothing
_LEAST_SHARE = 1e-6  # of a class: less is rounding


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedStage(PlannedKind):
    """A prefill or decode pool with the classes that pass it."""

    candidate: StageCandidate


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedRow:
    """All pools that serve one stage, and the paths through them.

    Attributes:
        paths: positions of the pools on a path and the share of the class that goes this way, by class.
    """

    pools: tuple[PlannedStage, ...] = ()
    paths: Mapping[str, tuple[tuple[tuple[int, ...], float], ...]] = field(default_factory=dict)

    @property
    def shares(self) -> dict[tuple[str, str], float]:
        """Share of each class that passes pools of a model, by class and model."""
        found: dict[tuple[str, str], float] = {}
        for name, paths in self.paths.items():
            for places, share in paths:
                key = (name, self.pools[places[0]].candidate.model)
                found[key] = found.get(key, 0.0) + share
        return found

    @property
    def at_p90(self) -> PlannedRow:
        """The same, predicted at the upper bands of steps and queueing."""
        pools = []
        for item in self.pools:
            slower = at_confidence(item.candidate.replica, "p90")
            pools.append(replace(item, candidate=replace(item.candidate, replica=slower, confidence="p90")))
        return replace(self, pools=tuple(pools))

    def resized(self, place: int, replicas: int) -> PlannedRow:
        """The same with another count of one pool."""
        pool = replace(self.pools[place], replicas=replicas)
        return replace(self, pools=(*self.pools[:place], pool, *self.pools[place + 1 :]))


NO_ROW = PlannedRow()


def row_of(
    instance: Instance,
    chosen: Sequence[tuple[Column, int]],
    chains: Sequence[Chain],
    elsewhere: Mapping[tuple[str, str], float],
    model_shares: Mapping[tuple[str, str], float] | None = None,
) -> PlannedRow:
    """Pools and paths of the stage columns that were chosen, without a look at the metrics.

    Columns of one candidate and one mix become one pool. What pools of a stage carry of a class is handed on pool by
    pool, so that there are few paths. Where all columns of a class together cover more than its demand the load of
    each is scaled down.

    Args:
        instance: the bound problem.
        chosen: stage columns with their counts.
        chains: what may be passed.
        elsewhere: share of each class that unified pools of a model carry, by class and model.
        model_shares: share of a class that a model serves, of classes with several; of all others one model serves the
            whole.
    """
    groups: dict[tuple[int, tuple[str, ...]], list[tuple[Column, int]]] = {}
    for column, count in chosen:
        groups.setdefault((id(column.candidate), tuple(column.shares)), []).append((column, count))
    carried = [
        {name: sum(column.shares[name] * count for column, count in members) for name in members[0][0].shares}
        for members in groups.values()
    ]
    ways: dict[tuple[str, str], list[tuple[tuple[int, ...], float]]] = {}
    for chain in chains:
        ways.setdefault((chain.cls, chain.model), []).extend(_handed_on(chain, carried))
    paths: dict[str, tuple[tuple[tuple[int, ...], float], ...]] = {}
    for key, found in ways.items():
        total, wanted = sum(share for _, share in found), (model_shares or {}).get(key, 1.0)
        if total > _LEAST_SHARE and wanted > 0.0:
            scale = wanted / (total + elsewhere.get(key, 0.0))
            paths[key[0]] = (*paths.get(key[0], ()), *((places, share * scale) for places, share in found))
    pools = []
    for place, members in enumerate(groups.values()):
        served = {
            name: share
            for name, found in paths.items()
            if (share := sum(part for places, part in found if place in places)) > 0.0
        }
        candidate = members[0][0].candidate
        assert isinstance(candidate, StageCandidate)
        pools.append(
            PlannedStage(
                candidate=candidate,
                replicas=sum(column.replicas * count for column, count in members),
                classes=tuple(instance.classes[name].under(candidate.model) for name in served),
                shares=tuple(served.values()),
            )
        )
    return _without_idle(PlannedRow(pools=tuple(pools), paths=paths))


def _handed_on(chain: Chain, carried: Sequence[dict[str, float]]) -> list[tuple[tuple[int, ...], float]]:
    """Paths of a chain: pools of each stage in their order, each emptied before the next is begun.

    Args:
        chain: its parts.
        carried: what each pool carries of every part; what passes is taken off.
    """
    queues = [[place for place, item in enumerate(carried) if part in item] for part in chain.parts]
    found: list[tuple[tuple[int, ...], float]] = []
    while all(queues):
        places = tuple(queue[0] for queue in queues)
        share = min(carried[place][part] for place, part in zip(places, chain.parts, strict=True))
        if share > _LEAST_SHARE:
            found.append((places, share))
        for queue, place, part in zip(queues, places, chain.parts, strict=True):
            carried[place][part] -= share
            if carried[place][part] <= _LEAST_SHARE:
                queue.pop(0)
    return found


def _without_idle(row: PlannedRow) -> PlannedRow:
    """The row without pools that nothing passes."""
    kept = [place for place, pool in enumerate(row.pools) if pool.classes]
    number = {place: index for index, place in enumerate(kept)}
    return PlannedRow(
        pools=tuple(row.pools[place] for place in kept),
        paths={
            name: tuple((tuple(number[place] for place in places), share) for places, share in found)
            for name, found in row.paths.items()
        },
    )


def settled_row(instance: Instance, row: PlannedRow, others: Sequence[Holding], limits: Limits) -> PlannedRow | None:
    """The row with as few replicas as meet every target from end to end; None where a few more are not enough.

    Args:
        instance: the bound problem.
        row: pools and paths.
        others: what the other pools of the fleet hold.
        limits: of the fleet.
    """
    met = grown_row(instance, row, others, limits)
    if met is None:
        return None
    dearest = sorted(range(len(row.pools)), key=lambda place: -row.pools[place].candidate.cost_usd_per_hour)
    for place in dearest:
        while met.pools[place].replicas > 1:
            fewer = met.resized(place, met.pools[place].replicas - 1)
            if _score(instance, fewer).blamed:
                break
            met = fewer
    return met


def grown_row(
    instance: Instance, row: PlannedRow, others: Sequence[Holding], limits: Limits, most: int = _MOST_REPAIRS
) -> PlannedRow | None:
    """The row with a replica more, again and again, where that brings the target missed most nearest for its price.

    Returns:
        None where the limits, or ``most`` replicas more, are not enough.
    """
    score = _score(instance, row)
    for _ in range(most):
        if not score.blamed:
            return row
        options = [row.resized(place, row.pools[place].replicas + 1) for place in score.blamed]
        options = [item for item in options if _within(item, others, limits)]
        if not options:
            return None
        scores = [_score(instance, item) for item in options]
        costs = [row.pools[place].candidate.cost_usd_per_hour for place in score.blamed]
        gains = [(_gain(score, new) / cost, -cost) for new, cost in zip(scores, costs, strict=False)]
        best = max(range(len(options)), key=lambda number: gains[number])
        row, score = options[best], scores[best]
    return None if score.blamed else row


@dataclass(frozen=True, slots=True, kw_only=True)
class _Score:
    """How a row does.

    Attributes:
        worst: prediction over target of the target missed most, infinite where something is overloaded.
        blamed: places of pools that have a part in that; empty where every target is met.
    """

    worst: float = 1.0
    blamed: tuple[int, ...] = ()


def _gain(before: _Score, after: _Score) -> float:
    """How much nearer a row has come to its targets, at most all the way."""
    if before.worst == np.inf:
        return float(after.worst < np.inf)
    return min(before.worst, _FAR) - min(max(after.worst, 1.0), _FAR)


def _within(row: PlannedRow, others: Sequence[Holding], limits: Limits) -> bool:
    return limits.broken([*others, *(item.holding for item in row.pools)]) is None


def _score(instance: Instance, row: PlannedRow) -> _Score:
    """The row predicted from end to end."""
    fleet, confidence = _fleet_of(row), row.pools[0].candidate.confidence
    links, problems = links_into(instance, fleet)
    assert not problems  # candidates whose link is not known are no candidates
    cases = {
        name: PoolCase(
            pool=pool,
            replica=item.candidate.replica,
            router=item.candidate.router,
            price=item.candidate.price,
            link=links.get(name),
            spare=item.candidate.spare,
        )
        for (name, pool), item in zip(fleet.pools.items(), row.pools, strict=True)
    }
    classes: dict[str, RequestClass] = {item.name: item for pool in row.pools for item in pool.classes}
    found = predict_paths(classes, cases, fleet)
    for name, solved in found.pools.items():
        if solved.overload is not None:
            return _Score(worst=np.inf, blamed=(int(name),))
    for name, link in found.links.items():
        if link.overload is not None:  # it has a lane for each replica of the smaller side
            before = _before(row, int(name))
            fewer = row.pools[int(name)].replicas <= sum(row.pools[place].replicas for place in before)
            return _Score(worst=np.inf, blamed=(int(name),) if fewer else before)
    score = _Score(worst=1.0 + TOLERANCE)
    for name, paths in fleet.routing.items():
        for path in paths:
            for slo in classes[name].under(fleet.model_on(path)).slos:
                value = value_of(found.paths[name, path.pools], slo, confidence)
                if value is not None and value / slo.target_s > score.worst:
                    moving = (int(pool) for pool in path.pools if slo.metric in MOVED_BY[fleet.pools[pool].role])
                    score = _Score(worst=value / slo.target_s, blamed=tuple(moving))
    return score


def _before(row: PlannedRow, place: int) -> tuple[int, ...]:
    """Pools that hand over to one."""
    before = {
        places[number - 1]
        for paths in row.paths.values()
        for places, _ in paths
        for number, one in enumerate(places)
        if one == place and number
    }
    return tuple(sorted(before))


def _fleet_of(row: PlannedRow) -> Fleet:
    """The row as a fleet of its own, pools named by their place."""
    pools = {str(place): pool_of(str(place), item) for place, item in enumerate(row.pools)}
    routing = {
        name: tuple(Path(pools=tuple(str(place) for place in places), share=share) for places, share in paths)
        for name, paths in row.paths.items()
    }
    return Fleet(pools=pools, routing=routing)


def pool_of(name: str, item: PlannedKind) -> Pool:
    """The pool of a fleet."""
    candidate = item.candidate
    return Pool(
        name=name,
        model=candidate.model,
        gpu=candidate.gpu,
        layout=candidate.layout,
        replicas=item.holding.replicas,
        engine=dict(candidate.settings),
        precision=candidate.precision,
        role=candidate.pool_role,
        price_tier=MIXED if candidate.offers else candidate.price.tier,
        usd_per_gpu_hour=None if candidate.offers else candidate.price.usd_per_gpu_hour,
    )
