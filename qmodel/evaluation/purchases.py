"""What a fleet buys: GPUs of each type at each price, and the price of each of its pools."""

from __future__ import annotations

from collections.abc import Mapping

from qmodel.problem import Price
from qmodel.types import MIXED, Fleet, Limits, Pool, Purchase, PurchaseRow

__all__ = ["bought_for", "price_in_fleet", "purchase_rows", "token_rows"]


def bought_for(gpu: str, fleet: Fleet, limits: Limits) -> tuple[Purchase, ...]:
    """What is bought of one GPU type for all pools that state no price of their own.

    Args:
        gpu: name of the GPU type.
        fleet: pools.
        limits: with the offers of the type.
    """
    own = sum(pool.gpus for pool in fleet.pools.values() if pool.gpu == gpu and pool.usd_per_gpu_hour is not None)
    return limits.of(gpu).bought(max(limits.paid_gpus(gpu, fleet.holdings) - own, 0))


def price_in_fleet(stated: Price, pool: Pool, fleet: Fleet, limits: Limits) -> Price:
    """The price of a pool's GPUs: where they are bought at several prices, the mean of what the fleet buys.

    Args:
        stated: what the pool or the GPU type says.
        pool: one of the fleet.
        fleet: all pools, which share what is bought.
        limits: with the offers of each type.
    """
    if pool.usd_per_gpu_hour is not None or not limits.of(pool.gpu).mixes_offers:
        return stated
    found = bought_for(pool.gpu, fleet, limits)
    gpus = sum(item.gpus for item in found)
    if not gpus:
        return stated
    terms = [item.offer.term for item in found]
    return Price(
        usd_per_gpu_hour=sum(item.cost_usd_per_hour for item in found) / gpus,
        tier=terms[0] if len(terms) == 1 else MIXED,
        basis=" and ".join(f"{item.gpus} at {item.offer.term}" for item in found),
    )


def purchase_rows(
    fleet: Fleet, prices: Mapping[str, Price], limits: Limits | None, held: Mapping[str, float] | None = None
) -> tuple[PurchaseRow, ...]:
    """GPUs that a fleet pays for, by type and price, idle ones in whole nodes included.

    Args:
        fleet: pools.
        prices: of each pool, as :func:`price_in_fleet` says.
        limits: of the fleet; None: single GPUs are paid, each pool at its own price.
        held: share of the time in which each pool is held and paid; None: all are, all the time.
    """
    shares = {} if held is None else held
    rows: list[PurchaseRow] = []
    for gpu in sorted({pool.gpu for pool in fleet.gpu_pools}):
        parts: dict[tuple[str, float], int] = {}
        paid: dict[tuple[str, float], float] = {}  # GPUs at each price, on average over time
        mixes = limits is not None and limits.of(gpu).mixes_offers
        for name, pool in fleet.pools.items():
            if pool.gpu == gpu and not (mixes and pool.usd_per_gpu_hour is None):
                price = prices[name].tier, prices[name].usd_per_gpu_hour
                parts[price] = parts.get(price, 0) + pool.gpus
                paid[price] = paid.get(price, 0.0) + pool.gpus * shares.get(name, 1.0)
        if limits is not None:
            idle = limits.paid_gpus(gpu, fleet.holdings) - sum(parts.values())
            for item in limits.of(gpu).bought(max(idle, 0)):
                price = item.offer.term, item.offer.usd_per_gpu_hour
                parts[price] = parts.get(price, 0) + item.gpus
                paid[price] = paid.get(price, 0.0) + item.gpus
        source = None if limits is None else limits.of(gpu)
        for (term, usd), gpus in sorted(parts.items(), key=lambda part: (part[0][1], part[0][0])):
            rows.append(
                PurchaseRow(
                    gpu=gpu,
                    provider="" if source is None else source.provider,
                    region="" if source is None else source.region,
                    term=term,
                    gpus=gpus,
                    usd_per_gpu_hour=usd,
                    cost_usd_per_hour=usd * paid[term, usd],
                )
            )
    return tuple(rows)


def token_rows(fleet: Fleet, usd_per_hour: Mapping[str, float]) -> tuple[PurchaseRow, ...]:
    """What is paid by the token, one row per pool that is an API.

    Args:
        fleet: pools.
        usd_per_hour: what the requests of each such pool cost, by name.
    """
    return tuple(
        PurchaseRow(
            gpu=fleet.pools[name].gpu,
            provider="",
            region="",
            term="api",
            gpus=0,
            usd_per_gpu_hour=0.0,
            cost_usd_per_hour=usd,
        )
        for name, usd in usd_per_hour.items()
    )
