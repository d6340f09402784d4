"""Which exact method solves a multi-server queue, and what each of them gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from qmodel.queueing.servers.deterministic_service import MAX_EXACT_SERVERS, solve_constant_service
from qmodel.queueing.servers.erlang import delay_probability
from qmodel.queueing.servers.phase_type import PhaseType
from qmodel.queueing.servers.qbd import solve_phase_queue
from qmodel.queueing.servers.service_time import Moments, ServiceLaw

__all__ = ["ExactMethod", "WaitLaw", "exact_wait"]

ExactMethod = Literal["exact", "qbd"]


class WaitLaw(Protocol):
    """Distribution of the wait over all arrivals of one queue."""

    @property
    def p_wait(self) -> float: ...
    @property
    def mean_s(self) -> float: ...
    @property
    def square_s2(self) -> float: ...
    def survival(self, wait_s: float) -> float: ...
    def quantile(self, tail: float) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialWait:
    """Wait in M/M/c: those that wait do so for an exponential time; also the wait of nobody, with ``p_wait`` 0.

    Attributes:
        p_wait: probability of waiting.
        delayed_s: mean wait of those that wait, s.
    """

    p_wait: float
    delayed_s: float

    @property
    def mean_s(self) -> float:
        """Mean wait over all arrivals, s."""
        return self.p_wait * self.delayed_s

    @property
    def square_s2(self) -> float:
        """Mean squared wait, s^2."""
        return 2.0 * self.p_wait * self.delayed_s**2

    def survival(self, wait_s: float) -> float:
        """P(W > ``wait_s``)."""
        return self.p_wait * float(np.exp(-wait_s / self.delayed_s))

    def quantile(self, tail: float) -> float:
        """The wait that a share ``tail`` of all arrivals exceeds, s."""
        return 0.0 if tail >= self.p_wait else self.delayed_s * float(np.log(self.p_wait / tail))


def exact_wait(
    rate_rps: float, service: PhaseType | Moments | ServiceLaw, servers: float, method: ExactMethod
) -> WaitLaw:
    """The wait of one stable queue.

    Args:
        rate_rps: arrivals per second, at least 0.
        service: phases, moments of one queue, or a law with a single value.
        servers: c; an integer but for exponential service.
        method: ``exact`` takes the closed form where there is one; ``qbd`` always the matrix-analytic method.

    Raises:
        ValueError: where neither applies, saying what would do.
    """
    known = _known_service(service)
    exponential = isinstance(known, PhaseType) and len(known.initial) == 1
    mean_s = known.mean_s if isinstance(known, PhaseType) else known
    if rate_rps == 0.0:
        return ExponentialWait(p_wait=0.0, delayed_s=mean_s / servers)
    if exponential and method == "exact":
        offered = rate_rps * mean_s
        p_wait = float(delay_probability(np.asarray(offered), np.asarray(servers)))
        return ExponentialWait(p_wait=p_wait, delayed_s=mean_s / (servers - offered))
    if servers != np.floor(servers):
        raise ValueError(f"servers must be whole for method={method!r} (got {servers:g}); method='approx' takes any")
    if isinstance(known, PhaseType):
        return solve_phase_queue(rate_rps, known, int(servers))
    if method == "qbd":
        raise ValueError("constant service has no phases for method='qbd'; use method='exact', which solves M/D/c")
    if servers > MAX_EXACT_SERVERS:
        raise ValueError(
            f"servers must be at most {MAX_EXACT_SERVERS:,} for constant service with method='exact' "
            f"(got {servers:,.0f}); use method='approx'"
        )
    return solve_constant_service(rate_rps, mean_s, int(servers))


def _known_service(service: PhaseType | Moments | ServiceLaw) -> PhaseType | float:
    """Phases, or the constant service time in seconds."""
    if isinstance(service, PhaseType):
        return service
    if isinstance(service, Moments):
        mean_s, scv = float(np.asarray(service.mean_s)), float(np.asarray(service.scv))
        if scv == 0.0:
            return mean_s
        third = None if service.third is None else float(np.asarray(service.third))
        return PhaseType.of_moments(mean_s, scv, third)
    if len(service.values) == 1:
        return float(service.values[0])
    raise ValueError(
        "a service law with more than one value has no exact solution; state Moments(...), whose law of phases is "
        "solved, or PhaseType(...), or use method='approx'"
    )
