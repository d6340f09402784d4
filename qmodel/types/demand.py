"""Request classes and their targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from qmodel.types.arrivals import Burst
from qmodel.types.batches import Batch
from qmodel.types.laws import FloatArray, Lengths

__all__ = ["METRICS", "Metric", "ModelTier", "Patience", "RequestClass", "Slo", "Stream"]

Metric = Literal["ttft", "answer_start", "tpot", "completion", "makespan", "abandoned"]
METRICS: tuple[Metric, ...] = ("ttft", "answer_start", "tpot", "completion")  # of a request; a makespan is of a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """One target: a metric's mean or percentile must not exceed ``target_s``.

    Attributes:
        metric: ``ttft``, ``answer_start``, ``tpot`` or ``completion`` of a request, ``makespan`` of a batch, or
            ``abandoned``: the share of the requests that leave for good.
        p: level in (0, 1) of a percentile, None for the mean and for a share.
        target_s: limit, s; of ``abandoned`` the share itself.

    Example:
        >>> Slo(metric="ttft", p=0.95, target_s=0.5).key
        'ttft_p95_s'
    """

    metric: Metric
    p: float | None
    target_s: float

    @property
    def stat(self) -> str:
        """``mean`` or ``p95``, ``p99.9``, ..., or ``share``."""
        if self.metric == "abandoned":
            return "share"
        return "mean" if self.p is None else f"p{round(self.p * 100, 6):g}"

    @property
    def key(self) -> str:
        """The key as a scenario file writes it."""
        return "abandoned_share" if self.metric == "abandoned" else f"{self.metric}_{self.stat}_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """When requests leave the queue, and how often they come again.

    Attributes:
        patience_s: a request leaves when it was not admitted so long after it came, s.
        retries: times that it comes back.
        backoff_s: pause before it first comes back, s; doubles with every further time.

    Example:
        >>> float(Patience(patience_s=5.0, retries=2, backoff_s=1.0).lost_s(2))  # two waits, pauses of 1 and 2 s
        13.0
    """

    patience_s: float
    retries: int = 0
    backoff_s: float = 1.0

    @property
    def text(self) -> str:
        """In a few words."""
        again = f", {self.retries} retries from {self.backoff_s:g} s on" if self.retries else ""
        return f"{self.patience_s:g} s{again}"

    def lost_s(self, times: npt.ArrayLike) -> FloatArray:
        """Time from the first arrival to that of the attempt after ``times`` in vain, s; of the shape of ``times``."""
        vain = np.asarray(times, dtype=float)
        return np.asarray(vain * self.patience_s + self.backoff_s * (2.0**vain - 1.0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stream:
    """Requests of one class as a pool sees them: a rate, how they clump, and a joint length law.

    Attributes:
        burst: variability of arrivals beyond Poisson at this rate; None: Poisson.
        priority: larger is served first.
        patience: when its requests leave; None: they wait as long as it takes.
    """

    name: str
    rate_rps: float
    lengths: Lengths
    burst: Burst | None = None
    priority: int = 0
    patience: Patience | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelTier:
    """One of the models that may serve a class, and what of the class is different under it.

    Attributes:
        quality: score of its answers; None: not stated, for any model of the class.
        least, most: shares of the requests of the class that it gets at least and at most.
        lengths: of the requests that it serves; None: those of the class under every model.
        slos: their targets; None: those of the class under every model.
        own_targets: keys of those targets that are stated under this model.
    """

    model: str
    quality: float | None = None
    least: float = 0.0
    most: float = 1.0
    lengths: Lengths | None = None
    slos: tuple[Slo, ...] | None = None
    own_targets: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Plain data without the model; the inverse of :meth:`from_dict`."""
        return {
            "quality": self.quality,
            "least": self.least,
            "most": self.most,
            "lengths": None if self.lengths is None else self.lengths.to_dict(),
            "slo": None if self.slos is None else [asdict(slo) for slo in self.slos],
            "own_targets": list(self.own_targets),
        }

    @classmethod
    def from_dict(cls, model: str, data: Mapping[str, object]) -> ModelTier:
        """The inverse of :meth:`to_dict`."""
        quality, lengths, slos, own = data["quality"], data["lengths"], data["slo"], data.get("own_targets", ())
        assert lengths is None or isinstance(lengths, Mapping)
        assert slos is None or isinstance(slos, Sequence)
        assert isinstance(own, Sequence)
        return cls(
            model=model,
            quality=None if quality is None else float(str(quality)),
            least=float(str(data["least"])),
            most=float(str(data["most"])),
            lengths=None if lengths is None else Lengths.from_dict(dict(lengths)),
            slos=None if slos is None else tuple(Slo(**slo) for slo in slos),
            own_targets=tuple(own),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RequestClass:
    """One stream of requests with the model it asks for and the targets it must meet.

    Attributes:
        model: that serves it; with alternatives the first of them, and lengths and targets are those under it.
        alternatives: models that may serve it; empty: only ``model``.
        min_quality: least average quality over its requests; None: any.
        arrivals_note: how arrivals are modelled, e.g. ``Poisson`` or ``Poisson, optimistic``.
        burst: variability of arrivals beyond Poisson at this rate; None: Poisson.
        isolate: its pools serve no other class.
        batch: the requests come at once instead, and the deadline is among the targets; None: they come one by one.
        patience: when its requests leave, and how often they come again; None: they wait as long as it takes.
    """

    name: str
    model: str
    rate_rps: float
    lengths: Lengths
    slos: tuple[Slo, ...]
    priority: int = 0
    arrivals_note: str = "Poisson"
    burst: Burst | None = None
    isolate: bool = False
    batch: Batch | None = None
    alternatives: tuple[ModelTier, ...] = ()
    min_quality: float | None = None
    patience: Patience | None = None

    @property
    def models(self) -> tuple[str, ...]:
        """Models that may serve it."""
        return tuple(tier.model for tier in self.alternatives) or (self.model,)

    def served_by(self, model: str) -> bool:
        """Whether a model may serve it."""
        return model in self.models

    def under(self, model: str) -> RequestClass:
        """The class as pools of one of its models see it: with the lengths and targets that it has there.

        Example:
            >>> from qmodel.types import Law
            >>> brief, long = (Lengths.independent(Law.constant(100), Law.constant(n)) for n in (50, 900))
            >>> tiers = (ModelTier(model="fast", lengths=brief), ModelTier(model="full", lengths=long))
            >>> item = RequestClass(
            ...     name="chat", model="fast", rate_rps=1.0, lengths=brief, slos=(), alternatives=tiers
            ... )
            >>> item.under("full").lengths.output.mean
            900.0
        """
        if model == self.model:
            return self
        tier = next((item for item in self.alternatives if item.model == model), ModelTier(model=model))
        return replace(
            self,
            model=model,
            lengths=self.lengths if tier.lengths is None else tier.lengths,
            slos=self.slos if tier.slos is None else tier.slos,
        )

    @property
    def quantity(self) -> float:
        """Requests of a batch, else requests per second: what a share of the class is a share of."""
        return self.rate_rps if self.batch is None else float(self.batch.requests)

    def stream(self, share: float = 1.0) -> Stream:
        """The part ``share`` of this class as one pool sees it."""
        return Stream(
            name=self.name,
            rate_rps=self.rate_rps * share,
            lengths=self.lengths,
            burst=None if self.burst is None else self.burst.thinned(share),
            priority=self.priority,
            patience=self.patience,
        )

    def part(self, share: float) -> RequestClass:
        """The same class with ``share`` of its demand, split off at random."""
        if self.batch is not None:
            part = self.batch.part(share)
            return replace(self, rate_rps=part.rate_rps, batch=part)
        return replace(
            self, rate_rps=self.rate_rps * share, burst=None if self.burst is None else self.burst.thinned(share)
        )

    def to_dict(self) -> dict[str, object]:
        """Plain data without the name; the inverse of :meth:`from_dict`."""
        data: dict[str, object] = {
            "model": self.model,
            "rate_rps": self.rate_rps,
            "lengths": self.lengths.to_dict(),
            "slo": [asdict(slo) for slo in self.slos],
            "priority": self.priority,
            "arrivals": self.arrivals_note,
            "burst": None if self.burst is None else self.burst.to_dict(),
            "isolate": self.isolate,
            "batch": None if self.batch is None else self.batch.to_dict(),
        }
        if self.alternatives:
            tiers = {tier.model: tier.to_dict() for tier in self.alternatives}
            data |= {"alternatives": tiers, "min_quality": self.min_quality}
        if self.patience is not None:
            data |= {"patience": asdict(self.patience)}
        return data

    @classmethod
    def from_dict(cls, name: str, data: Mapping[str, object]) -> RequestClass:
        """The inverse of :meth:`to_dict`."""
        lengths, slos, burst, batch = data["lengths"], data["slo"], data.get("burst"), data.get("batch")
        alternatives, min_quality = data.get("alternatives", {}), data.get("min_quality")
        patience = data.get("patience")
        assert patience is None or isinstance(patience, Mapping)
        assert isinstance(alternatives, Mapping)
        assert isinstance(lengths, Mapping) and isinstance(slos, Sequence)
        assert batch is None or isinstance(batch, Mapping)
        assert burst is None or isinstance(burst, Mapping)
        return cls(
            name=name,
            model=str(data["model"]),
            rate_rps=float(str(data["rate_rps"])),
            lengths=Lengths.from_dict(dict(lengths)),
            slos=tuple(Slo(**slo) for slo in slos),
            priority=int(str(data["priority"])),
            arrivals_note=str(data["arrivals"]),
            burst=None if burst is None else Burst.from_dict(burst),
            isolate=bool(data.get("isolate", False)),
            batch=None if batch is None else Batch.from_dict(batch),
            alternatives=tuple(ModelTier.from_dict(str(name), tier) for name, tier in alternatives.items()),
            min_quality=None if min_quality is None else float(str(min_quality)),
            patience=None if patience is None else Patience(**patience),
        )
