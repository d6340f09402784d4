"""The least cost of all small fleets of a scenario: counts times splits, each fleet checked by an exact evaluation.

Written from the meaning of a scenario. Of the package it uses what binds a scenario and what evaluates a fleet, nothing
that looks for one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import qmodel as qm
from qmodel.evaluation import evaluate_fleet
from qmodel.problem import Instance, at_confidence, bind, replica_of
from qmodel.types import Fleet, FloatArray, Layout, MeasuredCapacity, Path, Pool, Refusal, RequestClass
from tests.planning.carried_mixes import STEPS, regions_of
from tests.planning.stated_costs import StatedPool, fleet_cost, replicas_of_pool

__all__ = ["CheapestFleet", "cheapest_fleet"]

_LARGEST = {1: 8, 2: 6, 3: 5}  # serving replicas of one pool, by the classes that may share it
_MOST_POOLS = {1: 3, 2: 3, 3: 2}  # of one group of classes
_TRIES = 40  # fleets checked before the search ends without one
_WHOLE = 1.0 - 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class CheapestFleet:
    """What brute force found; infinite cost where no fleet keeps every limit and target."""

    cost_usd_per_hour: float
    pools: tuple[StatedPool, ...] = ()
    tokens_usd: float = 0.0
    checked: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class _Way:
    """Pools that carry a group of classes, their shares, what an API is paid for the rest.

    Attributes:
        shares: of each class in each pool, shape (P, K).
        tokens: of each class by the token, shape (K,).
        flexible: largest share of the class that other models may serve too; 1 where there is none.
    """

    pools: tuple[StatedPool, ...]
    shares: FloatArray
    tokens: FloatArray
    tokens_usd: float
    flexible: float


def cheapest_fleet(data: Mapping[str, Any], running: Mapping[tuple[str, str, int], int] | None = None) -> CheapestFleet:
    """The cheapest of all fleets of up to three pools for each group of classes that may share them.

    Args:
        data: a scenario as :func:`tests.planning.mixed_scenarios.mixed_scenario` draws them.
        running: replicas that run already.
    """
    instance = bind(qm.load_scenario(dict(data)))
    groups = _groups(data)
    ways = [_undominated(list(_ways(data, instance, model, names))) for model, names in groups]
    fleets = []
    for chosen in itertools.product(*ways):
        pools = tuple(pool for way in chosen for pool in way.pools)
        tokens_usd = sum(way.tokens_usd for way in chosen)
        if _model_shares(data, groups, chosen) is None:
            continue
        cost = fleet_cost(pools, data, tokens_usd=tokens_usd, running=running)
        if np.isfinite(cost):
            fleets.append((cost, pools, tokens_usd, chosen))
    fleets.sort(key=lambda item: item[0])
    for cost, pools, tokens_usd, chosen in fleets[:_TRIES]:
        fleet = _fleet(data, groups, chosen)
        if evaluate_fleet(instance, fleet).feasible:
            return CheapestFleet(cost_usd_per_hour=cost, pools=pools, tokens_usd=tokens_usd)
    return CheapestFleet(cost_usd_per_hour=np.inf, checked=len(fleets) <= _TRIES)


def _groups(data: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
    """Model and classes of each group that may share pools; a class that several models may serve comes first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, item in data["classes"].items():
        for model, _ in _qualities(item):
            groups.setdefault((model, name if item.get("isolate") else ""), []).append(name)
    flexible = [name for name, item in data["classes"].items() if len(_qualities(item)) > 1]
    order = {key: tuple(sorted(names, key=lambda name: name not in flexible)) for key, names in groups.items()}
    return [(model, names) for (model, _), names in sorted(order.items())]


def _qualities(item: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Models that may serve a class, with their quality."""
    if "models" not in item:
        return [(item["model"], 1.0)]
    return [(m, one["quality"]) for m, one in item["models"].items() if one["quality"] >= item.get("floor", 0.0)]


def _model_shares(
    data: Mapping[str, Any], groups: Sequence[tuple[str, tuple[str, ...]]], chosen: Sequence[_Way]
) -> dict[tuple[str, str], float] | None:
    """Shares of the two models of a class that keep its quality; None where what they carry does not allow it."""
    found = {}
    for name, item in data["classes"].items():
        able = sorted(_qualities(item), key=lambda one: -one[1])
        if len(able) < 2:
            continue
        most = {model: way.flexible for (model, names), way in zip(groups, chosen, strict=True) if name in names}
        (better, high), (other, low) = able
        least = 0.0 if "min_quality" not in item else (item["min_quality"] - low) / (high - low)
        least, largest = max(least, 1.0 - most[other]), min(most[better], 1.0)
        if least > largest:
            return None
        share = (least + largest) / 2.0
        found |= {(name, better): share, (name, other): 1.0 - share}
    return found


def _ways(data: Mapping[str, Any], instance: Instance, model: str, names: tuple[str, ...]) -> Iterator[_Way]:
    """Sets of pools that carry a group, with an API where it has one."""
    classes = [instance.classes[name] for name in names]
    size, steps = len(classes), STEPS[len(classes)]
    flexible = len(_qualities(data["classes"][names[0]])) > 1
    prices, room_rps = _api(data, instance, model, classes)
    pools, most = [], []
    for pool, found in _pools(data, instance, model, classes):
        pools.append(pool)
        most.append(found)
    nothing = np.full((steps + 1,) * (size - 1), -np.inf)
    nothing[(0,) * (size - 1)] = 0.0
    layers: list[list[tuple[tuple[int, ...], FloatArray]]] = [[((), nothing)]]
    for _ in range(_MOST_POOLS[size]):
        layer = []
        for members, total in layers[-1]:
            for place in range(members[-1] if members else 0, len(pools)):
                layer.append(((*members, place), _together(total, most[place], steps)))
        layers.append(layer)
    for members, total in itertools.chain.from_iterable(layers):
        found = _covered(total, classes, prices, room_rps, flexible, steps)
        if found is None:
            continue
        cell, last, part = found
        shares = _split([most[place] for place in members], cell, last, steps)
        carried = np.array([*(np.array(cell) / steps), last])
        tokens = np.where(np.isfinite(prices), np.maximum(1.0 - carried, 0.0), 0.0)
        if flexible:
            tokens[0] = 0.0
        usd = float(np.where(tokens > 0.0, tokens * np.where(np.isfinite(prices), prices, 0.0), 0.0).sum())
        yield _Way(tuple(pools[place] for place in members), shares, tokens, usd, part)


def _pools(
    data: Mapping[str, Any], instance: Instance, model: str, classes: Sequence[RequestClass]
) -> Iterator[tuple[StatedPool, FloatArray]]:
    """Pools of every GPU type and count with what they carry."""
    confidence = data["policy"].get("confidence", "nominal")
    barred = [(item.get("model"), item.get("gpu")) for item in data.get("layouts", {}).get("forbid", [])]
    for item in data["profiles"]:
        gpu, tp = item["gpu"], item["layout"]["tp"]
        if item["model"] != model or (model, gpu) in barred:
            continue
        replica = replica_of(instance, model=model, gpu=gpu, layout=Layout(tp=tp))
        assert not isinstance(replica, Refusal)
        if not isinstance(replica, MeasuredCapacity):
            replica = at_confidence(replica, confidence)
        counts = range(1, _LARGEST[len(classes)] + 1)
        router = data["engine"]["router"]
        for count, region in zip(counts, regions_of(replica, classes, counts, router, confidence), strict=True):
            yield StatedPool(gpu, tp, count, model), region.most


def _api(
    data: Mapping[str, Any], instance: Instance, model: str, classes: Sequence[RequestClass]
) -> tuple[FloatArray, float]:
    """USD/h of the whole demand of each class by the token, infinite where it is not sold, and the most requests/s."""
    stated = data["fleet"].get("apis", {}).get("tokens", {"models": {}})["models"].get(model)
    if stated is None:
        return np.full(len(classes), np.inf), 0.0
    prices = [
        3600.0
        * item.rate_rps
        * (
            item.lengths.prompt.mean * stated["usd_per_million_input"]
            + item.lengths.output.mean * stated["usd_per_million_output"]
        )
        / 1e6
        if item.name in stated["meets"]
        else np.inf
        for item in classes
    ]
    return np.array(prices), stated.get("max_rate_rps", np.inf)


def _together(one: FloatArray, other: FloatArray, steps: int) -> FloatArray:
    """Most of the last class that two pools carry with each share of the others between them."""
    if one.ndim == 0:
        return np.array(np.maximum(one, 0.0) + other)
    total = np.full(one.shape, -np.inf)
    for cell in zip(*np.nonzero(np.isfinite(other)), strict=True):
        into = tuple(slice(place, steps + 1) for place in cell)
        frm = tuple(slice(0, steps + 1 - place) for place in cell)
        total[into] = np.maximum(total[into], one[frm] + other[cell])
    return np.minimum(total, 1.0)


def _covered(
    total: FloatArray,
    classes: Sequence[RequestClass],
    prices: FloatArray,
    room_rps: float,
    flexible: bool,
    steps: int,
) -> tuple[tuple[int, ...], float, float] | None:
    """The cell, the share of the last class, and that of a class that others may serve; None: not carried."""
    if flexible and total.ndim == 0:
        part = float(min(total, 1.0))
        return (), part, part
    if flexible:
        others = (slice(None), *[steps] * (total.ndim - 1))
        able = np.flatnonzero(total[others] >= _WHOLE)
        if able.size == 0:
            return None
        return (int(able[-1]), *[steps] * (total.ndim - 1)), 1.0, float(able[-1] / steps)
    if not np.isfinite(prices).any():
        whole = (steps,) * total.ndim
        return (whole, 1.0, 1.0) if total[whole] >= _WHOLE else None
    axes = np.indices(total.shape).reshape(total.ndim, -1).T / steps if total.ndim else np.zeros((1, 0))
    carried = np.column_stack([axes, np.minimum(total.reshape(-1), 1.0)])
    left = np.maximum(1.0 - carried, 0.0)
    rates = np.array([item.rate_rps for item in classes])
    with np.errstate(invalid="ignore"):
        usd = np.where(left > 1.0 - _WHOLE, left * prices, 0.0).sum(axis=1)
        usd = np.where((left @ rates <= room_rps + 1e-9) & np.isfinite(carried[:, -1]), usd, np.inf)
    best = int(np.argmin(usd))
    if not np.isfinite(usd[best]):
        return None
    cell = tuple(int(place) for place in np.unravel_index(best, total.shape)) if total.ndim else ()
    return cell, float(carried[best, -1]), 1.0


def _split(parts: Sequence[FloatArray], cell: tuple[int, ...], last: float, steps: int) -> FloatArray:
    """Shares of every class in each pool that together are those of a cell, shape (P, K)."""
    if not parts:
        return np.zeros((0, len(cell) + 1))
    found: list[list[float]] = []
    left = cell
    for place in range(len(parts) - 1, -1, -1):
        before = _fold(parts[:place], steps)
        own = _best_cell(before, parts[place], left)
        found.append([*(np.array(own) / steps), float(np.maximum(parts[place][own], 0.0))])
        left = tuple(whole - mine for whole, mine in zip(left, own, strict=True))
    shares = np.array(found[::-1])
    total = shares[:, -1].sum()
    if total > 0.0:
        shares[:, -1] *= min(last / total, 1.0)
    return shares


def _fold(parts: Sequence[FloatArray], steps: int) -> FloatArray | None:
    total = None
    for part in parts:
        total = part if total is None else _together(total, part, steps)
    return total


def _best_cell(before: FloatArray | None, own: FloatArray, cell: tuple[int, ...]) -> tuple[int, ...]:
    """Where of a cell a pool stands when those before it have the rest."""
    if before is None or not cell:
        return cell
    best, value = cell, -np.inf
    for mine in itertools.product(*(range(place + 1) for place in cell)):
        rest = tuple(whole - part for whole, part in zip(cell, mine, strict=True))
        here = own[mine] + before[rest]
        if here > value:
            best, value = mine, float(here)
    return best


def _undominated(ways: Sequence[_Way]) -> list[_Way]:
    """Without ways that take no fewer replicas of any kind, pools or tokens and carry no more than another."""
    if not ways:
        return []
    kept: dict[tuple[object, ...], _Way] = {}
    for way in ways:
        key = tuple(sorted(way.pools))
        known = kept.get(key)
        if known is None or (way.tokens_usd, -way.flexible) < (known.tokens_usd, -known.flexible):
            kept[key] = way
    kinds = sorted({(pool.gpu, pool.gpus) for way in kept.values() for pool in way.pools})
    rows = np.array(
        [
            [
                *(sum(pool.serving for pool in way.pools if (pool.gpu, pool.gpus) == kind) for kind in kinds),
                *(sum((pool.gpu, pool.gpus) == kind for pool in way.pools) for kind in kinds),
                way.tokens_usd,
                -way.flexible,
            ]
            for way in kept.values()
        ]
    )
    order = np.lexsort(rows.T[::-1])
    found: list[int] = []
    for row in order.tolist():
        if not any(np.all(rows[other] <= rows[row] + 1e-12) for other in found):
            found.append(row)
    every = list(kept.values())
    return [every[row] for row in found]


def _fleet(data: Mapping[str, Any], groups: Sequence[tuple[str, tuple[str, ...]]], chosen: Sequence[_Way]) -> Fleet:
    """The fleet as an evaluation takes it."""
    model_shares = _model_shares(data, groups, chosen) or {}
    pools: dict[str, Pool] = {}
    routing: dict[str, list[Path]] = {}
    for (model, names), way in zip(groups, chosen, strict=True):
        for pool, shares in zip(way.pools, way.shares, strict=True):
            name = f"p{len(pools)}"
            pools[name] = Pool(
                name=name,
                model=model,
                gpu=pool.gpu,
                layout=Layout(tp=pool.gpus),
                replicas=replicas_of_pool(pool, data),
            )
            used = False
            for cls, share in zip(names, shares.tolist(), strict=True):
                part = share * (
                    model_shares[cls, model] / max(way.flexible, 1e-9) if (cls, model) in model_shares else 1.0
                )
                if part > 1e-9:
                    routing.setdefault(cls, []).append(Path(pools=(name,), share=part))
                    used = True
            if not used:
                del pools[name]
        for cls, share in zip(names, way.tokens.tolist(), strict=True):
            if share > 1e-9:
                pools["tokens"] = Pool(
                    name="tokens", model=model, gpu="tokens", layout=Layout(), replicas=0, role="api"
                )
                routing.setdefault(cls, []).append(Path(pools=("tokens",), share=share))
    for cls, paths in routing.items():
        total = sum(path.share for path in paths)
        routing[cls] = [Path(pools=path.pools, share=path.share / total) for path in paths]
    return Fleet(pools=pools, routing={cls: tuple(paths) for cls, paths in routing.items()})
