"""A model that somebody else serves: priced by the token, with the latency that is stated for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from qmodel.types.demand import RequestClass, Slo

__all__ = ["Api"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One model of one provider of an API.

    Attributes:
        name: of the provider's entry in the scenario.
        model: as classes name it.
        usd_per_million_input: of prompt tokens.
        usd_per_million_output: of output tokens, thinking included.
        max_rate_rps: requests/s of all classes together; None: no limit.
        latency: seconds by target key (``ttft_p95_s``), promised or measured; empty where ``meets`` says it.
        meets: classes whose targets it is said to meet; empty where ``latency`` says it.
    """

    name: str
    model: str
    usd_per_million_input: float
    usd_per_million_output: float
    max_rate_rps: float | None = None
    latency: Mapping[str, float] = field(default_factory=dict)
    meets: tuple[str, ...] = ()

    def usd_per_hour(self, item: RequestClass) -> float:
        """What the whole demand of a class costs: linear in its rate and in its mean lengths.

        Args:
            item: the class.

        Example:
            >>> from qmodel.types import Law, Lengths
            >>> lengths = Lengths.independent(Law.constant(1000), Law.constant(200))
            >>> chat = RequestClass(name="chat", model="m", rate_rps=2.0, lengths=lengths, slos=())
            >>> api = Api(name="x", model="m", usd_per_million_input=0.5, usd_per_million_output=2.0)
            >>> round(api.usd_per_hour(chat), 6)  # 7200 requests of 1000 and 200 tokens
            6.48
        """
        prompt, output = item.lengths.prompt.mean, item.lengths.output.mean
        usd_per_request = (prompt * self.usd_per_million_input + output * self.usd_per_million_output) / 1e6
        return 3600.0 * item.rate_rps * usd_per_request

    def value_s(self, slo: Slo) -> float | None:
        """The least stated value that bounds a target's metric; None where none does.

        A percentile is at most any higher one; a mean is bounded by a stated mean only.
        """
        if slo.p is None:
            return self.latency.get(slo.key)
        bounds = [
            value
            for key, value in self.latency.items()
            if (stated := _percentile(key, slo.metric)) is not None and stated >= slo.p - _ROUNDING
        ]
        return min(bounds, default=None)

    def serves(self, item: RequestClass) -> bool:
        """Whether a class may be sent here: it asks for the model, and every target is said to be met."""
        if not item.served_by(self.model):
            return False
        if self.meets:
            return item.name in self.meets
        return all((value := self.value_s(slo)) is not None and value <= slo.target_s for slo in item.slos)

    def to_dict(self) -> dict[str, object]:
        """Plain data; the inverse of :meth:`from_dict`."""
        return {**asdict(self), "latency": dict(self.latency), "meets": list(self.meets)}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Api:
        """The inverse of :meth:`to_dict`."""
        meets = data["meets"]
        assert isinstance(meets, Sequence)
        return cls(**{**data, "meets": tuple(meets)})  # type: ignore[arg-type]


_ROUNDING = 1e-9  # of a level


def _percentile(key: str, metric: str) -> float | None:
    """Level of a target key of a metric; None for another metric or a mean."""
    name, _, stat = key.removesuffix("_s").rpartition("_")
    return float(stat[1:]) / 100.0 if name == metric and stat.startswith("p") else None
