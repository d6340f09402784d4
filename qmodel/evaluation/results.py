"""What an evaluation of a fleet says: rows per pool, path, target and metric, as plain records."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from qmodel.types import Fleet, LinkRow, PoolRow, PurchaseRow, RouteRow, SloRow

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CapacityResult", "CurveRow", "Evaluation", "LatencyRow", "QualityRow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRow:
    """Mean and percentiles of one metric of one class on one path; None where the pool is not stable."""

    cls: str
    path: str
    metric: str
    mean_s: float | None
    p50_s: float | None
    p90_s: float | None
    p95_s: float | None
    p99_s: float | None

    def to_dict(self) -> dict[str, object]:
        """The row as output tables name it."""
        data = asdict(self)
        return {"class": data.pop("cls"), **data}


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRow:
    """The share of a class that one of its models serves.

    Attributes:
        quality: of the model for this class; None where the class states none.
        share: of the requests of the class.
        least, most: shares that the class allows it.
        average: quality over all requests of the class; None likewise.
        min_quality: least average asked for; None: any.
        met: the share is between its bounds and the average no less.
    """

    cls: str
    model: str
    quality: float | None
    share: float
    least: float
    most: float
    average: float | None
    min_quality: float | None
    met: bool

    @property
    def short(self) -> str:
        """What is not met, in words; empty where all is."""
        if self.met:
            return ""
        if self.min_quality is not None and self.average is not None and self.average < self.min_quality:
            return f"has an average quality of {self.average:.6g}, below {self.min_quality:g}"
        asked = f"{self.least:.6g}" if self.least == self.most else f"from {self.least:.6g} to {self.most:.6g}"
        return f"has {self.share:.6g} of its requests at {self.model}, its share is {asked}"

    def to_dict(self) -> dict[str, object]:
        """The row as output tables name it."""
        data = asdict(self)
        return {"class": data.pop("cls"), **data}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingRow:
    """What comes of the requests of a class in a pool where they leave when they have waited too long.

    Attributes:
        path: the pool.
        rate_rps: requests that come for the first time, requests/s.
        goodput_rps: requests that are served; None, as all that follow, where the pool is not stable.
        abandoned_share: share of the requests that leave for good.
        attempts: mean attempts of a request.
        attempt_rps: attempts that come, requests/s.
        lost_mean_s: mean time that requests which are served lost in earlier attempts and pauses, s.
    """

    cls: str
    path: str
    patience_s: float
    retries: int
    rate_rps: float
    goodput_rps: float | None
    abandoned_share: float | None
    attempts: float | None
    attempt_rps: float | None
    lost_mean_s: float | None

    def to_dict(self) -> dict[str, object]:
        """The row as output tables name it."""
        data = asdict(self)
        return {"class": data.pop("cls"), **data}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Predictions for a given fleet.

    Attributes:
        fleet: the fleet that was evaluated.
        pools: one row per pool.
        routing: one row per class and path.
        slo: one row per target and path.
        latency: one row per class, path and metric.
        links: one row per link between pools; empty where every path is one pool.
        purchases: one row per GPU type and price.
        stable: every pool and link carries its load.
        quality: one row per class with several models stated and model; else empty.
        leaving: one row per class and pool whose requests leave when they have waited too long; else empty.
        feasible: stable, every target met at the confidence in force, every average quality reached.
        cost_usd_per_hour: of all pools, and of idle GPUs in nodes that are paid whole.
        assumptions: sentences a reader must know (prices by rule, Poisson arrivals, low confidence).
    """

    fleet: Fleet
    pools: tuple[PoolRow, ...]
    routing: tuple[RouteRow, ...]
    slo: tuple[SloRow, ...]
    latency: tuple[LatencyRow, ...]
    stable: bool
    feasible: bool
    cost_usd_per_hour: float
    assumptions: tuple[str, ...] = ()
    links: tuple[LinkRow, ...] = ()
    purchases: tuple[PurchaseRow, ...] = ()
    quality: tuple[QualityRow, ...] = ()
    leaving: tuple[LeavingRow, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Plain data in the names and order of the output tables."""
        return {
            "stable": self.stable,
            "feasible": self.feasible,
            "cost_usd_per_hour": self.cost_usd_per_hour,
            "pools": [row.to_dict() for row in self.pools],
            "routing": [row.to_dict() for row in self.routing],
            "slo": [row.to_dict() for row in self.slo],
            "latency": [row.to_dict() for row in self.latency],
            "links": [row.to_dict() for row in self.links],
            "purchases": [row.to_dict() for row in self.purchases],
            "quality": [row.to_dict() for row in self.quality],
            "leaving": [row.to_dict() for row in self.leaving],
            "assumptions": list(self.assumptions),
            "fleet": self.fleet.to_dict(),
        }

    def to_frame(self, table: str = "slo") -> pd.DataFrame:
        """One of the tables ``pools``, ``routing``, ``slo``, ``latency``, ``links``, ``purchases``, ``quality`` or
        ``leaving`` as a DataFrame.

        Raises:
            ValueError: if there is no such table.
        """
        tables = ("pools", "routing", "slo", "latency", "links", "purchases", "quality", "leaving")
        if table not in tables:
            raise ValueError(f"table must be one of {', '.join(tables)} (got {table!r})")
        import pandas as pd

        return pd.DataFrame([row.to_dict() for row in getattr(self, table)])


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveRow:
    """The service curve at one multiple of the demand.

    Attributes:
        factor: multiple of every class's rate.
        rate_rps: total request rate.
        utilisation: of the busiest pool; by first attempts; None where a pool is not stable.
        goodput_rps: requests that are served, requests/s; None where a pool is not stable.
        worst_slo: target with the least slack, as ``class metric_stat_s``.
        worst_ratio: its prediction over its target, in a pool of measured capacity the utilisation; None where not
            stable.
        met: every target met.
    """

    factor: float
    rate_rps: float
    utilisation: float | None
    goodput_rps: float | None
    worst_slo: str
    worst_ratio: float | None
    met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityResult:
    """The largest multiple of the demand that a fleet carries within every target.

    Attributes:
        factor: that multiple; 0 where the targets are missed at any load.
        rate_rps: total request rate at that multiple.
        binding: what stops more: ``class metric_stat_s in pool`` or an overload's reason.
        curve: predictions up to and just beyond the limit.
    """

    factor: float
    rate_rps: float
    binding: str
    curve: tuple[CurveRow, ...]
    assumptions: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Plain data in the names and order of the output tables."""
        return {
            "factor": self.factor,
            "rate_rps": self.rate_rps,
            "binding": self.binding,
            "curve": [asdict(row) for row in self.curve],
            "assumptions": list(self.assumptions),
        }
