"""Small candidates, classes and columns for tests of the integer program."""

from __future__ import annotations

from collections.abc import Mapping

from qmodel.candidates import Candidate, Column
from qmodel.problem import Price
from qmodel.types import GpuLimits, Law, Layout, Lengths, Limits, Replica, RequestClass, Slo, StepLaw


def candidate(*, cost: float, gpu: str = "g", tp: int = 1, model: str = "m", max_replicas: int = 1000) -> Candidate:
    """A candidate whose one replica costs ``cost`` USD/h."""
    return Candidate(
        model=model,
        gpu=gpu,
        layout=Layout(tp=tp),
        precision=None,
        replica=Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4)),
        router="random",
        price=Price(usd_per_gpu_hour=cost / tp, tier="on_demand", basis="test"),
        max_replicas=max_replicas,
    )


def request_class(name: str, *, rate_rps: float = 1.0, model: str = "m", **slo: float) -> RequestClass:
    """A class with constant lengths; keyword targets such as ``tpot_mean=0.05``."""
    targets = tuple(
        Slo(metric=key.rsplit("_", 1)[0], p=None, target_s=value)  # type: ignore[arg-type]
        for key, value in slo.items()
    )
    return RequestClass(
        name=name,
        model=model,
        rate_rps=rate_rps,
        lengths=Lengths.independent(Law.constant(100), Law.constant(50)),
        slos=targets or (Slo(metric="tpot", p=None, target_s=0.05),),
    )


def column(item: Candidate, replicas: int, **shares: float) -> Column:
    """A column that carries exactly its shares on both sides of the frontier."""
    return Column(candidate=item, replicas=replicas, shares=shares, upper=shares)


def stock_of(counts: Mapping[str, int]) -> Limits:
    """Limits with so many GPUs of each type in stock."""
    return Limits(gpus={name: GpuLimits(max_count=count) for name, count in counts.items()})
