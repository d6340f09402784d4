"""Prices of the GPUs that a scenario names: as stated, or by a rule from the price book."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from qmodel.catalog import Catalog, PriceRule
from qmodel.errors import CatalogError, Problem
from qmodel.files import join_key
from qmodel.problem.gpu_power import GpuPower
from qmodel.problem.instances import Price
from qmodel.problem.owned_prices import OwnedGpu
from qmodel.types import Offer, by_the_hour, in_merit_order

if TYPE_CHECKING:
    from qmodel.scenario import Scenario
    from qmodel.scenario.price_section import OwnedSpec, PriceSpec

__all__ = ["BoundPrices", "bind_prices"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPrices:
    """The prices of one GPU type.

    Attributes:
        price: of the cheapest offer; None where one is not known.
        offers: all of them, in merit order.
        problems: why a price is not known.
        notes: sentences a reader must know.
    """

    price: Price | None
    offers: tuple[Offer, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


def bind_prices(
    scenario: Scenario, catalog: Catalog, name: str, *, gpu: str | None, power: GpuPower | None
) -> BoundPrices:
    """The price tiers that a scenario states for one GPU type, or its one price.

    Args:
        scenario: checked against its schema.
        catalog: has the price book.
        name: of the entry in ``fleet.gpus``.
        gpu: the same GPU in the catalog; None where only profiles describe it.
        power: that one of them takes; None: not known.
    """
    spec, key = scenario.fleet.gpus[name], join_key("fleet.gpus", name)
    notes: list[str] = []
    problems: list[Problem] = []
    if spec.tiers is None:
        found = _price(scenario, catalog, name, spec.price, f"{key}.price", gpu, power, notes, problems)
        if found is None:
            return BoundPrices(price=None, problems=tuple(problems))
        only = Offer(term=found.tier, usd_per_gpu_hour=found.usd_per_gpu_hour)
        return BoundPrices(price=found, offers=(only,), notes=tuple(notes))
    prices: dict[str, Price] = {}
    offers: list[Offer] = []
    for index, tier in enumerate(spec.tiers):
        place = f"{key}.tiers[{index}]"
        found = _price(scenario, catalog, name, tier, place, gpu, power, notes, problems)
        if found is not None:
            limited = tier.max_count is not None
            offer = Offer(
                term=found.tier,
                usd_per_gpu_hour=found.usd_per_gpu_hour,
                max_gpus=tier.max_count,
                key=f"{place}.max_count" if limited else "",
            )
            prices[offer.term] = found
            offers.append(offer)
    if problems:
        return BoundPrices(price=None, problems=tuple(problems))
    ordered = in_merit_order(offers)
    return BoundPrices(
        price=prices[ordered[0].term], offers=ordered, notes=(*notes, *_offer_notes(name, ordered, scenario))
    )


def _price(
    scenario: Scenario,
    catalog: Catalog,
    name: str,
    stated: PriceSpec | None,
    key: str,
    gpu: str | None,
    power: GpuPower | None,
    notes: list[str],
    problems: list[Problem],
) -> Price | None:
    """One price; None where it is not known, with the problem in ``problems``."""
    spec, book = scenario.fleet.gpus[name], scenario.fleet.price_book
    if stated is not None and stated.owned is not None:
        return _owned_price(scenario, name, stated.owned, f"{key}.owned", power, notes, problems)
    term = (stated.term if stated else None) or book.term
    if stated is not None and stated.usd_per_gpu_hour is not None:
        return Price(usd_per_gpu_hour=stated.usd_per_gpu_hour, tier=term, basis="stated in the scenario")
    assert term != "owned"  # has its price, or was refused
    place = key if spec.tiers is not None else join_key("fleet.gpus", name)
    if gpu is None:
        hint = "add usd_per_gpu_hour: ..." if spec.tiers is not None else "write price: {usd_per_gpu_hour: ...}"
        problems.append(scenario.problem(place, "has no price, and the catalog does not know it", hint))
        return None
    rule = PriceRule(
        providers=book.providers if spec.provider is None else (spec.provider,),
        regions=None if spec.region is None else (spec.region,),
        term=term,
        market=book.market,
        choose=book.choose,
    )
    try:
        chosen = catalog.price(gpu, rule, key=f"{key}.usd_per_gpu_hour")
    except CatalogError as error:
        what, _, hint = str(error).partition("; ")
        problems.append(scenario.problem(place, what, hint))
        return None
    notes.append(f"{name}: {chosen.usd_per_gpu_hour:g} USD per GPU-hour, {chosen.rule}")
    return Price(usd_per_gpu_hour=chosen.usd_per_gpu_hour, tier=term, basis=chosen.rule)


def _owned_price(
    scenario: Scenario,
    name: str,
    spec: OwnedSpec,
    key: str,
    power: GpuPower | None,
    notes: list[str],
    problems: list[Problem],
) -> Price | None:
    """The hourly cost of a GPU of one's own; None where its power is not known."""
    if spec.power_w is not None:
        power = GpuPower(power_w=spec.power_w, basis="stated in the scenario")
    if power is None:
        problems.append(scenario.problem(key, f"needs the power of '{name}', which is not known", "add power_w: <W>"))
        return None
    found = OwnedGpu(
        capex_usd=spec.capex_usd_per_gpu,
        years=spec.years,
        salvage_share=spec.salvage_share,
        interest=spec.interest,
        power_w=power.power_w,
        pue=spec.pue,
        usd_per_kwh=spec.usd_per_kwh,
        opex_usd_per_hour=spec.opex_usd_per_gpu_hour,
    )
    notes.append(f"{name}: {found.usd_per_hour:g} USD per GPU-hour, {found.basis}; power: {power.basis}")
    return Price(usd_per_gpu_hour=found.usd_per_hour, tier="owned", basis=found.basis)


def _offer_notes(name: str, offers: tuple[Offer, ...], scenario: Scenario) -> list[str]:
    """In which order offers are bought, and which never are."""
    if any(item.arrivals is not None and item.arrivals.hours for item in scenario.classes.values()):
        return [f"{name}: {_when_paid(offers, 'in every hour', 'by the hour')}"]
    if scenario.demand is not None and scenario.demand.fleet_changes:
        return [f"{name}: {_when_paid(offers, 'in every scenario', 'where they are needed')}"]
    words = []
    for offer in offers:
        number = "any number" if offer.max_gpus is None else f"up to {offer.max_gpus}"
        words.append(f"{number} at {offer.term} ({offer.usd_per_gpu_hour:g} USD per GPU-hour)")
        if offer.max_gpus is None:
            break
    notes = [f"{name}: GPUs are bought cheapest first: {', then '.join(words)}"]
    unused = ", ".join(offer.term for offer in offers[len(words) :])
    if unused:
        notes.append(
            f"{name}: nothing is bought at {unused}: {offers[len(words) - 1].term} costs no more and is no limit"
        )
    if scenario.fleet.gpus[name].billing == "per_node":
        notes.append(
            f"{name}: whole nodes are bought at each price; the rest of a max_count that fills none is not used"
        )
    return notes


def _when_paid(offers: tuple[Offer, ...], always: str, else_: str) -> str:
    """What is paid always and what else, where the fleet changes."""
    words = []
    for offer in offers:
        number = "" if offer.max_gpus is None else f", up to {offer.max_gpus}"
        when = else_ if by_the_hour(offer) else always
        words.append(f"{offer.term} GPUs are paid {when} ({offer.usd_per_gpu_hour:g} USD per GPU-hour{number})")
    return ", ".join(words)
