"""The master program written once more, from the formulas of docs/theory/optimizer.md, for SciPy to solve."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from qmodel.candidates import Blend, Column, OpenPool, PoolKind
from qmodel.types import Limits, RequestClass

__all__ = ["least_cost"]

_MANY = 1000.0


class _Rows:
    """Variables by name, and rows as mappings from names."""

    def __init__(self) -> None:
        self.cost: dict[str, float] = {}
        self.most: dict[str, float] = {}
        self.whole: dict[str, bool] = {}
        self.rows: list[tuple[dict[str, float], float, float]] = []

    def add(self, name: str, cost: float = 0.0, most: float = _MANY, whole: bool = False) -> str:
        self.cost[name], self.most[name], self.whole[name] = cost, most, whole
        return name

    def at_most(self, row: dict[str, float], most: float) -> None:
        self.rows.append((row, -np.inf, most))

    def at_least(self, row: dict[str, float], least: float) -> None:
        self.rows.append((row, least, np.inf))

    def solved(self) -> float:
        names = list(self.cost)
        matrix = np.array([[row.get(name, 0.0) for name in names] for row, _, _ in self.rows])
        low, high = np.array([item[1] for item in self.rows]), np.array([item[2] for item in self.rows])
        found = milp(
            [self.cost[name] for name in names],
            constraints=LinearConstraint(matrix, low, high),
            bounds=Bounds(0.0, [self.most[name] for name in names]),
            integrality=[int(self.whole[name]) for name in names],
            options={"mip_rel_gap": 0.0},
        )
        return float(found.fun) if found.success else np.inf


def least_cost(
    columns: Sequence[Column],
    classes: Sequence[RequestClass],
    limits: Limits,
    blends: Sequence[Blend] = (),
    open_pools: Sequence[OpenPool] = (),
) -> float:
    """Optimum of cover, parts, open pools and every limit; infinite where nothing keeps them.

    Args:
        columns: a pool each, or replicas of one where these add up.
        classes: to be covered, with one model or several.
        limits: of the fleet.
        blends: pools whose mix lies between points.
        open_pools: of measured capacity.
    """
    rows = _Rows()
    pools: list[tuple[str, PoolKind, float, float]] = []  # variable, kind, replicas and pools of one unit
    carried: dict[tuple[str, str], dict[str, float]] = {}  # by class and model

    def carries(cls: str, model: str, variable: str, share: float) -> None:
        row = carried.setdefault((cls, model), {})
        row[variable] = row.get(variable, 0.0) + share

    def counted(name: str, kind: PoolKind, serving: int, parts: Sequence[tuple[str, dict[str, float]]]) -> None:
        """Pools of so many replicas; where replicas add up one pool is opened, and what it carries is a flow."""
        together = getattr(kind, "adds_up", True) and serving == 1
        if not together or not (kind.spare or limits.max_pools is not None):
            pools.append((name, kind, 1.0 if together else kind.pool_replicas(serving), 0.0 if together else 1.0))
            for variable, shares in parts:
                for cls, share in shares.items():
                    carries(cls, kind.model, variable, share)
            return
        pools.append((name, kind, 1.0, 0.0))
        opened = rows.add(f"open {name}", most=1.0, whole=True)
        pools.append((opened, kind, float(kind.spare), 1.0))
        for cls in {cls for _, shares in parts for cls in shares}:
            flow = rows.add(f"flow {cls} {name}", most=1.0)
            rows.at_most({flow: 1.0, **{variable: -shares.get(cls, 0.0) for variable, shares in parts}}, 0.0)
            rows.at_most({flow: 1.0, opened: -1.0}, 0.0)
            carries(cls, kind.model, flow, 1.0)

    for number, column in enumerate(columns):
        name = rows.add(f"column {number}", whole=True)
        counted(name, column.candidate, column.replicas, [(name, dict(column.shares))])
    for number, blend in enumerate(blends):
        name = rows.add(f"blend {number}", whole=True)
        parts = [rows.add(f"part {number} {place}") for place in range(len(blend.points))]
        rows.at_most({**dict.fromkeys(parts, 1.0), name: -1.0}, 0.0)
        points = [dict(zip(blend.names, point, strict=True)) for point in blend.points.tolist()]
        counted(name, blend.candidate, blend.replicas, list(zip(parts, points, strict=True)))
    for number, item in enumerate(open_pools):
        name = rows.add(f"measured {number}", whole=True)
        flows = {cls: rows.add(f"share {cls} {number}", most=1.0) for cls in item.takes}
        rows.at_most({**{flows[cls]: part for cls, part in item.takes.items()}, name: -1.0}, 0.0)
        counted(name, item.candidate, 1, [(flow, {cls: 1.0}) for cls, flow in flows.items()])
    for one in classes:
        if len(one.models) == 1:
            rows.at_least(carried.get((one.name, one.model), {}), 1.0)
            continue
        shares = {model: rows.add(f"{one.name} by {model}", most=1.0) for model in one.models}
        rows.at_least(dict.fromkeys(shares.values(), 1.0), 1.0)
        rows.at_most(dict.fromkeys(shares.values(), 1.0), 1.0)
        for model, share in shares.items():
            served = {name: -part for name, part in carried.get((one.name, model), {}).items()}
            rows.at_most({share: 1.0, **served}, 0.0)
        for tier in one.alternatives:
            rows.at_least({shares[tier.model]: 1.0}, tier.least)
            rows.at_most({shares[tier.model]: 1.0}, tier.most)
        if one.min_quality is not None:
            quality = {shares[tier.model]: tier.quality or 0.0 for tier in one.alternatives}
            rows.at_least(quality, one.min_quality)
    _limit(rows, pools, limits)
    return rows.solved()


def _limit(rows: _Rows, pools: Sequence[tuple[str, PoolKind, float, float]], limits: Limits) -> None:
    """Rows of every limit, and what is paid: GPUs at their offers, whole nodes, and changes of a running fleet."""
    taken: dict[str, dict[str, float]] = {}
    spent: dict[str, dict[str, float]] = {}
    for gpu in sorted({kind.gpu for _, kind, _, _ in pools}):
        stated, mine = limits.of(gpu), [item for item in pools if item[1].gpu == gpu]
        held = {name: stated.held_gpus(kind.layout.gpus) * replicas for name, kind, replicas, _ in mine}
        paid = {name: kind.layout.gpus * replicas for name, kind, replicas, _ in mine}
        if stated.node_gpus is not None and (stated.whole_nodes or stated.max_nodes is not None):
            nodes = rows.add(f"nodes {gpu}", whole=True)
            rows.at_most({**held, nodes: -float(stated.node_gpus)}, 0.0)
            if stated.max_nodes is not None:
                rows.at_most({nodes: 1.0}, stated.max_nodes)
            if stated.whole_nodes:
                held = paid = {nodes: float(stated.node_gpus)}
        if stated.max_count is not None:
            rows.at_most(held, stated.max_count)
        taken[gpu], spent[gpu] = held, {}
        bought = []
        prices = [(offer.usd_per_gpu_hour, offer.max_gpus) for offer in stated.offers]
        for place, (usd, most) in enumerate(prices or [(mine[0][1].price.usd_per_gpu_hour, None)]):
            lot = stated.node_gpus if stated.whole_nodes and stated.node_gpus else 1
            room = _MANY if most is None else float(most // lot * lot)
            bought.append(rows.add(f"bought {gpu} {place}", cost=usd, most=room))
            spent[gpu][bought[-1]] = usd
        rows.at_most({**paid, **dict.fromkeys(bought, -1.0)}, 0.0)
    if limits.power_kw is not None:
        power: dict[str, float] = {}
        for gpu, held in taken.items():
            power |= {name: (limits.of(gpu).kw_per_gpu or 0.0) * gpus for name, gpus in held.items()}
        rows.at_most(power, limits.power_kw)
    if limits.max_pools is not None:
        rows.at_most({name: count for name, _, _, count in pools if count}, limits.max_pools)
    for quota in limits.quotas:
        mine_gpus = [gpu for gpu in taken if gpu in quota.gpus]
        if quota.max_gpus is not None:
            rows.at_most({name: n for gpu in mine_gpus for name, n in taken[gpu].items()}, quota.max_gpus)
        if quota.max_usd_per_hour is not None:
            usd_row = {name: usd for gpu in mine_gpus for name, usd in spent[gpu].items()}
            rows.at_most(usd_row, quota.max_usd_per_hour)
    change = limits.change
    if change is None:
        return
    for key in {kind.key for _, kind, _, _ in pools} | {item.key for item in change.running}:
        running = change.replicas(key)
        replicas = {name: count for name, kind, count, _ in pools if kind.key == key}
        started = rows.add(f"started {key.label}", cost=key.gpus * change.start_usd_per_gpu / change.spread_h)
        stopped = rows.add(f"stopped {key.label}", cost=key.gpus * change.stop_usd_per_gpu / change.spread_h)
        rows.at_most({**replicas, started: -1.0}, running)
        rows.at_most({**{name: -count for name, count in replicas.items()}, stopped: -1.0}, -running)
