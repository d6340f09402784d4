"""Exact M/D/c: probability of waiting, moments and the distribution of the wait.

Looked at once per service time the queue length is a random walk held at zero whose
steps are Poisson(a) - c, so it is infinitely divisible, and its law follows from the
tails of Poisson sums (Spitzer). Every term is positive: small probabilities keep their digits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy import optimize, special

from qmodel.types.laws import FloatArray

__all__ = ["MAX_EXACT_SERVERS", "ConstantServiceWait", "solve_constant_service"]

MAX_EXACT_SERVERS = 10_000  # the work grows with the square root of c times c; beyond, minutes and gigabytes
_SINGLE_STEPS = 256  # horizons summed one by one; longer ones are integrated over, the sum being smooth there
_NODES = 12  # per doubling of the horizon
_NEGLIGIBLE = 36.0  # exp(-36) of the whole is left out
_FAR_CUSTOMERS = 200_000.0  # beyond so many service completions the tail is a pure exponential


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConstantServiceWait:
    """Wait in M/D/c.

    Attributes:
        servers: c.
        offered: arrival rate times service time.
        service_s: service time, s.
        p_wait: probability of waiting.
        mean_s: mean wait over all arrivals, s.
        square_s2: mean squared wait, s^2.
        decay: rate at which the far tail of the wait falls, per service time.
    """

    servers: int
    offered: float
    service_s: float
    p_wait: float
    mean_s: float
    square_s2: float
    decay: float
    _more_than: FloatArray = field(repr=False)  # P(queue length > j), j = 0 .. J
    _growth: float = field(repr=False)  # ratio of successive tail probabilities beyond J

    def survival(self, wait_s: float) -> float:
        """P(W > ``wait_s``).

        The arrival waits longer than x exactly if the queue now, with those who come in the rest of the k-th
        service time, k = floor(x) + 1, has at least k c customers. Reference: Franx, OR Letters 29 (2001).
        """
        x = max(wait_s, 0.0) / self.service_s
        whole = np.floor(x)
        rounds = whole + 1.0
        if rounds * self.servers > _FAR_CUSTOMERS:
            anchor = np.floor(_FAR_CUSTOMERS / self.servers) - 1.0
            return self.survival(anchor * self.service_s) * float(np.exp(-self.decay * (x - anchor)))
        need = int(rounds) * self.servers
        mean = self.offered * (rounds - x)
        joined = np.arange(need, dtype=float)
        mass = _poisson(joined, np.asarray(mean))
        return float(special.gammainc(need, mean) + mass @ self._tail(need - joined))

    def quantile(self, tail: float) -> float:
        """The wait that a share ``tail`` of all arrivals exceeds, s; 0 where no more wait."""
        if tail >= self.p_wait:
            return 0.0
        high = self.service_s / self.servers
        while self.survival(high) > tail:
            high *= 2.0
        root = optimize.brentq(lambda t: np.log(max(self.survival(t), 1e-300) / tail), 0.0, high, xtol=1e-13 * high)
        return float(root)

    def _tail(self, least: FloatArray) -> FloatArray:
        """P(queue length >= ``least``), ``least`` at least 1."""
        last = len(self._more_than) - 1
        index = least.astype(int) - 1
        return np.asarray(
            self._more_than[np.minimum(index, last)] * self._growth ** np.maximum(index - last, 0).astype(float)
        )


@lru_cache(maxsize=64)
def solve_constant_service(rate_rps: float, service_s: float, servers: int) -> ConstantServiceWait:
    """Stationary wait of a stable M/D/c queue.

    Args:
        rate_rps: arrivals per second, above 0, below servers / service time.
        service_s: service time, s.
        servers: c, an integer up to 10,000.

    Reference: Crommelin, P.O. Electrical Engineers' J. 25 (1932); Franx (2001); the law of the queue by Spitzer's
        identity, see docs/theory/queueing.md.
    """
    offered = rate_rps * service_s
    growth = 1.0 / _tail_root(offered, servers)
    reach = int(np.ceil(servers + 8.0 * np.sqrt(servers) + _NEGLIGIBLE * np.sqrt(servers / (2.0 * np.pi)) + 40.0))
    jump = np.arange(1, reach + 1, dtype=float)
    weight = _jump_weights(offered, servers, jump)
    # past the last jump the weights are those of a geometric law, growth^j / j, to all digits
    beyond = -np.log1p(-growth) - float(np.sum(growth**jump / jump))
    mass = np.empty(reach + 1)
    mass[0] = np.exp(-(weight.sum() + beyond))
    moment = jump * weight
    for n in range(1, reach + 1):
        mass[n] = moment[:n] @ mass[n - 1 :: -1] / n if n > 1 else moment[0] * mass[0]
    rest = mass[-1] * growth / (1.0 - growth)
    more_than = np.append(np.cumsum(mass[:0:-1])[::-1], 0.0) + rest
    arrivals = np.arange(servers, dtype=float)
    at_least = more_than[np.minimum(servers - arrivals - 1, reach).astype(int)]
    mean = float(more_than.sum() + more_than[-1] * growth / (1.0 - growth))
    order = np.arange(reach + 1, dtype=float)
    far = more_than[-1] * growth * (reach + 1 + growth / (1.0 - growth)) / (1.0 - growth)
    square = 2.0 * float(order @ more_than + far)  # E[L (L - 1)] = 2 sum of j P(L > j)
    return ConstantServiceWait(
        servers=servers,
        offered=offered,
        service_s=service_s,
        p_wait=min(float(special.gammainc(servers, offered) + _poisson(arrivals, np.asarray(offered)) @ at_least), 1.0),
        mean_s=mean / offered * service_s,
        square_s2=square / offered**2 * service_s**2,
        decay=offered * (1.0 / growth - 1.0),
        _more_than=more_than,
        _growth=growth,
    )


def _tail_root(offered: float, servers: int) -> float:
    """The root z > 1 of exp(a (z - 1)) = z^c: the queue length's tail falls as z^-j."""
    slack = np.log(servers / offered)

    def excess(log_z: float) -> float:
        return offered * float(np.expm1(log_z)) / log_z - servers

    return float(np.exp(optimize.brentq(excess, slack, 2.0 * slack + 1e-12, xtol=1e-15, rtol=1e-14)))


def _jump_weights(offered: float, servers: int, jump: FloatArray) -> FloatArray:
    """sum over k of P(Poisson(k a) = k c + j) / k for each jump j: the intensities of the compound Poisson law."""
    single = np.arange(1, _SINGLE_STEPS + 1, dtype=float)
    decay = servers * np.log(servers / offered) - (servers - offered)  # of P(walk of k steps > 0), per step
    horizon = _SINGLE_STEPS + 0.5
    doublings = max(int(np.ceil(np.log2(max(_NEGLIGIBLE / decay / horizon, 1.0)))), 0) + 1
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    edges = np.log(horizon) + np.log(2.0) * np.arange(doublings + 1)
    half = np.diff(edges)[:, None] / 2.0
    many = np.exp((edges[:-1, None] + half * (nodes + 1.0)).ravel())
    steps = np.concatenate([single, many])
    share = np.concatenate([1.0 / single, (half * weights).ravel()])  # dk / k = d log k
    term = _poisson(steps[:, None] * servers + jump, steps[:, None] * offered)
    last, following = (
        _poisson(k * servers + jump, np.asarray(k * offered)) / k for k in (_SINGLE_STEPS, _SINGLE_STEPS + 1.0)
    )
    return np.asarray(share @ term + (following - last) / 24.0)  # the last: Euler and Maclaurin's correction


def _poisson(count: FloatArray, mean: FloatArray) -> FloatArray:
    return np.asarray(np.exp(special.xlogy(count, mean) - mean - special.gammaln(count + 1.0)))
