"""A replica known by the request rates it was measured to carry, not by its step times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["MeasuredCapacity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCapacity:
    """What one replica carries of each class alone with its targets met; linear in the mix and in the count.

    A replica carries rates r_k while sum_k r_k / max_rate_rps_k <= 1.

    Attributes:
        max_rate_rps: by class name, requests/s, above 0; other classes are not served.
    """

    max_rate_rps: Mapping[str, float]

    def utilisation(self, rates_rps: Mapping[str, float], replicas: int = 1) -> float:
        """Share of ``replicas`` replicas that the rates take; infinite with a class that is not served.

        Args:
            rates_rps: by class name, requests/s.
            replicas: their number.

        Example:
            >>> MeasuredCapacity(max_rate_rps={"chat": 4.0, "long": 0.5}).utilisation({"chat": 2.0, "long": 0.1}, 2)
            0.35
        """
        if any(name not in self.max_rate_rps for name in rates_rps):
            return float("inf")
        return sum(rate / self.max_rate_rps[name] for name, rate in rates_rps.items()) / replicas

    def to_dict(self) -> dict[str, object]:
        """Plain numbers; the inverse of :meth:`from_dict`."""
        return {"max_rate_rps": dict(self.max_rate_rps)}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> MeasuredCapacity:
        """The inverse of :meth:`to_dict`."""
        rates = data["max_rate_rps"]
        assert isinstance(rates, Mapping)
        return cls(max_rate_rps={str(name): float(rate) for name, rate in rates.items()})
