"""What a plan embeds so that it can be verified alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from qmodel.evaluation import ApiCase, MeasuredCase, PoolCase, PoolSettings, pool_cases, price_in_fleet
from qmodel.problem import Instance, Price
from qmodel.types import Api, Fleet, KvLink, Limits, MeasuredCapacity, Periods, Replica, RequestClass, SloScope

__all__ = [
    "cases_from",
    "classes_from",
    "day_inputs",
    "limits_from",
    "periods_from",
    "plan_inputs",
    "settings_from",
    "scope_from",
    "versions",
]

_LIBRARIES = ("numpy", "scipy", "pulp", "highspy")


def plan_inputs(instance: Instance, fleet: Fleet, *, mip_gap: float) -> dict[str, object]:
    """Classes with their laws, replicas and prices of the pools, limits and catalog entries, as plain data.

    Args:
        instance: the bound problem.
        fleet: the fleet planned.
        mip_gap: gap at which its plan counts as optimal.
    """
    cases = pool_cases(instance, fleet, routed=fleet.routing)
    settings = [
        {"class": cls, "gpu": gpu, "choices": [dict(item) for item in choices]}
        for (cls, gpu), choices in sorted(instance.settings.items())
    ]
    used_gpus = {pool.gpu for pool in fleet.pools.values()}
    return {
        "confidence": instance.policy.confidence,
        "slo_scope": instance.policy.slo_scope,
        "mip_gap": mip_gap,
        "limits": instance.limits.to_dict(),
        "classes": {name: item.to_dict() for name, item in instance.classes.items()},
        "pools": {name: _case_data(case) for name, case in cases.items()},
        **({"settings": settings} if settings else {}),
        "catalog": {
            "digest": instance.catalog_digest,
            "gpus": {
                name: asdict(gpu)
                for name, item in instance.gpus.items()
                if name in used_gpus and (gpu := item.gpu) is not None
            },
            "calibrations": _calibrations(instance, fleet),
            "models": {name: asdict(item) for name, item in instance.models.items() if item is not None},
        },
    }


def day_inputs(instance: Instance, fleets: Sequence[Fleet], *, mip_gap: float) -> dict[str, object]:
    """The same for the fleets of a day: classes at their largest rates, pools of all fleets, and the periods.

    Args:
        instance: the bound problem, with periods.
        fleets: of each period.
        mip_gap: gap at which the plan counts as optimal.
    """
    assert instance.periods is not None
    parts = [plan_inputs(instance, fleet, mip_gap=mip_gap) for fleet in fleets if fleet.pools]
    catalogs = [_mapping(part["catalog"]) for part in parts]
    calibrations = [item for found in catalogs for item in _listed(found["calibrations"])]
    return {
        **parts[0],
        "limits": instance.limits.to_dict(),
        "classes": {name: item.to_dict() for name, item in instance.classes.items()},
        "pools": {name: case for part in parts for name, case in _mapping(part["pools"]).items()},
        "periods": instance.periods.to_dict(),
        "catalog": {
            **catalogs[0],
            "gpus": {name: gpu for found in catalogs for name, gpu in _mapping(found["gpus"]).items()},
            "calibrations": [item for place, item in enumerate(calibrations) if item not in calibrations[:place]],
        },
    }


def periods_from(inputs: Mapping[str, object]) -> Periods:
    """Periods of the day as a plan embeds them.

    Raises:
        KeyError: if a part is missing.
    """
    return Periods.from_dict(_mapping(inputs["periods"]))


def limits_from(inputs: Mapping[str, object]) -> Limits:
    """Limits as a plan embeds them.

    Raises:
        KeyError: if a part is missing.
    """
    return Limits.from_dict(_mapping(inputs["limits"]))


def scope_from(inputs: Mapping[str, object]) -> SloScope:
    """Where targets hold, as a plan embeds it; in every pool where it says nothing."""
    return "fleet" if inputs.get("slo_scope") == "fleet" else "pool"


def settings_from(inputs: Mapping[str, object]) -> dict[tuple[str, str], list[Mapping[str, object]]]:
    """Engine settings that classes may choose from, by class and GPU type, as a plan embeds them."""
    found = [_mapping(item) for item in _listed(inputs.get("settings", ()))]
    return {(str(item["class"]), str(item["gpu"])): [*map(_mapping, _listed(item["choices"]))] for item in found}


def _calibrations(instance: Instance, fleet: Fleet) -> list[dict[str, object]]:
    """The user's own constants of what the fleet runs."""
    used = {
        (model.name, gpu.name)
        for pool in fleet.gpu_pools
        if (model := instance.models[pool.model]) is not None and (gpu := instance.gpus[pool.gpu].gpu) is not None
    }
    return [dict(item) for item in instance.constants.calibrations if (item["model"], item["gpu"]) in used]


def classes_from(inputs: Mapping[str, object]) -> dict[str, RequestClass]:
    """Request classes as a plan embeds them.

    Raises:
        KeyError: if a part is missing.
    """
    return {name: RequestClass.from_dict(name, _mapping(item)) for name, item in _mapping(inputs["classes"]).items()}


def cases_from(inputs: Mapping[str, object], fleet: Fleet) -> dict[str, PoolCase | MeasuredCase]:
    """Replicas or capacities, routers and prices as a plan embeds them; what offers cost is derived from the fleet.

    Raises:
        KeyError: if a part is missing.
    """
    found, limits = _mapping(inputs["pools"]), limits_from(inputs)
    cases: dict[str, PoolCase | MeasuredCase] = {}
    for name, pool in fleet.pools.items():
        item = _mapping(found[name])
        price = price_in_fleet(_price_from(_mapping(item["price"])), pool, fleet, limits)
        if "api" in item:
            api, capacity = Api.from_dict(_mapping(item["api"])), MeasuredCapacity(max_rate_rps={})
            cases[name] = ApiCase(pool=pool, capacity=capacity, price=_price_from(_mapping(item["price"])), api=api)
            continue
        spare = limits.lost(pool.gpu, pool.layout.gpus, pool.replicas)
        if "capacity" in item:
            capacity = MeasuredCapacity.from_dict(_mapping(item["capacity"]))
            cases[name] = MeasuredCase(pool=pool, capacity=capacity, price=price, spare=spare)
            continue
        cases[name] = PoolCase(
            pool=pool,
            replica=Replica.from_dict(_mapping(item["replica"])),
            router=str(item["router"]),  # type: ignore[arg-type]  # written by plan_inputs
            price=price,
            link=KvLink(**_mapping(item["link"])) if "link" in item else None,  # type: ignore[arg-type]
            spare=spare,
            settings=PoolSettings(**_mapping(item["settings"])) if "settings" in item else None,  # type: ignore[arg-type]
        )
    return cases


def _case_data(case: PoolCase | MeasuredCase) -> dict[str, object]:
    if isinstance(case, ApiCase):
        return {"api": case.api.to_dict(), "price": asdict(case.price)}
    if isinstance(case, MeasuredCase):
        return {"capacity": case.capacity.to_dict(), "price": asdict(case.price)}
    data: dict[str, object] = {"replica": case.replica.to_dict(), "router": case.router, "price": asdict(case.price)}
    if case.settings is not None:
        data["settings"] = asdict(case.settings)
    return data if case.link is None else {**data, "link": asdict(case.link)}


def _price_from(data: Mapping[str, object]) -> Price:
    return Price(
        usd_per_gpu_hour=float(str(data["usd_per_gpu_hour"])), tier=str(data["tier"]), basis=str(data["basis"])
    )


def versions(instance: Instance) -> dict[str, str]:
    """Versions of qmodel, its catalog and the libraries that decide digits."""
    found = {"qmodel": _version("qmodel"), "catalog": instance.catalog_digest[:16]}
    return found | {name: _version(name) for name in _LIBRARIES}


@cache
def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def _mapping(data: object) -> Mapping[str, object]:
    if not isinstance(data, Mapping):
        raise KeyError("a mapping")
    return data


def _listed(data: object) -> Sequence[object]:
    if not isinstance(data, Sequence):
        raise KeyError("a list")
    return data
