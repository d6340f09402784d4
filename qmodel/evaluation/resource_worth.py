"""What a little more of each resource, or a little looser target, is worth in the pools of a fleet.

The largest load theta that pools carry is followed while one figure p moves. A fleet of such pools costs 1/theta per
unit of load, so that a unit more of p changes its cost by ``-cost dln(theta)/dp``: the price of p in the linear
relaxation in which the pool is what carries its mix. Own construction, see docs/theory/optimizer.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import exp, log
from typing import TYPE_CHECKING

from scipy.optimize import brentq

from qmodel.errors import ScenarioError
from qmodel.evaluation.fleet_metrics import pool_cases
from qmodel.evaluation.loaded_batches import LoadedBatch
from qmodel.evaluation.loaded_pools import LoadedPool, LoadedRow, loaded_parts
from qmodel.evaluation.measured_pools import LoadedMeasured, MeasuredCase
from qmodel.evaluation.path_predictions import PoolCase
from qmodel.files import join_key
from qmodel.problem import GpuOption, Instance
from qmodel.types import Fleet, Replica, RequestClass, Slo

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MarginalRow", "MarginalValues", "marginal_values"]

_STEP = 0.02  # relative, to both sides; percentiles jump, and a wider step looks past a jump
_NOTHING = 0.05  # an elasticity below this may come from where the step law is made linear, which moves as well
_NEAR = 0.12  # of the logarithm of the load: six steps
_PRECISION = 3e-5
_FAR = 1e20  # ratio of a pool that is not stable

_Part = LoadedPool | LoadedRow | LoadedMeasured
_LEFT_OUT = (LoadedMeasured, LoadedBatch)  # what carries measured rates has no figures, and batches are whole requests


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginalRow:
    """One figure in the pools of one path.

    Attributes:
        pools: the pool, or the pools that share paths.
        figure: key of a target, or ``gpus.<name>.<figure>``.
        present: its value now.
        unit: of ``present``.
        elasticity: percent that the largest load moves for one percent more.
        usd_per_hour_per_unit: change of cost per unit more, if replicas were divisible; negative where more saves.
    """

    pools: str
    figure: str
    present: float
    unit: str
    elasticity: float
    usd_per_hour_per_unit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginalValues:
    """Marginal values of all pools of a fleet.

    Attributes:
        rows: by pool, the figure with the largest elasticity first; figures that move nothing are left out.
    """

    rows: tuple[MarginalRow, ...]

    def to_dict(self) -> dict[str, object]:
        """Plain data."""
        return {"rows": [asdict(row) for row in self.rows]}

    def to_frame(self) -> pd.DataFrame:
        """The rows as a DataFrame."""
        import pandas as pd

        return pd.DataFrame([asdict(row) for row in self.rows])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Figure:
    """A figure with the problems in which it is a little less and a little more."""

    key: str
    unit: str
    present: float
    less: Instance
    more: Instance
    gpu: str = ""
    cls: str = ""


def marginal_values(instance: Instance, fleet: Fleet) -> MarginalValues:
    """What more memory, bandwidth, arithmetic, link speed, or time in each target is worth in every pool.

    Args:
        instance: the bound problem.
        fleet: pools and routing.

    Raises:
        ScenarioError: for a fleet that the problem cannot have.
    """
    cases = pool_cases(instance, fleet)
    parts = [part for part in loaded_parts(instance, fleet, cases) if not isinstance(part, _LEFT_OUT)]
    limits = [part.limit() for part in parts]
    found: list[MarginalRow] = []
    for figure in (*_targets(instance), *_hardware(instance, fleet)):
        less, more = (_parts(changed, fleet, cases) for changed in (figure.less, figure.more))
        for number, (part, limit) in enumerate(zip(parts, limits, strict=True)):
            if limit > 0.0 and _concerns(figure, part, fleet):
                sides = [limit if side is None else _limit_near(side[number], limit) for side in (less, more)]
                width = log(1.0 + _STEP) * ((less is not None) + (more is not None))
                if min(sides) > 0.0 and width > 0.0:
                    found += _row(figure, part, cases, log(sides[1] / sides[0]) / width)
    names = [_names(part) for part in parts]
    found.sort(key=lambda row: (names.index(row.pools), -abs(row.elasticity)))
    return MarginalValues(rows=tuple(found))


def _limit_near(part: _Part, guess: float) -> float:
    """The largest multiple at which every target holds, looked for first near one that is not far from it."""

    def beyond(step: float) -> float:
        return log(max(min(float(part.ratios([guess * exp(step)]).max()), _FAR), 1.0 / _FAR))

    if beyond(-_NEAR) > 0.0 or beyond(_NEAR) <= 0.0:
        return part.limit()
    return guess * exp(float(brentq(beyond, -_NEAR, _NEAR, xtol=_PRECISION)))


def _row(
    figure: _Figure, part: _Part, cases: dict[str, PoolCase | MeasuredCase], elasticity: float
) -> Iterator[MarginalRow]:
    if abs(elasticity) < _NOTHING:
        return
    members = [cases[name] for name in _names(part).split(" + ")]
    cost = sum(case.price.usd_per_gpu_hour * case.pool.layout.gpus * case.pool.replicas for case in members)
    yield MarginalRow(
        pools=_names(part),
        figure=figure.key,
        present=figure.present,
        unit=figure.unit,
        elasticity=elasticity,
        usd_per_hour_per_unit=-cost * elasticity / figure.present,
    )


def _parts(changed: Instance, fleet: Fleet, cases: dict[str, PoolCase | MeasuredCase]) -> Sequence[_Part] | None:
    """The parts of the fleet in a changed problem, at the error bands they have now; None where it cannot be had."""
    try:
        found = pool_cases(changed, fleet)
    except ScenarioError:
        return None
    for name, case in found.items():
        before = cases[name]
        if isinstance(case, PoolCase) and isinstance(before, PoolCase):
            step = replace(case.replica.step, band=before.replica.step.band)
            found[name] = replace(case, replica=replace(case.replica, step=step))
    return [part for part in loaded_parts(changed, fleet, found) if not isinstance(part, _LEFT_OUT)]


def _names(part: _Part) -> str:
    return " + ".join(part.pools)


def _concerns(figure: _Figure, part: _Part, fleet: Fleet) -> bool:
    if figure.gpu:
        return any(fleet.pools[name].gpu == figure.gpu for name in part.pools)
    return any(item.name == figure.cls for item in part.classes)


def _targets(instance: Instance) -> Iterator[_Figure]:
    """Each target of each class."""
    for name, item in instance.classes.items():
        own = any(tier.slos is not None for tier in item.alternatives)
        for model in item.models if own else (item.model,):
            under = item.under(model)
            place = join_key(f"classes.{name}.models", model) if own else f"classes.{name}"
            for slo in under.slos:
                changed = []
                for factor in (1.0 / (1.0 + _STEP), 1.0 + _STEP):
                    moved = replace(slo, target_s=slo.target_s * factor)
                    slos = tuple(moved if other is slo else other for other in under.slos)
                    changed.append(replace(instance, classes={**instance.classes, name: _asking(item, model, slos)}))
                yield _Figure(
                    key=f"{place}.slo.{slo.key}",
                    unit="share" if slo.metric == "abandoned" else "s",
                    present=slo.target_s,
                    less=changed[0],
                    more=changed[1],
                    cls=name,
                )


def _asking(item: RequestClass, model: str, slos: tuple[Slo, ...]) -> RequestClass:
    """A class with other targets under one of its models; under all where its models do not differ in them."""
    tiers = tuple(
        replace(tier, slos=slos) if tier.slos is not None and tier.model == model else tier
        for tier in item.alternatives
    )
    return replace(item, alternatives=tiers, slos=slos if model == item.model else item.slos)


def _hardware(instance: Instance, fleet: Fleet) -> Iterator[_Figure]:
    """Memory, bandwidth, arithmetic and links of each GPU type that the fleet has and the catalog knows."""
    for name in dict.fromkeys(pool.gpu for pool in fleet.pools.values()):
        option = instance.gpus[name]
        if option.gpu is None or option.node is None:
            yield from _profiled_memory(instance, name)
            continue
        figures = [
            ("usable_gib", "GiB per GPU", option.gpu.usable_gib),
            ("hbm_bandwidth_gbps", "GB/s per GPU", option.gpu.hbm_bandwidth_gbps),
            ("dense_bf16_tflops", "TFLOPS per GPU, other types in proportion", option.gpu.dense_tflops["bf16"]),
            ("scale_up_gbps", "GB/s per GPU", option.gpu.scale_up_gbps),
        ]
        if option.fabric is not None:
            figures.append(("fabric_gbps", "GB/s per port", option.fabric.gbps))
        for figure, unit, present in figures:
            less, more = (
                replace(instance, gpus={**instance.gpus, name: _scaled(option, figure, factor)})
                for factor in (1.0 / (1.0 + _STEP), 1.0 + _STEP)
            )
            yield _Figure(key=f"gpus.{name}.{figure}", unit=unit, present=present, less=less, more=more, gpu=name)


def _profiled_memory(instance: Instance, gpu: str) -> Iterator[_Figure]:
    """KV tokens of each replica that a profile states; its other figures are of no single resource."""
    for pair, profiles in instance.profiles.items():
        for place, profile in enumerate(profiles):
            replica = profile.replica
            if pair[1] != gpu or not isinstance(replica, Replica) or replica.kv_tokens is None:
                continue
            changed = []
            for factor in (1.0 / (1.0 + _STEP), 1.0 + _STEP):
                other = replace(profile, replica=replace(replica, kv_tokens=replica.kv_tokens * factor))
                listed = (*profiles[:place], other, *profiles[place + 1 :])
                changed.append(replace(instance, profiles={**instance.profiles, pair: listed}))
            yield _Figure(
                key=f"profiles.{pair[0]}.{gpu}.{profile.layout}.kv_tokens",
                unit="tokens per replica",
                present=float(replica.kv_tokens),
                less=changed[0],
                more=changed[1],
                gpu=gpu,
            )


def _scaled(option: GpuOption, figure: str, factor: float) -> GpuOption:
    """The option with one figure of its hardware multiplied."""
    gpu, node, fabric = option.gpu, option.node, option.fabric
    assert gpu is not None and node is not None
    match figure:
        case "usable_gib":
            gpu = replace(gpu, usable_gib=gpu.usable_gib * factor, hbm_gib=gpu.hbm_gib * factor)
        case "hbm_bandwidth_gbps":
            gpu = replace(gpu, hbm_bandwidth_gbps=gpu.hbm_bandwidth_gbps * factor)
        case "dense_bf16_tflops":
            gpu = replace(gpu, dense_tflops={kind: peak * factor for kind, peak in gpu.dense_tflops.items()})
        case "scale_up_gbps":
            domain = node.domain
            pair = None if domain.gbps_per_pair is None else domain.gbps_per_pair * factor
            domain = replace(domain, gbps_per_gpu=domain.gbps_per_gpu * factor, gbps_per_pair=pair)
            gpu, node = replace(gpu, scale_up_gbps=gpu.scale_up_gbps * factor), replace(node, domain=domain)
        case "fabric_gbps":
            assert fabric is not None
            fabric = replace(fabric, gbps=fabric.gbps * factor)
            node = replace(node, nic_gbit_per_s=node.nic_gbit_per_s * factor)
    return replace(option, gpu=gpu, node=node, fabric=fabric)
