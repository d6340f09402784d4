"""Latency of a pool of equal replicas behind one router."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from qmodel.queueing.bursts.phase_occupancy import occupancy_by_phase
from qmodel.queueing.bursts.phases import BurstComponent, burst_components
from qmodel.queueing.replica.batch_priority import ranked
from qmodel.queueing.replica.case_bands import class_bands, clumps
from qmodel.queueing.replica.chain import Occupancy, occupancy, top_rate_rps
from qmodel.queueing.replica.dealing import dealt
from qmodel.queueing.replica.error_bands import ErrorBand
from qmodel.queueing.replica.exclusive import alone_at_a_time
from qmodel.queueing.replica.kv_limited import MemoryLimit, length_overload, memory_limit
from qmodel.queueing.replica.output_ranges import mean_slowdown, restricted
from qmodel.queueing.replica.plain_pools import evenness_of, solve_plain, started_at_a_step
from qmodel.queueing.replica.pool_cases import (
    broadcast_cases,
    cases_of,
    check_pool,
    overload_at,
    rows_by_replica,
)
from qmodel.queueing.replica.predictions import ClassPrediction, PoolPrediction, Prediction
from qmodel.queueing.replica.prefill import Backlog
from qmodel.queueing.replica.round_robin import company, dealt_occupancy, dealt_pace
from qmodel.queueing.replica.solved_pools import ClassView, SolvedPools
from qmodel.queueing.replica.token_times import pace
from qmodel.queueing.replica.work import ClassWork, Work, pooled_work
from qmodel.types import METRICS, FloatArray, Metric, Replica, RequestClass, Router, Stream

__all__ = [
    "ClassPrediction",
    "PoolPrediction",
    "Prediction",
    "pool",
    "predictions_given",
    "solve",
    "solved_given",
    "utilisation",
]

_NOBODY_RPS = 1e-9


def pool(
    replica: Replica, classes: Sequence[Stream | RequestClass], replicas: int, router: Router = "random"
) -> PoolPrediction:
    """Predict TTFT, answer start, TPOT and completion of every class in a pool.

    Requests wait as long as it takes: those with patience are for :func:`predict_pool`. Classes go by priority, equal
    ones first come, first served; arrivals are Poisson unless a class has a burst. A
    random router sends each replica its share of a burst, a shortest queue spreads it.

    Args:
        replica: engine instance that the pool is made of.
        classes: streams with the rates that the whole pool receives, requests/s.
        replicas: number of replicas, at least 1.
        router: ``random``, ``round_robin`` (dealt in turn) or ``jsq`` (fewest requests present).

    Returns:
        The prediction; where the load is too high it says why and holds no numbers.

    Raises:
        ValueError: naming the argument that is out of range.

    Example:
        >>> from qmodel.types import Law, Lengths, StepLaw
        >>> replica = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4, delta_s=3e-5), max_num_seqs=64)
        >>> chat = Stream(name="chat", rate_rps=4.0, lengths=Lengths.independent(Law.constant(500), Law.constant(200)))
        >>> prediction = pool(replica, [chat], replicas=1)
        >>> prediction.stable, round(prediction["chat"].tpot.mean, 4)
        (True, 0.0118)
        >>> pool(replica, [chat], replicas=1)["chat"].ttft.quantile(0.95) < 0.06
        True

    Source: own construction, see docs/theory/replica.md.
    """
    check_pool(replica, router)
    counts, loads = cases_of([replicas], [1.0])
    work = pooled_work(replica, classes)
    limit = memory_limit(replica, work)
    too_long = length_overload(replica, work)
    capacity, by_memory = top_rate_rps(replica, work, limit)
    used = float(work.rate_rps / (counts[0] * capacity))
    overload = too_long or overload_at(replica, work, limit, used, float(counts[0]), capacity, by_memory)
    if overload is not None:
        return PoolPrediction(
            stable=False, overload=overload, utilisation=used, kv_fill=None, mean_batch=None, p_wait=None, classes={}
        )
    state = solve(replica, work, limit, burst_components(classes), work.rate_rps * loads, counts, router)
    waiting = state.waiting()
    whole = state.bursts or state.seen
    bands = class_bands(work.classes, used, by_memory, bursty=clumps(classes))
    batch = float(whole.mean_batch[0])
    return PoolPrediction(
        stable=True,
        overload=None,
        utilisation=used,
        kv_fill=None if replica.kv_tokens is None else batch * work.held / replica.kv_tokens,
        mean_batch=batch,
        p_wait=float(whole.p_wait[0]),
        classes={member.name: _class_prediction(state, member, waiting, bands[member.name]) for member in work.classes},
    )


def utilisation(
    replicas: Sequence[Replica] | Replica,
    streams: Sequence[Stream | RequestClass],
    counts: npt.ArrayLike,
    loads: npt.ArrayLike,
) -> FloatArray:
    """Offered load over the largest stable load, C cases.

    Args:
        replicas: one replica for all cases, or C of them.
        streams: classes at load 1, requests/s.
        counts: replicas of each case, shape (C,) or a scalar.
        loads: factor on the rates of each case, shape (C,) or a scalar.

    Returns:
        Shape (C,); 1 and more where the load is too high, infinite where requests outgrow the memory.

    Example:
        >>> from qmodel.types import Law, Lengths, StepLaw
        >>> replica = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=0.0), max_num_seqs=10)
        >>> chat = Stream(name="chat", rate_rps=1.0, lengths=Lengths.independent(Law.constant(500), Law.constant(100)))
        >>> utilisation(replica, [chat], [1, 2], [5.0, 5.0]).round(3).tolist()
        [0.5, 0.25]
    """
    engines, sizes, factors = broadcast_cases(replicas, counts, loads)
    values = np.full(sizes.size, np.inf)
    for replica, rows in rows_by_replica(engines):
        work = pooled_work(replica, streams)
        if length_overload(replica, work) is None:
            capacity, _ = top_rate_rps(replica, work, memory_limit(replica, work))
            values[rows] = work.rate_rps * factors[rows] / (sizes[rows] * capacity)
    return values


def predictions_given(
    replica: Replica, work: Work, seen: Occupancy, rate_rps: FloatArray
) -> dict[str, ClassPrediction]:
    """Every class of a pool whose occupancy is known.

    Args:
        replica: engine instance.
        work: requests of all classes.
        seen: occupancy of one case.
        rate_rps: arrivals at one replica, shape (1,).
    """
    state = solved_given(replica, work, seen, rate_rps)
    waiting = state.waiting()
    _, by_memory = top_rate_rps(replica, work, memory_limit(replica, work))
    bands = class_bands(work.classes, float(seen.utilisation[0]), by_memory)
    return {member.name: _class_prediction(state, member, waiting, bands[member.name]) for member in work.classes}


def solved_given(replica: Replica, work: Work, seen: Occupancy, rate_rps: FloatArray) -> SolvedPools:
    """Pools whose occupancy is known, C cases of first come, first served.

    Args:
        replica: engine instance.
        work: requests of all classes.
        seen: occupancy.
        rate_rps: requests that one replica serves, shape (C,).
    """
    return SolvedPools(
        replica=replica,
        work=work,
        seen=seen,
        run=pace(replica, work, seen, rate_rps),
        rate_rps=rate_rps,
        evenness=np.zeros_like(rate_rps),
        beside=None,
        company=None,
        bursts=None,
        ranks=None,
    )


def solve(
    replica: Replica,
    work: Work,
    limit: MemoryLimit | None,
    components: Sequence[BurstComponent],
    rate_rps: FloatArray,
    counts: FloatArray,
    router: Router,
) -> SolvedPools:
    """Solve C stable cases of one replica.

    Args:
        replica, work, limit: engine instance, requests of all classes, memory limit.
        components: of their bursts.
        rate_rps: arrivals of the whole pool, shape (C,).
        counts: replicas of the pool, shape (C,).
        router: ``random``, ``round_robin`` or ``jsq``.
    """
    dealing = router == "round_robin" and bool(np.any(counts > 1.0))
    exclusive = replica.max_num_seqs == 1 and not components
    if components or dealing or exclusive:
        state = _solve_special(replica, work, limit, components, rate_rps, counts, router)
    else:
        state = solve_plain(replica, work, limit, rate_rps, counts, router)
    if len({item.priority for item in work.classes}) == 1:
        return state
    run_in = np.zeros_like(state.rate_rps) if exclusive else state.seen.tau_mean_s / 2.0
    counts = np.repeat(counts, state.rate_rps.size // counts.size)
    behind = counts if router == "jsq" else np.ones_like(counts)
    return replace(state, ranks=ranked(replica, work, limit, state.seen, state.rate_rps, behind, run_in))


def _solve_special(
    replica: Replica,
    work: Work,
    limit: MemoryLimit | None,
    components: Sequence[BurstComponent],
    rate_rps: FloatArray,
    counts: FloatArray,
    router: Router,
) -> SolvedPools:
    """Pools with bursts, dealt in turn or with one slot."""
    bursts = turn = None
    if router == "round_robin" and np.any(counts > 1.0):
        turn = dealt(rate_rps / counts, counts)
    if components:
        bursts = occupancy_by_phase(replica, work, limit, components, rate_rps, counts, router, turn)
        seen, each, later = bursts.seen, bursts.rate_rps, bursts.stay_rps
        counts = np.repeat(counts, each.size // counts.size)
    else:
        seen = occupancy(replica, work, limit, rate_rps, counts, router)
        each = later = rate_rps / counts
        if turn is not None:
            smooth = occupancy_by_phase(replica, work, limit, (), rate_rps, counts, router, turn).seen
            seen = dealt_occupancy(seen, smooth, work, turn)
    if replica.max_num_seqs == 1 and not components:
        seen, turn = alone_at_a_time(seen, replica, work, rate_rps, counts, router), None
        each = later = np.full_like(rate_rps, _NOBODY_RPS)  # no prompt of another request is prefilled meanwhile
    else:
        seen = started_at_a_step(seen, seen.tau_mean_s / 2.0)
    evenness = evenness_of(counts, router)
    run, beside = pace(replica, work, seen, later, evenness), None
    if turn is not None:
        turn = turn.repeated(each.size // turn.excess.size)
        beside = company(replica, work, seen, each, turn)
        apart = pace(replica, work, seen, later, 1.0 - beside)  # a request's own prompt draws fewer others in
        run = dealt_pace(replace(run, token_s=apart.token_s), replica, work, later, turn)
    return SolvedPools(
        replica=replica,
        work=work,
        seen=seen,
        run=run,
        rate_rps=each,
        evenness=evenness,
        beside=counts if router == "jsq" else None,
        company=beside,
        bursts=bursts,
        ranks=None,
    )


def _class_prediction(
    state: SolvedPools, member: ClassWork, waiting: Backlog, bands: Mapping[Metric, ErrorBand]
) -> ClassPrediction:
    assert isinstance(state.replica, Replica)
    laws = ClassView.of(state, member, waiting).laws(METRICS)
    ttft, answer, tpot, completion = (
        Prediction(mean=0.0 if (law := laws[name]) is None else float(law.mean_s[0]), law=law, error=bands[name])
        for name in METRICS
    )
    return ClassPrediction(
        ttft=ttft,
        answer_start=answer,
        tpot=tpot,
        completion=completion,
        slowdown_mean=mean_slowdown(state.replica, member, ttft.mean, completion.mean, _token_s(state, member)),
        lengths=_Ranges(state=state, member=member, waiting=waiting, bands=bands),
    )


def _token_s(state: SolvedPools, member: ClassWork) -> float:
    met = state.phases_met(member)
    return float(state.run.token_s[0] if met is None else met[0] @ state.run.token_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ranges:
    """One class of a solved pool, to be asked about ranges of its outputs."""

    state: SolvedPools
    member: ClassWork
    waiting: Backlog
    bands: Mapping[Metric, ErrorBand]

    def within(self, above_tokens: float, up_to_tokens: float) -> ClassPrediction:
        """Requests with more than ``above_tokens`` and at most ``up_to_tokens`` generated tokens."""
        part, share = restricted(self.member, above_tokens, up_to_tokens)
        return replace(_class_prediction(self.state, part, self.waiting, self.bands), share=share, lengths=None)
