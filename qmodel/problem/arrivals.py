"""Arrival processes of classes: what a scenario states, and what is measured of a trace."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from qmodel.queueing.arrivals.peakedness import burst_peakedness
from qmodel.queueing.bursts.request_bursts import request_burst
from qmodel.trace import Trace, spread_clock
from qmodel.types import Lengths
from qmodel.types.arrivals import Burst
from qmodel.workload.arrival_processes import (
    ArrivalProcess,
    Batches,
    GammaRenewal,
    Poisson,
    Regular,
    TwoRates,
)

if TYPE_CHECKING:
    from qmodel.scenario import Scenario
    from qmodel.scenario.arrival_section import Arrivals, PeakednessSpec, RateSwings

__all__ = ["arrival_process", "arrival_processes", "arrivals_words", "trace_burst", "trace_words"]


def arrival_processes(scenario: Scenario) -> dict[str, ArrivalProcess]:
    """The process of each class that states one; classes with a plain rate or a trace are left out."""
    return {
        name: arrival_process(spec.arrivals) for name, spec in scenario.classes.items() if spec.arrivals is not None
    }


def arrival_process(spec: Arrivals) -> ArrivalProcess:
    """The process that a class states; the rate comes at use."""
    if spec.scv is not None and spec.scv != 1.0:
        return Regular() if spec.scv == 0.0 else GammaRenewal(scv=spec.scv)
    if spec.peakedness is not None and spec.peakedness.z > 1.0:
        return _swings_of_peakedness(spec.peakedness, spec.rate_rps)
    if spec.mmpp is not None and spec.mmpp.peak_to_mean > 1.0:
        return _two_rates(spec.mmpp)
    if spec.batch_size is not None and spec.batch_size > 1.0:
        return Batches.geometric(spec.batch_size)
    return Poisson()


def arrivals_words(spec: Arrivals | None) -> str:
    """How arrivals are modelled, for people."""
    if spec is None or isinstance(arrival_process(spec), Poisson):
        return "Poisson"
    if spec.scv is not None:
        return f"independent gaps of SCV {spec.scv:g}"
    if spec.peakedness is not None:
        return f"bursty: peakedness {spec.peakedness.z:g} at {spec.peakedness.at_s:g} s"
    if spec.mmpp is not None:
        swings = spec.mmpp
        return f"bursty: {swings.peak_to_mean:g} times the mean rate for {swings.mean_peak_s:g} s at a time"
    return f"batches of {spec.batch_size:g} on average"


def trace_burst(trace: Trace, rate_scale: float) -> Burst | None:
    """The burst of recorded requests whose times are divided by ``rate_scale``; None where it is that of Poisson.

    Requests count by their outputs, to which residences are proportional, and prompts apart: where busy minutes have
    short outputs, as in many traces, the work of decoding swings less than that of prefill. Stamps of a coarse clock
    are spread over its steps first.

    Args:
        trace: with arrival times.
        rate_scale: factor on its rate.
    """
    spread = spread_clock(trace)
    assert spread.arrival_s is not None
    return request_burst(
        spread.arrival_s / rate_scale,
        spread.prompt_tokens.astype(float),
        spread.output_tokens.astype(float),
        clock_step_s=(trace.clock_step_s or 0.0) / rate_scale,
    )


def trace_words(burst: Burst | None, lengths: Lengths, span_s: float) -> str:
    """How measured arrivals are modelled, with the peakedness at a time scale of the trace, for people."""
    if burst is None:
        return "Poisson, as measured"
    at_s = _telling_s(span_s)
    z = float(burst_peakedness(burst, lengths.output, s_per_unit=at_s / lengths.output.mean))
    return f"bursty: peakedness {z:.2g} at {at_s:g} s, measured"


def _telling_s(span_s: float) -> float:
    """A round time of which a recording holds a hundred, at most a minute, s."""
    most = min(span_s / 100.0, 60.0)
    return next((step for step in (60.0, 30.0, 10.0, 5.0, 2.0, 1.0) if step <= most), 0.1)


def _two_rates(swings: RateSwings) -> TwoRates:
    peak = swings.mean_peak_s / (swings.mean_peak_s + swings.mean_base_s)
    base = max((1.0 - swings.peak_to_mean * peak) / (1.0 - peak), 0.0)
    return TwoRates(rates=(swings.peak_to_mean, base), mean_stay_s=(swings.mean_peak_s, swings.mean_base_s))


def _swings_of_peakedness(spec: PeakednessSpec, rate_rps: float) -> TwoRates:
    """Two rates that are forgotten in ``at_s``, whose z for exponential stays of ``at_s`` is the given one.

    With excess e and a memory as long as a stay, z = 1 + e/4; Var[rate]/rate^2 = e / (2 rate at_s). The skewness is
    that of a gamma law, twice the coefficient of variation.
    """
    variation = math.sqrt(2.0 * (spec.z - 1.0) / (rate_rps * spec.at_s))
    high = 0.5 * (1.0 - variation / math.sqrt(1.0 + variation**2))
    odds = math.sqrt((1.0 - high) / high)
    return TwoRates(
        rates=(1.0 + variation * odds, max(1.0 - variation / odds, 0.0)),
        mean_stay_s=(spec.at_s / (1.0 - high), spec.at_s / high),
    )
