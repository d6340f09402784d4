"""What an arrival meets in a replica whose arrivals come in bursts: one occupancy for each phase of the rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qmodel.queueing.bursts.phase_chain import JointLaw, joint_law
from qmodel.queueing.bursts.phases import BurstComponent, Phases, rate_phases
from qmodel.queueing.replica.chain import (
    NEVER,
    SURELY_STABLE,
    Occupancy,
    States,
    chain_states,
    full_budget_batch,
    memory_s,
    node_mean,
    occupancy,
    residence_s,
    top_rate_rps,
)
from qmodel.queueing.replica.dealing import Dealt
from qmodel.queueing.replica.kv_limited import MemoryLimit, share_blocked
from qmodel.queueing.replica.slot_waits import slot_wait_shape
from qmodel.queueing.replica.work import Work
from qmodel.types import FloatArray, Replica, Router

__all__ = ["BurstyOccupancy", "occupancy_by_phase"]

_DENSE = 112  # most states kept one by one: each costs a step of elimination
_MOST_BUSY = 0.9  # prefill share above which the scatter that prompts add is not followed
_LEAST_SCV, _MOST_SCV = 0.2, 20.0  # of a wait


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BurstyOccupancy:
    """C cases as C m rows, m for each case: what requests meet that arrive in each phase.

    Attributes:
        seen: one row for each case and phase; its batch and its residence are those of these requests.
        rate_rps: rate at which the prompts that wait for prefill have come to one replica, 1/s, shape (C m,).
        stay_rps: prompts that it admits while they stay, 1/s, shape (C m,).
        clump: requests within a step that come with another beyond what chance brings, shape (C m,).
        by_class: share of the requests of each class that come in each phase, shape (classes, C, m).
        mean_batch: mean sequences in service per replica over time, shape (C,).
        p_wait: share of requests that wait for a slot or for memory, shape (C,).
    """

    seen: Occupancy
    rate_rps: FloatArray
    stay_rps: FloatArray
    clump: FloatArray
    by_class: FloatArray
    mean_batch: FloatArray
    p_wait: FloatArray


def occupancy_by_phase(
    replica: Replica,
    work: Work,
    limit: MemoryLimit | None,
    components: Sequence[BurstComponent],
    rate_rps: FloatArray,
    replicas: FloatArray,
    router: Router,
    turn: Dealt | None = None,
) -> BurstyOccupancy:
    """Solve the chain of number and phase for C cases.

    Args:
        replica: engine instance.
        work: its requests.
        limit: its memory limit, None without.
        components: of the arrivals, at least one.
        rate_rps: arrivals of the whole pool, shape (C,).
        replicas: replicas of the pool, shape (C,).
        router: as for :func:`qmodel.queueing.replica.chain.occupancy`.
        turn: what dealing to the replicas in turn takes from the scatter, None where the router does not.

    Source: own construction, see docs/theory/bursty-replica.md.
    """
    plain = occupancy(replica, work, limit, rate_rps, replicas, router)
    machines = replicas if router == "jsq" else np.ones_like(rate_rps)
    capacity, by_memory = top_rate_rps(replica, work, limit)
    rate = np.minimum(rate_rps if router == "jsq" else rate_rps / replicas, SURELY_STABLE * machines * capacity)
    one = rate / machines
    prefill_s = replica.step.delta_s * work.lengths.prompt.mean
    phases = rate_phases(
        components,
        work,
        rate_rps=rate,
        one_rps=one,
        residence_s=plain.residence_s,
        step_s=plain.tau_mean_s / np.maximum(1.0 - one * prefill_s, 0.05),
        prefill_s=prefill_s,
        turn=turn,
    )
    chain = _chain(replica, work, limit, phases, one, machines)
    waits = _waits(chain, limit, rate, phases)
    rho = np.minimum(plain.utilisation, SURELY_STABLE)
    ratio, scv = slot_wait_shape(replica, work, limit, machines, rho, by_memory)
    # how many times longer than without bursts those wait that wait; what service times add does not grow with it
    longer = np.maximum(waits.mean_s * (machines * capacity * (1.0 - rho))[:, None], 1.0)
    wait_mean = waits.mean_s * (1.0 + (ratio[:, None] - 1.0) / longer)
    wait_scv = np.clip(waits.scv + (scv[:, None] - 1.0) / longer, _LEAST_SCV, _MOST_SCV)
    arriving = one[:, None] * phases.prompt_factor
    admitted = arriving + waits.p_wait * (capacity - arriving)  # whoever waits comes in as others leave
    stay = _stay(replica, work, chain, phases, one, admitted)
    phase_count = phases.share.shape[1]
    met = _met(chain, phases)
    seen = Occupancy(
        utilisation=np.repeat(plain.utilisation, phase_count),
        batch=_rows(chain.states[2], phase_count),
        seen=met.reshape(-1, met.shape[2]),
        mean_batch=stay.batch.ravel(),
        idle=_within(met, (chain.states[0] < chain.machines).astype(float)).ravel(),
        residence_s=stay.residence_s.ravel(),
        p_wait=waits.p_wait.ravel(),
        wait_mean_s=wait_mean.ravel(),
        wait_scv=wait_scv.ravel(),
        tau_mean_s=stay.tau_s.ravel(),
        tau_variance=stay.tau_variance.ravel(),
        memory_s=np.repeat(stay.memory_s, phase_count),
    )
    return BurstyOccupancy(
        seen=seen,
        rate_rps=_prefill_rate(replica, work, stay, phases, admitted).ravel(),
        stay_rps=stay.prompt_rps.ravel(),
        clump=np.repeat(phases.clump, phase_count),
        by_class=phases.by_class,
        mean_batch=np.einsum("cm,cm->c", phases.share, stay.batch),
        p_wait=np.einsum("cm,cm->c", phases.share * phases.factor, waits.p_wait),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Chain:
    """The solved chain.

    Attributes:
        states: nodes, weights, batches, step times and speeds of the Poisson chain, each (1 or C, K).
        machines: replicas that share the chain, shape (1 or C, 1).
        speed: departures/s at each node in each phase, shape (C, m, K).
        law: of number and phase.
    """

    states: States
    machines: FloatArray
    speed: FloatArray
    law: JointLaw


def _chain(
    replica: Replica, work: Work, limit: MemoryLimit | None, phases: Phases, one_rps: FloatArray, machines: FloatArray
) -> _Chain:
    alike = machines[:1] if np.all(machines == machines[0]) else machines
    states = chain_states(replica, work, limit, alike, _DENSE)
    number, weight, _, _, speed = states
    paces, scatter = _paces(replica, work, limit, phases, one_rps, alike[:, None], states)
    rate = one_rps * machines
    top = np.broadcast_to(speed[:, -1], rate.shape)
    law = joint_law(rate, phases, number=number, weight=weight, speed=paces, noise=scatter, top=top)
    return _Chain(states=states, machines=alike[:, None], speed=paces, law=law)


def _paces(
    replica: Replica,
    work: Work,
    limit: MemoryLimit | None,
    phases: Phases,
    one_rps: FloatArray,
    machines: FloatArray,
    states: States,
) -> tuple[FloatArray, FloatArray]:
    """Departures/s at each node in each phase, (C, m, K), and the scatter, (C, m).

    Prompts take their time when they arrive, not when others leave: while the rate is high, sequences advance more
    slowly than the same number would on average. A prompt thus also holds up the others, which adds to the scatter;
    the factor gives the variance that the chain without phases has. Where nobody is admitted, prompts come as others
    leave.
    """
    number, _, batch, tau, speed = states
    cases, m = phases.factor.shape
    prefill_s = replica.step.delta_s * work.lengths.prompt.mean
    noise = np.broadcast_to(phases.noise[:, None], (cases, m))
    whole = np.broadcast_to(speed[:, None, :], (cases, m, speed.shape[1]))
    if prefill_s == 0.0 or m == 1:
        return whole, noise
    busy = one_rps[:, None] * phases.prompt_factor * prefill_s
    running = np.maximum(batch, np.minimum(number, 1.0))
    served = np.minimum(number, machines) * running
    alone = np.maximum(served / np.maximum(speed, 1e-300) - running * prefill_s, work.steps * tau)
    longest = work.steps * (tau + replica.step.delta_s * np.maximum(replica.max_batched_tokens - batch, 1.0))
    residence = np.minimum(alone[:, None, :] / np.maximum(1.0 - busy, 1e-3)[:, :, None], longest[:, None, :])
    paces = served[:, None, :] / np.maximum(residence, 1e-300)
    if limit is not None:
        shut = share_blocked(limit, number / machines)[:, None, :]
        paces = paces + shut * (whole - paces)
    paces = np.where((number >= number[:, -1:])[:, None, :], whole, paces)
    return paces, noise / (1.0 - np.minimum(busy, _MOST_BUSY))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Stay:
    """What requests that arrive in a phase go through, shapes (C, m) but for ``memory_s`` (C,)."""

    batch: FloatArray
    residence_s: FloatArray
    tau_s: FloatArray
    tau_variance: FloatArray
    prompt_rps: FloatArray
    memory_s: FloatArray


def _stay(
    replica: Replica, work: Work, chain: _Chain, phases: Phases, one_rps: FloatArray, admitted: FloatArray
) -> _Stay:
    """Pace and prompts of others over a stay: at first those of the phase, later those of all phases."""
    _, _, batch, tau, _ = chain.states
    law, prefill_s = chain.law.seen, replica.step.delta_s * work.lengths.prompt.mean
    own_batch = _within(law, batch)
    own_tau = _within(law, batch * tau) / own_batch
    within = np.maximum(_within(law, batch * tau**2) / own_batch - own_tau**2, 0.0)
    everywhere = np.einsum("cm,cmk->ck", phases.share, law)
    mean_batch = node_mean(everywhere, batch)
    tau_mean = node_mean(everywhere, batch * tau) / mean_batch
    variance = np.maximum(node_mean(everywhere, batch * tau**2) / mean_batch - tau_mean**2, 0.0)
    residence = mean_batch / one_rps
    memory = memory_s(replica, work, np.maximum(node_mean(everywhere, batch**2) / mean_batch, 1.0))
    kept, rate_kept = _kept(phases, residence, memory)
    tau_s = _fading(own_tau, tau_mean, kept, phases)
    prompts = _fading(admitted, one_rps, rate_kept, phases)
    stay = tau_s / (1.0 - np.minimum(prompts * prefill_s, _MOST_BUSY))
    stay *= (residence / (phases.share * phases.factor * stay).sum(axis=1))[:, None]  # Little's law
    stay = np.minimum(stay, residence_s(replica, work, np.array(float(replica.max_num_seqs))))
    inside = (phases.share * own_batch * within).sum(axis=1) / mean_batch
    lost = np.maximum(variance - inside, 0.0)[:, None] * (1.0 - (kept**2).mean(axis=1, keepdims=True))
    if prefill_s > 0.0:  # no fewer prompts than make the stay longer than its steps alone
        free = np.minimum(work.steps * tau_s / np.maximum(stay - prefill_s, 1e-300), 1.0)
        prompts = np.maximum(prompts, (1.0 - free) / prefill_s)
    return _Stay(
        batch=own_batch,
        residence_s=stay,
        tau_s=tau_s,
        tau_variance=within + lost,
        prompt_rps=prompts,
        memory_s=memory,
    )


def _prefill_rate(replica: Replica, work: Work, stay: _Stay, phases: Phases, admitted: FloatArray) -> FloatArray:
    """The rate whose steady backlog is that of a phase: what its rate builds up before it ends, if that is less.

    The backlog of a queue with load u and residual jobs of m seconds tends to m u / (1 - u). From nothing, no more than
    (u - 1) D + sqrt(m D) gathers in a phase of D seconds on average (reflected Brownian motion of variance 2 m).
    """
    prompt = work.lengths.prompt
    room = np.maximum(replica.max_batched_tokens - np.minimum(stay.batch, full_budget_batch(replica, work)), 1.0)
    per_token = replica.step.delta_s + stay.tau_s / room
    load = np.maximum(admitted * prompt.mean * per_token, 1e-100)
    job = stay.tau_s + per_token * prompt.moments[1] / prompt.mean / 2.0
    lasts = 1.0 / np.maximum(-np.einsum("cjj->cj", phases.switching), 1e-100)  # its square is a number
    gathered = np.maximum(load - 1.0, 0.0) * lasts + np.sqrt(job * lasts)
    steady = np.where(load < 1.0, job * load / np.maximum(1.0 - load, 1e-9), np.inf)
    backlog = 1.0 / np.sqrt(steady**-2.0 + gathered**-2.0)
    return np.asarray(admitted * backlog / (job + backlog) / load)


def _kept(phases: Phases, residence: FloatArray, memory: FloatArray) -> tuple[FloatArray, FloatArray]:
    """How much of a phase's deviation of the batch a request feels on average over its stay, (C, k), and of the rate.

    To first order the batch relaxes at rate a, driven by a rate that relaxes at d: a deviation D of the batch comes
    with (a + d) D of the rate.
    """
    if phases.decay_per_s.size == 0:
        return np.ones((residence.size, 1)), np.ones((residence.size, 1))
    a, d = 1.0 / memory[:, None], phases.decay_per_s[None, :]
    d = np.where(np.abs(a - d) < 1e-3 * a, 1.003 * a, d)
    own, driving = _average(a * residence[:, None]), _average(d * residence[:, None])
    return np.clip(own + (a + d) / (a - d) * (driving - own), 0.0, 1.0), driving


def _average(x: FloatArray) -> FloatArray:
    """Mean of exp(-t) over 0 < t < x."""
    return np.asarray(-np.expm1(-x) / x)


def _fading(own: FloatArray, mean: FloatArray, kept: FloatArray, phases: Phases) -> FloatArray:
    """Values of the phases drawn towards their mean, each component's part of the deviation by its own share."""
    components = len(phases.levels)
    shape = (own.shape[0], *phases.levels)
    values, share = own.reshape(shape), phases.share.reshape(shape)
    found = np.broadcast_to(mean.reshape(-1, *([1] * components)), shape).copy()
    for axis in range(components):
        others = tuple(item + 1 for item in range(components) if item != axis)
        marginal = (values * share).sum(axis=others, keepdims=True) / share.sum(axis=others, keepdims=True)
        found += kept[:, axis].reshape(-1, *([1] * components)) * (marginal - mean.reshape(-1, *([1] * components)))
    return np.maximum(found.reshape(own.shape), np.minimum(own, mean[:, None]) * 0.5)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Waits:
    """Share of arrivals of a phase that wait, and mean and SCV of their waits in the exponential queue, (C, m)."""

    p_wait: FloatArray
    mean_s: FloatArray
    scv: FloatArray


def _waits(chain: _Chain, limit: MemoryLimit | None, rate_rps: FloatArray, phases: Phases) -> _Waits:
    """An arrival behind q others waits for q + 1 departures."""
    law, (number, _, batch, _, speed) = chain.law, chain.states
    top = np.broadcast_to(speed[:, -1:], law.last.shape)
    p_wait = law.last + law.tail
    first, second = (p_wait + law.tail_excess) / top, law.tail_square / top**2
    if limit is not None:
        shut = share_blocked(limit, number / chain.machines)
        stuck = np.where(number > chain.machines, np.maximum(number - chain.machines * batch, 0.0), 0.0)
        each = (stuck + shut) / np.maximum(speed, 1e-300)
        waiting = _within(law.seen, stuck) + law.tail_excess
        p_wait = np.minimum(_within(law.seen, shut) + p_wait * (1.0 - shut[:, -1:]), 1.0)
        first = law.tail_excess / top + _within(law.seen, each)
        second = second + _within(law.seen, 2.0 * each**2 / np.maximum(shut, NEVER))
        little = (phases.share * waiting).sum(axis=1) / rate_rps
        total = np.maximum((phases.share * phases.factor * first).sum(axis=1), 1e-300)
        first, second = first * (little / total)[:, None], second * ((little / total) ** 2)[:, None]
    never = p_wait <= NEVER
    safe = np.maximum(p_wait, NEVER)
    mean = np.where(never, 0.0, first / safe)
    scv = np.where(never, 1.0, second / safe / np.maximum(mean, 1e-140) ** 2 - 1.0)
    return _Waits(p_wait=p_wait, mean_s=mean, scv=np.clip(scv, _LEAST_SCV, _MOST_SCV))


def _met(chain: _Chain, phases: Phases) -> FloatArray:
    """Nodes as arrivals find them, shape (C, m, K): those that come in clumps meet each other.

    The rate given the number is linear in it to first order, with the slope that gives the scatter.
    """
    law, number = chain.law.seen, chain.states[0]
    if np.all(phases.noise == 1.0):
        return law
    mean = _within(law, number)
    variance = np.maximum(_within(law, number**2) - mean**2, 1e-9)
    slope = (phases.noise[:, None] - 1.0) / variance
    met = law * np.maximum(1.0 + slope[:, :, None] * (number[:, None, :] - mean[:, :, None]), 0.0)
    return np.asarray(met / met.sum(axis=2, keepdims=True))


def _within(law: FloatArray, values: FloatArray) -> FloatArray:
    """Means of node values, (1 or C, K), in each phase, (C, m)."""
    if values.shape[0] == 1:
        return np.asarray(law @ values[0])
    return np.asarray(np.einsum("cmk,ck->cm", law, values))


def _rows(values: FloatArray, m: int) -> FloatArray:
    """Node values for C m rows; shared ones stay shared."""
    return values if values.shape[0] == 1 else np.repeat(values, m, axis=0)
