"""What a day of fleets buys and costs: from what each period's pools hold, nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from qmodel.types import DayPurchase, Holding, Limits, Periods, PurchaseRow, bought, bought_for_day, by_the_hour

__all__ = ["base_rows", "day_purchases", "limits_in_period", "period_costs_usd"]


def day_purchases(limits: Limits, holdings: Sequence[Sequence[Holding]], periods: Periods) -> dict[str, DayPurchase]:
    """The cheapest base of each GPU type for fleets that change with the hour.

    Args:
        limits: with the offers of each type.
        holdings: pools of each period.
        periods: of the day.
    """
    layers = periods.layers
    return {
        gpu: bought_for_day(item.offers, [limits.paid_gpus(gpu, held) for held in holdings], layers, lot=item.lot)
        for gpu, item in sorted(limits.gpus.items())
        if any(limits.paid_gpus(gpu, held) for held in holdings)
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
