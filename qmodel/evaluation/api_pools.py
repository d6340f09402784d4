"""Pools that are an API: cost by the token, targets by what is stated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qmodel.evaluation.measured_pools import FULL, MeasuredCase
from qmodel.types import Api, Fleet, Overload, RequestClass, Slo, SloRow

__all__ = ["ApiCase", "api_overload", "stated_row"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ApiCase(MeasuredCase):
    """One pool that is an API."""

    api: Api

    @property
    def serving(self) -> int:
        """An API has no replicas; it counts as one that is always there."""
        return 1

    @property
    def limited_by(self) -> str:
        """What stops more, in words."""
        return "max_rate_rps"

    def utilisation(self, classes: Mapping[str, RequestClass], fleet: Fleet) -> float:
        """Share of the limit on its rate that all pools of this API together ask for; 0 without a limit."""
        if self.api.max_rate_rps is None:
            return 0.0
        pools = [pool for pool in fleet.pools.values() if (pool.role, pool.gpu) == ("api", self.api.name)]
        names = {pool.name for pool in pools if pool.model == self.api.model}
        return sum(_rates_to(names, classes, fleet).values()) / self.api.max_rate_rps

    def usd_per_hour(self, classes: Mapping[str, RequestClass], fleet: Fleet) -> float:
        """What the requests that come here cost."""
        rates = _rates_to({self.pool.name}, classes, fleet)
        seen = {name: classes[name].under(self.pool.model) for name in rates}
        return sum(self.api.usd_per_hour(seen[name]) * rate / seen[name].rate_rps for name, rate in rates.items())

    def binding(self, utilisation: float) -> str:
        """What stops it from carrying more."""
        limited = self.api.max_rate_rps is not None and utilisation > 1.0 / FULL
        return "max_rate_rps of the API" if limited else "price by the token"


def api_overload(case: ApiCase, utilisation: float) -> Overload | None:
    """Why an API cannot carry its load; None where it can."""
    most = case.api.max_rate_rps
    if most is None or utilisation <= FULL:
        return None
    reason = f"{utilisation * most:.4g} requests/s are sent to {case.api.name}, which takes at most {most:g}"
    return Overload(kind="rate", value=utilisation * most, limit=most, reason=reason)


def stated_row(cls: RequestClass, path: str, slo: Slo, case: ApiCase, *, within: bool) -> SloRow:
    """A target that an API is said to meet; with the value where one is stated.

    Args:
        cls: the class.
        path: name of the path.
        slo: the target.
        case: the API.
        within: whether the rate is within its limit.
    """
    value = None if case.api.meets else case.api.value_s(slo)
    met = within and case.api.serves(cls)
    return SloRow(
        cls=cls.name,
        path=path,
        metric=slo.metric,
        stat=slo.stat,
        target_s=slo.target_s,
        predicted_s=value,
        low_s=None,
        high_s=value,
        met=met,
        met_at_p90=met,
        basis="stated",
    )


def _rates_to(pools: set[str], classes: Mapping[str, RequestClass], fleet: Fleet) -> dict[str, float]:
    """Requests/s of each class that come to some pools."""
    return {
        name: classes[name].rate_rps * share
        for name, paths in fleet.routing.items()
        if name in classes and (share := sum(path.share for path in paths if path.pools[0] in pools)) > 0.0
    }
