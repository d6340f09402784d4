"""Points from recorded requests: how long tokens took, by how many requests were in the replica meanwhile."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from qmodel.calibration.measurements import LeftOut, Measurements, ServingPoint
from qmodel.errors import Problem, ScenarioError
from qmodel.trace import Trace
from qmodel.types import FloatArray, Layout

__all__ = ["points_of_requests"]

FINER = 1.25  # ratio of the company in neighbouring points
LEAST_REQUESTS = 5  # of a point
LEAST_OUTPUT = 2


def points_of_requests(trace: Trace, layout: Layout | None = None) -> Measurements:
    """Requests of one replica as points: those that had about as many others beside them, together.

    The company of a request is the mean number of requests in the replica, itself included, from its first token to its
    last. Times per token are means over requests, as the closed loop predicts them. Requests that outlast the arrivals
    are left out, unless they are the most.

    Args:
        trace: requests with arrival, time to first token and completion.
        layout: how the replica was spread, None: the layout of the calibration.

    Raises:
        ScenarioError: if arrivals or times are not recorded.

    Example:
        >>> trace = Trace(arrival_s=np.zeros(8), prompt_tokens=np.full(8, 100), output_tokens=np.full(8, 11),
        ...               ttft_s=np.full(8, 0.1), completion_s=np.full(8, 0.3), source="run")
        >>> point = points_of_requests(trace).points[0]
        >>> point.users, round(point.tpot_s, 4)
        (8.0, 0.02)
    """
    if trace.arrival_s is None or trace.ttft_s is None or trace.completion_s is None:
        names = [
            name
            for name, part in (
                ("arrivals", trace.arrival_s),
                ("times to first token", trace.ttft_s),
                ("completion times", trace.completion_s),
            )
            if part is None
        ]
        hint = "a benchmark needs all three per request, or a summary with its concurrency, lengths and TPOT"
        raise ScenarioError([Problem(what=f"records no {' and no '.join(names)}", file=trace.source, hint=hint)])
    timed = np.isfinite(trace.ttft_s) & np.isfinite(trace.completion_s) & (trace.completion_s > trace.ttft_s)
    usable = timed & (trace.output_tokens >= LEAST_OUTPUT)
    left_out = []
    if not timed.all():
        left_out.append(LeftOut(place=trace.source, reason=f"{int((~timed).sum())} requests without usable times"))
    if (timed & ~usable).any():
        what = f"{int((timed & ~usable).sum())} requests with outputs of less than 2 tokens"
        left_out.append(LeftOut(place=trace.source, reason=what))
    usable, draining = _before_the_end(trace.arrival_s, trace.completion_s, usable)
    if draining:
        left_out.append(LeftOut(place=trace.source, reason=f"{draining} requests that ended after the last had come"))
    if not usable.any():
        return Measurements(left_out=tuple(left_out))
    start = trace.arrival_s
    first, last = start + trace.ttft_s, start + trace.completion_s
    company = _company(start[timed], last[timed], first[usable], last[usable])
    level = np.round(np.log(np.maximum(company, 1.0)) / np.log(FINER)).astype(int)
    tpot_s = (trace.completion_s - trace.ttft_s)[usable] / (trace.output_tokens[usable] - 1.0)
    prompt, output, ttft_s = trace.prompt_tokens[usable], trace.output_tokens[usable], trace.ttft_s[usable]
    points = []
    for value in np.unique(level):
        own = level == value
        place = f"{trace.source} ({int(own.sum())} requests)"
        if own.sum() < LEAST_REQUESTS:
            reason = f"fewer than {LEAST_REQUESTS} requests with about {float(np.mean(company[own])):.3g} at once"
            left_out.append(LeftOut(place=place, reason=reason))
            continue
        points.append(
            ServingPoint(
                users=max(round(float(np.mean(company[own])), 6), 1.0),
                prompt_tokens=float(np.mean(prompt[own])),
                output_tokens=float(np.mean(output[own])),
                tpot_s=float(np.mean(tpot_s[own])),
                ttft_s=float(np.median(ttft_s[own])),
                layout=layout,
                place=place,
            )
        )
    return Measurements(points=tuple(points), left_out=tuple(left_out))


def _before_the_end(
    start_s: FloatArray, completion_s: FloatArray, usable: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.bool_], int]:
    """Requests that ended while others still came, and how many did not; all, where those are the most.

    A replica that is running empty decodes without prompts in between, which is faster than at any load that lasts.
    """
    steady = usable & (start_s + completion_s <= start_s[-1])
    if steady.sum() * 2 < usable.sum():
        return usable, 0
    return steady, int(usable.sum() - steady.sum())


def _company(start: FloatArray, end: FloatArray, begin: FloatArray, until: FloatArray) -> FloatArray:
    """Mean number of intervals ``start`` to ``end`` that hold a moment between ``begin`` and ``until``."""
    starts, ends = np.sort(start), np.sort(end)
    passed, left = np.concatenate([[0.0], np.cumsum(starts)]), np.concatenate([[0.0], np.cumsum(ends)])

    def present_seconds(moment: FloatArray) -> FloatArray:
        begun, gone = np.searchsorted(starts, moment), np.searchsorted(ends, moment)
        return np.asarray((begun * moment - passed[begun]) - (gone * moment - left[gone]))

    return np.asarray((present_seconds(until) - present_seconds(begin)) / (until - begin))
