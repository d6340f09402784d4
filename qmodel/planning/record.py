"""What a plan embeds so that it can be verified alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from qmodel.evaluation import PoolCase, pool_cases
from qmodel.problem import Instance, Price
from qmodel.types import Fleet, Lengths, Pool, Replica, RequestClass, Slo, StepLaw

__all__ = ["classes_from", "cases_from", "plan_inputs", "versions"]

_LIBRARIES = ("numpy", "scipy", "pulp", "highspy")


def plan_inputs(instance: Instance, fleet: Fleet) -> dict[str, object]:
    """Classes with their laws, replicas and prices of the pools, stock and catalog entries, as plain data."""
    cases = pool_cases(instance, fleet)
    used_gpus = {pool.gpu for pool in fleet.pools.values()}
    return {
        "confidence": instance.policy.confidence,
        "stock": {name: item.max_count for name, item in instance.gpus.items()},
        "classes": {name: _class_to(item) for name, item in instance.classes.items()},
        "pools": {
            name: {"replica": _replica_to(case.replica), "router": case.router, "price": asdict(case.price)}
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
    return {name: _class_from(name, item) for name, item in _mapping(inputs["classes"]).items()}


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
            replica=_replica_from(_mapping(item["replica"])),
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


def _class_to(item: RequestClass) -> dict[str, object]:
    return {
        "model": item.model,
        "rate_rps": item.rate_rps,
        "lengths": item.lengths.to_dict(),
        "slo": [asdict(slo) for slo in item.slos],
        "priority": item.priority,
        "arrivals": item.arrivals_note,
    }


def _class_from(name: str, data: object) -> RequestClass:
    item = _mapping(data)
    slos = item["slo"]
    assert isinstance(slos, list)
    return RequestClass(
        name=name,
        model=str(item["model"]),
        rate_rps=float(str(item["rate_rps"])),
        lengths=Lengths.from_dict(dict(_mapping(item["lengths"]))),
        slos=tuple(Slo(**slo) for slo in slos),
        priority=int(str(item["priority"])),
        arrivals_note=str(item["arrivals"]),
    )


def _replica_to(replica: Replica) -> dict[str, object]:
    return {
        "step": replica.step.to_dict(),
        "max_num_seqs": replica.max_num_seqs,
        "kv_tokens": replica.kv_tokens,
        "max_batched_tokens": replica.max_batched_tokens,
        "watermark": replica.watermark,
        "admission": replica.admission,
        "kv_slope": replica.kv_slope,
        "kv_fixed_tokens": replica.kv_fixed_tokens,
    }


def _replica_from(data: Mapping[str, object]) -> Replica:
    fields = dict(data)
    step = StepLaw.from_dict(dict(_mapping(fields.pop("step"))))
    return replace(Replica(step=step), **fields)  # type: ignore[arg-type]  # written by plan_inputs


def _mapping(data: object) -> Mapping[str, object]:
    if not isinstance(data, Mapping):
        raise KeyError("a mapping")
    return data
