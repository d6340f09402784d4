"""The value of a prediction that a target is compared with."""

from __future__ import annotations

from qmodel.queueing import ClassPrediction, Prediction
from qmodel.types import Slo

__all__ = ["TOLERANCE", "statistic_of", "value_of", "widening"]

TOLERANCE = 1e-9  # of a target: rounding of a sum must not turn a met target into a missed one


def value_of(prediction: ClassPrediction | None, slo: Slo, level: str) -> float | None:
    """The statistic that a target asks for, s; None where something on the path is not stable.

    Args:
        prediction: at the step times of the level.
        slo: the target.
        level: ``nominal``, or ``p90`` or ``low``: the upper or lower end of the queueing band.
    """
    if prediction is None:
        return None
    return statistic_of(prediction, slo) * widening(prediction.metric(slo.metric), slo.p, level)


def statistic_of(prediction: ClassPrediction, slo: Slo) -> float:
    """The statistic that a target asks for, s, without a band."""
    metric = prediction.metric(slo.metric)
    return float(metric.mean if slo.p is None else metric.quantile(slo.p))


def widening(metric: Prediction, p: float | None, level: str) -> float:
    """Factor from a prediction to the end of its queueing band at a level."""
    if level == "nominal":
        return 1.0
    return 1.0 + metric.band(p) if level == "p90" else 1.0 / (1.0 + metric.band(p))
