"""What binds in a pool: what is missed, or what would be with one replica less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from qmodel.evaluation.mixtures import scoped_values, together
from qmodel.evaluation.path_predictions import FleetPredictions, PoolCase, predict_paths
from qmodel.evaluation.target_values import TOLERANCE
from qmodel.types import METRICS, Fleet, KvLink, Path, RequestClass, Slo, SloScope

__all__ = ["MOVED_BY", "binding_of"]

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
    scope: SloScope = "pool",
) -> str:
    """What is missed now, else what breaks when the pool loses one replica: a target, or an overload if that is first.

    Where the loss of one of few replicas overloads the rest, the load is raised by a quarter and by half of that leap
    to see whether a target is missed before; of several, the one missed by most is named. Where that target would hold
    if memory were no limit, memory is what binds; where it would hold if the KV came at once, the link is. All at the
    level in force: ``predicted`` is the fleet at nominal step times, ``at_level`` at those of ``level``.
    With scope ``fleet`` targets are those of all requests of a class together.
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
    missed = _most_missed(name, at_level, level, classes, fleet, scope)
    if missed is None:
        if case.serving == 1:
            return "one replica is the least"
        lost = replace(case, pool=replace(case.pool, replicas=case.pool.replicas - 1))
        smaller = with_case(lost)
        overload = smaller.pools[name].overload
        if overload is None:
            case, missed = lost, _most_missed(name, smaller, level, classes, fleet, scope)
            if missed is None:
                return "spare: one replica less still meets every target"
        else:
            for part in _LEAP_PARTS:
                growth = (case.serving / (case.serving - 1)) ** part
                demand = {cls: item.part(growth) for cls, item in classes.items()}
                missed = _most_missed(name, with_case(case), level, classes, fleet, scope)
                if missed is not None:
                    break
            else:
                return _OVERLOAD_WORDS[overload.kind]
    cls, paths, slo = missed
    if case.link is not None and _holds(with_case(replace(case, link=_NO_LINK)), level, cls, paths, slo):
        return f"link: SLO {cls} {slo.metric} {slo.stat}"
    if case.replica.kv_tokens is not None:
        unlimited = replace(case, replica=replace(case.replica, kv_tokens=None))
        if _holds(with_case(unlimited), level, cls, paths, slo):
            return f"KV memory: SLO {cls} {slo.metric} {slo.stat}"
    return f"SLO {cls} {slo.metric} {slo.stat}"


def _holds(predicted: FleetPredictions, level: str, cls: str, paths: Sequence[Path], slo: Slo) -> bool:
    (value,) = scoped_values(predicted, cls, [paths], slo, level)
    return value is not None and value <= slo.target_s


def _most_missed(
    pool: str,
    predicted: FleetPredictions,
    level: str,
    classes: Mapping[str, RequestClass],
    fleet: Fleet,
    scope: SloScope,
) -> tuple[str, Sequence[Path], Slo] | None:
    """Class, paths and target with the largest ratio of prediction to target above 1; None where all hold.

    Of the targets that a pool has a part in: on each of its paths, or over all paths of a class.
    """
    worst, ratio = None, 1.0 + TOLERANCE
    for name, item in classes.items():
        for paths in together(fleet.routing.get(name, ()), scope):
            if not any(pool in path.pools for path in paths):
                continue
            for slo in item.under(fleet.pools[pool].model).slos:
                (value,) = scoped_values(predicted, name, [paths], slo, level)
                concerns = slo.metric in MOVED_BY[fleet.pools[pool].role]
                if concerns and value is not None and value / slo.target_s > ratio:
                    worst, ratio = (name, paths, slo), value / slo.target_s
    return worst
