"""Metrics of one class over a row of pools: first token, transfers, waits and steps as independent parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qmodel.queueing.replica.error_bands import bands_by_metric
from qmodel.queueing.replica.percentiles import GridLaw, KernelLaw
from qmodel.queueing.replica.predictions import ClassPrediction, Prediction
from qmodel.queueing.tandem.decode_stage import DecodePool
from qmodel.queueing.tandem.delays import DelayNodes, no_delay, nodes_of_grid, steps_after
from qmodel.queueing.tandem.stage_parts import thought_and_output
from qmodel.types import FloatArray, Lengths

__all__ = ["Hop", "row_metrics"]

_GROUPS = 24  # of requests by output, as many again in the last tenth


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hop:
    """What a class meets on its way into a pool after the first, and there.

    Attributes:
        transfer: from the end of the stage before to the arrival of the KV.
        pool: the pool.
    """

    transfer: DelayNodes
    pool: DecodePool

    @property
    def delay(self) -> DelayNodes:
        """From the end of the stage before to the first step of this one."""
        return self.transfer.plus(self.pool.start)


def row_metrics(first: GridLaw, hops: Sequence[Hop], lengths: Lengths, prefill_utilisation: float) -> ClassPrediction:
    """The four metrics of a class.

    The first token is made by the prefill pool, so ``ttft`` ends before the transfer, and ``tpot`` has the transfers
    and the waits of the later pools in it.

    Args:
        first: law of the time to the first token.
        hops: into the decode pool, and into the answer pool where there is one.
        lengths: of the class.
        prefill_utilisation: of the prefill pool.

    Source: own construction, see docs/theory/stages.md. Bands are those of one pool limited by slots at the utilisation
    of the prefill pool for ``ttft`` and of the busiest pool for the others; simulated rows were off less on average.
    """
    busiest = max(prefill_utilisation, *(hop.pool.utilisation for hop in hops))
    bands = bands_by_metric(busiest, by_memory=False)
    first_band = bands_by_metric(prefill_utilisation, by_memory=False)["ttft"]
    ttft = Prediction(mean=float(first.mean_s[0]), law=first, error=first_band)
    ways = _ways(hops, lengths)
    start = nodes_of_grid(first)
    completion = _joined([way.law(start, way.after) for way in ways])
    later = [way for way in ways if way.later]
    tpot = Prediction(mean=0.0, error=bands["tpot"])
    if later:
        law = _joined([way.law(no_delay(), way.after, per_step=True) for way in later])
        tpot = Prediction(mean=float(law.mean_s[0]), law=law, error=bands["tpot"])
    answer = ttft
    if lengths.reasoning is not None:
        law = _joined([way.law(start, way.answer) for way in ways])
        answer = Prediction(mean=float(law.mean_s[0]), law=law, error=bands["completion"])
    return ClassPrediction(
        ttft=ttft,
        answer_start=answer,
        tpot=tpot,
        completion=Prediction(mean=float(completion.mean_s[0]), law=completion, error=bands["completion"]),
    )


Times = tuple[FloatArray, FloatArray, FloatArray]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Way:
    """Requests of a class that pass the same pools, in k groups by their lengths.

    Attributes:
        weight: share of the class, shape (k,).
        steps: tokens after the first, shape (k,).
        after: delay and time of the steps from the first token to the last.
        answer: the same to the first answer token.
        later: whether there are tokens after the first.
    """

    weight: FloatArray
    steps: FloatArray
    after: tuple[DelayNodes, Times]
    answer: tuple[DelayNodes, Times]
    later: bool

    def law(self, start: DelayNodes, part: tuple[DelayNodes, Times], per_step: bool = False) -> KernelLaw:
        """Law from ``start`` on, weighted by the share of the class."""
        delay, (mean, variance, third) = part
        found = steps_after(start.plus(delay), self.weight, mean, variance, third, self.steps if per_step else None)
        return KernelLaw(
            weight=found.weight * self.weight.sum(), centre_s=found.centre_s, spread_s=found.spread_s, skew=found.skew
        )


def _ways(hops: Sequence[Hop], lengths: Lengths) -> list[_Way]:
    """The ways through the row: nothing after the first token, no thinking to speak of, and the whole row."""
    weight, thought, output = _grouped(*thought_and_output(lengths))
    later, thinks = output >= 1.5, thought >= 0.5
    skip = hops if len(hops) == 1 else hops[1:]  # who thinks for one token at most passes over the thinking pool
    long = later & (thought >= 1.5)
    kinds: list[tuple[BoolArray, Sequence[Hop]]] = [
        (~later, ()),
        (later & ~thinks, skip),
        (later & thinks & ~long, skip),
        (long, hops),
    ]
    return [
        _way(tuple(passed), hops, weight[mask], thought[mask], output[mask]) for mask, passed in kinds if mask.any()
    ]


def _way(
    passed: tuple[Hop, ...], hops: Sequence[Hop], weight: FloatArray, thought: FloatArray, output: FloatArray
) -> _Way:
    delay = no_delay()
    for hop in passed:
        delay = delay.plus(hop.delay)
    nothing = (no_delay(), _no_time(weight))
    steps = np.maximum(output - 1.0, 0.0)
    if not passed:
        return _Way(weight=weight, steps=np.ones_like(steps), after=nothing, answer=nothing, later=False)
    if len(hops) == 1:
        after = _time(passed[0].pool, steps)
        to_answer = _time(passed[0].pool, np.minimum(thought, steps))
    else:
        think = np.maximum(thought - 1.0, 0.0) if len(passed) == 2 else np.zeros_like(thought)
        thinking = _time(passed[0].pool, think) if len(passed) == 2 else _no_time(weight)
        last = passed[-1].pool
        after = _sum(thinking, _time(last, np.maximum(output - np.maximum(thought, 1.0), 1.0)))
        to_answer = _sum(thinking, _time(last, np.ones_like(steps)))
    at_once = bool(thought[0] < 0.5)
    return _Way(
        weight=weight,
        steps=np.maximum(steps, 1.0),
        after=(delay, after),
        answer=nothing if at_once else (delay, to_answer),
        later=True,
    )


def _grouped(weight: FloatArray, thought: FloatArray, output: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Requests by output in groups finer towards the tail; who thinks and who does not stay apart."""
    order = np.lexsort((thought, output))
    weight, thought, output = weight[order], thought[order], output[order]
    level = np.cumsum(weight) - weight / 2.0
    place = np.floor(np.minimum(level, 0.9) * _GROUPS / 0.9) + np.floor(np.maximum(level - 0.9, 0.0) * _GROUPS / 0.1)
    kind = np.select([output < 1.5, thought < 0.5, thought < 1.5], [0, 1, 2], 3)
    starts = np.flatnonzero((np.diff(place, prepend=-1) != 0) | (np.diff(kind, prepend=-1) != 0))
    mass = np.add.reduceat(weight, starts)
    return mass, np.add.reduceat(weight * thought, starts) / mass, np.add.reduceat(weight * output, starts) / mass


def _time(pool: DecodePool, steps: FloatArray) -> Times:
    return pool.steps_s(steps, np.zeros_like(steps))


def _no_time(weight: FloatArray) -> Times:
    nothing = np.zeros_like(weight)
    return nothing, nothing, nothing


def _sum(one: Times, other: Times) -> Times:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _joined(laws: Sequence[KernelLaw]) -> KernelLaw:
    """Kernels of several ways as one law."""
    weight = np.concatenate([law.weight for law in laws], axis=1)
    return KernelLaw(
        weight=weight / weight.sum(),
        centre_s=np.concatenate([law.centre_s for law in laws], axis=1),
        spread_s=np.concatenate([law.spread_s for law in laws], axis=1),
        skew=np.concatenate([law.skew for law in laws], axis=1),
    )
