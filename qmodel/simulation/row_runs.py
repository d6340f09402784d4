"""Pools joined by paths, simulated together, and what each path and each pool saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from qmodel.evaluation import Evaluation, PoolCase
from qmodel.simulation.logs import PoolRun
from qmodel.simulation.policies import EnginePolicy
from qmodel.simulation.pool_runs import COURSE_POINTS, Demand, MeasuredRun, grew, piled_up, ranked, table_of, window_of
from qmodel.simulation.request_tables import RequestTable, table_from_arrays
from qmodel.simulation.tandem import NetworkRun, Stage, simulate_network
from qmodel.types import FloatArray, IntArray

__all__ = ["RowRun", "run_row"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowRun:
    """Simulated pools that paths join.

    Attributes:
        run: all that happened.
        paths: named by their pools joined with `` > ``.
        way: path of each request, an index into ``paths``, shape (n,).
        measured: mask of the requests that arrived in the window, shape (n,).
        stable: pools whose number of requests present did not grow to the end.
        warm_s, end_s: when the window begins, and when the last requests come.
    """

    run: NetworkRun
    paths: tuple[str, ...]
    way: IntArray
    measured: npt.NDArray[np.bool_]
    stable: Mapping[str, bool]
    warm_s: float
    end_s: float

    def on_path(self, path: str) -> MeasuredRun:
        """The requests of one path from end to end; the averages are those of its first pool."""
        pools = path.split(" > ")
        return MeasuredRun(
            run=PoolRun(log=self.run.log, track=self.run.pools[pools[0]].track),
            measured=self.measured & (self.way == self.paths.index(path)),
            stable=all(self.stable[name] for name in pools),
            warm_s=self.warm_s,
            end_s=self.end_s,
        )

    def in_pool(self, pool: str) -> MeasuredRun:
        """What one pool served."""
        return MeasuredRun(
            run=self.run.pools[pool],
            measured=self.measured[self.run.rows[pool]],
            stable=self.stable[pool],
            warm_s=self.warm_s,
            end_s=self.end_s,
        )


def run_row(
    demand: Demand,
    cases: Mapping[str, PoolCase],
    *,
    predicted: Evaluation,
    requests: int | None,
    seed: Sequence[int],
    policies: Mapping[str, EnginePolicy],
    times: float = 1.0,
) -> RowRun:
    """Simulate pools that paths join, all of them over the same time.

    Warm-up and end are as for a single pool, from the longest stay on any path.

    Args:
        demand: what comes.
        cases: the pools, at the confidence in force.
        predicted: tells how long requests stay.
        requests: as for a single pool, of each path.
        seed: of all draws.
        policies: scheduling rules of the engines by pool.
        times: how many times as many requests are measured.
    """
    rng = np.random.default_rng(list(seed))
    paths = tuple(
        dict.fromkeys(path.label for ways in demand.fleet.routing.values() for path in ways if path.pools[0] in cases)
    )
    window = window_of(demand, paths, predicted, requests, times)
    tables = [table_of(demand, path, rng, window.total_s, seed) for path in paths]
    table, way = _together(tables)
    by_rank = ranked(demand, paths)
    stages = {
        name: Stage(
            serves="output",
            replica=case.replica,
            replicas=case.serving,
            link=case.link,
            router=case.router,
            policy=replace(policies[name], order="priority") if by_rank else policies[name],
        )
        for name, case in cases.items()
    }
    run = simulate_network(
        table,
        way,
        [path.split(" > ") for path in paths],
        stages,
        rng=rng,
        window_s=(window.warm_s, window.stop_s),
        grid_s=np.linspace(0.0, window.total_s, COURSE_POINTS),
    )
    arrival_s = table.arrival_s
    return RowRun(
        run=run,
        paths=paths,
        way=way,
        measured=(arrival_s >= window.warm_s) & (arrival_s < window.stop_s),
        stable={
            name: window.recorded or not (grew(part.log, window.total_s) or _link_grew(run, name))
            for name, part in run.pools.items()
        },
        warm_s=window.warm_s,
        end_s=window.total_s,
    )


def _link_grew(run: NetworkRun, pool: str) -> bool:
    """Whether the link into a pool was given more than it carries."""
    link = run.links[pool]
    return link is not None and piled_up(*link.under_way, link.sequences // 2)


def _together(tables: Sequence[RequestTable]) -> tuple[RequestTable, IntArray]:
    """The requests of several paths in order of arrival, and the path of each."""
    names = list(dict.fromkeys(name for table in tables for name in table.classes))
    way = np.concatenate([np.full(len(table), index, dtype=np.int64) for index, table in enumerate(tables)])
    cls = np.concatenate([np.array([names.index(name) for name in table.classes])[table.cls] for table in tables])

    def column(name: str) -> FloatArray:
        return np.concatenate([getattr(table, name) for table in tables])

    arrival_s = column("arrival_s")
    merged = table_from_arrays(
        arrival_s,
        cls=cls,
        classes=names,
        prompt=column("prompt"),
        output=column("output"),
        reasoning=column("reasoning"),
        priority=column("priority"),
    )
    return merged, way[np.argsort(arrival_s, kind="stable")]
