"""What binds in a pool: what is missed, or what would be with one replica less."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from qmodel.evaluation.path_predictions import FleetPredictions, PoolCase, predict_paths
from qmodel.queueing import ClassPrediction, Prediction
from qmodel.types import METRICS, Fleet, KvLink, RequestClass, Slo

__all__ = ["MOVED_BY", "TOLERANCE", "binding_of", "statistic_of", "value_of", "widening"]

TOLERANCE = 1e-9  # of a target: rounding of a sum must not turn a met target into a missed one
_OVERLOAD_WORDS = {
    "kv": "KV memory",
    "length": "KV memory",
    "slots": "max_num_seqs",
    "steps": "step time",
    "rate": "measured capacity",
    "link": "link",
}
MOVED_BY = {  # metrics that a pool has a part in
    "unified": (*METRICS, "abandoned"),
    "prefill": ("ttft", "answer_start", "completion"),
    "decode": ("answer_start", "tpot", "completion"),
    "answer": ("answer_start", "tpot", "completion"),
}
_LEAP_PARTS = (0.25, 0.5)  # of the logarithm of the load per replica
_NO_LINK = KvLink(bytes_per_s=np.inf, bytes_per_token=0.0)


def binding_of(
    name: str,
    classes: Mapping[str, RequestClass],
    cases: Mapping[str, PoolCase],
    fleet: Fleet,
    predicted: FleetPredictions,
    level: str,
    at_level: FleetPredictions,
) -> str:
    """What is missed now, else what breaks when the pool loses one replica: a target, or an overload if that is first.

    Where the loss of one of few replicas overloads the rest, the load is raised by a quarter and by half of that leap
    to see whether a target is missed before; of several, the one missed by most is named. Where that target would hold
    if memory were no limit, memory is what binds; where it would hold if the KV came at once, the link is. All at the
    level in force: ``predicted`` is the fleet at nominal step times, ``at_level`` at those of ``level``.
    """
    if name not in predicted.pools:
        return "unused"
    case = cases[name]

    demand = classes

    def with_case(changed: PoolCase) -> FleetPredictions:
        return predict_paths(demand, {**cases, name: changed}, fleet, level=level, known=at_level, changed=(name,))

    link = predicted.links.get(name)
    if link is not None and link.overload is not None:
        return _OVERLOAD_WORDS["link"]
    missed = _most_missed(name, at_level, level, classes, fleet)
    if missed is None:
        if case.serving == 1:
            return "one replica is the least"
        lost = replace(case, pool=replace(case.pool, replicas=case.pool.replicas - 1))
        smaller = with_case(lost)
        overload = smaller.pools[name].overload
        if overload is None:
            case, missed = lost, _most_missed(name, smaller, level, classes, fleet)
            if missed is None:
                return "spare: one replica less still meets every target"
        else:
            for part in _LEAP_PARTS:
                growth = (case.serving / (case.serving - 1)) ** part
                demand = {cls: item.part(growth) for cls, item in classes.items()}
                missed = _most_missed(name, with_case(case), level, classes, fleet)
                if missed is not None:
                    break
            else:
                return _OVERLOAD_WORDS[overload.kind]
    cls, pools, slo = missed
    if case.link is not None and _holds(with_case(replace(case, link=_NO_LINK)), level, cls, pools, slo):
        return f"link: SLO {cls} {slo.metric} {slo.stat}"
    if case.replica.kv_tokens is not None:
        unlimited = replace(case, replica=replace(case.replica, kv_tokens=None))
        if _holds(with_case(unlimited), level, cls, pools, slo):
            return f"KV memory: SLO {cls} {slo.metric} {slo.stat}"
    return f"SLO {cls} {slo.metric} {slo.stat}"


def _holds(predicted: FleetPredictions, level: str, cls: str, pools: tuple[str, ...], slo: Slo) -> bool:
    value = value_of(predicted.paths[cls, pools], slo, level)
    return value is not None and value <= slo.target_s


def _most_missed(
    pool: str, predicted: FleetPredictions, level: str, classes: Mapping[str, RequestClass], fleet: Fleet
) -> tuple[str, tuple[str, ...], Slo] | None:
    """Class, path and target of a pool with the largest ratio of prediction to target above 1; None where all hold."""
    worst, ratio = None, 1.0 + TOLERANCE
    for name, item in classes.items():
        for path in fleet.routing.get(name, ()):
            if pool not in path.pools:
                continue
            for slo in item.under(fleet.pools[pool].model).slos:
                value = value_of(predicted.paths[name, path.pools], slo, level)
                concerns = slo.metric in MOVED_BY[fleet.pools[pool].role]
                if concerns and value is not None and value / slo.target_s > ratio:
                    worst, ratio = (name, path.pools, slo), value / slo.target_s
    return worst


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
