"""Clocks that are coarser than the arrivals they stamp: noticed, and spread where asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qmodel.trace.records import Trace
from qmodel.types import FloatArray

__all__ = ["clock_step", "spread_clock"]

_ROUND_STEPS = (3600.0, 60.0, 1.0, 0.1, 0.01, 1e-3)  # s
_MATTERS = 0.1  # a step below this share of the mean gap changes no statistic of gaps that anybody reads
_LEAST_GAPS = 10
_SEED = 20231116


def clock_step(arrival_s: FloatArray) -> float | None:
    """Step of the clock that stamped the arrivals, None where none is seen.

    Two signs: most requests share their stamp with another, and stamps are whole multiples of one gap (batches of
    3 s); or all stamps are whole hours, minutes, seconds, or decimal parts of a second, and the step is not small
    against the mean gap.

    Args:
        arrival_s: in ascending order, s, shape (n,).

    Example:
        >>> clock_step(np.repeat(np.arange(20) * 3.0, 5)), clock_step(np.array([0.0, 2.0, 3.0, 7.0] + [9.0] * 9))
        (3.0, 1.0)
        >>> clock_step(np.sort(np.random.default_rng(1).random(50)))
    """
    gaps = np.diff(arrival_s)
    if gaps.size < _LEAST_GAPS:
        return None
    return _batches(gaps) or _round_stamps(arrival_s - arrival_s[0], float(gaps.mean()))


def spread_clock(trace: Trace) -> Trace:
    """The same requests with the rows of each stamp spread at random over the step that the stamp stands for.

    Inside a step nothing is known; independent uniform times are what a Poisson process of that count would have. The
    seed is fixed: the same trace gives the same times. Counts at windows well above the step stay as they are.

    Args:
        trace: with ``clock_step_s``; one without comes back as it is.

    Example:
        >>> stamps = np.repeat(np.arange(20) * 3.0, 5)
        >>> tokens = np.ones(100, dtype=np.int64)
        >>> trace = Trace(arrival_s=stamps, prompt_tokens=tokens, output_tokens=tokens, source="x", clock_step_s=3.0)
        >>> times = spread_clock(trace).arrival_s
        >>> bool(np.diff(times).min() > 0), bool(times.max() < 60)
        (True, True)
    """
    step_s = trace.clock_step_s
    if step_s is None or trace.arrival_s is None:
        return trace
    stamps, index = np.unique(trace.arrival_s, return_inverse=True)
    room_s = np.minimum(np.append(np.diff(stamps), step_s), step_s)
    times = trace.arrival_s + room_s[index] * np.random.default_rng(_SEED).random(trace.arrival_s.size)
    order = np.argsort(times, kind="stable")
    times = times[order]
    span_s = float(times[-1] - times[0])
    notes = [note for note in trace.notes if not note.startswith("arrivals are stamped")]
    return replace(
        trace.where(order),
        arrival_s=times - times[0],
        clock_step_s=None,
        span_s=span_s,
        notes=(*notes, f"arrivals were stamped in steps of about {step_s:g} s; spread at random over the steps"),
    )


def _batches(gaps: FloatArray) -> float | None:
    """The step when most requests share their stamp with another, in steps of one size."""
    positive = gaps[gaps > 1e-9]
    if positive.size < _LEAST_GAPS or positive.size > 0.5 * gaps.size:
        return None
    step = float(np.median(positive))
    smallest = float(np.quantile(positive, 0.05))
    if smallest < 0.9 * step:  # the median may span several steps
        step = smallest
    multiple = positive / step
    whole = np.abs(multiple - np.round(multiple)) < 0.02 * np.maximum(np.round(multiple), 1.0)
    return float(f"{step:.3g}") if np.mean(whole) > 0.95 else None


def _round_stamps(elapsed_s: FloatArray, mean_gap_s: float) -> float | None:
    for step in _ROUND_STEPS:
        if step < _MATTERS * mean_gap_s:
            return None
        multiple = elapsed_s / step
        # decimal seconds as binary numbers, far from 1970, are off by less than a millionth
        if np.all(np.abs(multiple - np.round(multiple)) * step < np.minimum(2e-6, 1e-3 * step)):
            return step
    return None
