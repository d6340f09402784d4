"""What a day of fleets buys and costs: from what each period's pools hold, nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from qmodel.evaluation.results import Evaluation
from qmodel.types import DayPurchase, Holding, Limits, Periods, PurchaseRow, bought, bought_for_day, by_the_hour

__all__ = ["base_rows", "day_purchases", "limits_in_period", "paid_by_period", "period_costs_usd", "tokens_usd"]


def tokens_usd(result: Evaluation | None) -> float:
    """What the APIs of a fleet cost, USD/h: they are paid by the token, when requests are sent there.

    Args:
        result: the fleet, evaluated; None where nothing is asked for.
    """
    return 0.0 if result is None else sum(row.cost_usd_per_hour for row in result.pools if row.role == "api")


def paid_by_period(limits: Limits, holdings: Sequence[Sequence[Holding]]) -> dict[str, list[int]]:
    """GPUs of each type that each period pays for; types that some period needs.

    Args:
        limits: of the fleet.
        holdings: pools of each period.
    """
    paid = {gpu: [limits.paid_gpus(gpu, held) for held in holdings] for gpu in sorted(limits.gpus)}
    return {gpu: needs for gpu, needs in paid.items() if any(needs)}


def day_purchases(
    limits: Limits,
    holdings: Sequence[Sequence[Holding]],
    periods: Periods,
    base_gpus: Mapping[str, int] | None = None,
) -> dict[str, DayPurchase]:
    """The base of each GPU type for fleets that change with the hour, and what it costs on average.

    Args:
        limits: with the offers of each type.
        holdings: pools of each period.
        periods: of the day.
        base_gpus: sizes of the base by type, none of those left out; None: those of the least mean cost.
    """
    layers = periods.layers
    return {
        gpu: bought_for_day(
            limits.of(gpu).offers,
            needs,
            layers,
            lot=limits.of(gpu).lot,
            base_gpus=None if base_gpus is None else base_gpus.get(gpu, 0),
        )
        for gpu, needs in paid_by_period(limits, holdings).items()
    }


def limits_in_period(limits: Limits, purchases: Mapping[str, DayPurchase]) -> Limits:
    """Limits of the fleet of one period: the base is used first, then what is bought by the hour.

    The budget is one of the whole day, so none is left here.
    """
    gpus = {}
    for gpu, item in limits.gpus.items():
        base = {one.offer.term: one.gpus for one in purchases[gpu].base} if gpu in purchases else {}
        lasting = [
            replace(offer, max_gpus=base.get(offer.term, 0), key=offer.key or f"fleet.gpus.{gpu}")
            for offer in item.offers
            if not by_the_hour(offer)
        ]
        hourly = [offer for offer in item.offers if by_the_hour(offer)]
        gpus[gpu] = replace(item, offers=(*lasting, *hourly))
    return replace(limits, gpus=gpus, budget_usd_per_hour=None)


def period_costs_usd(
    limits: Limits, holdings: Sequence[Sequence[Holding]], periods: Periods, purchases: Mapping[str, DayPurchase]
) -> list[float]:
    """What an hour of each period costs, USD; their mean over the day is the cost of the plan.

    The base is paid whether it serves or not; what the next period needs is paid for the time that it takes to start.
    """
    costs = [0.0] * len(periods.items)
    for gpu, found in purchases.items():
        item = limits.of(gpu)
        hourly = [offer for offer in item.offers if by_the_hour(offer)]
        base_usd = sum(one.cost_usd_per_hour for one in found.base)
        paid = [limits.paid_gpus(gpu, held) for held in holdings]
        for layer in periods.layers:
            above = max(max(paid[member] for member in layer.members) - found.base_gpus, 0)
            usd = base_usd + sum(one.cost_usd_per_hour for one in bought(hourly, above, lot=item.lot))
            costs[layer.members[0]] += usd * layer.weight / periods.items[layer.members[0]].weight
    return costs


def base_rows(limits: Limits, purchases: Mapping[str, DayPurchase]) -> tuple[PurchaseRow, ...]:
    """GPUs that are paid in every hour, by type and term."""
    return tuple(
        PurchaseRow(
            gpu=gpu,
            provider=limits.of(gpu).provider,
            region=limits.of(gpu).region,
            term=one.offer.term,
            gpus=one.gpus,
            usd_per_gpu_hour=one.offer.usd_per_gpu_hour,
            cost_usd_per_hour=one.cost_usd_per_hour,
        )
        for gpu, found in purchases.items()
        for one in found.base
    )
