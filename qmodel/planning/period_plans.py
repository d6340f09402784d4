"""What a plan says of a part of the day, or of a scenario of the demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qmodel.evaluation.results import LeavingRow
from qmodel.types import Fleet, Periods, PoolRow, PurchaseRow, RouteRow, SloRow, hours_text, tail_mean

__all__ = ["PeriodPlan", "RiskRow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskRow:
    """What scenarios of the demand cost together, where the fleet follows them.

    Attributes:
        mean_usd_per_hour: over all scenarios.
        level: the dearest ``1 - level`` of what may come counts; None: the mean alone does.
        weight: of the dearest part beside the mean; None as ``level``.
        cvar_usd_per_hour: mean of the dearest ``1 - level``, the conditional value at risk; None as ``level``.
        worst: the dearest scenario.
        worst_usd_per_hour: what it costs.
    """

    mean_usd_per_hour: float
    level: float | None
    weight: float | None
    cvar_usd_per_hour: float | None
    worst: str
    worst_usd_per_hour: float

    @classmethod
    def of_costs(cls, periods: Periods, costs: Sequence[float]) -> RiskRow | None:
        """The row for what each scenario costs; None for hours of the day, and where one fleet serves all.

        Args:
            periods: scenarios.
            costs: of each, USD/h.
        """
        if not (periods.of_scenarios and periods.fleet_changes):
            return None
        risk, weights = periods.risk, [item.weight for item in periods.items]
        worst = max(range(len(costs)), key=lambda place: costs[place])
        return cls(
            mean_usd_per_hour=periods.mean(costs),
            level=None if risk is None else risk.level,
            weight=None if risk is None else risk.weight,
            cvar_usd_per_hour=None if risk is None else tail_mean(costs, weights, risk.level),
            worst=periods.items[worst].name,
            worst_usd_per_hour=costs[worst],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodPlan:
    """The fleet of some hours of the day, or of a scenario, with its routing and predictions.

    Attributes:
        hours: of the day, 0 being the one that starts at midnight; empty for a scenario.
        scenario: its name; empty for hours.
        weight: share of the day, or probability.
        rates_rps: mean arrival rate of each class.
        output_tokens: mean output of a request of each class, thinking included.
        cost_usd_per_hour: paid then: GPUs of the base whether they serve or not, those bought by the hour, and those of
            the next hours from when they start.
        fleet: pools that serve, and routing.
    """

    hours: tuple[int, ...]
    scenario: str
    weight: float
    rates_rps: Mapping[str, float]
    output_tokens: Mapping[str, float]
    cost_usd_per_hour: float
    fleet: Fleet
    pools: tuple[PoolRow, ...]
    routing: tuple[RouteRow, ...]
    slo: tuple[SloRow, ...]
    purchases: tuple[PurchaseRow, ...]
    leaving: tuple[LeavingRow, ...] = ()

    @property
    def name(self) -> str:
        """The scenario, or the hours for people, such as ``0-6, 23``."""
        return self.scenario or hours_text(self.hours)

    @property
    def title(self) -> str:
        """The name with what it names."""
        return f"scenario {self.name}" if self.scenario else f"hours {self.name}"

    @property
    def rate_rps(self) -> float:
        """Of all classes together."""
        return sum(self.rates_rps.values())

    @property
    def output_tokens_per_s(self) -> float:
        """Of all classes together."""
        return sum(rate * self.output_tokens.get(name, 0.0) for name, rate in self.rates_rps.items())

    def to_dict(self) -> dict[str, object]:
        """Plain data; the inverse of :meth:`from_dict`."""
        return {
            "hours": list(self.hours),
            "scenario": self.scenario,
            "weight": self.weight,
            "rates_rps": dict(self.rates_rps),
            "output_tokens": dict(self.output_tokens),
            "cost_usd_per_hour": self.cost_usd_per_hour,
            "pools": [row.to_dict() for row in self.pools],
            "routing": [row.to_dict() for row in self.routing],
            "slo": [row.to_dict() for row in self.slo],
            "purchases": [row.to_dict() for row in self.purchases],
            "leaving": [row.to_dict() for row in self.leaving],
            "fleet": self.fleet.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> PeriodPlan:
        """The inverse of :meth:`to_dict`.

        Raises:
            KeyError: if a part is missing.
        """
        hours, rates, fleet, output = data["hours"], data["rates_rps"], data["fleet"], data.get("output_tokens", {})
        if not (isinstance(hours, Sequence) and isinstance(rates, Mapping) and isinstance(fleet, Mapping)):
            raise KeyError("hours, rates_rps or fleet")
        assert isinstance(output, Mapping)
        return cls(
            hours=tuple(int(hour) for hour in hours),
            scenario=str(data["scenario"]),
            weight=float(str(data["weight"])),
            rates_rps={str(name): float(rate) for name, rate in rates.items()},
            output_tokens={str(name): float(tokens) for name, tokens in output.items()},
            cost_usd_per_hour=float(str(data["cost_usd_per_hour"])),
            fleet=Fleet.from_dict(fleet),
            pools=tuple(PoolRow(**row) for row in _rows(data, "pools")),  # type: ignore[arg-type]
            routing=tuple(RouteRow(**row) for row in _rows(data, "routing")),  # type: ignore[arg-type]
            slo=tuple(SloRow(**row) for row in _rows(data, "slo")),  # type: ignore[arg-type]
            purchases=tuple(PurchaseRow(**row) for row in _rows(data, "purchases")),  # type: ignore[arg-type]
            leaving=tuple(LeavingRow(**row) for row in _rows(data, "leaving")) if "leaving" in data else (),  # type: ignore[arg-type]
        )

    def table(self) -> list[dict[str, object]]:
        """A row for each pool that serves then; one without a pool where nothing is asked for."""
        shared = {
            "period": self.name,
            "weight": self.weight,
            "rate_rps": self.rate_rps,
            "output_tokens_per_s": self.output_tokens_per_s,
            "cost_usd_per_hour": self.cost_usd_per_hour,
        }
        names = ("pool", "model", "gpu", "replicas", "gpus", "utilisation", "binding")
        if not self.pools:
            return [{**shared, **dict.fromkeys(names)}]
        return [{**shared, **{name: getattr(row, name) for name in names}} for row in self.pools]


def _rows(data: Mapping[str, object], key: str) -> list[dict[str, object]]:
    part = data[key]
    if not isinstance(part, Sequence):
        raise KeyError(key)
    rows = [dict(item) for item in part]
    return [{("cls" if name == "class" else name): value for name, value in row.items()} for row in rows]
