"""Number of requests in a pool of continuous-batching replicas: a birth-death chain with state-dependent speed.

With b sequences in service each advances one token per step, a step lasts
tau(b) plus the prefill of new prompts, so b sequences leave at rate b / T(b).
Below the limits this is a processor-sharing queue, whose occupancy does not
depend on the length law beyond its mean. See docs/theory/replica.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from qmodel.queueing.replica.chain_nodes import Nodes, side_by_side
from qmodel.queueing.replica.kv_limited import LimitStack, MemoryLimit, sequences_running, share_blocked
from qmodel.queueing.replica.slot_waits import slot_wait_shape
from qmodel.queueing.replica.stacks import ReplicaStack, WorkStack
from qmodel.queueing.replica.work import Work
from qmodel.types import FloatArray, Replica, Router

__all__ = [
    "NEVER",
    "SURELY_STABLE",
    "Occupancy",
    "States",
    "chain_states",
    "full_budget_batch",
    "memory_s",
    "node_mean",
    "occupancy",
    "prompt_rate_rps",
    "residence_s",
    "top_rate_rps",
]

SURELY_STABLE = 0.99995  # unstable cases are solved here to keep their numbers finite; callers mask them
_NOTHING = -300.0  # log of a mass that counts for nothing; smaller ones would slow arithmetic down
NEVER = 1e-12  # probability of waiting that counts as none: its conditional mean would be noise over noise
_SHORTEST = 0.95  # how much shorter than the mean the shortest of many queues is, requests; measured 0.9 to 1.0
_DENSE = 320  # most states kept one by one; beyond, a grid in sqrt(n) that resolves the spread of n
_TAIL_SPREADS = 5.0  # standard deviations of the number that fits, beyond its mean, until memory is surely full


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Occupancy:
    """Stationary law of a pool, C cases; unstable cases hold numbers without meaning.

    Attributes:
        utilisation: offered load over the largest stable load, shape (C,).
        batch: sequences in service at the grid nodes, per replica, shape (1, K) where all cases share them or (C, K).
        seen: probability that an arrival finds the node, shape (C, K); states past the last node are in it.
        mean_batch: mean sequences in service per replica, shape (C,).
        idle: probability that the arrival's replica is empty, shape (C,).
        residence_s: mean time in service but for what evictions add to its steps, shape (C,).
        p_wait: probability of waiting for a slot or for memory, shape (C,).
        wait_mean_s: mean wait of those that wait, shape (C,).
        wait_scv: its squared coefficient of variation, shape (C,).
        tau_mean_s: mean step time without prefill, met by a token, shape (C,).
        memory_s: time over which the batch forgets its past, shape (C,).
        tau_variance: its variance over the states a token meets, shape (C,).
        recompute_s: what the recomputation of evicted tokens adds to the steps of a stay, shape (C,) or 0.
        evictions: of one request, on average, shape (C,) or 0.
        pause_s: mean time from an eviction to the next admission, shape (C,) or 0.
    """

    utilisation: FloatArray
    batch: FloatArray
    seen: FloatArray
    mean_batch: FloatArray
    idle: FloatArray
    residence_s: FloatArray
    p_wait: FloatArray
    wait_mean_s: FloatArray
    wait_scv: FloatArray
    tau_mean_s: FloatArray
    tau_variance: FloatArray
    memory_s: FloatArray
    recompute_s: FloatArray | float = 0.0
    evictions: FloatArray | float = 0.0
    pause_s: FloatArray | float = 0.0


def residence_s(
    replica: Replica | ReplicaStack, work: Work | WorkStack, batch: FloatArray, recompute: float = 0.0
) -> FloatArray:
    """T(b): time in service with b sequences in service throughout, s; broadcasts over ``batch``."""
    prefill = replica.step.delta_s * work.lengths.prompt.mean
    prefill = prefill + replica.eviction_s_per_token * recompute * work.lengths.output.mean
    return np.asarray(work.steps * replica.step.tau_s(batch, work.context) + batch * prefill)


def full_budget_batch(replica: Replica | ReplicaStack, work: Work | WorkStack) -> FloatArray | float:
    """Sequences that decode when every step's token budget is full: decodes and prompt tokens come as N - 1 to P."""
    decodes = work.lengths.output.mean - 1.0
    return replica.max_batched_tokens * decodes / (work.lengths.prompt.mean + decodes)


@lru_cache(maxsize=512)
def prompt_rate_rps(replica: Replica, work: Work) -> float:
    """Largest rate at which the steps' token budget lets prompts in, requests/s; infinite where slots bind first."""
    batch = float(full_budget_batch(replica, work))
    if batch >= replica.max_num_seqs:
        return float("inf")
    room = replica.max_batched_tokens - batch
    step_s = float(replica.step.tau_s(batch, work.context)) + replica.step.delta_s * room
    return room / (work.lengths.prompt.mean * step_s)


@lru_cache(maxsize=512)
def top_rate_rps(replica: Replica, work: Work, limit: MemoryLimit | None) -> tuple[float, bool]:
    """Largest stable rate of one replica, requests/s, and whether memory (not slots or steps) sets it."""
    slots = float(replica.max_num_seqs)
    rate = min(slots / float(residence_s(replica, work, np.array(slots))), prompt_rate_rps(replica, work))
    if limit is None or limit.fits >= slots + _TAIL_SPREADS * limit.spread:
        return rate, False
    full = sequences_running(limit, np.array(slots))
    recompute = limit.recompute * float(share_blocked(limit, np.array(slots)))
    saturated = limit.derating * float(full / residence_s(replica, work, full, recompute))
    return min(rate, saturated), saturated < rate


def occupancy(
    replica: Replica | ReplicaStack,
    work: Work | WorkStack,
    limit: MemoryLimit | LimitStack | None,
    rate_rps: FloatArray,
    replicas: FloatArray,
    router: Router,
) -> Occupancy:
    """Solve the chain for C cases.

    Args:
        replica: engine instance, or one for each case.
        work: its requests.
        limit: its memory limit, None without.
        rate_rps: arrivals of the whole pool, shape (C,).
        replicas: replicas of the pool, shape (C,).
        router: ``random`` splits the stream evenly; ``jsq`` makes one chain of all replicas.

    Returns:
        The stationary law; its own construction around the birth-death balance pi(n) ~ prod lambda/mu(k).
    """
    machines = replicas if router == "jsq" else np.ones_like(rate_rps)
    rate = rate_rps if router == "jsq" else rate_rps / replicas
    nodes, capacity = _chain(replica, work, limit, machines)
    rho = rate / (machines * capacity)
    law = _balance(np.minimum(rate, SURELY_STABLE * machines * capacity), nodes)
    mean_batch, tau_sum, tau_squares, batch_squares, idle = nodes.means(law.seen)
    tau_mean = tau_sum / mean_batch
    p_wait, for_memory = _waiting(law, nodes.blocked)
    top = nodes.speed[:, -1] + np.zeros_like(rate)
    used = np.minimum(rate / top, SURELY_STABLE)
    ratio, scv = slot_wait_shape(replica, work, limit, machines, used, for_memory)
    residence = mean_batch * machines / rate
    recompute_s, evictions, pause_s = _evictions(replica, work, limit, p_wait * for_memory, mean_batch, top / machines)
    return Occupancy(
        utilisation=rho,
        batch=nodes.batch,
        seen=law.seen,
        mean_batch=mean_batch,
        idle=idle,
        residence_s=residence - recompute_s,
        recompute_s=recompute_s,
        evictions=evictions,
        pause_s=pause_s,
        p_wait=p_wait,
        wait_mean_s=np.where(p_wait > NEVER, ratio / (top * (1.0 - used)), 0.0),
        wait_scv=scv,
        tau_mean_s=tau_mean,
        tau_variance=np.maximum(tau_squares / mean_batch - tau_mean**2, 0.0),
        memory_s=memory_s(replica, work, np.maximum(batch_squares / mean_batch, 1.0)),
    )


States = tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]


def chain_states(
    replica: Replica, work: Work, limit: MemoryLimit | None, machines: FloatArray, dense: int = _DENSE
) -> States:
    """Requests at each node of the chain, states it stands for, batch per replica, step time, departures/s; (C, K).

    Up to ``dense`` states are kept one by one.
    """
    found = _nodes(replica, work, limit, machines, dense)
    return found.number, found.weight, found.batch, found.tau, found.speed


def _chain(
    replica: Replica | ReplicaStack,
    work: Work | WorkStack,
    limit: MemoryLimit | LimitStack | None,
    machines: FloatArray,
) -> tuple[Nodes, FloatArray | float]:
    """The chain of each case, and the largest stable rate of one replica."""
    if isinstance(work, WorkStack):
        return _stacked_nodes(work, machines), work.each(lambda *setting: top_rate_rps(*setting)[0])
    assert isinstance(replica, Replica) and not isinstance(limit, LimitStack)
    alike = machines[:1] if np.all(machines == machines[0]) else machines  # one grid where all cases share it
    return _nodes(replica, work, limit, alike, _DENSE), top_rate_rps(replica, work, limit)[0]


def _stacked_nodes(work: WorkStack, machines: FloatArray) -> Nodes:
    parts = []
    for place, setting in enumerate(work.settings):
        rows = np.flatnonzero(work.which == place)
        if rows.size:
            own = machines[rows]
            parts.append((rows, _nodes(*setting, own[:1] if np.all(own == own[0]) else own, _DENSE)))
    return side_by_side(parts)


def _nodes(replica: Replica, work: Work, limit: MemoryLimit | None, machines: FloatArray, dense: int) -> Nodes:
    if machines.size == 1:
        return _known_nodes(replica, work, limit, float(machines[0]), dense)
    return _new_nodes(replica, work, limit, machines, dense)


@lru_cache(maxsize=512)
def _known_nodes(replica: Replica, work: Work, limit: MemoryLimit | None, machines: float, dense: int) -> Nodes:
    found = _new_nodes(replica, work, limit, np.array([machines]), dense)
    for item in (found.number, found.weight, found.batch, found.tau, found.speed, found.log_speeds):
        item.setflags(write=False)
    return found


def _new_nodes(replica: Replica, work: Work, limit: MemoryLimit | None, machines: FloatArray, dense: int) -> Nodes:
    each = machines[:, None]
    number, weight = _grid(_top_state(replica, limit), machines, dense)
    batch, tau, speed = _speeds(replica, work, limit, number, each)
    paced, blocked = batch * tau, None
    if limit is not None:
        blocked = share_blocked(limit, np.maximum(number / each - _SHORTEST * (1.0 - 1.0 / each), 0.0))
    return Nodes(
        number=number,
        weight=weight,
        batch=batch,
        tau=tau,
        speed=speed,
        log_speeds=_log_speeds(number, speed),
        measures=np.stack([batch, paced, paced * tau, batch**2, (number < each).astype(float)]),
        blocked=blocked,
    )


def node_mean(seen: FloatArray, values: FloatArray) -> FloatArray:
    """Mean of node values under each law, shape (C,)."""
    return np.asarray(seen @ values[0] if values.shape[0] == 1 else np.einsum("ck,ck->c", seen, values))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Balance:
    """Normalised law: nodes with what they stand for, the last state alone, and the geometric tail behind it."""

    seen: FloatArray
    last: FloatArray
    tail: FloatArray


def memory_s(replica: Replica | ReplicaStack, work: Work | WorkStack, batch: FloatArray) -> FloatArray:
    """Relaxation time of the number in service around ``batch``, shape (C,).

    Small deviations of a birth-death chain die out at the rate at which its speed b / T(b) rises with b; general
    lengths stretch a residence by their residual, (1 + scv)/2.
    """
    now, more = residence_s(replica, work, batch), residence_s(replica, work, 1.02 * batch)
    steady = np.maximum(now - (more - now) / 0.02, 0.05 * now)  # T - b T'(b), the part of T that does not grow
    return np.asarray(now**2 / steady * (1.0 + work.lengths.output.scv) / 2.0)


def _top_state(replica: Replica, limit: MemoryLimit | None) -> float:
    """Sequences per replica beyond which more of them do not raise its speed."""
    slots = float(replica.max_num_seqs)
    if limit is None:
        return slots
    return max(min(float(np.ceil(limit.fits + _TAIL_SPREADS * limit.spread)), slots), 1.0)


def _grid(top: float, machines: FloatArray, dense: int) -> tuple[FloatArray, FloatArray]:
    """Nodes n and the number of states each stands for, both of shape (C, K); exact where all states fit."""
    last = np.round(top * machines)
    largest = float(last.max())
    count = 1 + (int(largest) if largest <= dense else max(dense, 96 + int(1.6 * np.sqrt(largest))))
    index = np.arange(count, dtype=float)
    number = np.minimum(np.maximum((index / (count - 1)) ** 2 * last[:, None], index), last[:, None])
    gaps = np.diff(number, axis=1) / 2.0
    weight = np.zeros_like(number)
    weight[:, 1:] += gaps
    weight[:, :-1] += gaps
    weight[:, 0] += 0.5
    weight[:, -1] += 0.5
    return number, weight


def _speeds(
    replica: Replica, work: Work, limit: MemoryLimit | None, number: FloatArray, machines: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sequences in service per replica, step time, and departures/s of the pool, at each node."""
    present = np.maximum(number / machines, np.minimum(number, 1.0))
    busy = np.minimum(number, machines)
    running = np.minimum(present, float(replica.max_num_seqs))
    recomputed = np.zeros_like(running)
    if limit is not None:
        running = np.minimum(sequences_running(limit, running), running)
        recomputed = limit.recompute * share_blocked(limit, present) * work.lengths.output.mean
    tau = replica.step.tau_s(running, work.context)
    prefill = replica.step.delta_s * work.lengths.prompt.mean + replica.eviction_s_per_token * recomputed
    residence = np.maximum(
        work.steps * tau + running * prefill, 1e-300
    )  # zero in the empty state of a law without alpha
    speed = busy * np.minimum(running / residence, prompt_rate_rps(replica, work))
    return np.where(number < machines, number / machines, running), tau, np.asarray(speed)


def _log_speeds(number: FloatArray, speed: FloatArray) -> FloatArray:
    """Minus the sum of the logs of the speeds up to each node: between nodes a trapezoid, exact for neighbours."""
    speed = speed.copy()
    speed[:, 0] = speed[:, 1]  # the rate out of the empty state never enters: it cancels from the first trapezoid
    slow = -np.log(speed)
    gaps = np.diff(number, axis=1)
    steps = 0.5 * gaps * (slow[:, 1:] + slow[:, :-1]) + 0.5 * np.diff(slow, axis=1) * (gaps > 0.0)
    return np.concatenate([np.zeros((speed.shape[0], 1)), np.cumsum(steps, axis=1)], axis=1)


def _balance(rate: FloatArray, nodes: Nodes) -> _Balance:
    """Detailed balance in logs."""
    log_mass = nodes.number * np.log(rate)[:, None]
    log_mass += nodes.log_speeds
    log_mass -= log_mass.max(axis=1, keepdims=True)
    state = np.exp(np.maximum(log_mass, _NOTHING, out=log_mass), out=log_mass)
    rho = np.minimum(rate / nodes.speed[:, -1], SURELY_STABLE)
    tail = state[:, -1] * rho / (1.0 - rho)
    last = state[:, -1].copy()
    state *= nodes.weight
    state[:, -1] += tail
    total = state.sum(axis=1)
    state /= total[:, None]
    return _Balance(
        seen=state,
        last=last / total,
        tail=tail / total,
    )


def _waiting(law: _Balance, blocked: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Probability that an arrival waits, and the share of those that wait that do so for memory, shapes (C,)."""
    p_wait = law.last + law.tail
    if blocked is None:
        return p_wait, np.zeros_like(p_wait)
    for_memory = node_mean(law.seen, blocked)
    # whoever meets the last state or the tail behind it waits: for a slot where memory has room
    p_wait = for_memory + p_wait * (1.0 - blocked[:, -1])
    return np.minimum(p_wait, 1.0), for_memory / np.maximum(p_wait, NEVER)


def _evictions(
    replica: Replica | ReplicaStack,
    work: Work | WorkStack,
    limit: MemoryLimit | LimitStack | None,
    blocked: FloatArray,
    batch: FloatArray,
    top_rps: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """What recomputation adds to a stay, s, evictions of a request, and the mean pause after one, s; shapes (C,)."""
    if limit is None:
        none = np.zeros_like(blocked)
        return none, none, none
    tokens = limit.recompute * blocked * work.lengths.output.mean
    return batch * replica.eviction_s_per_token * tokens, limit.evictions * blocked, limit.pause / top_rps
