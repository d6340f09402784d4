"""Several replicas that serve the same classes, worked on in one array: each case has a setting of its own.

A stack has the attributes of a replica, of its work and of its memory that the formulas read, as arrays over cases in
place of numbers. What depends on a setting alone is found once for each and handed to the cases that have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from qmodel.queueing.replica.kv_limited import LimitStack, MemoryLimit
from qmodel.queueing.replica.work import ClassWork, Work
from qmodel.types import FloatArray, IntArray, Lengths, Replica

__all__ = ["ReplicaStack", "Setting", "StepStack", "WorkStack", "in_stacks", "stacked"]

Setting = tuple[Replica, Work, MemoryLimit | None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepStack:
    """Step laws of C cases.

    Attributes:
        settings: the distinct ones.
        which: setting of each case, shape (C,).
        delta_s, gamma_s: as in a step law, shapes (C,).
        first, base_s, slope: where all laws are linear: first batch, step time there, s a sequence, shapes (C,).
    """

    settings: tuple[Setting, ...]
    which: IntArray
    delta_s: FloatArray
    gamma_s: FloatArray
    line: tuple[FloatArray, FloatArray, FloatArray] | None

    def tau_s(self, batch: FloatArray | float, kv_tokens_per_sequence: float) -> FloatArray:
        """Step time, s; ``batch`` is one number or has a row for each case, shape (C,) or (C, K)."""
        number = np.asarray(batch, dtype=float)
        if number.ndim == 0:
            number = np.full(self.which.size, float(number))
        if self.line is None:
            found = np.empty(number.shape)
            for place, (replica, _, _) in enumerate(self.settings):
                rows = self.which == place
                found[rows] = replica.step.tau_s(number[rows], kv_tokens_per_sequence)
            return found
        wide = (slice(None),) + (None,) * (number.ndim - 1)
        first, base_s, slope = (item[wide] for item in self.line)
        return np.asarray(
            base_s + slope * np.maximum(number - first, 0.0) + (self.gamma_s[wide] * kv_tokens_per_sequence) * number
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplicaStack:
    """Replicas of C cases; attributes as in a replica, shapes (C,)."""

    step: StepStack
    max_num_seqs: FloatArray
    max_batched_tokens: FloatArray
    eviction_s_per_token: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkStack:
    """Work of C cases with the same classes; attributes as in a work, shape (C,) where they depend on the replica."""

    settings: tuple[Setting, ...]
    which: IntArray
    classes: tuple[ClassWork, ...]
    lengths: Lengths
    context: float
    steps: FloatArray

    def each(self, found: Callable[[Replica, Work, MemoryLimit | None], float]) -> FloatArray:
        """What depends on a setting, for each case, shape (C,)."""
        return np.array([found(*setting) for setting in self.settings])[self.which]


def stacked(settings: Sequence[Setting], which: IntArray) -> tuple[ReplicaStack, WorkStack, LimitStack | None]:
    """The settings of C cases in arrays.

    Args:
        settings: distinct replicas with the work that the same classes are to them and their memory limits, all with
            one or all without.
        which: setting of each case, shape (C,).
    """
    found = tuple(settings)
    steps = [replica.step for replica, _, _ in found]

    def of(values: Sequence[float]) -> FloatArray:
        return np.array(values, dtype=float)[which]

    line = None
    if all(step.batch.size == 2 for step in steps):
        rise = [(step.base_s[1] - step.base_s[0]) / (step.batch[1] - step.batch[0]) for step in steps]
        line = of([step.batch[0] for step in steps]), of([step.base_s[0] for step in steps]), of(rise)
    limits = [limit for _, _, limit in found if limit is not None]
    work = found[0][1]
    return (
        ReplicaStack(
            step=StepStack(
                settings=found,
                which=which,
                delta_s=of([step.delta_s for step in steps]),
                gamma_s=of([step.gamma_s for step in steps]),
                line=line,
            ),
            max_num_seqs=of([replica.max_num_seqs for replica, _, _ in found]),
            max_batched_tokens=of([replica.max_batched_tokens for replica, _, _ in found]),
            eviction_s_per_token=of([replica.eviction_s_per_token for replica, _, _ in found]),
        ),
        WorkStack(
            settings=found,
            which=which,
            classes=work.classes,
            lengths=work.lengths,
            context=work.context,
            steps=of([item.steps for _, item, _ in found]),
        ),
        LimitStack(**{item.name: of([getattr(limit, item.name) for limit in limits]) for item in fields(LimitStack)})
        if limits
        else None,
    )


def in_stacks(settings: Sequence[tuple[Setting, IntArray]]) -> list[list[tuple[Setting, IntArray]]]:
    """Settings, each with the rows of its cases, in groups that may be worked on together.

    A limit is either on all of a group or on none, and a replica with one slot goes alone: it is a plain server.
    """
    groups: dict[object, list[tuple[Setting, IntArray]]] = {}
    for setting, rows in settings:
        replica, _, limit = setting
        key = ("alone", id(replica)) if replica.max_num_seqs == 1 else ("memory", limit is None)
        groups.setdefault(key, []).append((setting, rows))
    return list(groups.values())
