"""Replicas under a fixed population: users that ask again as soon as they are answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from qmodel.types.laws import FloatArray
from qmodel.types.replica import Admission, StepLaw

__all__ = ["ClosedLoop", "StepTime", "closed_loop", "resident_cap"]

StepTime = Callable[[FloatArray, FloatArray, FloatArray], npt.ArrayLike]
_BISECTIONS = 32
_MOST_PREFILL_LOAD = 0.9  # beyond it the open-queue form of the prompt wait no longer describes a closed loop


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClosedLoop:
    """Steady state of a replica with a fixed number of users; arrays in the common shape of the arguments.

    Attributes:
        ttft_s: mean time from request to first token, waiting for memory or a slot included, s.
        tpot_s: mean time per further token, s.
        wait_s: the part of ``ttft_s`` spent waiting for memory or a slot, s.
        batch: mean number of sequences decoding.
        requests_per_s: completed requests per second.
        output_tokens_per_s: generated tokens per second, all users together.
    """

    ttft_s: FloatArray
    tpot_s: FloatArray
    wait_s: FloatArray
    batch: FloatArray
    requests_per_s: FloatArray
    output_tokens_per_s: FloatArray

    def to_dict(self) -> dict[str, object]:
        """Plain numbers, lists where the arguments were arrays."""
        return {item.name: np.asarray(getattr(self, item.name)).tolist() for item in fields(self)}


def resident_cap(
    kv_tokens: npt.ArrayLike | None,
    prompt_mean: npt.ArrayLike,
    output_mean: npt.ArrayLike,
    admission: Admission = "full_prompt",
    max_num_seqs: npt.ArrayLike = 256,
    kv_slope: float = 1.0,
    kv_fixed_tokens: float = 0.0,
) -> FloatArray:
    """Sequences of mean length that a replica holds at once.

    An engine that evicts holds what a sequence needs half way through its output; one that reserves at
    admission holds prompt and output in full.

    Args:
        kv_tokens: KV pool of the replica, tokens; None: memory never limits; broadcasts.
        prompt_mean: tokens; broadcasts.
        output_mean: tokens; broadcasts.
        admission: ``full_prompt`` or ``no_evict``.
        max_num_seqs: slots; broadcasts.
        kv_slope: pool tokens held per context token.
        kv_fixed_tokens: pool tokens held per sequence whatever its context.

    Returns:
        A whole number from 1 to ``max_num_seqs``.

    Example:
        >>> float(resident_cap(100_000, 1000, 500, "no_evict")), float(resident_cap(100_000, 1000, 500))
        (66.0, 80.0)
    """
    prompt, output = _positive("prompt_mean", prompt_mean, "tokens"), _positive("output_mean", output_mean, "tokens")
    slots = _positive("max_num_seqs", max_num_seqs, "sequences")
    if admission not in ("full_prompt", "no_evict"):
        raise ValueError(f"admission must be 'full_prompt' or 'no_evict' (got {admission!r})")
    if kv_tokens is None:
        return np.asarray(np.broadcast_arrays(slots, prompt, output)[0] * 1.0)[()]
    room = _positive("kv_tokens", kv_tokens, "tokens")
    context = prompt + (output if admission == "no_evict" else output / 2.0)
    return np.asarray(np.clip(np.floor(room / (kv_slope * context + kv_fixed_tokens)), 1.0, slots))[()]


def closed_loop(
    step: StepLaw | StepTime,
    users: npt.ArrayLike,
    prompt_mean: npt.ArrayLike,
    output_mean: npt.ArrayLike,
    cap: npt.ArrayLike = np.inf,
    burst_share: npt.ArrayLike = 0.0,
    *,
    max_batched_tokens: npt.ArrayLike = 8192,
    front_end_s: npt.ArrayLike = 0.0,
    poll_steps: npt.ArrayLike = 1.0,
    ranks: npt.ArrayLike = 1.0,
    align_steps: npt.ArrayLike = 0.0,
) -> ClosedLoop:
    """What a benchmark at fixed concurrency measures: users that send the next request on the last token.

    Args:
        step: a step law, or a function of arrays (batch, context tokens per sequence, prefill tokens in
            the step) that gives the step time in s.
        users: concurrent users of the replica, at least 1; broadcasts.
        prompt_mean: mean prompt, tokens; broadcasts.
        output_mean: mean output, tokens, at least 2; broadcasts.
        cap: most sequences resident at once, see :func:`resident_cap`, rounded down; broadcasts.
        burst_share: share of the requests that start together at time 0 (0 in steady state, 0.1 for a
            benchmark of ten requests per user submitted at once); broadcasts.
        max_batched_tokens: token budget of one step; broadcasts.
        front_end_s: time outside the engine before the first token, s; broadcasts.
        poll_steps: steps between two looks of the scheduler at new requests; broadcasts.
        ranks: attention ranks that align their prompts; broadcasts.
        align_steps: most steps for which a prompt waits until the other ranks have one too, 0: it never waits;
            broadcasts.

    Returns:
        :class:`ClosedLoop` in the common shape.

    Raises:
        ValueError: naming the argument and its range.

    Example:
        >>> law = StepLaw.linear(alpha_s=0.01, beta_s=0.0)
        >>> loop = closed_loop(law, users=8, prompt_mean=100, output_mean=101)
        >>> round(float(loop.tpot_s), 6), bool(loop.output_tokens_per_s < 808)
        (0.01, True)

    Reference: mean-value balance of a closed system, own construction, see docs/theory/queueing.md.
    """
    prompt = _positive("prompt_mean", prompt_mean, "tokens")
    output = _positive("output_mean", output_mean, "tokens", least=2.0)
    population = _positive("users", users, "users", least=1.0)
    limit = np.floor(_positive("cap", cap, "sequences", least=1.0, finite=False))
    budget = _positive("max_batched_tokens", max_batched_tokens, "tokens", least=1.0)
    share, front = np.asarray(burst_share, dtype=float), np.asarray(front_end_s, dtype=float)
    if not np.all((share >= 0.0) & (share <= 1.0)):
        raise ValueError(f"burst_share must be between 0 and 1 (got {burst_share!r})")
    if not np.all(np.isfinite(front) & (front >= 0.0)):
        raise ValueError(f"front_end_s must be finite and at least 0 s (got {front_end_s!r})")
    poll = _positive("poll_steps", poll_steps, "steps", least=1.0)
    group = _positive("ranks", ranks, "ranks", least=1.0)
    align = np.asarray(align_steps, dtype=float)
    if not np.all(np.isfinite(align) & (align >= 0.0)):
        raise ValueError(f"align_steps must be finite and at least 0 steps (got {align_steps!r})")
    population, prompt, output, limit, share, budget, front, poll, group, align = np.broadcast_arrays(
        population, prompt, output, limit, share, budget, front, poll, group, align
    )
    resident = np.minimum(population, limit)
    cycle = _Cycle(
        step=_step_time(step),
        resident=resident,
        prompt=prompt,
        output=output,
        budget=budget,
        burst=share,
        front=front,
        poll=poll,
        ranks=group,
        align=align,
    )

    low, high = np.zeros_like(resident), resident.copy()
    for _ in range(_BISECTIONS):
        batch = (low + high) / 2.0
        ttft_s, tpot_s = cycle.times(batch)
        too_many = batch * (1.0 + ttft_s / ((output - 1.0) * tpot_s)) > resident
        low, high = np.where(too_many, low, batch), np.where(too_many, batch, high)
    batch = (low + high) / 2.0
    ttft_s, tpot_s = cycle.times(batch)
    requests_per_s = batch / ((output - 1.0) * tpot_s)
    wait_s = (population - resident) / requests_per_s
    return ClosedLoop(
        ttft_s=np.asarray(ttft_s + wait_s)[()],
        tpot_s=np.asarray(tpot_s)[()],
        wait_s=np.asarray(wait_s)[()],
        batch=np.asarray(batch)[()],
        requests_per_s=np.asarray(requests_per_s)[()],
        output_tokens_per_s=np.asarray(requests_per_s * output)[()],
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Cycle:
    """One request's times once it is resident, for a given mean batch."""

    step: StepTime
    resident: FloatArray
    prompt: FloatArray
    output: FloatArray
    budget: FloatArray
    burst: FloatArray
    front: FloatArray
    poll: FloatArray
    ranks: FloatArray
    align: FloatArray

    def times(self, batch: FloatArray) -> tuple[FloatArray, FloatArray]:
        """TTFT without the wait for memory, and TPOT."""
        context = self.prompt + self.output / 2.0
        # Ranks that align their prompts share a pass; its cost is split among them.
        aligned = np.where(self.align > 0.0, self.ranks, 1.0)
        chunk = np.minimum(self.prompt, self.budget) * aligned
        chunks = self.prompt / chunk
        decode_s = np.asarray(self.step(batch, context, np.zeros_like(chunk)), dtype=float)
        prompt_s = (np.asarray(self.step(batch, context, chunk), dtype=float) - decode_s) * chunks
        alone_s = np.asarray(self.step(np.zeros_like(batch), context, chunk), dtype=float) * chunks * aligned
        others = np.maximum(batch - 1.0, 0.0)
        tpot_s = decode_s + others * prompt_s / self.output

        prefill_load = np.minimum(batch / ((self.output - 1.0) * tpot_s) * prompt_s, _MOST_PREFILL_LOAD)
        open_wait_s = decode_s * (1.0 - prefill_load) / 2.0 + prefill_load * prompt_s / (2.0 * (1.0 - prefill_load))
        together_s = alone_s + others * prompt_s / 2.0  # half of the other prompts are ahead in a common start
        company = np.clip(self.resident - 1.0, 0.0, 1.0)  # a sequence alone never lands in the middle of a step
        spread_s = np.minimum(alone_s + company * open_wait_s, together_s + decode_s)
        spread_s = spread_s + self._held_back_s(batch, decode_s, prompt_s)
        ttft_s = (1.0 - self.burst) * spread_s + self.burst * np.maximum(spread_s, together_s)
        # Work is conserved: in one cycle of a request every other resident is prefilled once.
        least_cycle_s = alone_s + (self.resident - 1.0) * prompt_s + (self.output - 1.0) * decode_s
        tpot_s = np.maximum(tpot_s, (least_cycle_s - ttft_s) / (self.output - 1.0))
        return ttft_s + self.front, tpot_s

    def _held_back_s(self, batch: FloatArray, decode_s: FloatArray, prompt_s: FloatArray) -> FloatArray:
        """Mean wait for the scheduler to look at the queue, and for prompts on the other attention ranks.

        A request comes in the middle of a polling interval, and all that came in it are prefilled together. Of a round
        of one prompt per rank, the first waits for all others and the last for none.
        """
        arrivals = batch / self.output  # per step
        polled_s = (self.poll - 1.0) * (decode_s / 2.0 + arrivals * prompt_s)
        round_steps = (self.ranks - 1.0) / (2.0 * np.maximum(arrivals, 1e-12))
        limit = np.maximum(self.align, 1e-12)
        aligned_s = self.align * -np.expm1(-round_steps / limit) * decode_s
        return np.asarray(polled_s + aligned_s)


def _step_time(step: StepLaw | StepTime) -> StepTime:
    if not isinstance(step, StepLaw):
        return step
    law = step
    return lambda batch, context, prefill: law.tau_s(batch, context) + law.prefill_token_s(batch) * prefill


def _positive(name: str, given: npt.ArrayLike, unit: str, least: float = 0.0, finite: bool = True) -> FloatArray:
    values = np.asarray(given, dtype=float)
    good = (values >= least) & (values > 0.0) & (np.isfinite(values) if finite else ~np.isnan(values))
    if not np.all(good):
        bound = f"at least {least:g}" if least > 0.0 else "above 0"
        raise ValueError(f"{name} must be {'finite and ' if finite else ''}{bound} {unit} (got {given!r})")
    return values
