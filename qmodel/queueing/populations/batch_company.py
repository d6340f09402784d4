"""A batch that is present at time 0 together with online classes on the same replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np

from qmodel.queueing.populations.closed_batches import ClosedBatch, closed_batch
from qmodel.queueing.replica.chain import Occupancy, top_rate_rps
from qmodel.queueing.replica.kv_limited import memory_limit
from qmodel.queueing.replica.pools import pool, predictions_given
from qmodel.queueing.replica.predictions import ClassPrediction, PoolPrediction
from qmodel.queueing.replica.work import Work, pooled_work
from qmodel.types import Lengths, Overload, Replica, RequestClass, StepLaw, Stream

__all__ = ["BatchOrder", "SharedBatch", "batch_with_online"]

BatchOrder = Literal["priority", "fcfs"]
_BATCH = "\0batch"
_ROUNDS = 40
_KNOTS = 25
_FEW = 0.07  # part of the slots; fewer requests of a batch are its last ones


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedBatch:
    """A batch and online classes on the same replicas.

    Attributes:
        order: ``priority`` or ``fcfs``.
        batch: the batch with the online classes present; None where they leave no room for it.
        alone: the same batch without them.
        during: online classes by name while the batch has requests that wait; with ``fcfs`` without the wait behind it.
        without: the pool without the batch.
        longest_wait_s: how long an online request that comes just after the batch waits for it, s; on average over
            those that wait for the batch it is half of that. 0 with ``priority``.
        affected_s: how long the batch, or the queue behind it, is felt, s.
        overload: why there is no prediction, None where there is one.
    """

    order: BatchOrder
    batch: ClosedBatch | None
    alone: ClosedBatch | None
    during: Mapping[str, ClassPrediction]
    without: PoolPrediction
    longest_wait_s: float
    affected_s: float
    overload: Overload | None = None

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return {
            "order": self.order,
            "batch": None if self.batch is None else self.batch.to_dict(),
            "alone": None if self.alone is None else self.alone.to_dict(),
            "during": {name: found.to_dict() for name, found in self.during.items()},
            "without": self.without.to_dict(),
            "longest_wait_s": self.longest_wait_s,
            "affected_s": self.affected_s,
            "overload": None if self.overload is None else asdict(self.overload),
        }


def batch_with_online(
    replica: Replica,
    requests: int,
    lengths: Lengths,
    streams: Sequence[Stream | RequestClass],
    replicas: int = 1,
    order: BatchOrder = "priority",
) -> SharedBatch:
    """When a batch is done that shares its replicas with online classes, and what these classes feel of it.

    With ``priority`` online requests go first whenever one is admitted; running requests are never stopped. The batch
    then has what they leave: fewer slots, less memory, and steps made longer by their tokens and prompts. As long as
    requests of the batch wait, every slot is taken and an online request waits for the next one that falls free. With
    ``fcfs`` online requests queue behind the whole batch.

    Args:
        replica: the engine instance; all are equal.
        requests: of the batch, all present at time 0, 1 to a million.
        lengths: joint law of its prompts and outputs.
        streams: online classes with the rates that the whole pool receives, requests/s.
        replicas: number of replicas, at least 1; the batch is dealt in turn, online requests at random.
        order: ``priority`` or ``fcfs``.

    Returns:
        :class:`SharedBatch`; with ``overload`` where the online classes alone, or the batch, cannot be served.

    Raises:
        ValueError: naming the argument and its range.

    Example:
        >>> from qmodel.types import Law
        >>> engine = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4, delta_s=3e-5), max_num_seqs=64)
        >>> chat = Stream(name="chat", rate_rps=5.0, lengths=Lengths.independent(Law.constant(500), Law.constant(200)))
        >>> shared = batch_with_online(engine, 500, Lengths.independent(Law.constant(500), Law.constant(400)), [chat])
        >>> shared.batch.makespan_s > shared.alone.makespan_s
        True
        >>> shared.during["chat"].ttft.mean > shared.without["chat"].ttft.mean
        True

    Reference: own construction, see docs/theory/closed-batch.md.
    """
    if order not in ("priority", "fcfs"):
        raise ValueError(f"order must be 'priority' or 'fcfs' (got {order!r})")
    without = pool(replica, streams, replicas)
    alone = closed_batch(replica, requests, lengths, replicas)
    overload = without.overload or alone.overload
    flow = None if overload else _full_flow(replica, lengths, streams, replicas)
    if flow is None:
        return SharedBatch(
            order=order,
            batch=None,
            alone=alone,
            during={},
            without=without,
            longest_wait_s=0.0,
            affected_s=0.0,
            overload=overload or _no_room(streams, without),
        )
    left = _left_over(replica, flow) if order == "priority" else _kept_full(replica, flow, without)
    batch = closed_batch(left, requests, lengths, replicas)
    waits_s = _last_admitted_s(batch, flow) if order == "fcfs" else 0.0
    return SharedBatch(
        order=order,
        batch=batch,
        alone=alone,
        during=_during(replica, flow, order),
        without=without,
        longest_wait_s=waits_s,
        affected_s=max(batch.makespan_s, waits_s / (1.0 - without.utilisation)),
        overload=batch.overload,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Flow:
    """A replica with all slots (or all memory) taken.

    Attributes:
        running: sequences in service.
        batch_rps: requests of the batch that leave, 1/s.
        online: work of the online classes, with their rate at one replica.
        batch: work of one request of the batch.
        mixed: work of all classes and the batch at these rates.
        step_s: mean step, prompts included, s.
        online_running: online sequences in service.
        busy: share of the time that goes to prompts of online requests.
    """

    running: float
    batch_rps: float
    online: Work
    batch: Work
    mixed: Work
    step_s: float
    online_running: float
    busy: float


def _full_flow(
    replica: Replica, lengths: Lengths, streams: Sequence[Stream | RequestClass], replicas: int
) -> _Flow | None:
    """Rates in a replica that is kept full; None where online requests take all of it."""
    delta = replica.step.delta_s
    own = [Stream(name=item.name, rate_rps=item.rate_rps / replicas, lengths=item.lengths) for item in streams]
    online = pooled_work(replica, own)
    batch = pooled_work(replica, [Stream(name=_BATCH, rate_rps=1.0, lengths=lengths)])
    busy = online.rate_rps * delta * online.lengths.prompt.mean
    rate, running, mixed = 1e-6, 1.0, online
    for _ in range(_ROUNDS):  # how many fit depends on the mix, and the mix on how many run
        mixed = pooled_work(replica, [*own, Stream(name=_BATCH, rate_rps=rate, lengths=lengths)])
        limit = memory_limit(replica, mixed)
        running = float(replica.max_num_seqs) if limit is None else min(limit.fits, float(replica.max_num_seqs))
        running = max(running, 1.0)
        recomputed = 0.0 if limit is None or limit.fits > replica.max_num_seqs else limit.recompute
        speed = running / float(replica.step.tau_s(running, mixed.context))
        prefill = delta * lengths.prompt.mean + replica.eviction_s_per_token * recomputed * lengths.output.mean
        found = (speed * (1.0 - busy) - online.rate_rps * online.steps) / (batch.steps + speed * prefill)
        if found <= 0.0:
            return None
        if abs(found - rate) < 1e-9 * rate:
            break
        rate = found
    step_s = running / (online.rate_rps * online.steps + rate * batch.steps)
    return _Flow(
        running=running,
        batch_rps=rate,
        online=online,
        batch=batch,
        mixed=mixed,
        step_s=step_s,
        online_running=online.rate_rps * online.steps * step_s,
        busy=busy,
    )


def _left_over(replica: Replica, flow: _Flow) -> Replica:
    """What a replica is to a batch beside online requests that go first: as many of those as come while it serves."""
    law, online = replica.step, flow.online
    most = max(int(np.floor(replica.max_num_seqs - flow.online_running)), 1)
    batch = np.unique(np.round(np.concatenate([[0.0, 1.0], np.geomspace(1.0, max(most, 2), _KNOTS)])))
    prompts = flow.batch_rps * replica.step.delta_s * flow.batch.lengths.prompt.mean
    beside = np.zeros_like(batch)
    for _ in range(_ROUNDS):
        busy = flow.busy + prompts * batch / batch[-1]
        step_s = law.tau_s(batch + beside, flow.mixed.context) / np.maximum(1.0 - np.minimum(busy, 0.95), 0.05)
        beside = np.minimum(online.rate_rps * online.steps * step_s, flow.online_running)
    slower = 1.0 / (1.0 - flow.busy)
    base = law.tau_s(batch + beside, 0.0) + law.gamma_s * beside * online.context
    held = flow.online_running * online.held
    return replace(
        replica,
        step=replace(
            StepLaw.table(batch=batch.tolist(), step_s=(base * slower).tolist()),
            gamma_s=law.gamma_s * slower,
            delta_s=law.delta_s * slower,
        ),
        max_num_seqs=most,
        kv_tokens=None if replica.kv_tokens is None else max(replica.kv_tokens - held, 1.0),
        max_batched_tokens=_budget(replica, flow, most),
    )


def _kept_full(replica: Replica, flow: _Flow, without: PoolPrediction) -> Replica:
    """What a replica is to a batch that goes first: as its requests leave, online ones take their places.

    When few are left, the queue behind the batch has mostly gone, and steps are those of the pool without it.
    """
    law, online, full = replica.step, flow.online, flow.running
    batch = np.unique(np.round(np.concatenate([[0.0, 1.0], np.geomspace(1.0, max(full, 2.0), _KNOTS)])))
    usual = without.mean_batch or 0.0
    beside = np.stack([np.full_like(batch, usual), np.maximum(full - batch, 0.0)])
    prompts = law.delta_s * online.lengths.prompt.mean / online.steps
    base = law.tau_s(batch + beside, 0.0) + beside * (law.gamma_s * online.context + prompts)
    crowded = np.minimum(batch / (_FEW * full), 1.0)
    step = StepLaw.table(batch=batch.tolist(), step_s=((1.0 - crowded) * base[0] + crowded * base[1]).tolist())
    return replace(replica, step=replace(step, gamma_s=law.gamma_s, delta_s=law.delta_s))


def _budget(replica: Replica, flow: _Flow, most: int) -> int:
    """Tokens of a step that online requests leave to the batch."""
    prompts = flow.online.rate_rps * flow.online.lengths.prompt.mean * flow.step_s
    return max(int(replica.max_batched_tokens - flow.online_running - prompts), most + 1)


def _last_admitted_s(batch: ClosedBatch, flow: _Flow) -> float:
    """When the last request of the batch is admitted: a step or two before its first token."""
    return max(float(batch.first_token_s[-1]) - 2.0 * flow.step_s, 0.0)


def _during(replica: Replica, flow: _Flow, order: BatchOrder) -> dict[str, ClassPrediction]:
    """Online classes in a replica that is kept full, by the batch or with ``fcfs`` by those that waited behind it."""
    if order == "fcfs":
        work, limit = flow.online, memory_limit(replica, flow.online)
        leaving, _ = top_rate_rps(replica, work, limit)
        running = min(replica.max_num_seqs * 1.0, np.inf if limit is None else limit.fits)
        wait_s = 0.0
    else:
        work, leaving, running = flow.mixed, flow.online.rate_rps + flow.batch_rps, flow.running
        wait_s = _next_slot_s(replica, flow)
    one = np.ones(1)
    tau = float(replica.step.tau_s(running, work.context))
    stay_s = running / leaving
    seen = Occupancy(
        utilisation=one,
        batch=running * one[None, :],
        seen=one[None, :],
        mean_batch=running * one,
        idle=0.0 * one,
        residence_s=stay_s * one,
        p_wait=(1.0 if wait_s > 0.0 else 0.0) * one,
        wait_mean_s=max(wait_s - tau / 2.0, wait_s / 4.0) * one,
        wait_scv=one,
        tau_mean_s=tau * one,
        tau_variance=0.0 * one,
        memory_s=stay_s * one,
    )
    found = predictions_given(replica, work, seen, leaving * one)
    return {name: item for name, item in found.items() if name != _BATCH}


def _next_slot_s(replica: Replica, flow: _Flow) -> float:
    """Mean wait of an online request where requests of the batch take every slot that falls free otherwise.

    Slots fall free at the rate at which requests leave, those first in line take one each: M/M/1. Where memory is what
    is short, what falls free is as much memory as is admitted, and a request takes as much as its prompt: M/G/1.
    """
    online, leaving = flow.online, flow.online.rate_rps + flow.batch_rps
    if flow.running >= replica.max_num_seqs:
        return 1.0 / (leaving - online.rate_rps)
    grown = replica.admission == "no_evict"
    prompt, _, _ = online.lengths.prompt.moments
    square = online.lengths.prompt.moments[1]
    per_s = leaving * (flow.mixed.lengths.prompt.mean + (flow.mixed.lengths.output.mean if grown else 0.0))
    if grown:
        output = online.lengths.output
        square += 2.0 * online.lengths.e_pn + output.moments[1]
        prompt += output.mean
    load = min(online.rate_rps * prompt / per_s, 0.99)
    return prompt / per_s + online.rate_rps * square / per_s**2 / (2.0 * (1.0 - load))


def _no_room(streams: Sequence[Stream | RequestClass], without: PoolPrediction) -> Overload:
    rate_rps = float(sum(item.rate_rps for item in streams))
    return Overload(
        kind="slots",
        value=rate_rps,
        limit=rate_rps / without.utilisation,
        reason=f"online classes at {rate_rps:.4g} requests/s, {without.utilisation:.0%} of what the pool carries, "
        "leave no room for a batch beside them; add replicas",
    )
