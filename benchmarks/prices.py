"""Prices of limits, demand, targets and hardware against plans made again; run as ``python -m benchmarks.prices``.

Fleets are large, thousands of replicas, so that whole counts hardly matter. Every price is held against the change of
cost between two plans with the limit a little lower and a little higher. What a limit is worth may differ to both
sides, since cost is piecewise linear in it: both differences are shown, and a price between them agrees.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import qmodel as qm
from qmodel.evaluation.resource_worth import _hardware as moved_hardware
from qmodel.planning import plan_instance
from qmodel.problem import bind

EXACT = qm.SolverOptions(mip_gap=1e-4)
STEP = 0.04  # of a limit, to both sides
MOVED = 1.02  # hardware, as its marginal values are found
NOT_TOLD = 0.05  # elasticity below which a marginal value is left out
CLOSE = 0.06  # relative: counts are whole, and the frontier is known to 0.4 %


def large(router: str = "random") -> dict[str, Any]:
    """Two classes with a model each on a dear, fast GPU type and a cheap, slow one; thousands of replicas."""
    classes, profiles = {}, []
    for number, (model, rate_rps) in enumerate((("m", 27000.0), ("n", 21000.0))):
        classes[f"class-{model}"] = {
            "model": model,
            "rate_rps": rate_rps,
            "prompt_tokens": {"mean": 600 + 700 * number, "cv": 0.7, "max": 16000},
            "output_tokens": {"mean": 300 - 100 * number, "cv": 0.9, "max": 16000},
            "slo": {"tpot_mean_s": 0.04 + 0.01 * number},
        }
        for gpu, slow in (("big", 1.0), ("small", 1.5 + 0.3 * number)):
            profiles.append(
                {
                    "model": model,
                    "gpu": gpu,
                    "layout": {"tp": 1},
                    "alpha_s": slow * 0.008,
                    "beta_s": slow * (1.0 + number) * 1e-4,
                    "gamma_s": slow * 3e-8,
                    "delta_s": slow * 4e-5,
                    "max_num_seqs": 256,
                }
            )
    gpus = {
        "big": {"price": {"usd_per_gpu_hour": 4.0}, "gpus_per_node": 4, "power_w": 1000},
        "small": {"price": {"usd_per_gpu_hour": 1.3}, "gpus_per_node": 4, "power_w": 700},
    }
    return {
        "qmodel": 1,
        "classes": classes,
        "fleet": {"gpus": gpus},
        "engine": {"router": router},
        "profiles": profiles,
    }


def cases() -> Iterator[tuple[str, dict[str, Any], tuple[str, ...]]]:
    """Name, scenario, and the limits that are moved."""
    free = qm.plan(large(), solver=EXACT)
    assert free.fleet is not None and free.cost_usd_per_hour is not None
    small = free.fleet.gpus.get("small", 0)
    kw = sum(count * {"big": 1.0, "small": 0.7}[gpu] for gpu, count in free.fleet.gpus.items())
    cheap = next(row for row in free.pools if row.gpu == "small")
    assert cheap.cost_usd_per_hour is not None

    def limited(**changes: Any) -> dict[str, Any]:
        data = copy.deepcopy(large())
        for key, value in changes.items():
            gpu, _, name = key.partition("__")
            (data["fleet"]["gpus"][gpu] if name else data["fleet"])[name or gpu] = value
        return data

    rates = tuple(f"classes.{name}.rate_rps" for name in large()["classes"])
    yield "no limit", limited(), rates
    yield "stock", limited(small__max_count=small // 2), ("fleet.gpus.small.max_count", *rates)
    yield "nodes", limited(small__max_nodes=small // 8), ("fleet.gpus.small.max_nodes",)
    yield (
        "whole nodes",
        limited(small__max_nodes=small // 8, small__billing="per_node"),
        ("fleet.gpus.small.max_nodes",),
    )
    yield "power", limited(power_kw=0.9 * kw), ("fleet.power_kw",)
    sold = {"small__provider": "x", "big__provider": "y"}
    yield (
        "GPUs of a provider",
        limited(**sold, providers={"x": {"max_gpus": small // 2}}),
        ("fleet.providers.x.max_gpus",),
    )
    usd = {"x": {"max_usd_per_hour": 0.65 * small}}
    yield "money at a provider", limited(**sold, providers=usd), ("fleet.providers.x.max_usd_per_hour",)
    tiers = [
        {"term": "reserved_1y", "usd_per_gpu_hour": 0.9, "max_count": small // 2},
        {"term": "on_demand", "usd_per_gpu_hour": 1.3},
    ]
    data = limited(small__tiers=tiers)
    del data["fleet"]["gpus"]["small"]["price"]
    yield "tier", data, ("fleet.gpus.small.tiers[0].max_count",)


def moved(data: Mapping[str, Any], key: str, factor: float) -> tuple[float, float] | None:
    """The value of a limit times a factor, whole where it counts, and the cost of the plan; None without one."""
    whole = key.rpartition(".")[2] in ("max_count", "max_nodes", "max_gpus")
    part: Any = data
    for name in key.replace("[", ".").replace("]", "").split("."):
        part = part[int(name)] if isinstance(part, list) else part[name]
    value = round(part * factor) if whole else part * factor
    changed = copy.deepcopy(dict(data))
    place: Any = changed
    *way, last = key.replace("[", ".").replace("]", "").split(".")
    for name in way:
        place = place[int(name)] if isinstance(place, list) else place[name]
    place[last] = value
    plan = qm.plan(changed, solver=EXACT)
    return None if plan.cost_usd_per_hour is None else (float(value), plan.cost_usd_per_hour)


def row(name: str, key: str, price: float, data: Mapping[str, Any], step: float = STEP) -> bool:
    """Print one price beside both differences; whether it agrees with them."""
    points = [moved(data, key, factor) for factor in (1.0 - step, 1.0, 1.0 + step)]
    if any(point is None for point in points):
        print(f"{name:20} {key:42} {price:12.4g}  no plan beside it")
        return False
    (x0, c0), (x1, c1), (x2, c2) = (point for point in points if point is not None)
    below, above = (c1 - c0) / (x1 - x0), (c2 - c1) / (x2 - x1)
    low, high = sorted((below, above))
    room = CLOSE * max(abs(low), abs(high), 1e-9)
    agrees = low - room <= price <= high + room
    print(f"{name:20} {key:42} {price:12.4g} {below:12.4g} {above:12.4g} {'agrees' if agrees else 'DIFFERS'}")
    return agrees


def main() -> None:
    print(f"{'case':20} {'limit':42} {'price':>12} {'below':>12} {'above':>12}")
    good = True
    for name, data, keys in cases():
        plan = qm.plan(data, solver=EXACT)
        prices = {item.limit: item.usd_per_hour_per_unit for item in plan.prices}
        for key in keys:
            good &= row(name, key, prices.get(key, 0.0), data)
    data = large()
    del data["fleet"]["gpus"]["small"]
    data["profiles"] = [item for item in data["profiles"] if item["gpu"] == "big"]
    plan = qm.plan(data, solver=EXACT)
    assert plan.fleet is not None
    for item in qm.marginal_values(data, plan.fleet).rows:
        good &= row("target", item.figure, item.usd_per_hour_per_unit, data)
    for tp, slo in ((2, {"tpot_mean_s": 0.03}), (4, {"ttft_p95_s": 0.5, "tpot_mean_s": 0.05})):
        good &= hardware(tp, slo)
    sys.exit(0 if good else 1)


def hardware(tp: int, slo: Mapping[str, float]) -> bool:
    """Memory, bandwidth, arithmetic and links of one GPU type: plans with each a little lower and a little higher."""
    data = {
        "qmodel": 1,
        "classes": {
            "chat": {
                "model": "llama-3.3-70b",
                "rate_rps": 10_000.0,
                "prompt_tokens": {"mean": 900, "cv": 0.8, "max": 16000},
                "output_tokens": {"mean": 250, "cv": 0.8, "max": 8000},
                "slo": dict(slo),
            }
        },
        "fleet": {"gpus": {"h200-sxm": {"price": {"usd_per_gpu_hour": 3.5}}}},
        "engine": {"router": "random"},
        "layouts": {"tp": [tp], "pp": [1], "disaggregate": False},
    }
    instance = bind(qm.load_scenario(data))
    plan = plan_instance(instance, options=EXACT)
    assert plan.fleet is not None
    prices = {item.figure: item for item in qm.marginal_values(data, plan.fleet).rows}
    good = True
    for figure in moved_hardware(instance, plan.fleet):
        costs = [plan_instance(changed, options=EXACT).cost_usd_per_hour for changed in (figure.less, figure.more)]
        if costs[0] is None or costs[1] is None:
            print(f"{f'tp {tp}':20} {figure.key:42} no plan beside it")
            continue
        width = figure.present * (MOVED - 1.0 / MOVED)
        moved_by = (costs[1] - costs[0]) / width
        price = prices[figure.key].usd_per_hour_per_unit if figure.key in prices else 0.0
        # elasticities under 0.05 are not told
        room = max(CLOSE * abs(moved_by), NOT_TOLD * (plan.cost_usd_per_hour or 0.0) / figure.present)
        agrees = abs(price - moved_by) <= room
        good &= agrees
        verdict = "agrees" if agrees else "DIFFERS"
        print(f"{f'tp {tp}':20} {figure.key:42} {price:12.4g} {moved_by:12.4g} {'':12} {verdict}")
    return good


if __name__ == "__main__":
    main()
