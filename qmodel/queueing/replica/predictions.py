"""What a pool prediction says: per class and metric a mean and percentiles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol

import numpy as np

from qmodel.queueing.replica.error_bands import ErrorBand
from qmodel.queueing.replica.percentiles import GridLaw, KernelLaw
from qmodel.types import METRICS, FloatArray, Metric, Overload

__all__ = ["ClassPrediction", "Impatience", "LengthRange", "PoolPrediction", "Prediction"]

_USUAL = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """One metric of one class, s.

    Attributes:
        mean: mean over requests, s; 0 for ``tpot`` of requests that have one token only.
        error: how far the queueing model may be off the engine, whose step times are taken as exact.
    """

    mean: float
    error: ErrorBand
    law: GridLaw | KernelLaw | None = field(default=None, repr=False)

    def quantile(self, p: float) -> float:
        """The time that a share ``p`` in (0, 1) of requests does not exceed, s.

        Raises:
            ValueError: if ``p`` is not strictly between 0 and 1.
        """
        _check_level(p)
        return 0.0 if self.law is None else float(self.law.quantile(p)[0])

    def band(self, p: float | None = None) -> float:
        """Relative error of the percentile ``p``, None: of the mean; nine in ten simulated pools stay within it.

        They lie between the prediction over ``1 + band`` and the prediction times ``1 + band``. Errors of the step
        times are not in it. See docs/theory/replica.md, "Bands".

        Raises:
            ValueError: if ``p`` is not strictly between 0 and 1.

        Example:
            >>> Prediction(mean=0.2, error=ErrorBand(mean=0.1, p95=0.2, p99=0.3)).band(0.95)
            0.2
        """
        if p is not None and not 0.0 < p < 1.0:
            raise ValueError(f"p must lie strictly between 0 and 1, e.g. 0.95, or be None (got {p!r})")
        return self.error.at(p)

    def quantiles(self, levels: Sequence[float]) -> list[float]:
        """As :meth:`quantile` for several levels, found together.

        Raises:
            ValueError: if a level is not strictly between 0 and 1.
        """
        for p in levels:
            _check_level(p)
        if self.law is None:
            return [0.0] * len(levels)
        found: list[float] = self.law.quantiles(levels)[0].tolist() if levels else []
        return found

    def share_within(self, time_s: FloatArray) -> FloatArray:
        """The share of requests that take no longer than ``time_s``; the inverse of :meth:`quantile`.

        Args:
            time_s: times, s, shape (T,).
        """
        times = np.asarray(time_s, dtype=float)
        return np.ones_like(times) if self.law is None else self.law.share_within(times)

    def to_dict(self, levels: Sequence[float] = _USUAL) -> dict[str, float]:
        """The mean and percentiles with their bands as plain numbers, e.g. ``mean_s``, ``mean_band``, ``p95_s``.

        Args:
            levels: each strictly between 0 and 1.
        """
        found = {"mean_s": self.mean, "mean_band": self.band()}
        for p, time_s in zip(levels, self.quantiles(levels), strict=True):
            name = f"p{round(p * 100, 6):g}"
            found |= {f"{name}_s": time_s, f"{name}_band": self.band(p)}
        return found


def _check_level(p: float) -> None:
    if not 0.0 < p < 1.0:
        raise ValueError(f"p must lie strictly between 0 and 1, e.g. 0.95 (got {p!r})")


class LengthRange(Protocol):
    """The part of a class whose outputs lie in a range."""

    def within(self, above_tokens: float, up_to_tokens: float) -> ClassPrediction:
        """Requests with more than ``above_tokens`` and at most ``up_to_tokens`` generated tokens."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassPrediction:
    """The four metrics of one class; ``answer_start`` equals ``ttft`` without thinking tokens.

    Attributes:
        share: of the class's requests that this is about: 1, less for a range of output lengths.
        slowdown_mean: mean over requests of the completion over that of the same request alone in an empty replica.
        abandoned: share of its requests that leave for good, as a mean; None where they wait as long as it takes. All
            else is about those that are served, from the arrival of the attempt that is.
    """

    ttft: Prediction
    answer_start: Prediction
    tpot: Prediction
    completion: Prediction
    share: float = 1.0
    slowdown_mean: float = math.nan
    lengths: LengthRange | None = field(default=None, repr=False)
    abandoned: Prediction | None = None

    def metric(self, name: Metric) -> Prediction:
        """The prediction of the metric called ``name``."""
        by_name: dict[str, Prediction] = {} if self.abandoned is None else {"abandoned": self.abandoned}
        by_name |= {
            "ttft": self.ttft,
            "answer_start": self.answer_start,
            "tpot": self.tpot,
            "completion": self.completion,
        }
        return by_name[name]

    def bucket(self, above_tokens: float = 0.0, up_to_tokens: float = math.inf) -> ClassPrediction:
        """The same for requests whose output lies in a range.

        The wait and the time to the first token are those of the class: neither depends on the output. Prompts are
        those of the class too, also where prompt and output are correlated. The class is the mixture of the buckets
        that its outputs are cut into.

        Args:
            above_tokens: outputs are longer than this, tokens.
            up_to_tokens: and at most this long.

        Returns:
            The prediction, with the ``share`` of requests that it is about.

        Raises:
            ValueError: if no output lies in the range.

        Example:
            >>> from qmodel.queueing import Replica, pool
            >>> from qmodel.types import Law, Lengths, StepLaw, Stream
            >>> outputs = Law.from_atoms(np.array([50.0, 450.0]), np.array([0.8, 0.2]))
            >>> chat = Stream(name="chat", rate_rps=4.0, lengths=Lengths.independent(Law.constant(500), outputs))
            >>> engine = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4, delta_s=3e-5), max_num_seqs=64)
            >>> whole = pool(engine, [chat], 1)["chat"]
            >>> long = whole.bucket(above_tokens=50)
            >>> long.share, long.completion.mean > 4 * whole.bucket(up_to_tokens=50).completion.mean
            (0.2, True)
        """
        if not 0.0 <= above_tokens < up_to_tokens:
            raise ValueError(
                f"above_tokens must be at least 0 and below up_to_tokens (got {above_tokens!r} and {up_to_tokens!r})"
            )
        if self.lengths is None:
            raise ValueError("bucket needs the prediction of a whole class, as pool(...)[name] gives it")
        return self.lengths.within(above_tokens, up_to_tokens)

    def to_dict(self, levels: Sequence[float] = _USUAL) -> dict[str, object]:
        """Plain data: share, mean slowdown, and by metric mean and percentiles.

        Args:
            levels: of the percentiles, each strictly between 0 and 1.
        """
        return {
            "share": self.share,
            "slowdown_mean": self.slowdown_mean,
            **{name: self.metric(name).to_dict(levels) for name in METRICS},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Impatience:
    """What comes of requests that leave a pool when they have waited too long, and may come again.

    Attributes:
        abandoned: share of the requests that leave for good.
        attempts: mean attempts of one request.
        attempt_rps: attempts that the whole pool receives, requests/s.
        goodput_rps: requests that it serves, requests/s.
        lost_mean_s: mean time that served requests lost in earlier attempts and pauses, s.
    """

    abandoned: float
    attempts: float
    attempt_rps: float
    goodput_rps: float
    lost_mean_s: float


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
        impatience: what comes of requests that leave; None where they wait as long as it takes.
    """

    stable: bool
    overload: Overload | None
    utilisation: float
    kv_fill: float | None
    mean_batch: float | None
    p_wait: float | None
    classes: Mapping[str, ClassPrediction]
    impatience: Impatience | None = None

    def __getitem__(self, name: str) -> ClassPrediction:
        if name not in self.classes:
            reason = self.overload.reason if self.overload else f"classes are {', '.join(map(repr, self.classes))}"
            raise KeyError(f"no prediction for class {name!r}: {reason}")
        return self.classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.classes)

    def __len__(self) -> int:
        return len(self.classes)

    def to_dict(self, levels: Sequence[float] = _USUAL) -> dict[str, object]:
        """Plain data: the pool, and its classes by name.

        Args:
            levels: of the percentiles, each strictly between 0 and 1.
        """
        return {
            "stable": self.stable,
            "overload": None if self.overload is None else asdict(self.overload),
            "utilisation": self.utilisation,
            "kv_fill": self.kv_fill,
            "mean_batch": self.mean_batch,
            "p_wait": self.p_wait,
            "classes": {name: found.to_dict(levels) for name, found in self.classes.items()},
        }
