"""Chosen metrics of many pools at once: different sizes, loads and replicas that serve the same classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qmodel.queueing.bursts.phases import BurstComponent, burst_components
from qmodel.queueing.replica.attempts import impatient_cases
from qmodel.queueing.replica.chain import top_rate_rps
from qmodel.queueing.replica.kv_limited import length_overload, memory_limit
from qmodel.queueing.replica.plain_pools import solve_plain
from qmodel.queueing.replica.pool_cases import (
    Wanted,
    broadcast_cases,
    check_pool,
    check_wanted,
    patience_of,
    rows_by_replica,
)
from qmodel.queueing.replica.pools import solve, solved_given
from qmodel.queueing.replica.prefill import Backlog
from qmodel.queueing.replica.solved_pools import ClassView, SolvedPools
from qmodel.queueing.replica.stacks import Setting, in_stacks, stacked
from qmodel.queueing.replica.work import pooled_work
from qmodel.types import FloatArray, IntArray, Metric, Patience, Replica, RequestClass, Router, Stream

__all__ = ["least_tpot", "pool_exceedances", "pool_metrics"]

_ANY_LEVEL = 0.5  # says that a law is asked for
_AT_ONCE = 48  # cases worked on together: each takes some tens of kB, all fit into a core's own cache


def pool_metrics(
    replicas: Sequence[Replica] | Replica,
    streams: Sequence[Stream | RequestClass],
    counts: npt.ArrayLike,
    loads: npt.ArrayLike,
    router: Router,
    wanted: Sequence[Wanted],
) -> FloatArray:
    """Chosen metrics of C pools that serve the same streams at different sizes and loads.

    Args:
        replicas: one replica for all cases, or C of them.
        streams: classes at load 1, requests/s.
        counts: replicas of each case, shape (C,) or a scalar.
        loads: factor on the rates of each case, shape (C,) or a scalar: so large a part of streams and bursts comes.
        router: ``random``, ``round_robin`` or ``jsq``; for streams with patience not ``round_robin``.
        wanted: W triples of class name, metric and level p in (0, 1), None for the mean and for ``abandoned``, the
            share of the requests that leave for good where the streams have patience.

    Returns:
        Values in s, shape (C, W); infinite where the load is too high. With patience they are those of the requests
        that are served, and no load is.

    Raises:
        ValueError: naming the argument that is out of range.

    Example:
        >>> from qmodel.types import Law, Lengths, StepLaw
        >>> replica = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4, delta_s=3e-5), max_num_seqs=64)
        >>> chat = Stream(name="chat", rate_rps=4.0, lengths=Lengths.independent(Law.constant(500), Law.constant(200)))
        >>> pool_metrics(replica, [chat], [1, 1], [1.0, 9.0], "random", [("chat", "tpot", None)]).round(4).tolist()
        [[0.0118], [inf]]
    """
    engines, sizes, factors = broadcast_cases(replicas, counts, loads)
    check_wanted(streams, wanted)
    return _values(engines, streams, sizes, factors, router, wanted, None)


def pool_exceedances(
    replicas: Sequence[Replica] | Replica,
    streams: Sequence[Stream | RequestClass],
    counts: npt.ArrayLike,
    loads: npt.ArrayLike,
    router: Router,
    wanted: Sequence[tuple[str, Metric]],
    limits_s: npt.ArrayLike,
) -> FloatArray:
    """Shares of requests that take longer than a limit, of C pools that serve the same streams.

    Where requests of several pools are counted together these shares add up, weighted by what each pool serves;
    percentiles do not.

    Args:
        replicas, streams, counts, loads, router: as for :func:`pool_metrics`.
        wanted: W pairs of class name and metric.
        limits_s: shape (C, W), or (W,) for all cases.

    Returns:
        Shares in [0, 1], shape (C, W); infinite where the load is too high.

    Raises:
        ValueError: naming the argument that is out of range.

    Example:
        >>> from qmodel.types import Law, Lengths, StepLaw
        >>> replica = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4, delta_s=3e-5), max_num_seqs=64)
        >>> chat = Stream(name="chat", rate_rps=4.0, lengths=Lengths.independent(Law.constant(500), Law.constant(200)))
        >>> p95_s = pool_metrics(replica, [chat], 1, 1.0, "random", [("chat", "ttft", 0.95)])[0]
        >>> pool_exceedances(replica, [chat], 1, [1.0, 9.0], "random", [("chat", "ttft")], p95_s).round(3).tolist()
        [[0.05], [inf]]
    """
    engines, sizes, factors = broadcast_cases(replicas, counts, loads)
    asked: list[Wanted] = [(name, metric, _ANY_LEVEL) for name, metric in wanted]
    check_wanted(streams, asked)
    limits = np.asarray(limits_s, dtype=float)
    if limits.shape[-1:] != (len(wanted),) or not np.all(limits > 0.0):
        raise ValueError(f"limits_s must be positive, one for each of the {len(wanted)} wanted (got {limits_s!r})")
    limits = np.broadcast_to(limits, (sizes.size, len(wanted)))
    return _values(engines, streams, sizes, factors, router, asked, limits)


def _values(
    engines: Sequence[Replica],
    streams: Sequence[Stream | RequestClass],
    sizes: FloatArray,
    factors: FloatArray,
    router: Router,
    wanted: Sequence[Wanted],
    limits_s: FloatArray | None,
) -> FloatArray:
    """Values of the wanted metrics, or shares beyond limits where these are given; infinite where not stable."""
    values = np.full((sizes.size, len(wanted)), np.inf)
    patience = patience_of(streams)
    if patience is not None:
        for rows, found, state in _impatient(engines, streams, sizes, factors, router, patience):
            values[rows] = _columns(state, wanted, state.waiting(), None if limits_s is None else limits_s[rows])
            values[rows] = np.where([metric == "abandoned" for _, metric, _ in wanted], found[:, None], values[rows])
        return values
    per_token = all(metric == "tpot" for _, metric, _ in wanted)

    def columns(state: SolvedPools, rows: IntArray, waiting: Backlog | None) -> FloatArray:
        return _columns(state, wanted, waiting, None if limits_s is None else limits_s[rows])

    for group in _groups(engines, streams, sizes, factors, router):
        rows = np.arange(group.rows.size)
        if per_token and group.at_once:  # little room for all, and no backlog where no budget fills
            state = group.solved(rows)
            values[group.rows] = columns(state, group.rows, None)
            rows = rows[state.budget_binds()]
        for part in _parts(rows):
            state = group.solved(part)
            needed = not per_token or bool(state.budget_binds().any())
            values[group.rows[part]] = columns(state, group.rows[part], state.waiting() if needed else None)
    return values


def least_tpot(
    replicas: Sequence[Replica] | Replica,
    streams: Sequence[Stream | RequestClass],
    counts: npt.ArrayLike,
    loads: npt.ArrayLike,
    router: Router,
    names: Sequence[str],
) -> FloatArray:
    """Lower bounds of the mean time per token: what it is without the prefill left behind at the first token.

    Steps take the time that the number in service and the prompts of others give them; what waits when a request has
    its first token only adds to that, and asks for the backlog, some fifty times the work.

    Args:
        replicas, streams, counts, loads, router: as for :func:`pool_metrics`.
        names: N classes, at least one.

    Returns:
        Bounds in s, shape (C, N), at most :func:`pool_metrics` of the same cases; infinite where the load is too high.

    Raises:
        ValueError: naming the argument that is out of range.

    Example:
        >>> from qmodel.types import Law, Lengths, StepLaw
        >>> replica = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4, delta_s=3e-5), max_num_seqs=64)
        >>> chat = Stream(name="chat", rate_rps=4.0, lengths=Lengths.independent(Law.constant(500), Law.constant(20)))
        >>> least = least_tpot(replica, [chat], 1, 1.0, "random", ["chat"])
        >>> mean = pool_metrics(replica, [chat], 1, 1.0, "random", [("chat", "tpot", None)])
        >>> least.round(6).tolist(), mean.round(6).tolist()
        ([[0.010844]], [[0.010894]])
    """
    engines, sizes, factors = broadcast_cases(replicas, counts, loads)
    check_wanted(streams, [(name, "tpot", None) for name in names])
    values = np.full((sizes.size, len(names)), np.inf)
    for group in _groups(engines, streams, sizes, factors, router):
        state = group.solved(np.arange(group.rows.size))
        members = {member.name: member for member in state.work.classes}
        views = [ClassView.of(state, members[name], None) for name in names]
        values[group.rows] = np.stack([view.least_tpot() for view in views], axis=1)
    return values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Group:
    """Stable cases that may be worked on together.

    Attributes:
        settings: distinct replicas with their work and memory limits.
        which: setting of each case, ascending, shape (n,).
        rows: their places among all cases, shape (n,).
        rate_rps, counts: arrivals of the whole pools and their replicas, shapes (n,).
        router: of all of them.
        components: of their bursts.
    """

    settings: tuple[Setting, ...]
    which: IntArray
    rows: IntArray
    rate_rps: FloatArray
    counts: FloatArray
    router: Router
    components: Sequence[BurstComponent]

    @property
    def at_once(self) -> bool:
        """Whether the occupancy is found in so little time that some cases may be solved twice."""
        return not self.components and self.router != "round_robin"

    def solved(self, part: IntArray) -> SolvedPools:
        """Some of the cases, ascending, solved."""
        first, last = int(self.which[part[0]]), int(self.which[part[-1]])
        chosen, rate, counts = self.settings[first : last + 1], self.rate_rps[part], self.counts[part]
        if len(chosen) > 1:
            return solve_plain(*stacked(chosen, self.which[part] - first), rate, counts, self.router)
        return solve(*chosen[0], self.components, rate, counts, self.router)


def _groups(
    engines: Sequence[Replica],
    streams: Sequence[Stream | RequestClass],
    sizes: FloatArray,
    factors: FloatArray,
    router: Router,
) -> Iterator[_Group]:
    """The stable cases in groups; none in others."""
    components = burst_components(streams)
    ready: list[tuple[Setting, IntArray]] = []
    for replica, rows in rows_by_replica(engines):
        check_pool(replica, router)
        work = pooled_work(replica, streams)
        if length_overload(replica, work) is not None:
            continue
        limit = memory_limit(replica, work)
        capacity, _ = top_rate_rps(replica, work, limit)
        stable = rows[work.rate_rps * factors[rows] < sizes[rows] * capacity]
        ready += [((replica, work, limit), mine) for mine in _apart(stable, sizes, router)]
    for members in in_stacks(ready) if _may_stack(streams, router) else [[one] for one in ready]:
        rows = np.concatenate([mine for _, mine in members])
        yield _Group(
            settings=tuple(setting for setting, _ in members),
            which=np.repeat(np.arange(len(members)), [mine.size for _, mine in members]),
            rows=rows,
            rate_rps=members[0][0][1].rate_rps * factors[rows],
            counts=sizes[rows],
            router=router,
            components=components,
        )


def _impatient(
    engines: Sequence[Replica],
    streams: Sequence[Stream | RequestClass],
    sizes: FloatArray,
    factors: FloatArray,
    router: Router,
    patience: Patience,
) -> Iterator[tuple[IntArray, FloatArray, SolvedPools]]:
    """Cases in parts, with the share that leaves for good and what those who are served meet."""
    for replica, rows in rows_by_replica(engines):
        check_pool(replica, router)
        work = pooled_work(replica, streams)
        if length_overload(replica, work) is not None:
            continue
        for part in _parts(rows):
            found = impatient_cases(replica, work, patience, work.rate_rps * factors[part], sizes[part], router)
            yield part, found.abandoned, solved_given(replica, work, found.seen, found.served_rps)


def _apart(rows: IntArray, sizes: FloatArray, router: Router) -> list[IntArray]:
    """Cases of one replica: pools that are dealt to, and others; one replica alone gets every request."""
    single = (sizes[rows] == 1.0) & (router == "round_robin")
    return [mine for mine in (rows[single], rows[~single]) if mine.size]


def _may_stack(streams: Sequence[Stream | RequestClass], router: Router) -> bool:
    """Whether different replicas can be worked on together."""
    alike = len({item.priority for item in streams}) == 1
    return alike and router != "round_robin" and not burst_components(streams)


def _parts(rows: IntArray) -> list[IntArray]:
    """Cases in parts whose arrays stay in a processor's cache."""
    return [rows[start : start + _AT_ONCE] for start in range(0, rows.size, _AT_ONCE)]


def _columns(
    state: SolvedPools, wanted: Sequence[Wanted], waiting: Backlog | None, limits_s: FloatArray | None
) -> FloatArray:
    """Values of the wanted metrics, or shares beyond their limits, shape (C, W).

    Times per token do without the backlog where no budget fills.
    """
    values = np.zeros((state.cases, len(wanted)))
    for member in state.work.classes:
        mine = [column for column, item in enumerate(wanted) if item[0] == member.name]
        if not mine:
            continue
        view = ClassView.of(state, member, waiting, means_only=all(wanted[column][2] is None for column in mine))
        levels: dict[Metric, list[float]] = {}
        for column in mine:
            _, metric, p = wanted[column]
            if p is None:
                values[:, column] = view.mean(metric)
            else:
                levels.setdefault(metric, []).append(p)
        laws = view.laws(list(levels))
        for metric, asked in levels.items():
            law = laws[metric]
            if law is None:
                continue
            columns = [column for column in mine if wanted[column][1] == metric and wanted[column][2] is not None]
            if limits_s is None:
                values[:, columns] = law.quantiles(asked)
            else:
                within = [law.each_within(limits_s[:, column]) for column in columns]
                values[:, columns] = np.clip(1.0 - np.column_stack(within), 0.0, 1.0)
    return values
