"""Wait in M/G/c by the number of residual service times that compete to end it.

In light traffic the wait is the shortest of c residual times, in heavy traffic it
grows as if one residual decided. In between, c* of them do: c* falls from c to 1 as
the load rises, and is nearly the same for all service laws. The constants are fits
to exact and simulated queues. See docs/theory/queueing.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qmodel.queueing.servers.residuals import Residuals
from qmodel.types.laws import FloatArray

__all__ = ["WaitShape", "competitors", "wait_shape"]

# Fitted by least squares to 634 queues (exact and simulated, 38 service laws, 2 to 128 servers, utilisation 0.5
# to 0.95); the laws and what was set aside are in docs/theory/queueing.md.
_SCALE, _SURVIVES_FOUR, _LOAD_POWER, _HALFIN_WHITT_POWER = -0.168, 0.771, 1.12, 0.559
_DELAY, _DELAY_FADE = 0.166, 0.21
_SPREAD_COMPETITORS = 2.3
_SUM, _SURVIVES_TWO = 2.52, 3.0
_EXPONENTIAL_THIRD, _THIRD_EXCESS = 1.5, 3.2  # third over spread^2: of exponential times; where its excess is halved
# Bands: the error that nine in ten of the same queues stay within, by how much the mean moves where c* - 1 is off by
# _SLIP, and by how far the wait is from exponential.
_SLIP = 1.42
_MEAN_BAND = (0.015, 1.1)
_PERCENTILE_BAND = (0.02, 0.2, 0.45)
_SCV_RANGE = (0.25, 60.0)  # beyond it no reference queue lies


@dataclass(frozen=True, slots=True, eq=False)
class WaitShape:
    """How the wait differs from that of the exponential queue with the same load and servers.

    Attributes:
        ratio: mean wait over that of M/M/c.
        delay_factor: probability of waiting over Erlang C.
        scv: squared coefficient of variation of the wait of those that wait.
        third: E[W^3] / E[W]^3 of the wait of those that wait.
        band: relative error of the mean that nine in ten reference queues stay within.
        percentile_band: the same for p90, p95 and p99.
    """

    ratio: FloatArray
    delay_factor: FloatArray
    scv: FloatArray
    third: FloatArray
    band: FloatArray
    percentile_band: FloatArray


def competitors(servers: FloatArray, rho: FloatArray, law: Residuals) -> FloatArray:
    """c*: the number of residual service times that compete to end a wait, from c at no load to 1 at full load.

    Args:
        servers: c, a positive real; broadcasts. Up to one server, c* is 1.
        rho: utilisation in [0, 1); broadcasts.
        law: residual service times, of rows like ``servers`` or of all alike.
    """
    _, four = law.survives
    slack = servers * (1.0 - rho) ** 2  # Halfin and Whitt's variable X
    grip = (
        np.exp(_SCALE + _SURVIVES_FOUR * np.asarray(four))
        * (servers + 2.0)
        * rho**_LOAD_POWER
        * slack**-_HALFIN_WHITT_POWER
    )
    return np.asarray(1.0 + np.maximum(servers - 1.0, 0.0) / (1.0 + grip))


def wait_shape(servers: FloatArray, rho: FloatArray, law: Residuals) -> WaitShape:
    """Ratio, delay probability and conditional wait of M/G/c against M/M/c.

    Exact mean and second moment for one server, exact for exponential service, exact mean in light and in heavy
    traffic; own construction, see docs/theory/queueing.md.

    Args:
        servers: c, a positive real; broadcasts.
        rho: utilisation in [0, 1); broadcasts.
        law: the service law's residuals.
    """
    count = competitors(servers, rho, law)
    ratio = law.ratio_at(count)
    root = np.sqrt(servers) * (1.0 - rho)
    more = np.maximum(1.0 - 1.0 / servers, 0.0)
    factor = 1.0 + _DELAY * (1.0 - 1.0 / ratio) * root * np.exp(-_DELAY_FADE * root) * more**2
    # the wait of those that wait is like a geometric sum of shortest residuals, in which a sum ends with this share
    two, _ = law.survives
    ends = np.minimum(root / (1.0 + np.exp(_SUM - _SURVIVES_TWO * np.asarray(two)) * np.sqrt(root) * more), 1.0)
    several = 1.0 + _SPREAD_COMPETITORS * (count - 1.0)
    spread, third = law.shape_at(several)
    # a third moment that comes from the far end of a heavy tail says little about the percentiles that it shapes
    excess = third / spread**2 - _EXPONENTIAL_THIRD
    third = spread**2 * (_EXPONENTIAL_THIRD + excess / (1.0 + np.maximum(excess, 0.0) / _THIRD_EXCESS))
    goes_on = 1.0 - ends
    scv = np.clip(1.0 + ends * (spread - 2.0), *_SCV_RANGE)
    swing = np.abs(law.ratio_at(1.0 + _SLIP * (count - 1.0)) / ratio - 1.0)
    return WaitShape(
        ratio=ratio,
        delay_factor=np.asarray(factor),
        scv=scv,
        third=np.maximum(ends**2 * third + 6.0 * goes_on * ends * spread + 6.0 * goes_on**2, _least_third(scv)),
        band=_MEAN_BAND[0] + _MEAN_BAND[1] * swing,
        percentile_band=_PERCENTILE_BAND[0]
        + _PERCENTILE_BAND[1] * swing
        + _PERCENTILE_BAND[2] * np.abs(scv - 1.0) / (1.0 + scv),
    )


def _least_third(scv: FloatArray) -> FloatArray:
    """Third moment a quarter of the way from the least that a mixture of exponentials has to that of equal loads.

    Nearer to the least one, the short branch is a mass at zero, which no wait of a delayed arrival has.
    """
    mixed = np.maximum(scv, 1.0)
    least = 1.5 * (1.0 + mixed) ** 2
    # with p the weight of the short branch, p (1 - p) = 1 / (2 (1 + scv)), and the moment is 3 (1/p^2 + 1/(1-p)^2) / 4
    equal = 3.0 * mixed * (1.0 + mixed)
    return np.asarray(np.where(scv > 1.0, least + 0.25 * (equal - least), 0.0))
