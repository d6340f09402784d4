"""Offers of GPUs: at which price they can be had, and how many; the cheapest are bought first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["MIXED", "Offer", "Purchase", "PurchaseRow", "bought", "in_merit_order"]

MIXED = "mixed"  # price tier of a pool whose GPUs are bought at several offers


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A price at which GPUs of one type can be had, and how many.

    Attributes:
        term: ``on_demand``, ``reserved_1y``, ``reserved_3y``, ``spot`` or ``owned``.
        usd_per_gpu_hour: US dollars per GPU and hour.
        max_gpus: most that can be had; None: any number.
        key: the key of the scenario that states ``max_gpus``; empty where none does.
    """

    term: str
    usd_per_gpu_hour: float
    max_gpus: int | None = None
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchase:
    """GPUs bought at one offer."""

    offer: Offer
    gpus: int

    @property
    def cost_usd_per_hour(self) -> float:
        """Of all of them."""
        return self.offer.usd_per_gpu_hour * self.gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class PurchaseRow:
    """What is bought of one GPU type at one price.

    Attributes:
        gpu: name of the GPU type in the scenario.
        provider, region: who sells it and where; empty where that is not stated.
        term: of the price.
        gpus: GPUs paid for, those that stand idle in whole nodes included.
        cost_usd_per_hour: of the time in which they are held.
    """

    gpu: str
    provider: str
    region: str
    term: str
    gpus: int
    usd_per_gpu_hour: float
    cost_usd_per_hour: float

    def to_dict(self) -> dict[str, object]:
        """The row as output tables name it."""
        return {name: getattr(self, name) for name in self.__slots__}


def in_merit_order(offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """Offers, the cheapest first; of equal prices the one stated first.

    Example:
        >>> dear, cheap = Offer(term="on_demand", usd_per_gpu_hour=3.0), Offer(term="reserved_1y", usd_per_gpu_hour=2.0)
        >>> [offer.term for offer in in_merit_order([dear, cheap])]
        ['reserved_1y', 'on_demand']
    """
    return tuple(sorted(offers, key=lambda offer: offer.usd_per_gpu_hour))


def bought(offers: Sequence[Offer], gpus: int, *, lot: int = 1) -> tuple[Purchase, ...]:
    """What is bought of each offer, the cheapest first: the least that so many GPUs cost.

    GPUs of one type are fungible, so their cost is convex in their number and the cheapest ones are taken first.

    Args:
        offers: in merit order.
        gpus: GPUs that are needed, a multiple of ``lot``.
        lot: GPUs are bought in lots of so many: those of a node where nodes are paid whole.

    Returns:
        Purchases of at least one GPU; what no offer has left is counted at the last.

    Example:
        >>> cheap = Offer(term="reserved_1y", usd_per_gpu_hour=2.0, max_gpus=10)
        >>> dear = Offer(term="on_demand", usd_per_gpu_hour=3.0)
        >>> [(item.offer.term, item.gpus) for item in bought([cheap, dear], 24, lot=8)]
        [('reserved_1y', 8), ('on_demand', 16)]
    """
    found: list[Purchase] = []
    left = gpus
    for place, offer in enumerate(offers):
        last = place == len(offers) - 1
        taken = left if last or offer.max_gpus is None else min(left, offer.max_gpus // lot * lot)
        if taken > 0:
            found.append(Purchase(offer=offer, gpus=taken))
        left -= taken
    return tuple(found)
