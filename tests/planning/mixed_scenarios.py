"""Random small scenarios that mix what a scenario may state: targets, bursts, prices, limits, several models, APIs."""

from __future__ import annotations

from typing import Any

import numpy as np

from qmodel.types import Fleet, Layout, Pool

__all__ = ["existing_fleet", "mixed_scenario", "running_fleet"]

Data = dict[str, Any]


def mixed_scenario(seed: int) -> Data:
    """One to three classes of one or two models on one to three GPU types that profiles describe.

    What else is stated is drawn feature by feature, so that most scenarios have several of them together. The demand
    of a class takes one to three replicas of a GPU type.
    """
    rng = np.random.default_rng([seed, 77])
    models = ["m", "n"][: int(rng.integers(1, 3))]
    gpus = {f"g{number}": slow for number, slow in enumerate((1.0, 1.9, 0.7)[: int(rng.integers(1, 4))])}
    laws = {model: _law(rng) for model in models}
    count = max(int(rng.choice([1, 2, 3], p=[0.25, 0.5, 0.25])), len(models))
    classes = {}
    for number in range(count):
        model = models[number % len(models)] if number < 2 or rng.random() < 0.3 else models[-1]
        classes[f"c{number}"] = _class(rng, model, laws[model], shared=count)
    profiles = _profiles(rng, laws, gpus, classes)
    known = {item["gpu"] for item in profiles}
    data: Data = {
        "qmodel": 1,
        "classes": classes,
        "fleet": {"gpus": {gpu: item for gpu, item in _gpus(rng, gpus).items() if gpu in known}},
        "engine": {"router": str(rng.choice(["random", "jsq", "round_robin"], p=[0.45, 0.45, 0.1]))},
        "profiles": profiles,
        "policy": {},
    }
    if rng.random() < 0.15:
        data["policy"]["confidence"] = "p90"
    for add, chance in (
        (_limit_gpus, 0.45),
        (_limit_fleet, 0.3),
        (_keep_replicas, 0.3),
        (_several_models, 0.5 if len(models) > 1 else 0.0),
        (_sell_tokens, 0.2),
        (_isolate, 0.12 if count > 1 else 0.0),
        (_forbid, 0.1),
        (_change, 0.12),
    ):
        if rng.random() < chance:
            add(rng, data)
    return data


def running_fleet(seed: int, data: Data) -> dict[tuple[str, str, int], int]:
    """Replicas that run already by model, GPU type and tensor-parallel degree, where changing them costs something."""
    rng = np.random.default_rng([seed, 78])
    if "change" not in data["policy"]:
        return {}
    found = {}
    for item in data["profiles"]:
        if "max_rate_rps" not in item and rng.random() < 0.7:
            found[item["model"], item["gpu"], item["layout"]["tp"]] = int(rng.integers(1, 4))
    return found


def existing_fleet(seed: int, data: Data) -> Fleet | None:
    """The fleet that runs already, None where there is none."""
    pools = {
        f"{model}-{gpu}": Pool(name=f"{model}-{gpu}", model=model, gpu=gpu, layout=Layout(tp=tp), replicas=count)
        for (model, gpu, tp), count in running_fleet(seed, data).items()
    }
    return Fleet(pools=pools, routing={}) if pools else None


def _law(rng: np.random.Generator) -> dict[str, float]:
    return {
        "alpha_s": float(rng.uniform(0.006, 0.012)),
        "beta_s": float(rng.uniform(5e-5, 2e-4)),
        "gamma_s": float(rng.uniform(1e-8, 5e-8)),
        "delta_s": float(rng.uniform(3e-5, 7e-5)),
    }


def _class(rng: np.random.Generator, model: str, law: dict[str, float], shared: int) -> Data:
    """Targets are multiples of what an idle replica does, the rate is a multiple of what one replica might carry."""
    prompt, output = float(rng.uniform(200, 2500)), float(rng.uniform(80, 700))
    step_s = law["alpha_s"] + 20 * law["beta_s"] + law["delta_s"] * 200
    slo: Data = {}
    options = {
        "ttft_p95_s": (law["delta_s"] * prompt * 4 + 0.2) * float(rng.uniform(0.8, 2.5)),
        "ttft_mean_s": (law["delta_s"] * prompt * 1.5 + 0.1) * float(rng.uniform(0.8, 2.5)),
        "tpot_mean_s": step_s * float(rng.uniform(1.2, 3.0)),
        "tpot_p95_s": step_s * float(rng.uniform(1.6, 3.5)),
        "completion_p90_s": step_s * output * float(rng.uniform(2.5, 6.0)),
        "completion_mean_s": step_s * output * float(rng.uniform(1.3, 3.0)),
    }
    for key in rng.choice(list(options), size=int(rng.integers(1, 4)), replace=False).tolist():
        slo[key] = round(options[key], 4)
    item: Data = {"model": model, "prompt_tokens": {"mean": round(prompt), "cv": 0.7, "max": 16000}}
    if rng.random() < 0.12:
        item["reasoning_tokens"] = {"mean": round(output * 0.7), "cv": 0.8, "max": 8000}
        item["answer_tokens"] = {"mean": round(output * 0.3), "cv": 0.6, "max": 4000}
        slo["answer_start_p90_s"] = round(step_s * output * float(rng.uniform(2.0, 5.0)), 4)
    else:
        item["output_tokens"] = {"mean": round(output), "cv": 0.9, "max": 16000}
    work_s = output * (law["alpha_s"] / 24 + law["beta_s"]) + law["delta_s"] * prompt
    rate_rps = round(float(rng.uniform(0.5, 2.2)) / work_s / shared**0.5, 4)
    shape = rng.random()
    if shape < 0.08:
        item["arrivals"] = {"rate_rps": rate_rps, "scv": float(rng.choice([0.3, 3.0]))}
    elif shape < 0.14:
        item["arrivals"] = {"rate_rps": rate_rps, "peakedness": {"z": 2.5, "at_s": 8.0}}
    elif shape < 0.18:
        mmpp = {"peak_to_mean": 1.8, "mean_peak_s": 30, "mean_base_s": 90}
        item["arrivals"] = {"rate_rps": rate_rps, "mmpp": mmpp}
    else:
        item["rate_rps"] = rate_rps
    if rng.random() < 0.2:
        item["priority"] = int(rng.integers(1, 3))
    item["slo"] = slo
    return item


def _gpus(rng: np.random.Generator, gpus: dict[str, float]) -> Data:
    found = {}
    for name, slow in gpus.items():
        usd = round(4.0 / slow * float(rng.uniform(0.7, 1.3)), 3)
        found[name] = {"price": {"usd_per_gpu_hour": usd}, "gpus_per_node": 4, "power_w": 700 if slow < 1.5 else 400}
    return found


def _profiles(rng: np.random.Generator, laws: Data, gpus: dict[str, float], classes: Data) -> list[Data]:
    found: list[Data] = []
    tp = {gpu: int(rng.choice([1, 1, 1, 2])) for gpu in gpus}
    for model, law in laws.items():
        for place, (gpu, slow) in enumerate(gpus.items()):
            if place and rng.random() < 0.15:
                continue
            item: Data = {"model": model, "gpu": gpu, "layout": {"tp": tp[gpu]}}
            mine = [name for name, one in classes.items() if one["model"] == model]
            if mine and rng.random() < 0.12:
                part = {name: float(rng.uniform(0.3, 1.2)) for name in mine}
                item["max_rate_rps"] = {name: round(part[name] * _rate_rps(classes[name]), 4) for name in mine}
            else:
                speed = tp[gpu] ** 0.7 / slow
                item |= {key: value / speed * float(rng.uniform(0.9, 1.1)) for key, value in law.items()}
                item["max_num_seqs"] = int(rng.choice([48, 128]))
                if rng.random() < 0.3:
                    item["kv_tokens"] = float(rng.uniform(4e4, 2e5))
                if rng.random() < 0.3:
                    item["band_p90"] = 0.06
            found.append(item)
    return found


def _limit_gpus(rng: np.random.Generator, data: Data) -> None:
    """Stock, tiers, nodes and spot of GPU types."""
    measured = {item["gpu"] for item in data["profiles"] if "max_rate_rps" in item}
    for gpu, stated in data["fleet"]["gpus"].items():
        kind, usd = rng.random(), stated["price"]["usd_per_gpu_hour"]
        if kind < 0.3:
            stated["max_count"] = int(rng.integers(1, 8))
        elif kind < 0.5:
            del stated["price"]
            stated["tiers"] = [
                {"term": "reserved_1y", "usd_per_gpu_hour": round(0.6 * usd, 3), "max_count": int(rng.integers(1, 6))},
                {"term": "on_demand", "usd_per_gpu_hour": usd},
            ]
            if rng.random() < 0.4:
                stated["tiers"][1]["max_count"] = int(rng.integers(2, 6))
        elif kind < 0.6:
            stated["billing"] = "per_node"
        elif kind < 0.7:
            stated["max_nodes"] = int(rng.integers(1, 3))
        elif kind < 0.85 and gpu not in measured:
            stated["price"] = {"term": "spot", "usd_per_gpu_hour": round(0.5 * usd, 3)}
            stated["spot"] = {"preemptions_per_hour": 0.1, "restart_s": 300, "instance_gpus": int(rng.choice([1, 4]))}


def _limit_fleet(rng: np.random.Generator, data: Data) -> None:
    fleet, kind = data["fleet"], rng.random()
    if kind < 0.25:
        fleet["power_kw"] = round(float(rng.uniform(1.0, 5.0)), 2)
    elif kind < 0.5:
        fleet["budget_usd_per_hour"] = round(float(rng.uniform(5.0, 30.0)), 2)
    elif kind < 0.75:
        first = next(iter(fleet["gpus"].values()))
        first |= {"provider": "one", "region": "east"}
        usd = round(float(rng.uniform(6, 20)), 2)
        fleet["providers"] = {"one": {"max_gpus": int(rng.integers(1, 6)), "max_usd_per_hour": usd}}
    else:
        for stated in fleet["gpus"].values():
            stated["region"] = "east"
        fleet["regions"] = {"east": {"max_gpus": int(rng.integers(2, 10))}}


def _keep_replicas(rng: np.random.Generator, data: Data) -> None:
    kind = rng.random()
    if kind < 0.4:
        data["policy"]["spare_replicas"] = int(rng.integers(1, 3))
    elif kind < 0.6:
        data["policy"]["survive_nodes"] = 1
    else:
        data["policy"]["max_pools"] = int(rng.integers(1, 4))
        if rng.random() < 0.3:
            data["policy"]["spare_replicas"] = 1


def _several_models(rng: np.random.Generator, data: Data) -> None:
    """The first class may be served by both models; a capacity is then measured of both or of none."""
    if any("max_rate_rps" in item for item in data["profiles"]):
        return
    first = data["classes"]["c0"]
    del first["model"]
    first["models"] = {"m": {"quality": 0.8}, "n": {"quality": 0.7}}
    kind = rng.random()
    if kind < 0.6:
        first["min_quality"] = round(float(rng.uniform(0.71, 0.79)), 3)
    elif kind < 0.75:
        first["floor"] = 0.75


def _sell_tokens(rng: np.random.Generator, data: Data) -> None:
    """An API for one model, dearer or cheaper than GPUs are."""
    if any("models" in item for item in data["classes"].values()):
        return
    model = str(rng.choice(sorted({item["model"] for item in data["classes"].values()})))
    mine = [name for name, item in data["classes"].items() if item["model"] == model]
    usd = round(float(rng.uniform(0.1, 1.2)), 3)
    stated: Data = {"usd_per_million_input": usd, "usd_per_million_output": 3 * usd, "meets": mine}
    if rng.random() < 0.4:
        whole_rps = sum(_rate_rps(data["classes"][name]) for name in mine)
        stated["max_rate_rps"] = round(whole_rps * float(rng.uniform(0.1, 0.7)), 4)
    data["fleet"]["apis"] = {"tokens": {"models": {model: stated}}}


def _isolate(rng: np.random.Generator, data: Data) -> None:
    data["classes"][str(rng.choice(sorted(data["classes"])))]["isolate"] = True


def _forbid(rng: np.random.Generator, data: Data) -> None:
    item = data["profiles"][int(rng.integers(len(data["profiles"])))]
    data["layouts"] = {"forbid": [{"model": item["model"], "gpu": item["gpu"]}]}


def _change(rng: np.random.Generator, data: Data) -> None:
    start, stop = float(rng.uniform(5, 60)), float(rng.uniform(0, 6))
    data["policy"]["change"] = {"start_usd_per_gpu": start, "stop_usd_per_gpu": stop, "spread_h": 24.0}


def _rate_rps(item: Data) -> float:
    return float(item["rate_rps"] if "rate_rps" in item else item["arrivals"]["rate_rps"])
