"""What a GPU of one's own costs per hour: capital by the annuity formula, power, and what its operation takes."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, log1p

__all__ = ["HOURS_PER_YEAR", "OwnedGpu", "capital_recovery_factor"]

HOURS_PER_YEAR = 8760.0  # 365 days


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedGpu:
    """A GPU that is bought, with its part of the node, network and building if these are to count.

    Attributes:
        capex_usd: price of purchase.
        years: of use.
        salvage_share: of the price that is got back at the end, from 0 to below 1.
        interest: yearly, a fraction.
        power_w: power that it takes with its part of the node, all the time, W.
        pue: power of the building over that of its machines, at least 1.
        usd_per_kwh: price of electricity.
        opex_usd_per_hour: people, space, repairs, whatever else.
    """

    capex_usd: float
    years: float
    salvage_share: float
    interest: float
    power_w: float
    pue: float
    usd_per_kwh: float
    opex_usd_per_hour: float

    @property
    def capital_usd_per_hour(self) -> float:
        """Equivalent annual cost of the purchase less what is got back, over the hours of a year.

        The present value of what is got back is ``salvage_share * capex / (1 + interest) ** years``.

        Reference: Short, Packey and Holt, A Manual for the Economic Evaluation of Energy Efficiency and Renewable
        Energy Technologies, NREL/TP-462-5173, 1995 (present value, uniform capital recovery).
        """
        salvage_now = self.salvage_share * self.capex_usd * exp(-self.years * log1p(self.interest))
        return (self.capex_usd - salvage_now) * capital_recovery_factor(self.interest, self.years) / HOURS_PER_YEAR

    @property
    def power_usd_per_hour(self) -> float:
        """Of the power it takes, the building's share included."""
        return self.power_w / 1000.0 * self.pue * self.usd_per_kwh

    @property
    def usd_per_hour(self) -> float:
        """All of it.

        Example:
            >>> gpu = OwnedGpu(capex_usd=30_000.0, years=5.0, salvage_share=0.1, interest=0.08, power_w=1275.0, pue=1.3,
            ...                usd_per_kwh=0.1, opex_usd_per_hour=0.05)
            >>> round(gpu.capital_usd_per_hour, 4), round(gpu.power_usd_per_hour, 4), round(gpu.usd_per_hour, 4)
            (0.7994, 0.1658, 1.0151)
        """
        return self.capital_usd_per_hour + self.power_usd_per_hour + self.opex_usd_per_hour

    @property
    def basis(self) -> str:
        """How the price comes about, in words."""
        salvage = f", {self.salvage_share:.0%} got back" if self.salvage_share else ""
        return (
            f"owned: {self.capex_usd:,.0f} USD over {self.years:g} years at {self.interest:.3g} interest{salvage}"
            f" = {self.capital_usd_per_hour:.4f} USD/h, {self.power_w:,.0f} W x PUE {self.pue:g} x"
            f" {self.usd_per_kwh:g} USD/kWh = {self.power_usd_per_hour:.4f}, operation {self.opex_usd_per_hour:g}"
        )


def capital_recovery_factor(interest: float, years: float) -> float:
    """Even yearly payment, at the end of each year, that pays back one unit of money.

    ``r / (1 - (1 + r) ** -N)``; without interest ``1 / N``.

    Args:
        interest: yearly rate r, a fraction, at least 0.
        years: N, above 0.

    Example:
        >>> round(capital_recovery_factor(0.10, 10.0), 4), capital_recovery_factor(0.0, 5.0)
        (0.1627, 0.2)

    Reference: Short, Packey and Holt, NREL/TP-462-5173, 1995 (uniform capital recovery factor).
    """
    if interest == 0.0:
        return 1.0 / years
    return interest / -expm1(-years * log1p(interest))
