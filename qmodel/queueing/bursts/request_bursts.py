"""The burst of recorded requests, by the decode work and by the prefill work that they bring."""

from __future__ import annotations

import math
from dataclasses import replace

from qmodel.queueing.arrivals.measured_arrivals import measured_burst
from qmodel.queueing.arrivals.peakedness import burst_peakedness
from qmodel.queueing.servers.service_time import Moments
from qmodel.types import FloatArray
from qmodel.types.arrivals import Burst

__all__ = ["request_burst"]

_LEAST_SWING, _MOST_SWING = 0.1, 10.0
_LONG = 40.0  # spans that the longest residence measured fits into


def request_burst(
    arrival_s: FloatArray, prompt_tokens: FloatArray, output_tokens: FloatArray, *, clock_step_s: float = 0.0
) -> Burst | None:
    """The burst of the output tokens that arrive, and how far prompt tokens swing with them.

    Both are measured apart; the components are those of the kind that swings more, and the swings are compared as
    residences in the middle of the measured range feel them. That both swing together is assumed.

    Args:
        arrival_s: in ascending order, s, shape (n,); those of a coarse clock spread over its steps.
        prompt_tokens, output_tokens: of the requests, above 0, shape (n,).
        clock_step_s: step of the clock that stamped the arrivals, s.

    Returns:
        The burst; None where neither is told from Poisson.

    Example:
        >>> import numpy as np
        >>> from qmodel.workload.arrival_processes import TwoRates
        >>> times = TwoRates(rates=(1.0, 3.0), mean_stay_s=(10.0, 10.0)).draw(np.random.default_rng(1), 50_000, 20.0)
        >>> found = request_burst(times, np.full(times.size, 500.0), np.full(times.size, 100.0))
        >>> found.prompt_swing[0]
        1.0

    Source: own construction, see docs/theory/bursty-replica.md.
    """
    decode = measured_burst(arrival_s, sizes=output_tokens, clock_step_s=clock_step_s)
    prefill = measured_burst(arrival_s, sizes=prompt_tokens, clock_step_s=clock_step_s)
    if decode is None and prefill is None:
        return None
    span_s = float(arrival_s[-1] - arrival_s[0])
    stay = Moments(mean_s=math.sqrt(span_s / arrival_s.size * span_s / _LONG), scv=1.0)
    mine, theirs = (float(burst_peakedness(item, stay)) - 1.0 for item in (decode, prefill))
    if mine <= 0.0 and theirs <= 0.0:
        return decode  # smoother than Poisson
    swing = math.sqrt(max(theirs, 0.0) / max(mine, 1e-9))
    swing = min(max(swing, _LEAST_SWING), _MOST_SWING)
    if prefill is None or (decode is not None and swing <= 1.0):
        assert decode is not None
        return replace(decode, prompt_swing=(swing,) * len(decode.excess))
    return replace(
        prefill,
        excess=tuple(value / swing**2 for value in prefill.excess),
        prompt_swing=(swing,) * len(prefill.excess),
    )
