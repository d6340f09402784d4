"""One price per GPU-hour out of a book of many, by a rule that can be printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from qmodel.errors import CatalogError

__all__ = ["Choice", "Market", "PriceChoice", "PriceRow", "PriceRule", "Term", "choose_price"]

Term = Literal["on_demand", "reserved_1y", "reserved_3y", "spot"]
Market = Literal["default", "any"]
Choice = Literal["median", "min", "max"]


_TERMS: tuple[Term, ...] = ("on_demand", "reserved_1y", "reserved_3y", "spot")
_THIN_MARKETS = ("marketplace", "serverless-per-second")


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRule:
    """How to choose a price.

    Attributes:
        providers: providers to look at, None for all.
        regions: regions to look at, None for all.
        term: ``on_demand``, ``reserved_1y``, ``reserved_3y`` or ``spot``.
        market: ``default`` leaves out marketplaces, serverless offers and rows that are not of high
            confidence; ``any`` takes every row.
        choose: ``median``, ``min`` or ``max`` of the rows left.
    """

    providers: tuple[str, ...] | None = None
    regions: tuple[str, ...] | None = None
    term: Term = "on_demand"
    market: Market = "default"
    choose: Choice = "median"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRow:
    """One row of the price book that a choice rests on."""

    provider: str
    region: str | None
    instance: str | None
    tier: str | None
    usd_per_gpu_hour: float
    confidence: str
    as_of: str
    source: str

    def to_dict(self) -> dict[str, object]:
        """The row as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChoice:
    """A price and what it rests on.

    Attributes:
        usd_per_gpu_hour: list price, US dollars.
        rule: the rule in words, to be printed as an assumption.
        rows: the rows it was chosen from, cheapest first.
        as_of: oldest and newest date among them.
    """

    usd_per_gpu_hour: float
    rule: str
    rows: tuple[PriceRow, ...]
    as_of: str


def choose_price(
    book: Sequence[Mapping[str, Any]], gpu: str, *, name: str, rule: PriceRule, key: str = ""
) -> PriceChoice:
    """Apply a rule to the rows of one GPU.

    Of each product (provider, region, instance, size, tier) the newest row with a price for the term counts.

    Args:
        book: rows of the ``gpu_hour`` section.
        gpu: catalog id of the GPU.
        name: the name messages give it.
        rule: the rule.
        key: key of a scenario that states a price instead, for messages; empty: that of the GPU's own name.

    Raises:
        CatalogError: no row is left, or a provider is not in the book.
    """
    column = f"{rule.term}_usd_per_gpu_hour"
    wanted = _providers(book, rule)
    of_gpu = [row for row in book if row["gpu"] == gpu]
    within = [row for row in of_gpu if (wanted is None or row["provider"] in wanted) and _in_regions(row, rule)]
    priced = [row for row in within if row.get(column) is not None]
    rows = _newest([row for row in priced if rule.market == "any" or _is_default(row)])
    if not rows:
        raise CatalogError(
            _no_row(name, rule, of_gpu, priced, key or f"fleet.gpus.{name}.price.usd_per_gpu_hour", wanted)
        )
    used = sorted(
        (
            PriceRow(
                provider=row["provider"],
                region=row.get("region"),
                instance=row.get("instance"),
                tier=row.get("tier"),
                usd_per_gpu_hour=float(row[column]),
                confidence=row["confidence"],
                as_of=row["as_of"],
                source=row["source"] if isinstance(row["source"], str) else "; ".join(row["source"]),
            )
            for row in rows
        ),
        key=lambda row: (row.usd_per_gpu_hour, row.provider, row.as_of, row.instance or "", row.region or ""),
    )
    dates = sorted(row.as_of for row in used)
    as_of = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    price = round(
        float(_CHOICES[rule.choose]([row.usd_per_gpu_hour for row in used])), 6
    )  # USD; a median of two adds noise
    return PriceChoice(usd_per_gpu_hour=price, rule=_in_words(rule, len(used), as_of), rows=tuple(used), as_of=as_of)


def _providers(book: Sequence[Mapping[str, Any]], rule: PriceRule) -> set[str] | None:
    if rule.providers is None:
        return None
    known = {row["provider"].lower(): row["provider"] for row in book}
    unknown = [name for name in rule.providers if name.lower() not in known]
    if unknown:
        raise CatalogError(f"no provider {unknown[0]!r} in the price book; providers: {', '.join(sorted(known))}")
    return {known[name.lower()] for name in rule.providers}


def _in_regions(row: Mapping[str, Any], rule: PriceRule) -> bool:
    region = row.get("region")
    return rule.regions is None or (region is not None and region.lower() in {name.lower() for name in rule.regions})


def _is_default(row: Mapping[str, Any]) -> bool:
    return row["confidence"] == "high" and row.get("tier") not in _THIN_MARKETS


def _newest(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    newest: dict[tuple[object, ...], Mapping[str, Any]] = {}
    for row in rows:
        product = tuple(row.get(key) for key in ("provider", "region", "instance", "gpus_per_instance", "tier"))
        if product not in newest or row["as_of"] >= newest[product]["as_of"]:
            newest[product] = row
    return list(newest.values())


def _in_words(rule: PriceRule, count: int, as_of: str) -> str:
    term = rule.term.replace("_", "-")
    quality = "high-confidence " if rule.market == "default" else ""
    of = f"{rule.choose} of {count} {quality}{term} row{'s' if count > 1 else ''}"
    providers = f", providers {', '.join(rule.providers)}" if rule.providers else ""
    market = "" if rule.market == "default" else ", any market"
    regions = f", regions {', '.join(rule.regions)}" if rule.regions else ""
    return f"{of}, newest per provider, region and product{providers}{regions}{market}, as of {as_of}"


def _no_row(
    name: str,
    rule: PriceRule,
    of_gpu: Sequence[Mapping[str, Any]],
    priced: Sequence[Mapping[str, Any]],
    key: str,
    wanted: set[str] | None,
) -> str:
    where = f" from {', '.join(rule.providers)}" if rule.providers else ""
    where += f" in {', '.join(rule.regions)}" if rule.regions else ""
    problem = f"no {rule.term} price for {name!r}{where} in the price book"
    way_out = [f"state {key} in the scenario"]
    sold = [row for row in of_gpu if wanted is None or row["provider"] in wanted]
    elsewhere: set[str] = {row["region"] for row in sold if row.get("region")}
    if rule.regions and elsewhere and not any(_in_regions(row, rule) for row in sold):
        way_out.append(f"take a region that the book has: {', '.join(sorted(elsewhere))}")
    if rule.market == "default" and priced:
        way_out.append(f"set price_book.market: any ({len(priced)} row{'s' if len(priced) > 1 else ''} then)")
    terms = [
        term
        for term in _TERMS
        if term != rule.term and any(row.get(f"{term}_usd_per_gpu_hour") and _in_regions(row, rule) for row in sold)
    ]
    if terms:
        way_out.append(f"choose another term: {', '.join(terms)}")
    return f"{problem}; {', or '.join(way_out)}"


def _median(prices: list[float]) -> float:
    """Middle of the prices; the statistics module costs 3 ms to import."""
    ordered, middle = sorted(prices), len(prices) // 2
    return ordered[middle] if len(prices) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


_CHOICES: Mapping[Choice, Callable[[list[float]], float]] = {"median": _median, "min": min, "max": max}
