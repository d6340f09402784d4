"""What is bought before it is known which scenario comes, for fleets that are known, where the dearest part counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil

from qmodel.optimize.programs import Program, ProgramBuilder
from qmodel.types import FloatArray, Limits, Periods, by_the_hour

__all__ = ["least_risk_base"]


def least_risk_base(
    limits: Limits,
    paid: Mapping[str, Sequence[int]],
    periods: Periods,
    solve: Callable[[Program], FloatArray | None],
) -> dict[str, int] | None:
    """GPUs of each type that are paid in every scenario, at the least mix of the mean cost and its dearest part.

    The mean alone asks for the base of each type by itself; the dearest part ties the types together, as the same
    scenarios are the dearest for all of them.

    Args:
        limits: with the offers of each type.
        paid: GPUs that each scenario pays for, by type.
        periods: scenarios, with their risk.
        solve: finds the optimum of a program.

    Returns:
        Sizes by type; None where there is none: the offers do not have enough.
    """
    assert periods.risk is not None
    risk, builder = periods.risk, ProgramBuilder()
    bases: dict[str, dict[int, int]] = {}
    costs: list[dict[int, float]] = [{} for _ in periods.items]
    largest = 0.0
    for gpu, needs in sorted(paid.items()):
        item, most = limits.of(gpu), max(needs)
        base: dict[int, int] = {}
        for offer in (one for one in item.offers if not by_the_hour(one)):
            room = item.room(offer)
            lots = ceil(most / item.lot) if room is None else min(ceil(most / item.lot), room // item.lot)
            usd = offer.usd_per_gpu_hour * item.lot
            base[builder.variable(f"base {gpu} {offer.term}", cost=usd, upper=float(lots), integer=True)] = item.lot
        bases[gpu] = base
        for number, (need, period) in enumerate(zip(needs, periods.items, strict=True)):
            row = {position: float(lot) for position, lot in base.items()}
            for offer in (one for one in item.offers if by_the_hour(one)):
                room = item.room(offer)
                position = builder.variable(
                    f"hourly {gpu} {offer.term} {number}",
                    cost=(1.0 - risk.weight) * period.weight * offer.usd_per_gpu_hour,
                    upper=float(need if room is None else min(need, room)),
                    integer=False,
                )
                row[position] = 1.0
                costs[number][position] = offer.usd_per_gpu_hour
                largest += offer.usd_per_gpu_hour * need
            builder.row(f"needed {gpu} {number}", row, ">=", float(need))
    border = builder.variable("border", cost=risk.weight, upper=largest, integer=False)
    for number, period in enumerate(periods.items):
        share = risk.weight * period.weight / (1.0 - risk.level)
        beyond = builder.variable(f"beyond {number}", cost=share, upper=largest, integer=False)
        builder.row(f"tail {number}", {**costs[number], border: -1.0, beyond: -1.0}, "<=", 0.0)
    values = solve(builder.build())
    if values is None:
        return None
    return {gpu: sum(round(values[position]) * lot for position, lot in base.items()) for gpu, base in bases.items()}
