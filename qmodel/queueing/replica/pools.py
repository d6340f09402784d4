"""Latency of a pool of equal replicas behind one router, for one case or for many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from qmodel.queueing.bursts.phase_mixture import over_phases
from qmodel.queueing.bursts.phase_occupancy import BurstyOccupancy, occupancy_by_phase
from qmodel.queueing.bursts.phases import BurstComponent, burst_components
from qmodel.queueing.replica.batch_priority import Ranks, ranked
from qmodel.queueing.replica.chain import Occupancy, occupancy, top_rate_rps
from qmodel.queueing.replica.dealing import dealt
from qmodel.queueing.replica.exclusive import alone_at_a_time
from qmodel.queueing.replica.first_token import prefill_delay
from qmodel.queueing.replica.kv_limited import MemoryLimit, length_overload, memory_limit
from qmodel.queueing.replica.output_ranges import mean_slowdown, restricted
from qmodel.queueing.replica.percentiles import GridLaw, KernelLaw, delayed
from qmodel.queueing.replica.predictions import ClassPrediction, PoolPrediction, Prediction
from qmodel.queueing.replica.prefill import Backlog, backlog
from qmodel.queueing.replica.prefill_pauses import more_waiting, slots_reached, spread_ratio
from qmodel.queueing.replica.round_robin import company, dealt_occupancy, dealt_pace
from qmodel.queueing.replica.token_times import Pace, left_behind, pace, time_per_token, time_to_token
from qmodel.queueing.replica.work import ClassWork, Work, pooled_work
from qmodel.types import METRICS, FloatArray, Metric, Overload, Replica, RequestClass, Router, Stream

__all__ = ["ClassPrediction", "PoolPrediction", "Prediction", "pool", "pool_metrics", "utilisation"]

_EVENNESS = 0.65  # how far a shortest-queue router evens out what steps collect; fitted to step-level simulations

_NOBODY_RPS = 1e-9

Wanted = tuple[str, Metric, float | None]


def pool(
    replica: Replica, classes: Sequence[Stream | RequestClass], replicas: int, router: Router = "random"
) -> PoolPrediction:
    """Predict TTFT, answer start, TPOT and completion of every class in a pool.

    Classes go by priority, equal ones first come, first served; arrivals are Poisson unless a class has a burst. A
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
    _check(replica, router)
    counts, loads = _cases([replicas], [1.0])
    work = pooled_work(replica, classes)
    limit = memory_limit(replica, work)
    too_long = length_overload(replica, work)
    capacity, by_memory = top_rate_rps(replica, work, limit)
    used = float(work.rate_rps / (counts[0] * capacity))
    overload = too_long or _overload(replica, work, limit, used, float(counts[0]), capacity, by_memory)
    if overload is not None:
        return PoolPrediction(
            stable=False, overload=overload, utilisation=used, kv_fill=None, mean_batch=None, p_wait=None, classes={}
        )
    state = _solve(replica, work, limit, burst_components(classes), work.rate_rps * loads, counts, router)
    waiting = state.waiting()
    whole = state.bursts or state.seen
    batch = float(whole.mean_batch[0])
    return PoolPrediction(
        stable=True,
        overload=None,
        utilisation=used,
        kv_fill=None if replica.kv_tokens is None else batch * work.held / replica.kv_tokens,
        mean_batch=batch,
        p_wait=float(whole.p_wait[0]),
        classes={member.name: _class_prediction(state, member, waiting) for member in work.classes},
    )


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
        router: ``random``, ``round_robin`` or ``jsq``.
        wanted: W triples of class name, metric and level p in (0, 1), None for the mean.

    Returns:
        Values in s, shape (C, W); infinite where the load is too high.

    Raises:
        ValueError: naming the argument that is out of range.

    Example:
        >>> from qmodel.types import Law, Lengths, StepLaw
        >>> replica = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4, delta_s=3e-5), max_num_seqs=64)
        >>> chat = Stream(name="chat", rate_rps=4.0, lengths=Lengths.independent(Law.constant(500), Law.constant(200)))
        >>> pool_metrics(replica, [chat], [1, 1], [1.0, 9.0], "random", [("chat", "tpot", None)]).round(4).tolist()
        [[0.0118], [inf]]
    """
    engines, sizes, factors = _broadcast(replicas, counts, loads)
    _check_wanted(streams, wanted)
    values = np.full((sizes.size, len(wanted)), np.inf)
    for replica, rows in _by_replica(engines):
        _check(replica, router)
        work = pooled_work(replica, streams)
        if length_overload(replica, work) is not None:
            continue
        limit = memory_limit(replica, work)
        rate = work.rate_rps * factors[rows]
        capacity, _ = top_rate_rps(replica, work, limit)
        stable = rate < sizes[rows] * capacity
        if not stable.any():
            continue
        components = burst_components(streams)
        state = _solve(replica, work, limit, components, rate[stable], sizes[rows][stable], router)
        values[rows[stable]] = _columns(state, wanted)
    return values


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
    engines, sizes, factors = _broadcast(replicas, counts, loads)
    values = np.full(sizes.size, np.inf)
    for replica, rows in _by_replica(engines):
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
    state = _State(
        replica=replica,
        work=work,
        seen=seen,
        run=pace(replica, work, seen, rate_rps),
        rate_rps=rate_rps,
        evenness=np.zeros_like(rate_rps),
        company=np.ones_like(rate_rps),
        bursts=None,
        ranks=None,
    )
    waiting = state.waiting()
    return {member.name: _class_prediction(state, member, waiting) for member in work.classes}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _State:
    """C stable cases of one replica and one mix, solved; with bursts C m rows, m phases of the rate for each."""

    replica: Replica
    work: Work
    seen: Occupancy
    run: Pace
    rate_rps: FloatArray
    evenness: FloatArray
    company: FloatArray
    bursts: BurstyOccupancy | None
    ranks: Ranks | None

    def waiting(self) -> Backlog:
        """The prefill backlog, solved on demand: means per token do without it."""
        clump = None if self.bursts is None else self.bursts.clump
        return backlog(self.replica, self.work, self.seen, self.company * self.rate_rps, self.evenness, clump)

    def phases_met(self, member: ClassWork) -> FloatArray | None:
        """Share of the requests of a class that come in each phase, shape (C, m); None without bursts."""
        if self.bursts is None:
            return None
        return np.asarray(self.bursts.by_class[[item.name for item in self.work.classes].index(member.name)])


def _solve(
    replica: Replica,
    work: Work,
    limit: MemoryLimit | None,
    components: Sequence[BurstComponent],
    rate_rps: FloatArray,
    counts: FloatArray,
    router: Router,
) -> _State:
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
    exclusive = replica.max_num_seqs == 1 and not components
    if exclusive:
        seen, turn = alone_at_a_time(seen, replica, work, rate_rps, counts, router), None
        each = later = np.full_like(rate_rps, _NOBODY_RPS)  # no prompt of another request is prefilled meanwhile
    evenness = _EVENNESS * (1.0 - 1.0 / counts) if router == "jsq" else np.zeros_like(counts)
    spread = np.ones_like(each)
    if not components and turn is None and not exclusive:
        spread = spread_ratio(work, replica.step.delta_s * work.lengths.prompt.mean * each * (1.0 - evenness))
        spread = 1.0 + (spread - 1.0) * (1.0 if limit is None else slots_reached(limit, replica.max_num_seqs))
        seen = more_waiting(seen, spread, replica.max_num_seqs * (counts if router == "jsq" else np.ones_like(counts)))
    run_in = seen.tau_mean_s / 2.0  # who waited starts with the step that follows, without a residual step
    if exclusive:
        run_in = np.zeros_like(run_in)
    seen = replace(seen, wait_mean_s=np.maximum(seen.wait_mean_s - run_in, seen.wait_mean_s / 4.0))
    run, beside = pace(replica, work, seen, later, evenness, spread), np.ones_like(each)
    if turn is not None:
        turn = turn.repeated(each.size // turn.excess.size)
        beside = company(replica, work, seen, each, turn)
        apart = pace(replica, work, seen, later, 1.0 - beside)  # a request's own prompt draws fewer others in
        run = dealt_pace(replace(run, token_s=apart.token_s), replica, work, later, turn)
    return _State(
        replica=replica,
        work=work,
        seen=seen,
        run=run,
        rate_rps=each,
        evenness=evenness,
        company=beside,
        bursts=bursts,
        ranks=ranked(replica, work, limit, seen, each, counts if router == "jsq" else np.ones_like(counts), run_in),
    )


def _laws(
    state: _State, member: ClassWork, metrics: Sequence[str], waiting: Backlog | None
) -> dict[str, GridLaw | KernelLaw | None]:
    """The laws of the named metrics of one class, C cases each; ``waiting`` may be None for ``tpot`` alone."""
    seen, output = state.seen, member.output_bands
    prompt = member.lengths.prompt
    if state.ranks is not None:
        seen = state.ranks.seen_by(member, seen)
        waiting = waiting if waiting is None else state.ranks.found_by(member, waiting)
    left = left_behind(state.run, prompt, state.replica.step.delta_s)
    left = replace(left, mean_s=state.company * left.mean_s, variance=state.company * left.variance)
    if waiting is not None:
        found = prefill_delay(waiting, state.replica, prompt, seen.idle, state.work.lengths.prompt.mean)
        first = found.moments()
    laws: dict[str, GridLaw | KernelLaw | None] = {}
    for name in metrics:
        if name == "answer_start" and member.reasoning_bands is None and "ttft" in laws:
            laws[name] = laws["ttft"]
        elif name == "ttft" or (name == "answer_start" and member.reasoning_bands is None):
            laws[name] = delayed(found.law(first[0]), seen.p_wait, seen.wait_mean_s, seen.wait_scv)
        elif name == "tpot":
            laws[name] = time_per_token(state.run, output, left)
        elif name == "completion":
            after = np.stack([output[0], np.maximum(output[1] - 1.0, 0.0), output[2]])
            laws[name] = time_to_token(state.run, after, left, first, seen)
        else:
            assert member.reasoning_bands is not None
            laws[name] = time_to_token(state.run, member.reasoning_bands, left, first, seen)
    met = state.phases_met(member)
    if met is not None:
        laws = {name: None if law is None else over_phases(law, met) for name, law in laws.items()}
    return laws


def _class_prediction(state: _State, member: ClassWork, waiting: Backlog) -> ClassPrediction:
    laws = _laws(state, member, METRICS, waiting)
    ttft, answer, tpot, completion = (
        Prediction(mean=0.0 if law is None else float(law.mean_s[0]), law=law)
        for law in (laws[name] for name in METRICS)
    )
    return ClassPrediction(
        ttft=ttft,
        answer_start=answer,
        tpot=tpot,
        completion=completion,
        slowdown_mean=mean_slowdown(state.replica, member, ttft.mean, completion.mean, _token_s(state, member)),
        lengths=_Ranges(state=state, member=member, waiting=waiting),
    )


def _token_s(state: _State, member: ClassWork) -> float:
    met = state.phases_met(member)
    return float(state.run.token_s[0] if met is None else met[0] @ state.run.token_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ranges:
    """One class of a solved pool, to be asked about ranges of its outputs."""

    state: _State
    member: ClassWork
    waiting: Backlog

    def within(self, above_tokens: float, up_to_tokens: float) -> ClassPrediction:
        """Requests with more than ``above_tokens`` and at most ``up_to_tokens`` generated tokens."""
        part, share = restricted(self.member, above_tokens, up_to_tokens)
        return replace(_class_prediction(self.state, part, self.waiting), share=share, lengths=None)


def _columns(state: _State, wanted: Sequence[Wanted]) -> FloatArray:
    cases = state.seen.utilisation.size if state.bursts is None else state.bursts.p_wait.size
    values = np.zeros((cases, len(wanted)))
    waiting = state.waiting() if any(metric != "tpot" for _, metric, _ in wanted) else None
    for member in state.work.classes:
        mine = [column for column, item in enumerate(wanted) if item[0] == member.name]
        if not mine:
            continue
        laws = _laws(state, member, list(dict.fromkeys(wanted[column][1] for column in mine)), waiting)
        for column in mine:
            _, metric, p = wanted[column]
            law = laws[metric]
            if law is not None:
                values[:, column] = law.mean_s if p is None else law.quantile(p)
    return values


def _overload(
    replica: Replica,
    work: Work,
    limit: MemoryLimit | None,
    used: float,
    replicas: float,
    capacity: float,
    by_memory: bool,
) -> Overload | None:
    """The overload of a pool at ``used`` of its capacity, None below 1."""
    if used < 1.0:
        return None
    enough = int(np.floor(work.rate_rps / capacity)) + 1
    what = f"{work.rate_rps:.4g} requests/s arrive, {replicas:.0f} replicas carry less than {replicas * capacity:.4g}"
    if by_memory and limit is not None:
        cause = f"their KV memory holds {limit.fits:.1f} sequences each"
    else:
        cause = f"at {replica.max_num_seqs} sequences each"
    return Overload(
        kind="kv" if by_memory else "steps",
        value=work.rate_rps,
        limit=replicas * capacity,
        reason=f"{what} ({cause}); at least {enough} are needed",
    )


def _check(replica: Replica, router: str) -> None:
    if router not in ("random", "round_robin", "jsq"):
        raise ValueError(f"router must be 'random', 'round_robin' or 'jsq' (got {router!r})")
    if replica.max_num_seqs < 1:
        raise ValueError(f"max_num_seqs must be at least 1 (got {replica.max_num_seqs})")
    if replica.max_batched_tokens <= replica.max_num_seqs:
        raise ValueError(
            f"max_batched_tokens must exceed max_num_seqs, else full batches leave no room for prompts "
            f"(got {replica.max_batched_tokens} and {replica.max_num_seqs})"
        )
    if not 0.0 <= replica.watermark < 1.0:
        raise ValueError(f"watermark must lie in [0, 1) (got {replica.watermark!r})")
    if replica.admission == "first_chunk" and replica.kv_tokens is not None and replica.recompute_factor is None:
        raise ValueError(
            "recompute_factor must be given with admission 'first_chunk', whose evictions no formula predicts: "
            "simulate the replica in overload and divide its recomputed tokens per request by the mean output"
        )
    for name in ("recompute_factor", "swap_out_s_per_token", "swap_in_s_per_token"):
        value = getattr(replica, name)
        if value is not None and not 0.0 <= value < np.inf:
            raise ValueError(f"{name} must be at least 0 and finite (got {value!r})")
    if replica.kv_tokens is not None and not replica.kv_tokens > 0.0:
        raise ValueError(f"kv_tokens must be positive, or None for no limit (got {replica.kv_tokens!r})")


def _check_wanted(streams: Sequence[Stream | RequestClass], wanted: Sequence[Wanted]) -> None:
    names = {item.name for item in streams}
    for name, metric, p in wanted:
        if name not in names:
            raise ValueError(f"wanted names class {name!r}; the streams are {sorted(names)}")
        if metric not in METRICS:
            raise ValueError(f"wanted names metric {metric!r}; metrics are {', '.join(METRICS)}")
        if p is not None and not 0.0 < p < 1.0:
            raise ValueError(f"a level p in wanted must lie strictly between 0 and 1 (got {p!r})")


def _cases(counts: npt.ArrayLike, loads: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    sizes, factors = np.broadcast_arrays(
        np.atleast_1d(np.asarray(counts, dtype=float)), np.atleast_1d(np.asarray(loads, dtype=float))
    )
    if not np.all((sizes >= 1.0) & (sizes == np.floor(sizes)) & np.isfinite(sizes)):
        raise ValueError(f"counts (replicas) must be whole numbers of at least 1 (got {counts!r})")
    if not np.all((factors > 0.0) & np.isfinite(factors)):
        raise ValueError(f"loads must be positive and finite (got {loads!r})")
    return sizes, factors


def _broadcast(
    replicas: Sequence[Replica] | Replica, counts: npt.ArrayLike, loads: npt.ArrayLike
) -> tuple[Sequence[Replica], FloatArray, FloatArray]:
    sizes, factors = _cases(counts, loads)
    engines = [replicas] if isinstance(replicas, Replica) else list(replicas)
    if len(engines) == 1:
        engines = engines * sizes.size
    if sizes.size == 1 and len(engines) > 1:
        sizes, factors = np.repeat(sizes, len(engines)), np.repeat(factors, len(engines))
    if len(engines) != sizes.size:
        raise ValueError(f"replicas must be one or as many as cases (got {len(engines)} for {sizes.size} cases)")
    return engines, sizes, factors


def _by_replica(engines: Sequence[Replica]) -> list[tuple[Replica, npt.NDArray[np.intp]]]:
    """Each distinct replica with the rows that use it."""
    rows: dict[int, list[int]] = {}
    for row, engine in enumerate(engines):
        rows.setdefault(id(engine), []).append(row)
    return [(engines[mine[0]], np.array(mine)) for mine in rows.values()]
