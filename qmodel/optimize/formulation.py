"""The master program over columns, and a relaxation of the whole problem that gives a valid bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qmodel.candidates import Blend, Candidate, Column, ColumnSet, resource_shares
from qmodel.optimize.programs import Program, ProgramBuilder
from qmodel.types import FloatArray, RequestClass

__all__ = ["Flow", "Relaxation", "bound_program", "master_program"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Flow:
    """Pools of one candidate and count in the relaxation, and where the program holds what they carry.

    Attributes:
        position: of the candidate among those of its model.
        replicas: count of the shared pool whose corners these are; 0 where no mix was looked at.
        shares: variable of each class's share, by position of the class in its model.
        parts: variable of each corner's part; empty where no mix was looked at.
        corners: the corners, shape (Q, K).
    """

    model: str
    position: int
    replicas: int
    shares: Mapping[int, int]
    parts: tuple[int, ...]
    corners: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relaxation:
    """A program whose optimum no fleet undercuts.

    Attributes:
        program: arrays and names.
        flows: what shared pools carry in it.
    """

    program: Program
    flows: tuple[Flow, ...]


def master_program(
    columns: Sequence[Column],
    classes: Sequence[RequestClass],
    stock: Mapping[str, int],
    blends: Sequence[Blend] = (),
) -> Program:
    """Choose counts of columns that cover every class within stock, at least cost.

    Variables are integer counts y_c of columns, then for each blend its integer count z and the parts of its points.
    Rows: ``cover`` of each class, sum theta_ck y_c >= 1; ``stock`` of each limited GPU type, sum gpus_c y_c <= stock;
    ``parts`` of each blend, sum of its parts <= z. Formulation in docs/theory/optimizer.md.

    Args:
        columns: candidates with counts and shares.
        classes: to be covered.
        stock: GPUs by type, for the types that are limited.
        blends: pools in which any mix between given points may be chosen.
    """
    builder = ProgramBuilder()
    covers: list[tuple[int, Mapping[str, float]]] = []
    stocks: list[tuple[int, str, int]] = []
    parts: list[tuple[str, dict[int, float]]] = []
    for column in columns:
        position = _column_variable(builder, column, column.shares)
        covers.append((position, column.shares))
        stocks.append((position, column.candidate.gpu, column.gpus))
    for blend in blends:
        label = f"{_pool_label(blend.candidate, blend.replicas)} {' '.join(blend.names)}"
        most = float(np.ceil((1.0 / blend.points.max(axis=0)).sum()))
        count = builder.variable(f"pool {label}", cost=blend.cost_usd_per_hour, upper=most, integer=True)
        stocks.append((count, blend.candidate.gpu, blend.gpus))
        row = {count: -1.0}
        for point in blend.points.tolist():
            part = builder.variable(f"part {label}", cost=0.0, upper=most, integer=False)
            covers.append((part, {name: share for name, share in zip(blend.names, point, strict=True) if share > 0.0}))
            row[part] = 1.0
        parts.append((f"parts {label}", row))
    _cover_rows(builder, classes, covers)
    _stock_rows(builder, stock, stocks)
    for name, row in parts:
        builder.row(name, row, "<=", 0.0)
    return builder.build()


def bound_program(
    sets: Mapping[str, ColumnSet], classes: Mapping[str, Sequence[RequestClass]], stock: Mapping[str, int]
) -> Relaxation:
    """A relaxation of the whole problem: its optimum is no more than the cost of any fleet.

    A model with one class enters with its own columns at the infeasible side of the
    frontier. A model with several enters with integer counts n_j and flows x_kj:
    sum_k x_kj w_kj <= n_j with an optimistic share w of step time, and
    x_kj <= r_kj n_j with r the share that a replica carries of that class alone. Where the frontier was followed along
    mixes, flows also lie between corners of what those leave open.

    Args:
        sets: columns by model.
        classes: classes by model.
        stock: GPUs by type, for the types that are limited.
    """
    builder = ProgramBuilder()
    covers: list[tuple[int, Mapping[str, float]]] = []
    stocks: list[tuple[int, str, int]] = []
    flows: list[Flow] = []
    for model, found in sets.items():
        if len(classes[model]) == 1:
            _add_columns(builder, found, covers, stocks)
        else:
            flows += _add_flows(builder, model, found, classes[model], covers, stocks)
    _cover_rows(builder, [item for group in classes.values() for item in group], covers)
    _stock_rows(builder, stock, stocks)
    return Relaxation(program=builder.build(), flows=tuple(flows))


def _add_columns(
    builder: ProgramBuilder,
    found: ColumnSet,
    covers: list[tuple[int, Mapping[str, float]]],
    stocks: list[tuple[int, str, int]],
) -> None:
    if found.complete:
        for column in found.columns:
            position = _column_variable(builder, column, column.upper)
            covers.append((position, column.upper))
            stocks.append((position, column.candidate.gpu, column.gpus))
        return
    ((name, ratios),) = found.ratios.items()
    for candidate, ratio in zip(found.candidates, ratios, strict=True):
        if ratio > 0:
            label = f"replicas {candidate.gpu} {candidate.layout} {candidate.precision or ''} {candidate.model}"
            upper = float(np.ceil(1.0 / ratio))
            position = builder.variable(label, cost=candidate.cost_usd_per_hour, upper=upper, integer=True)
            covers.append((position, {name: float(ratio)}))
            stocks.append((position, candidate.gpu, candidate.layout.gpus))


def _add_flows(
    builder: ProgramBuilder,
    model: str,
    found: ColumnSet,
    classes: Sequence[RequestClass],
    covers: list[tuple[int, Mapping[str, float]]],
    stocks: list[tuple[int, str, int]],
) -> list[Flow]:
    """Pools of each candidate with what they carry: by corners where mixes were looked at, by step time everywhere."""
    shares = np.array([resource_shares(found.candidates, item) for item in classes])
    ratios = np.array([found.ratios[item.name] for item in classes])
    alone = np.divide(1.0, ratios, out=np.full(ratios.shape, np.inf), where=ratios > 0)
    flows = []
    for j, candidate in enumerate(found.candidates):
        usable = [k for k in range(len(classes)) if np.isfinite(shares[k, j]) and np.isfinite(alone[k, j])]
        if not usable:
            continue
        for pool, replicas, corners in _outlines(found, j):
            label = _pool_label(candidate, replicas)
            most = float(np.ceil(np.maximum(shares[usable, j], alone[usable, j]).sum()))
            cost = candidate.cost_usd_per_hour * replicas
            count = builder.variable(f"pools {label}", cost=cost, upper=most, integer=True)
            stocks.append((count, candidate.gpu, candidate.layout.gpus * replicas))
            together: dict[int, float] = {count: -float(replicas)}
            carried: dict[int, int] = {}
            for k in usable:
                name = classes[k].name
                flow = builder.variable(f"flow {name} {label}", cost=0.0, upper=1.0, integer=False)
                covers.append((flow, {name: 1.0}))
                together[flow] = float(shares[k, j])
                carried[k] = flow
                if corners is None:
                    builder.row(f"alone {name} {label}", {flow: float(alone[k, j]), count: -1.0}, "<=", 0.0)
            builder.row(f"time {label}", together, "<=", 0.0)
            parts = () if corners is None else _between_corners(builder, label, corners, count, carried, most)
            points = np.zeros((0, len(classes))) if corners is None else corners
            flows.append(Flow(model=model, position=j, replicas=pool, shares=carried, parts=parts, corners=points))
    return flows


def _outlines(found: ColumnSet, position: int) -> list[tuple[int, int, FloatArray | None]]:
    """Count of a shared pool (0: none), the count that a variable stands for, and corners of what it may carry."""
    pools = found.shared.get(position, ())
    standing = [item for item in pools if item.stands_for_all]
    outlines = [
        (item.replicas, 1 if item.stands_for_all else item.replicas, item.outside()) for item in standing or pools
    ]
    return [(0, 1, None)] if not outlines or outlines[0][2] is None else outlines


def _between_corners(
    builder: ProgramBuilder, label: str, corners: FloatArray, count: int, carried: Mapping[int, int], most: float
) -> tuple[int, ...]:
    """Flows no more than a mixture of corners: x_k <= sum_c y_c corner_ck, sum_c y_c <= count; the variables y."""
    parts = [builder.variable(f"corner {label}", cost=0.0, upper=most, integer=False) for _ in corners]
    builder.row(f"corners {label}", {**dict.fromkeys(parts, 1.0), count: -1.0}, "<=", 0.0)
    for k, flow in carried.items():
        row = {flow: 1.0, **{part: -float(corner[k]) for part, corner in zip(parts, corners, strict=True)}}
        builder.row(f"within {k} {label}", row, "<=", 0.0)
    return tuple(parts)


def _pool_label(item: Candidate, replicas: int) -> str:
    return f"{item.gpu} {item.layout} {item.precision or ''} x{replicas} {item.model}"


def _column_variable(builder: ProgramBuilder, column: Column, shares: Mapping[str, float]) -> int:
    label = f"pool {_pool_label(column.candidate, column.replicas)} {' '.join(sorted(shares))}"
    upper = float(np.ceil(1.0 / min(shares.values())))
    return builder.variable(label, cost=column.cost_usd_per_hour, upper=upper, integer=True)


def _cover_rows(
    builder: ProgramBuilder,
    classes: Sequence[RequestClass],
    covers: Sequence[tuple[int, Mapping[str, float]]],
) -> None:
    for item in classes:
        row = {position: shares[item.name] for position, shares in covers if item.name in shares}
        builder.row(f"cover {item.name}", row, ">=", 1.0)


def _stock_rows(builder: ProgramBuilder, stock: Mapping[str, int], stocks: Sequence[tuple[int, str, int]]) -> None:
    for gpu, limit in stock.items():
        row = {position: float(gpus) for position, name, gpus in stocks if name == gpu}
        builder.row(f"stock {gpu}", row, "<=", float(limit))
