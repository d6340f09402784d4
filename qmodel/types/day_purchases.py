"""GPUs for a day: a base that is paid in every hour, and more of them by the hour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from qmodel.types.offers import Offer, Purchase, bought
from qmodel.types.periods import Layer

__all__ = ["DayPurchase", "bought_for_day", "by_the_hour"]

_HOURLY = ("on_demand", "spot")


@dataclass(frozen=True, slots=True, kw_only=True)
class DayPurchase:
    """What is bought of one GPU type.

    Attributes:
        base: paid in every hour.
        usd_per_hour: of the base and of what is bought by the hour, mean over the day; infinite where the offers do not
            have enough.
    """

    base: tuple[Purchase, ...]
    usd_per_hour: float

    @property
    def base_gpus(self) -> int:
        """GPUs that are paid in every hour."""
        return sum(item.gpus for item in self.base)


def by_the_hour(offer: Offer) -> bool:
    """Whether GPUs can be bought at an offer for single hours; else they are paid in every hour."""
    return offer.term in _HOURLY


def bought_for_day(
    offers: Sequence[Offer], paid: Sequence[int], layers: Sequence[Layer], *, lot: int = 1, base_gpus: int | None = None
) -> DayPurchase:
    """The cheapest base for the GPUs that each period needs, or what a given one costs.

    The cost is convex and piecewise linear in the size of the base: it falls by what the hours above it pay and rises
    by its price. Its least is where the base is as large as what some part of the day needs, or where an offer ends.

    Args:
        offers: of one GPU type, in merit order.
        paid: GPUs that each period pays for, multiples of ``lot``.
        layers: what is paid when, by position in ``paid``.
        lot: GPUs are bought in lots of so many.
        base_gpus: size of the base, a multiple of ``lot``; None: the one of the least mean cost.

    Example:
        >>> reserved = Offer(term="reserved_1y", usd_per_gpu_hour=2.0)
        >>> hourly = Offer(term="on_demand", usd_per_gpu_hour=3.0)
        >>> day = [Layer(weight=0.75, members=(0,)), Layer(weight=0.25, members=(1,))]
        >>> found = bought_for_day([reserved, hourly], [4, 10], day)
        >>> found.base_gpus, found.usd_per_hour  # 4 x 2.0 for the day and 6 x 3.0 for a quarter of it
        (4, 12.5)
    """
    lasting = [offer for offer in offers if not by_the_hour(offer)]
    hourly = [offer for offer in offers if by_the_hour(offer)]
    needs = [(layer.weight, max(paid[member] for member in layer.members)) for layer in layers if layer.weight > 0.0]
    best = DayPurchase(base=(), usd_per_hour=float("inf"))
    sizes = _sizes(lasting, hourly, [need for _, need in needs], lot) if base_gpus is None else {base_gpus}
    for size in sorted(sizes):
        base = bought(lasting, size, lot=lot)
        usd = sum(item.cost_usd_per_hour for item in base)
        usd += sum(weight * _hourly_usd(hourly, max(need - size, 0), lot) for weight, need in needs)
        if usd < best.usd_per_hour * (1.0 - 1e-12):
            best = DayPurchase(base=base, usd_per_hour=usd)
    return best


def _sizes(lasting: Sequence[Offer], hourly: Sequence[Offer], needs: Sequence[int], lot: int) -> set[int]:
    most = _room(lasting, lot)
    ends = {0, *_ends(lasting, lot)}
    for need in needs:
        ends |= {need, *(need - end for end in _ends(hourly, lot))}
    return {size for size in ends if size >= 0 and (most is None or size <= most)}


def _ends(offers: Sequence[Offer], lot: int) -> Iterator[int]:
    """GPUs up to and with each offer, as far as there are only so many."""
    rooms = []
    for offer in offers:
        if offer.max_gpus is None:
            break
        rooms.append(offer.max_gpus // lot * lot)
    return accumulate(rooms)


def _room(offers: Sequence[Offer], lot: int) -> int | None:
    """GPUs that can be bought; None: any number."""
    if any(offer.max_gpus is None for offer in offers):
        return None
    return sum(offer.max_gpus // lot * lot for offer in offers if offer.max_gpus is not None)


def _hourly_usd(offers: Sequence[Offer], gpus: int, lot: int) -> float:
    room = _room(offers, lot)
    if room is not None and gpus > room:
        return float("inf")
    return sum(item.cost_usd_per_hour for item in bought(offers, gpus, lot=lot))
