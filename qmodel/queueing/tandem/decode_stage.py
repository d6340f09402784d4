"""A pool that decodes sequences whose KV comes from another pool: the replica chain without prefill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qmodel.queueing.replica.chain import occupancy, top_rate_rps
from qmodel.queueing.replica.kv_limited import length_overload, memory_limit
from qmodel.queueing.replica.percentiles import wait_nodes
from qmodel.queueing.replica.work import pooled_work
from qmodel.queueing.tandem.delays import DelayNodes, no_delay, slices
from qmodel.queueing.tandem.stage_parts import Leg
from qmodel.types import FloatArray, Overload, Replica, Router

__all__ = ["DecodePool", "decode_load", "solve_decode"]

_UNBOUNDED = 10**15  # tokens of a step: sequences bring their context along, nothing is prefilled
_BOUND = 2.3  # spreads of the pace between its mean and its slowest, as in unified pools
_RESIDUES = 6  # slices of the rest of a step
_RARE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecodePool:
    """A decode or answer pool under its load.

    Attributes:
        overload: why the load cannot be carried; None where it can, and the rest then has numbers.
        utilisation: offered load over the largest stable load.
        kv_fill: mean tokens held over the tokens of a replica; None where memory is not limited.
        mean_batch: mean sequences that decode in a replica.
        p_wait: probability of waiting for a slot or for memory.
        start: from the arrival of the KV to the beginning of the first step.
        token_s: mean step.
        pace_variance: of the step over the states of the batch.
        memory_s: time over which the batch forgets.
    """

    overload: Overload | None
    utilisation: float
    kv_fill: float | None = None
    mean_batch: float | None = None
    p_wait: float | None = None
    start: DelayNodes
    token_s: float = 0.0
    pace_variance: float = 0.0
    memory_s: float = 0.0

    def steps_s(self, steps: FloatArray, within: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean, variance and third central moment of the time of so many steps, shapes (k,).

        Over a time y memories long the average pace keeps a share 2 (y - 1 + exp(-y)) / y^2 of its variance.

        Args:
            steps: mean number, shape (k,).
            within: variance of the number, shape (k,).
        """
        elapsed = self.token_s * steps
        y = np.maximum(elapsed / max(self.memory_s, 1e-300), 1e-6)
        kept = np.where(y < 1e-3, 1.0 - y / 3.0, 2.0 * (y + np.expm1(-y)) / y**2)
        drift = self.pace_variance * kept * steps**2
        return elapsed, drift + self.token_s**2 * within, 2.0 * drift**2 / np.maximum(elapsed, 1e-300)


def solve_decode(replica: Replica, legs: Sequence[Leg], replicas: int, router: Router = "jsq") -> DecodePool:
    """Pace and waits of a pool that decodes.

    A sequence begins with the step after its KV has come, where a slot and the memory of its context are free, and
    gets one token a step. The number in service is the birth-death chain of unified pools with no prompts in it.

    Args:
        replica: engine instance.
        legs: what comes, one per class.
        replicas: at least 1.
        router: ``random`` or ``jsq``.

    Example:
        >>> from qmodel.queueing.tandem.stage_parts import decode_leg
        >>> from qmodel.types import Law, Lengths, StepLaw, Stream
        >>> engine = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=0.0, delta_s=1e-4))
        >>> lengths = Lengths.independent(Law.constant(1000), Law.constant(101))
        >>> round(solve_decode(engine, [decode_leg(Stream(name="a", rate_rps=2.0, lengths=lengths))], 1).token_s, 6)
        0.01

    Source: own construction, see docs/theory/stages.md.
    """
    engine = _without_prefill(replica)
    work = pooled_work(engine, [leg.stream for leg in legs])
    limit = memory_limit(engine, work)
    capacity, by_memory = top_rate_rps(engine, work, limit)
    used = float(work.rate_rps / (replicas * capacity))
    overload = length_overload(engine, work)
    if overload is None and used >= 1.0:
        cause = "their KV memory is full" if by_memory else f"at {replica.max_num_seqs} sequences each"
        reason = (
            f"{work.rate_rps:.4g} sequences/s come, {replicas} replicas decode less than {replicas * capacity:.4g}"
            f" ({cause}); at least {int(work.rate_rps / capacity) + 1} are needed"
        )
        overload = Overload(
            kind="kv" if by_memory else "steps", value=work.rate_rps, limit=replicas * capacity, reason=reason
        )
    if overload is not None:
        return DecodePool(overload=overload, utilisation=used, start=no_delay())
    seen = occupancy(engine, work, limit, np.array([work.rate_rps]), np.array([float(replicas)]), router)
    tau_s, batch = float(seen.tau_mean_s[0]), float(seen.mean_batch[0])
    slowest_s = float(np.max(engine.step.tau_s(seen.batch[..., -1], work.context)))
    run_in_s = tau_s / 2.0  # who waited starts with the step that follows
    wait_s = max(float(seen.wait_mean_s[0]) - run_in_s, float(seen.wait_mean_s[0]) / 4.0)
    return DecodePool(
        overload=None,
        utilisation=used,
        kv_fill=None if replica.kv_tokens is None else batch * work.held / replica.kv_tokens,
        mean_batch=batch,
        p_wait=float(seen.p_wait[0]),
        start=_start(tau_s, float(seen.idle[0]), float(seen.p_wait[0]), wait_s, float(seen.wait_scv[0])),
        token_s=float(seen.residence_s[0]) / work.steps,
        pace_variance=min(float(seen.tau_variance[0]), ((slowest_s - tau_s) / _BOUND) ** 2),
        memory_s=float(seen.memory_s[0]),
    )


def decode_load(replica: Replica, legs: Sequence[Leg]) -> float:
    """Utilisation of one replica that decodes all that comes; infinite where some of it is too long for the replica.

    Example:
        >>> from qmodel.queueing.tandem.stage_parts import decode_leg
        >>> from qmodel.types import Law, Lengths, StepLaw, Stream
        >>> engine = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=0.0), max_num_seqs=10)
        >>> lengths = Lengths.independent(Law.constant(1000), Law.constant(101))
        >>> leg = decode_leg(Stream(name="a", rate_rps=5.0, lengths=lengths))
        >>> round(decode_load(engine, [leg]), 6)
        0.5
    """
    engine = _without_prefill(replica)
    work = pooled_work(engine, [leg.stream for leg in legs])
    if length_overload(engine, work) is not None:
        return float("inf")
    return float(work.rate_rps / top_rate_rps(engine, work, memory_limit(engine, work))[0])


def _without_prefill(replica: Replica) -> Replica:
    step = replace(replica.step, delta_s=0.0, delta_by_batch_s=None)
    return replace(replica, step=step, max_batched_tokens=_UNBOUNDED)


def _start(tau_s: float, idle: float, p_wait: float, wait_s: float, wait_scv: float) -> DelayNodes:
    """The rest of the step under way, and the wait of those that wait."""
    busy = 1.0 - idle
    rest = slices(
        np.concatenate([[idle], np.full(_RESIDUES, busy / _RESIDUES)]),
        np.concatenate([[0.0], (np.arange(_RESIDUES) + 0.5) / _RESIDUES * tau_s]),
        np.concatenate([[0.0], np.full(_RESIDUES, (tau_s / _RESIDUES) ** 2 / 12.0)]),
    )
    if p_wait < _RARE or wait_s <= 0.0:
        return rest
    share, middle, within = wait_nodes(np.array([wait_s]), np.array([wait_scv]))
    wait = slices(
        np.concatenate([[1.0 - p_wait], p_wait * share]),
        np.concatenate([[0.0], middle[0]]),
        np.concatenate([[0.0], within[0]]),
    )
    return rest.plus(wait)
