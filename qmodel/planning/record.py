"""What a plan embeds so that it can be verified alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from qmodel.evaluation import PoolCase, pool_cases
from qmodel.problem import Instance, Price
from qmodel.types import Fleet, Pool, Replica, RequestClass

__all__ = ["classes_from", "cases_from", "plan_inputs", "versions"]

_LIBRARIES = ("numpy", "scipy", "pulp", "highspy")


def plan_inputs(instance: Instance, fleet: Fleet, *, mip_gap: float) -> dict[str, object]:
    """Classes with their laws, replicas and prices of the pools, stock and catalog entries, as plain data.

    Args:
        instance: the bound problem.
        fleet: the fleet planned.
        mip_gap: gap at which its plan counts as optimal.
    """
    cases = pool_cases(instance, fleet)
    used_gpus = {pool.gpu for pool in fleet.pools.values()}
    return {
        "confidence": instance.policy.confidence,
        "mip_gap": mip_gap,
        "stock": {name: item.max_count for name, item in instance.gpus.items()},
        "classes": {name: item.to_dict() for name, item in instance.classes.items()},
        "pools": {
            name: {"replica": case.replica.to_dict(), "router": case.router, "price": asdict(case.price)}
            for name, case in cases.items()
        },
        "catalog": {
            "digest": instance.catalog_digest,
            "gpus": {
                name: asdict(gpu)
                for name, item in instance.gpus.items()
                if name in used_gpus and (gpu := item.gpu) is not None
            },
            "models": {name: asdict(item) for name, item in instance.models.items() if item is not None},
        },
    }


def classes_from(inputs: Mapping[str, object]) -> dict[str, RequestClass]:
    """Request classes as a plan embeds them.

    Raises:
        KeyError: if a part is missing.
    """
    return {name: RequestClass.from_dict(name, _mapping(item)) for name, item in _mapping(inputs["classes"]).items()}


def cases_from(inputs: Mapping[str, object], pools: Mapping[str, Pool]) -> dict[str, PoolCase]:
    """Replicas, routers and prices as a plan embeds them.

    Raises:
        KeyError: if a part is missing.
    """
    found = _mapping(inputs["pools"])
    cases = {}
    for name, pool in pools.items():
        item = _mapping(found[name])
        price = _mapping(item["price"])
        cases[name] = PoolCase(
            pool=pool,
            replica=Replica.from_dict(_mapping(item["replica"])),
            router=str(item["router"]),  # type: ignore[arg-type]  # written by plan_inputs
            price=Price(
                usd_per_gpu_hour=float(str(price["usd_per_gpu_hour"])),
                tier=str(price["tier"]),
                basis=str(price["basis"]),
            ),
        )
    return cases


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
