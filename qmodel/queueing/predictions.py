"""What a pool prediction says: per class and metric a mean and percentiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from qmodel.queueing.percentiles import GridLaw, KernelLaw
from qmodel.types import FloatArray, Metric, Overload

__all__ = ["ClassPrediction", "PoolPrediction", "Prediction"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """One metric of one class, s.

    Attributes:
        mean: mean over requests, s; 0 for ``tpot`` of requests that have one token only.
    """

    mean: float
    law: GridLaw | KernelLaw | None = field(default=None, repr=False)

    def quantile(self, p: float) -> float:
        """The time that a share ``p`` in (0, 1) of requests does not exceed, s.

        Raises:
            ValueError: if ``p`` is not strictly between 0 and 1.
        """
        if not 0.0 < p < 1.0:
            raise ValueError(f"p must lie strictly between 0 and 1, e.g. 0.95 (got {p!r})")
        return 0.0 if self.law is None else float(self.law.quantile(p)[0])

    def share_within(self, time_s: FloatArray) -> FloatArray:
        """The share of requests that take no longer than ``time_s``; the inverse of :meth:`quantile`.

        Args:
            time_s: times, s, shape (T,).
        """
        times = np.asarray(time_s, dtype=float)
        return np.ones_like(times) if self.law is None else self.law.share_within(times)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassPrediction:
    """The four metrics of one class; ``answer_start`` equals ``ttft`` without thinking tokens."""

    ttft: Prediction
    answer_start: Prediction
    tpot: Prediction
    completion: Prediction

    def metric(self, name: Metric) -> Prediction:
        """The prediction of the metric called ``name``."""
        by_name: dict[str, Prediction] = {
            "ttft": self.ttft,
            "answer_start": self.answer_start,
            "tpot": self.tpot,
            "completion": self.completion,
        }
        return by_name[name]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolPrediction(Mapping[str, ClassPrediction]):
    """A pool under its load; a mapping from class names, empty where the pool is not stable.

    Attributes:
        stable: whether the load can be carried.
        overload: why not, None where stable.
        utilisation: offered load over the largest stable load at this mix.
        kv_fill: mean pool tokens held over the pool's tokens; None where memory is not limited or the pool not stable.
        mean_batch: mean sequences in service per replica; None where not stable.
        p_wait: probability that a request waits for a slot or for memory; None where not stable.
        classes: predictions by class name.
    """

    stable: bool
    overload: Overload | None
    utilisation: float
    kv_fill: float | None
    mean_batch: float | None
    p_wait: float | None
    classes: Mapping[str, ClassPrediction]

    def __getitem__(self, name: str) -> ClassPrediction:
        if name not in self.classes:
            reason = self.overload.reason if self.overload else f"classes are {', '.join(map(repr, self.classes))}"
            raise KeyError(f"no prediction for class {name!r}: {reason}")
        return self.classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.classes)

    def __len__(self) -> int:
        return len(self.classes)
