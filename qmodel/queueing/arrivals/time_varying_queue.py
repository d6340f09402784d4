"""Waiting while demand changes: M(t)/G/c and G(t)/G/c, through lulls, ramps and overload.

The offered load follows the rate with the lag of service times; the law of the number in system follows the load with
the lag of the queue. Where load stays below capacity for long that is :func:`qmodel.queueing.ggc`; where it exceeds
it, the backlog is the fluid one with its spread; between the two there is no seam. See docs/theory/bursty.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from qmodel.queueing.arrivals.general_arrivals import ggc
from qmodel.queueing.arrivals.occupancy_grid import OccupancyGrid, evolved_tails, queue_grid, stationary_tail
from qmodel.queueing.arrivals.offered_load import mean_offered_load, modified_offered_load
from qmodel.queueing.arrivals.peakedness import burst_peakedness
from qmodel.queueing.servers.erlang import MAX_SERVERS
from qmodel.queueing.servers.multiserver import Moments, QueueResult
from qmodel.queueing.servers.service_time import Service, ServiceLaw
from qmodel.types.arrivals import Burst
from qmodel.types.fleets import Overload
from qmodel.types.laws import FloatArray

__all__ = ["TimeVaryingResult", "time_varying"]

_STEPS_PER_SERVICE = 2.0  # time steps in a mean service time
_LEAST_STEPS, _MOST_STEPS, _MOST_CALM_STEPS = 4, 32, 8  # in a window; calm: load never near capacity
_CALM = 0.9  # utilisation up to which a queue settles soon
_FULL = 0.999  # utilisation from which the settled queue says nothing of a passing one
_LEAST_LOAD = 1e-9
_NEARLY_FULL = 0.98  # utilisation of the steady state that a start in overload is given
_QUEUES = 15.0  # mean queues that the grid has room for, beyond the largest fluid backlog
_POWERS = (0.5, 2.0)
_MOST_ROUNDS, _SAME = 12, 1e-4  # of a repeated profile, until its waits no longer change
_STEPS_AT_ONCE = 256


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimeVaryingResult:
    """Waiting under a changing demand. Overall values are over arrivals, not over time.

    Attributes:
        window_s: length of a window, s.
        rates_rps: arrivals per second by window, shape (n,).
        offered: modified offered load by window, busy servers, shape (n,).
        p_wait: probability that an arrival waits, by window, shape (n,).
        mean_wait_s: mean wait by window, s, shape (n,).
        overall_p_wait: of all arrivals.
        overall_mean_wait_s: of all arrivals, s.
        wait_s: waits at which ``tail`` is known, from 0 on, s, shape (k,).
        tail: P(wait > wait_s) by window, shape (n, k).
        overload: why a repeated profile has no answer; None where it has. Then probabilities are 1 and waits +inf.
    """

    window_s: float
    rates_rps: FloatArray
    offered: FloatArray
    p_wait: FloatArray
    mean_wait_s: FloatArray
    overall_p_wait: float
    overall_mean_wait_s: float
    wait_s: FloatArray
    tail: FloatArray
    overload: Overload | None = None

    def wait_quantile_s(self, p: float) -> float:
        """The wait that a share ``p`` of all arrivals does not exceed, s.

        Raises:
            ValueError: if the level is outside (0, 1).
        """
        return float(self._quantile(p, (self.rates_rps / self.rates_rps.sum() @ self.tail)[None, :])[0])

    def window_wait_quantile_s(self, p: float) -> FloatArray:
        """The same for the arrivals of each window, s, shape (n,)."""
        return self._quantile(p, self.tail)

    def _quantile(self, p: float, tail: FloatArray) -> FloatArray:
        if not 0.0 < p < 1.0:
            raise ValueError(f"p must be between 0 and 1, e.g. 0.95 (got {p!r})")
        if self.overload is not None:
            return np.full(tail.shape[0], np.inf)
        log_tail = np.log(np.maximum(tail, 1e-300))
        level = np.log1p(-p)
        return np.array(
            [0.0 if row[0] <= level else np.interp(-level, -row, self.wait_s) for row in np.atleast_2d(log_tail)]
        )


def time_varying(
    rates_rps: npt.ArrayLike,
    window_s: float,
    service: ServiceLaw,
    servers: float,
    *,
    burst: Burst | None = None,
    peakedness: float | None = None,
    mean_service_s: npt.ArrayLike | None = None,
    totals: Literal["expected", "recorded"] = "expected",
    start: Literal["steady", "repeat"] = "steady",
) -> TimeVaryingResult:
    """Waiting in a first-come, first-served queue whose arrival rate changes from window to window.

    Args:
        rates_rps: arrivals per second in windows of equal length, at least 0, not all 0, shape (n,).
        window_s: length of a window, s. Windows shorter than a service time add cost, not accuracy.
        service: law of the service time, s.
        servers: number of servers, 1 to a million.
        burst: of the arrivals within a window; None: Poisson.
        peakedness: in its place, variance over mean of the number in service about the offered load.
        mean_service_s: mean service time of each window's arrivals, s, shape (n,), where sizes change with the rate.
        totals: ``expected``: rates are means, arrivals scatter about them from one window to the next; ``recorded``:
            they are counts of what came, and only when it came within the window is random.
        start: ``steady``: as if the first window had lasted for ever; ``repeat``: the windows repeat, such as a day.

    Returns:
        :class:`TimeVaryingResult`.

    Raises:
        ValueError: naming the argument and its range.

    Example:
        >>> from qmodel.types import Law
        >>> day = time_varying([4.0, 11.0, 4.0], 600.0, Law.constant(1.0), 10)  # the middle window is overloaded
        >>> [round(float(value)) for value in day.mean_wait_s]
        [0, 31, 5]

    Reference: own construction; offered load by Eick, Massey and Whitt (1993). See docs/theory/bursty.md.
    """
    rates, means = _checked_windows(rates_rps, window_s, service, mean_service_s)
    if not 1.0 <= servers <= MAX_SERVERS:
        raise ValueError(f"servers must be from 1 to {MAX_SERVERS:,.0f} (got {servers!r})")
    if peakedness is not None and not (np.isfinite(peakedness) and peakedness > 0.0):
        raise ValueError(f"peakedness must be finite and above 0 (got {peakedness!r})")
    if burst is not None and peakedness is not None:
        raise ValueError("give one of burst and peakedness: each describes the arrivals within a window")
    if totals not in ("expected", "recorded"):
        raise ValueError(f"totals must be 'expected' or 'recorded' (got {totals!r})")
    if start not in ("steady", "repeat"):
        raise ValueError(f"start must be 'steady' or 'repeat' (got {start!r})")
    if start == "repeat" and rates @ means >= servers * rates.size:
        return _overloaded(rates, means, window_s, servers)
    path = _load_path(rates, means, window_s, service, servers, repeated=start == "repeat")
    z = peakedness if peakedness is not None else float(burst_peakedness(burst, service))
    settled = _settled(path, service, servers, burst, peakedness)
    spread = _spread(settled, path, servers)
    if totals == "recorded":
        spread = _within_window(spread, path.pull, servers, window_s / path.mean_s)
    at_most = np.minimum(path.pull / servers, _NEARLY_FULL)
    queue = float(np.max(spread / (1.0 - at_most))) + np.sqrt(servers * z)
    grid = queue_grid(servers, z, 1.5 * path.largest_backlog(servers) + _QUEUES * queue)
    law = stationary_tail(grid, at_most[:1] * servers, spread[:1])[1][0]
    tail, law = _evolved(grid, path, spread, settled, law)
    for _ in range(_MOST_ROUNDS if start == "repeat" else 0):
        before = tail
        tail, law = _evolved(grid, path, spread, settled, law)
        if np.abs(tail - before).max() < _SAME:
            break
    return _result(rates, window_s, path, tail, grid.above[grid.full :] * path.mean_s / servers)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _LoadPath:
    """Offered load in equal time steps.

    Attributes:
        mean_s: mean service time over all arrivals, s.
        step: length of a time step in mean service times.
        steps: time steps of a window.
        load: modified offered load in each step, servers, shape (T,).
        pull: load that the number in system is drawn to, so that without a limit it follows ``load``, shape (T,).
    """

    mean_s: float
    step: float
    steps: int
    load: FloatArray
    pull: FloatArray

    def largest_backlog(self, servers: float) -> float:
        """Of the fluid that arrives beyond capacity, in servers' worth of mean services."""
        backlog = np.concatenate([[0.0], np.cumsum((self.pull - servers) * self.step)])
        return float(np.max(backlog - np.minimum.accumulate(backlog)))


def _load_path(
    rates: FloatArray, means: FloatArray, window_s: float, service: ServiceLaw, servers: float, *, repeated: bool
) -> _LoadPath:
    mean_s = float(rates @ means / rates.sum())
    most = _MOST_STEPS if np.any(rates * means > _CALM * servers) else _MOST_CALM_STEPS
    steps = int(np.clip(np.ceil(window_s / mean_s * _STEPS_PER_SERVICE), _LEAST_STEPS, most))
    longest_s = float(service.values[-1]) * float(means.max()) / service.moments[0]
    rounds = 1 + min(int(longest_s / (window_s * rates.size)) + 1, _MOST_ROUNDS) if repeated else 1
    every, own = np.tile(rates, rounds), np.tile(means, rounds)
    first = (rounds - 1) * rates.size * steps
    edges = (first + np.arange(rates.size * steps + 1)) * (window_s / steps)
    load = mean_offered_load(every, window_s, service, edges, mean_service_s=own)
    at_edges = modified_offered_load(every, window_s, service, edges, mean_service_s=own)
    step = window_s / steps / mean_s
    pull = np.maximum(load + np.diff(at_edges) / step, _LEAST_LOAD)
    return _LoadPath(mean_s=mean_s, step=step, steps=steps, load=load, pull=pull)


def _evolved(
    grid: OccupancyGrid, path: _LoadPath, spread: FloatArray, settled: QueueResult, law: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """P(number >= node) by window, shape (n, k), and the last law; a few windows at a time to bound memory."""
    windows, together = path.pull.size // path.steps, max(_STEPS_AT_ONCE // path.steps, 1)
    parts = []
    for first in range(0, windows, together):
        chunk = slice(first * path.steps, (first + together) * path.steps)
        tails, law = evolved_tails(grid, path.pull[chunk], spread[chunk], path.step, law)
        tails = _as_settled(tails, grid, path.pull[chunk], spread[chunk], np.asarray(settled.p_wait)[chunk])
        parts.append(tails.reshape(-1, path.steps, tails.shape[1]).mean(axis=1))
    return np.concatenate(parts), law


def _result(
    rates: FloatArray, window_s: float, path: _LoadPath, tail: FloatArray, wait_s: FloatArray
) -> TimeVaryingResult:
    waits, share = _mean_wait(tail, wait_s), rates / rates.sum()
    return TimeVaryingResult(
        window_s=window_s,
        rates_rps=rates,
        offered=path.load.reshape(rates.size, path.steps).mean(axis=1),
        p_wait=tail[:, 0],
        mean_wait_s=waits,
        overall_p_wait=float(share @ tail[:, 0]),
        overall_mean_wait_s=float(share @ waits),
        wait_s=wait_s,
        tail=tail,
    )


def _settled(
    path: _LoadPath, service: ServiceLaw, servers: float, burst: Burst | None, peakedness: float | None
) -> QueueResult:
    """The queue that each load would settle into, at most 0.999 of capacity."""
    rate = np.minimum(path.pull, _FULL * servers) / path.mean_s
    third = service.moments[2] * (path.mean_s / service.moments[0]) ** 3
    shape = Moments(mean_s=path.mean_s, scv=Service.of(service).scv, third=third)
    return ggc(rate, shape, servers, burst=burst, peakedness=peakedness)


def _spread(settled: QueueResult, path: _LoadPath, servers: float) -> FloatArray:
    """Conditional wait of the settled queue in units of that of M/M/c."""
    spare = servers - np.minimum(path.pull, _FULL * servers)
    return np.asarray(settled.mean_delayed_s * spare / path.mean_s)


def _within_window(spread: FloatArray, load: FloatArray, servers: float, window: float) -> FloatArray:
    """Spread that is left where each window's total is known: what lasts longer than a window no longer varies.

    A queue that empties at rate s = |c - load| / spread keeps s / (s + d) of it, d = 2 / window; solved for the spread.
    """
    spare, decay = np.abs(servers - load), 2.0 / window
    root = np.sqrt(spare**2 + 4.0 * decay * spread * spare)
    return np.asarray(np.maximum((root - spare) / (2.0 * decay), 0.02 * spread))


def _as_settled(
    tails: FloatArray, grid: OccupancyGrid, load: FloatArray, spread: FloatArray, settled: FloatArray
) -> FloatArray:
    """Tails raised to the power that gives the settled queue its own probability of waiting; 0 and 1 stay."""
    steady = load < _FULL * grid.servers
    own = stationary_tail(grid, np.where(steady, load, 0.5 * grid.servers), spread)[0]
    logs = [np.log(np.clip(p, 1e-300, 1.0 - 1e-12)) for p in (settled, own)]
    power = np.where(steady, np.clip(logs[0] / logs[1], *_POWERS), 1.0)
    waiting = np.clip(tails[:, 0], 1e-300, 1.0)
    return np.asarray(tails * (waiting ** (power - 1.0))[:, None])


def _mean_wait(tail: FloatArray, wait_s: FloatArray) -> FloatArray:
    """Integral of the tail, taken as exponential between nodes, shape (n,)."""
    left, right = tail[:, :-1], np.maximum(tail[:, 1:], 1e-300)
    ratio = np.log(np.maximum(left, 1e-300) / right)
    mean = np.where(
        np.abs(ratio) < 1e-6, 0.5 * (left + right), (left - right) / np.where(np.abs(ratio) < 1e-6, 1.0, ratio)
    )
    return np.asarray(mean @ np.diff(wait_s))


def _checked_windows(
    rates_rps: npt.ArrayLike, window_s: float, service: ServiceLaw, mean_service_s: npt.ArrayLike | None
) -> tuple[FloatArray, FloatArray]:
    rates = np.asarray(rates_rps, dtype=float)
    if rates.ndim != 1 or not (np.all(np.isfinite(rates) & (rates >= 0.0)) and rates.sum() > 0.0):
        raise ValueError(f"rates_rps must be a list of finite rates of at least 0, not all 0 (got {rates_rps!r})")
    if not (np.isfinite(window_s) and window_s > 0.0):
        raise ValueError(f"window_s must be finite and above 0 s (got {window_s!r})")
    mean = float(Service.of(service).mean_s)
    means = np.full(rates.shape, mean) if mean_service_s is None else np.asarray(mean_service_s, dtype=float)
    if means.shape != rates.shape or not np.all(np.isfinite(means) & (means > 0.0)):
        raise ValueError(f"mean_service_s must have one finite time above 0 s per window (got {mean_service_s!r})")
    return rates, means


def _overloaded(rates: FloatArray, means: FloatArray, window_s: float, servers: float) -> TimeVaryingResult:
    load, mean_s = float(rates @ means / rates.size), float(rates @ means / rates.sum())
    return TimeVaryingResult(
        window_s=window_s,
        rates_rps=rates,
        offered=np.full(rates.size, load),
        p_wait=np.ones(rates.size),
        mean_wait_s=np.full(rates.size, np.inf),
        overall_p_wait=1.0,
        overall_mean_wait_s=float("inf"),
        wait_s=np.zeros(1),
        tail=np.ones((rates.size, 1)),
        overload=Overload(
            kind="rate",
            value=load / mean_s,
            limit=servers / mean_s,
            reason=f"work for {load:g} servers arrives on average over the repeated windows, {servers:g} are there",
        ),
    )
