"""What a scenario asks for that may be in the way, and the same problem with parts of it lifted or moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from qmodel.files import join_key
from qmodel.optimize import target_key
from qmodel.problem import Instance, LayoutRules
from qmodel.types import Api, GpuLimits, Limits, RequestClass, Slo

__all__ = ["Changes", "UserLimit", "moved", "user_limits"]

Kind = Literal[
    "api",
    "cap",
    "budget",
    "quality",
    "spare",
    "survive",
    "forbid",
    "layouts",
    "isolate",
    "floor",
    "target",
    "deadline",
]
Changes = Mapping[str, float | None]  # by key: the value instead of the one stated; None: the limit is lifted

_IN_PROGRAM = ("api", "cap", "budget", "quality")  # they are rows: what pools carry does not depend on them
_LIFTED_S = 1e6  # a target that asks for a prediction and nothing else
_LIFTED_SHARE = 1.0 - 1e-6  # nearly all may leave: some are served, or no load could be told
_LIFTED_DEADLINE_S = 1e9
_RULES = ("tp", "pp", "ep", "dp", "cp")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserLimit:
    """One limit that a scenario states.

    Attributes:
        key: of the scenario.
        value: None where it is no number.
        unit: of the value; what is asked for where it is no number.
        cls: the class it is about; empty: the fleet.
        rises: whether more of it is easier to keep.
        whole: whether it counts something.
        name: of what it is about: of a target, an API, a rule of layouts; else empty.
        model: whose target it is, where it is stated under one of the models of a class; else empty.
    """

    key: str
    kind: Kind
    value: float | None
    unit: str
    cls: str = ""
    rises: bool = True
    whole: bool = False
    name: str = ""
    model: str = ""

    @property
    def in_program(self) -> bool:
        """Whether it is a row of the integer program, and what pools carry does not depend on it."""
        return self.kind in _IN_PROGRAM


def user_limits(instance: Instance) -> tuple[UserLimit, ...]:
    """Every limit of a bound problem, those of the fleet before those of classes.

    Args:
        instance: the bound problem.
    """
    return (*_of_fleet(instance), *(one for item in instance.classes.values() for one in _of_class(instance, item)))


def _of_fleet(instance: Instance) -> Iterator[UserLimit]:
    limits = instance.limits
    for api in instance.apis:
        if api.max_rate_rps is not None:
            models = f"{join_key('fleet.apis', api.name)}.models"
            key, unit = f"{join_key(models, api.model)}.max_rate_rps", "requests/s"
            yield UserLimit(key=key, kind="api", value=api.max_rate_rps, unit=unit, name=_api_name(api))
    for cap in reversed(limits.caps):
        whole = cap.kind in ("stock", "nodes", "offer", "gpus", "pools")
        yield UserLimit(key=cap.key, kind="cap", value=float(cap.most), unit=cap.unit, whole=whole)
    if limits.budget_usd_per_hour is not None:
        key = "fleet.budget_usd_per_hour"
        yield UserLimit(key=key, kind="budget", value=limits.budget_usd_per_hour, unit="USD/h")
    if limits.spare_replicas:
        value, unit = float(limits.spare_replicas), "spare replicas"
        yield UserLimit(key="policy.spare_replicas", kind="spare", value=value, unit=unit, rises=False, whole=True)
    if limits.survive_nodes:
        value, unit = float(limits.survive_nodes), "nodes that may be lost"
        yield UserLimit(key="policy.survive_nodes", kind="survive", value=value, unit=unit, rises=False, whole=True)
    for place, item in enumerate(limits.forbidden):
        told = " ".join(f"{name} {value}" for name, value in asdict(item).items() if value is not None)
        yield UserLimit(key=f"layouts.forbid[{place}]", kind="forbid", value=None, unit=told, name=str(place))
    for rule in _RULES:
        stated, usual = getattr(instance.layouts, rule), getattr(LayoutRules(), rule)
        if stated != usual and stated != "auto" and (usual == "auto" or not set(usual) <= set(stated)):
            told = f"only {', '.join(map(str, stated))}"
            yield UserLimit(key=f"layouts.{rule}", kind="layouts", value=None, unit=told, name=rule)


def _of_class(instance: Instance, item: RequestClass) -> Iterator[UserLimit]:
    at = join_key("classes", item.name)
    if item.isolate:
        yield UserLimit(key=f"{at}.isolate", kind="isolate", value=None, unit="pools of its own", cls=item.name)
    if item.min_quality is not None:
        value, unit = item.min_quality, "average quality"
        yield UserLimit(key=f"{at}.min_quality", kind="quality", value=value, unit=unit, cls=item.name, rises=False)
    floor = _stated_floor(instance, item.name)
    if floor is not None:
        unit = "quality of each model"
        yield UserLimit(key=f"{at}.floor", kind="floor", value=floor, unit=unit, cls=item.name, rises=False)
    yield from _targets(item)


def _targets(item: RequestClass) -> Iterator[UserLimit]:
    """Targets of a class, and those that it states under one of its models."""
    told = set()
    for model in item.models:
        for slo in item.under(model).slos:
            key, own = target_key(item.under(model), slo)
            if key in told:
                continue
            told.add(key)
            kind: Kind = "deadline" if slo.metric == "makespan" else "target"
            unit = "share of the requests" if slo.metric == "abandoned" else "s"
            name = "" if kind == "deadline" else slo.key
            model_name = model if own else ""
            yield UserLimit(
                key=key, kind=kind, value=slo.target_s, unit=unit, cls=item.name, name=name, model=model_name
            )


def _stated_floor(instance: Instance, name: str) -> float | None:
    """The least quality of each model of a class, where that left a model out."""
    classes = instance.scenario.get("classes")
    spec = classes.get(name) if isinstance(classes, Mapping) else None
    if not isinstance(spec, Mapping) or not isinstance(spec.get("floor"), int | float):
        return None
    stated, floor = spec.get("models"), float(spec["floor"])
    left_out = isinstance(stated, Mapping) and len(stated) > len(instance.classes[name].models)
    return floor if left_out else None


def moved(
    instance: Instance,
    limits: Mapping[str, UserLimit],
    changes: Changes,
    bound_with: Callable[[Mapping[str, object]], Instance] | None = None,
) -> Instance:
    """The same problem with limits at other values, or lifted.

    Args:
        instance: the bound problem.
        limits: all of its limits, by key.
        changes: by key.
        bound_with: binds the scenario with overrides; for what is decided when it is bound: which models are good
            enough for a class.
    """
    asked = {limits[key]: value for key, value in changes.items()}
    floors = {one.key: value for one, value in asked.items() if one.kind == "floor"}
    if floors:
        assert bound_with is not None
        other, names = bound_with(floors), [one.cls for one in asked if one.kind == "floor"]
        instance = replace(
            instance,
            classes={name: other.classes[name] if name in names else item for name, item in instance.classes.items()},
            models=other.models,
            profiles=other.profiles,
        )
    classes = dict(instance.classes)
    for one, value in asked.items():
        if one.cls:
            classes[one.cls] = _with_class_limit(classes[one.cls], one, value)
    apis = {one.name: value for one, value in asked.items() if one.kind == "api"}
    return replace(
        instance,
        classes=classes,
        limits=_moved_limits(instance.limits, asked),
        layouts=_moved_rules(instance.layouts, [one.name for one in asked if one.kind == "layouts"]),
        apis=tuple(_with_rate(api, apis) for api in instance.apis),
    )


def _api_name(api: Api) -> str:
    return f"{api.model} at {api.name}"


def _with_rate(api: Api, rates: Mapping[str, float | None]) -> Api:
    return replace(api, max_rate_rps=rates[_api_name(api)]) if _api_name(api) in rates else api


def _with_class_limit(item: RequestClass, one: UserLimit, value: float | None) -> RequestClass:
    match one.kind:
        case "isolate":
            return replace(item, isolate=False)
        case "quality":
            return replace(item, min_quality=value)
        case "target":
            return _with_target(item, one, value)
        case "deadline":
            assert item.batch is not None
            deadline_s = _LIFTED_DEADLINE_S if value is None else value
            batch = replace(item.batch, deadline_s=deadline_s)
            slos = tuple(replace(slo, target_s=deadline_s) if slo.metric == "makespan" else slo for slo in item.slos)
            return replace(item, batch=batch, rate_rps=batch.rate_rps, slos=slos)
        case _:
            return item


def _with_target(item: RequestClass, one: UserLimit, value: float | None) -> RequestClass:
    """With a target at another value: under the models that have it from where it is stated."""

    def moved_under(model: str, slos: tuple[Slo, ...]) -> tuple[Slo, ...]:
        if one.model != model and (one.model or one.name in own[model]):
            return slos
        return tuple(replace(slo, target_s=_target(slo, value)) if slo.key == one.name else slo for slo in slos)

    own = {tier.model: tier.own_targets for tier in item.alternatives} or {item.model: ()}
    tiers = tuple(
        tier if tier.slos is None else replace(tier, slos=moved_under(tier.model, tier.slos))
        for tier in item.alternatives
    )
    return replace(item, slos=moved_under(item.model, item.slos), alternatives=tiers)


def _target(slo: Slo, value: float | None) -> float:
    if slo.metric == "abandoned":
        return _LIFTED_SHARE if value is None else min(value, _LIFTED_SHARE)
    return _LIFTED_S if value is None else value


def _moved_rules(rules: LayoutRules, lifted: list[str]) -> LayoutRules:
    wider: dict[str, Any] = {}
    for rule in lifted:
        stated, usual = getattr(rules, rule), getattr(LayoutRules(), rule)
        wider[rule] = usual if usual == "auto" else tuple(sorted({*stated, *usual}))
    return replace(rules, **wider)


def _moved_limits(limits: Limits, asked: Mapping[UserLimit, float | None]) -> Limits:
    values = {one.key: value for one, value in asked.items() if one.kind == "cap"}
    forbidden = {one.name for one in asked if one.kind == "forbid"}
    spare = [value for one, value in asked.items() if one.kind == "spare"]
    quotas = tuple(
        replace(
            quota,
            max_gpus=_whole(values.get(f"{quota.key}.max_gpus", quota.max_gpus)),
            max_usd_per_hour=values.get(f"{quota.key}.max_usd_per_hour", quota.max_usd_per_hour),
        )
        for quota in limits.quotas
    )
    budgets = [value for one, value in asked.items() if one.kind == "budget"]
    return replace(
        limits,
        gpus={name: _moved_gpu(name, item, values) for name, item in limits.gpus.items()},
        quotas=quotas,
        budget_usd_per_hour=budgets[0] if budgets else limits.budget_usd_per_hour,
        power_kw=values.get("fleet.power_kw", limits.power_kw),
        max_pools=_whole(values.get("policy.max_pools", limits.max_pools)),
        spare_replicas=int(spare[0] or 0) if spare else limits.spare_replicas,
        survive_nodes=0 if any(one.kind == "survive" for one in asked) else limits.survive_nodes,
        forbidden=tuple(item for place, item in enumerate(limits.forbidden) if str(place) not in forbidden),
    )


def _moved_gpu(name: str, item: GpuLimits, values: Mapping[str, float | None]) -> GpuLimits:
    return replace(
        item,
        max_count=_whole(values.get(f"fleet.gpus.{name}.max_count", item.max_count)),
        max_nodes=_whole(values.get(f"fleet.gpus.{name}.max_nodes", item.max_nodes)),
        offers=tuple(
            replace(offer, max_gpus=_whole(values[offer.key])) if offer.key in values else offer
            for offer in item.offers
        ),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
