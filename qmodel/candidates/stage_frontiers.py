"""How much of a mix of classes the pools of one stage carry with what the stage must meet.

Pools in a row are predicted one at a time, and a prefill pool takes twenty times as long as a unified one, so each
crossing is looked for with as few looks as can be.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qmodel.candidates.stage_candidates import Stage, StageCandidate
from qmodel.evaluation import value_of
from qmodel.queueing.replica.error_bands import bands_by_metric
from qmodel.queueing.replica.percentiles import GridLaw
from qmodel.queueing.tandem.decode_stage import DecodePool, decode_load, solve_decode
from qmodel.queueing.tandem.delays import no_delay
from qmodel.queueing.tandem.kv_transfer import sending_time
from qmodel.queueing.tandem.prefill_pool import prefill_load, solve_prefill
from qmodel.queueing.tandem.row_laws import Hop, row_metrics
from qmodel.queueing.tandem.stage_parts import Leg, answer_leg, decode_leg
from qmodel.types import FloatArray, IntArray, RequestClass, Router, Stream

__all__ = ["stage_between", "stage_crossings", "stage_loads", "stage_ratios", "stage_time"]

_FIRST_LOOK = 0.8  # of the largest stable load
_FURTHER = 0.5  # power of the count with which the room left at the crossing falls
_NO_LOAD = 1e-4  # of the largest stable load: the pool alone may miss
_ROUNDS = 14
_TIGHT = 0.006  # relative width at which an interval is narrow enough
_BESIDE = 0.45 * _TIGHT  # a look beyond the likely crossing closes the interval
_AT_ONCE = GridLaw(mean_s=np.zeros(1), times_s=np.array([[0.0, 1e-9]]), cdf=np.ones((1, 2)))
_FREE = Hop(transfer=no_delay(), pool=DecodePool(overload=None, utilisation=0.0, start=no_delay()))  # takes no time
_MOST = 50.0  # prediction over target: more says nothing
_LEAST = 1e-12


def stage_loads(candidates: Sequence[StageCandidate], classes: Sequence[RequestClass]) -> FloatArray:
    """Utilisation of one replica, or of one lane of its link, by all of the classes, shape (J,); infinite: too long."""
    if not candidates:
        return np.zeros(0)
    streams = [item.stream() for item in classes]
    legs = [leg for item in streams if (leg := _leg(candidates[0].role, item)) is not None]
    moved = sum(leg.rate_rps * leg.lengths.prompt.mean for leg in legs)  # tokens/s
    loads = [
        prefill_load(item.replica, streams) if item.role == "prefill" else decode_load(item.replica, legs)
        for item in candidates
    ]
    return np.maximum(loads, [moved * item.link.s_per_token for item in candidates])


def stage_time(candidate: StageCandidate, item: RequestClass, token_s: float) -> float:
    """Least step time of one replica that all of a class takes in its stage, s per s.

    Args:
        candidate: the pool.
        item: the class.
        token_s: least share of a decode step that a token takes, s.
    """
    replica, lengths = candidate.replica, item.lengths
    if candidate.role == "prefill":
        budget = float(replica.max_batched_tokens)
        each_s = float(replica.step.tau_s(0.0, 0.0)) / budget + replica.step.delta_s
        return float(item.rate_rps * lengths.prompt.mean * each_s)
    leg = _leg(candidate.role, item.stream())
    if leg is None:
        return 0.0
    steps = leg.lengths.output
    kv_s = replica.step.gamma_s * (leg.lengths.e_pn + steps.moments[1] / 2.0)
    return float(leg.rate_rps * (steps.mean * token_s + kv_s))


def stage_ratios(
    candidates: Sequence[StageCandidate], classes: Sequence[RequestClass], counts: IntArray, loads: FloatArray
) -> FloatArray:
    """Worst prediction over target of each case, shape (C,); at most 1 where all are met, infinite where not stable."""
    return np.array(
        [
            _worst(candidate, [item.part(load) for item in classes], count)
            for candidate, count, load in zip(candidates, counts.tolist(), loads.tolist(), strict=True)
        ]
    )


def _worst(candidate: StageCandidate, classes: Sequence[RequestClass], count: int) -> float:
    if stage_loads([candidate], classes)[0] >= count:
        return np.inf
    router: Router = "jsq" if candidate.router == "jsq" else "random"
    if candidate.role == "prefill":
        if not any(item.slos for item in classes):
            return _LEAST
        first = solve_prefill(candidate.replica, [item.stream() for item in classes], count, router)
        if first.overload is not None:
            return np.inf
        laws, upper = first.first_s, candidate.confidence == "p90"
        bands = bands_by_metric(first.utilisation, False)
        return max(
            float(laws[item.name].mean_s[0] if slo.p is None else laws[item.name].quantile(slo.p)[0])
            * (1.0 + (bands[slo.metric].at(slo.p) if upper else 0.0))
            / slo.target_s
            for item in classes
            for slo in item.slos
        )
    legs = {item.name: leg for item in classes if (leg := _leg(candidate.role, item.stream())) is not None}
    pool = solve_decode(candidate.replica, list(legs.values()), count, router)
    if pool.overload is not None:
        return np.inf
    worst = _LEAST
    for item in classes:
        if not item.slos or item.name not in legs:
            continue
        sent = sending_time(candidate.link, legs[item.name].lengths.prompt)
        here = Hop(transfer=sent, pool=pool)
        hops = {"decode": [here], "think": [here, _FREE], "answer": [_FREE, here]}[candidate.role]
        found = row_metrics(_AT_ONCE, hops, item.lengths, 0.0)  # bands are never narrower with a busier pool before
        values = ((slo, value_of(found, slo, candidate.confidence)) for slo in item.slos)
        worst = max(worst, *(value / slo.target_s for slo, value in values if value is not None))
    return worst


def _leg(role: Stage, item: Stream) -> Leg | None:
    """The part of a class after the first token that a stage serves; for a prefill pool, what it hands on."""
    return answer_leg(item) if role == "answer" else decode_leg(item, "thinking" if role == "think" else "output")


def stage_crossings(
    candidates: Sequence[StageCandidate], classes: Sequence[RequestClass], sizes: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Largest loads that are carried and smallest that are not, shapes (C,).

    Counts of one candidate are looked at in rising order: what each of its replicas carries grows little with the
    count, so that the last crossing says where the next one is.
    """
    each = 1.0 / stage_loads(candidates, classes)  # largest stable load of one replica
    low, high = np.zeros(len(candidates)), np.zeros(len(candidates))
    last: dict[int, tuple[int, float]] = {}  # by candidate: count, and the part of the largest load that was carried
    for row in np.argsort(sizes, kind="stable").tolist():
        candidate, count = candidates[row], int(sizes[row])
        capacity = count * float(each[row])
        key = (count, *((item.name, item.rate_rps) for item in classes))
        if capacity > 0.0 and key not in candidate.crossings:
            alone = (0, *key[1:])
            if alone not in candidate.crossings:
                idle = _worst(candidate, [item.part(_NO_LOAD * each[row]) for item in classes], 1)
                candidate.crossings[alone] = (idle, idle)
            idle = candidate.crossings[alone][0]
            before, part = last.get(id(candidate), (0, 0.0))
            first = 1.0 - (1.0 - part) * (before / count) ** _FURTHER if before else _FIRST_LOOK
            bracket = _Bracket(candidate, classes, count, capacity, idle)
            candidate.crossings[key] = bracket.narrowed(first * capacity) if idle <= 1.0 else (0.0, bracket.low)
        if capacity > 0.0:
            low[row], high[row] = candidate.crossings[key]
            last[id(candidate)] = (count, low[row] / capacity)
    return low, high


def stage_between(
    candidate: StageCandidate, classes: Sequence[RequestClass], replicas: int, surely: float, near: float, high: float
) -> tuple[float, float]:
    """The crossing of one pool between a load that is carried and one that is not, likely near a third."""
    capacity = replicas / float(stage_loads([candidate], classes)[0])
    bracket = _Bracket(candidate, classes, replicas, capacity, 0.0)
    bracket.low, bracket.high = surely, min(high, capacity)
    return bracket.narrowed(near)


class _Bracket:
    """An interval that holds the crossing of one pool.

    Waits grow as v = rho / (1 - rho), so prediction over target is taken to be a line in v through the two looks that
    came closest to one.
    """

    def __init__(
        self,
        candidate: StageCandidate,
        classes: Sequence[RequestClass],
        count: int,
        capacity: float,
        idle: float,
    ) -> None:
        self._candidate, self._classes, self._count, self._capacity = candidate, classes, count, capacity
        self.low, self.high = _NO_LOAD * capacity, capacity
        self._looks = [(0.0, idle)]

    def narrowed(self, first: float) -> tuple[float, float]:
        """Largest load carried and smallest that is not, after a look at a load that is likely near both."""
        load, halve = first, False
        for _ in range(_ROUNDS):
            width = self.high - self.low
            if width <= _TIGHT * self.high:
                break
            margin = min(0.02 * width, _BESIDE * self.high)
            load = (self.low + self.high) / 2.0 if halve else load
            self._look(min(max(load, self.low + margin), self.high - margin))
            halve = not halve and self.high - self.low > 0.7 * width and len(self._looks) > 3
            load = self._likely()
        return self.low, self.high

    def _look(self, load: float) -> None:
        classes = [item.part(load) for item in self._classes]
        found = min(_worst(self._candidate, classes, self._count), _MOST)
        if found <= 1.0:
            self.low = load
        else:
            self.high = load
        rho = min(load / self._capacity, 1.0 - 1e-9)
        self._looks.append((rho / (1.0 - rho), found))
        self._looks.sort(key=lambda look: abs(look[1] - 1.0))

    def _likely(self) -> float:
        """Beyond the likely crossing, seen from the nearer end."""
        (v, found), (other_v, other) = self._looks[:2]
        rise = (found - other) / (v - other_v) if v != other_v else 0.0
        if rise <= 0.0:
            return (self.low + self.high) / 2.0
        v = max(v + (1.0 - found) / rise, 0.0)
        crossing = v / (1.0 + v) * self._capacity
        return crossing + (_BESIDE if crossing - self.low < self.high - crossing else -_BESIDE) * self.high
