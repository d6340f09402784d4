"""Demand that differs by period: parts of the day, or scenarios, each with a factor of every class's largest rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from qmodel.types.demand import RequestClass
from qmodel.types.laws import Lengths
from qmodel.types.risks import Risk

__all__ = ["HOURS", "Layer", "Period", "Periods", "hours_text"]

HOURS = 24  # of a day


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Hours of the day, or a scenario, in which every class has one rate.

    Attributes:
        factors: rate of each class over its largest rate, by class name, in [0, 1].
        hours: of the day, 0 being the one that starts at midnight; empty for a scenario.
        scenario: name of a scenario; empty for hours.
        probability: of a scenario; 0 for hours.
        lengths: of classes whose lengths are not their own then, by class name.
    """

    factors: Mapping[str, float]
    hours: tuple[int, ...] = ()
    scenario: str = ""
    probability: float = 0.0
    lengths: Mapping[str, Lengths] = field(default_factory=dict)

    @property
    def weight(self) -> float:
        """Share of the day, or probability."""
        return self.probability if self.scenario else len(self.hours) / HOURS

    @property
    def name(self) -> str:
        """The scenario, or the hours for people, such as ``0-6, 23``."""
        return self.scenario or hours_text(self.hours)

    @property
    def title(self) -> str:
        """The name with what it names."""
        return f"scenario {self.name}" if self.scenario else f"hours {self.name}"

    def demand(self, classes: Mapping[str, RequestClass]) -> dict[str, RequestClass]:
        """The classes as they arrive in these hours; without those that do not."""
        return {
            name: item if self.factors[name] == 1.0 else item.part(self.factors[name])
            for name, item in self.with_lengths(classes).items()
            if self.factors[name] > 0.0
        }

    def with_lengths(self, classes: Mapping[str, RequestClass]) -> dict[str, RequestClass]:
        """The classes at their largest rates with the lengths they have then."""
        return {
            name: replace(item, lengths=self.lengths[name]) if name in self.lengths else item
            for name, item in classes.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A part of the day in which the GPUs of some periods are paid, those of the period that needs the most of a type.

    Attributes:
        weight: share of the day.
        members: positions of the periods: one, or two where the next is started while this one ends.
    """

    weight: float
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Periods:
    """The day, or what may come, as periods, and whether the fleet may change between them.

    Attributes:
        items: the periods; every hour is in one of them.
        least_weight: the fleet may leave scenarios out as long as those it serves weigh so much; 1: it may not.
        left_out: scenarios that a plan leaves out.
        risk: what the plan makes small; None: the mean.
        fleet_changes: the fleet may differ from period to period; else one fleet serves them all.
        start_lag_h: hours for which GPUs that are bought by the hour are paid before they serve, in [0, 1].
    """

    items: tuple[Period, ...]
    fleet_changes: bool = False
    start_lag_h: float = 0.0
    least_weight: float = 1.0
    left_out: tuple[Period, ...] = ()
    risk: Risk | None = None

    @property
    def regimes(self) -> tuple[int, ...]:
        """For each period the number of its regime: periods with the same lengths have the same."""
        keys = [tuple(sorted((name, id(lengths)) for name, lengths in item.lengths.items())) for item in self.items]
        first = list(dict.fromkeys(keys))
        return tuple(first.index(key) for key in keys)

    @property
    def of_scenarios(self) -> bool:
        """Whether the periods are scenarios and not hours."""
        return bool(self.items[0].scenario)

    @classmethod
    def of_day(
        cls, factors: Mapping[str, Sequence[float]], *, fleet_changes: bool = False, start_lag_h: float = 0.0
    ) -> Periods:
        """The periods of a day: hours with equal factors together.

        Where GPUs take time to start, only hours that follow each other are one period, midnight being no border:
        between others the fleet changes.

        Args:
            factors: rate over the largest rate for each hour of the day, by class name.
            fleet_changes, start_lag_h: as above.

        Example:
            >>> day = Periods.of_day({"chat": [0.5] * 8 + [1.0] * 12 + [0.5] * 4})
            >>> [(item.name, item.factors["chat"]) for item in day.items]
            [('0-7, 20-23', 0.5), ('8-19', 1.0)]
        """
        each = [tuple(values[hour] for values in factors.values()) for hour in range(HOURS)]
        runs = _runs(each) if fleet_changes and start_lag_h > 0.0 else _alike(each)
        items = tuple(
            Period(hours=hours, factors=dict(zip(factors, each[hours[0]], strict=True))) for hours in sorted(runs)
        )
        return cls(items=items, fleet_changes=fleet_changes, start_lag_h=start_lag_h)

    def mean(self, values: Sequence[float]) -> float:
        """The mean of a figure over the periods, by their weights."""
        total = sum(item.weight for item in self.items)
        return sum(item.weight * value for item, value in zip(self.items, values, strict=True)) / total

    def value(self, costs: Sequence[float]) -> float:
        """What the plan makes small: the mean of costs over the periods, or a mix of it with their dearest part."""
        if self.risk is None:
            return self.mean(costs)
        return self.risk.value(costs, [item.weight for item in self.items])

    @property
    def layers(self) -> tuple[Layer, ...]:
        """What is paid when: each period alone, and for the time that the next takes to start, both."""
        place = {hour: number for number, item in enumerate(self.items) for hour in item.hours}
        weights: dict[tuple[int, ...], float] = {(number,): item.weight for number, item in enumerate(self.items)}
        for hour in range(HOURS) if self.fleet_changes and not self.of_scenarios else ():
            now, after = place[hour], place[(hour + 1) % HOURS]
            if now != after and self.start_lag_h > 0.0:
                share = self.start_lag_h / HOURS
                weights[now,] -= share
                weights[now, after] = weights.get((now, after), 0.0) + share
        return tuple(Layer(weight=max(weight, 0.0), members=members) for members, weight in weights.items())

    def to_dict(self) -> dict[str, object]:
        """Plain data; the inverse of :meth:`from_dict`."""
        return {
            "items": [_period_data(item) for item in self.items],
            "fleet_changes": self.fleet_changes,
            "start_lag_h": self.start_lag_h,
            "least_weight": self.least_weight,
            "left_out": [_period_data(item) for item in self.left_out],
            "risk": None if self.risk is None else asdict(self.risk),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Periods:
        """The inverse of :meth:`to_dict`."""
        items, left_out, risk = data["items"], data["left_out"], data.get("risk")
        assert isinstance(items, Sequence) and isinstance(left_out, Sequence)
        assert risk is None or isinstance(risk, Mapping)
        return cls(
            items=tuple(_period_from(item) for item in items),
            fleet_changes=bool(data["fleet_changes"]),
            start_lag_h=float(str(data["start_lag_h"])),
            least_weight=float(str(data["least_weight"])),
            left_out=tuple(_period_from(item) for item in left_out),
            risk=None if risk is None else Risk(**{str(name): float(number) for name, number in risk.items()}),
        )


def _period_data(item: Period) -> dict[str, object]:
    data = {
        "factors": dict(item.factors),
        "hours": list(item.hours),
        "scenario": item.scenario,
        "probability": item.probability,
    }
    if item.lengths:
        data["lengths"] = {name: lengths.to_dict() for name, lengths in item.lengths.items()}
    return data


def _period_from(item: Mapping[str, Any]) -> Period:
    return Period(
        factors={str(name): float(factor) for name, factor in item["factors"].items()},
        hours=tuple(int(hour) for hour in item["hours"]),
        scenario=str(item["scenario"]),
        probability=float(item["probability"]),
        lengths={str(name): Lengths.from_dict(dict(data)) for name, data in item.get("lengths", {}).items()},
    )


def hours_text(hours: Sequence[int]) -> str:
    """Hours of the day for people.

    Example:
        >>> hours_text([0, 1, 2, 9, 23])
        '0-2, 9, 23'
    """
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in _spans(sorted(hours)))


def _spans(hours: Sequence[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for place in range(1, len(hours) + 1):
        if place == len(hours) or hours[place] != hours[place - 1] + 1:
            yield hours[start], hours[place - 1]
            start = place


def _alike(each: Sequence[tuple[float, ...]]) -> list[tuple[int, ...]]:
    found: dict[tuple[float, ...], list[int]] = {}
    for hour, factors in enumerate(each):
        found.setdefault(factors, []).append(hour)
    return [tuple(hours) for hours in found.values()]


def _runs(each: Sequence[tuple[float, ...]]) -> list[tuple[int, ...]]:
    runs: list[list[int]] = []
    for hour, factors in enumerate(each):
        if runs and each[hour - 1] == factors:
            runs[-1].append(hour)
        else:
            runs.append([hour])
    if len(runs) > 1 and each[0] == each[-1]:
        runs[0] += runs.pop()
    return [tuple(hours) for hours in runs]
