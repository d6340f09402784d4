"""The master program over columns, and a relaxation of the whole problem that gives a valid bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qmodel.candidates import Column, ColumnSet, resource_shares
from qmodel.optimize.programs import Program, ProgramBuilder
from qmodel.types import RequestClass

__all__ = ["bound_program", "master_program"]


def master_program(columns: Sequence[Column], classes: Sequence[RequestClass], stock: Mapping[str, int]) -> Program:
    """Choose counts of columns that cover every class within stock, at least cost.

    Variables are integer counts y_c of columns. Rows: ``cover`` of each class,
    sum theta_ck y_c >= 1; ``stock`` of each limited GPU type, sum gpus_c y_c <= stock.
    Formulation in docs/theory/optimizer.md.

    Args:
        columns: candidates with counts and shares.
        classes: to be covered.
        stock: GPUs by type, for the types that are limited.
    """
    builder = ProgramBuilder()
    positions = [_column_variable(builder, column, column.shares) for column in columns]
    _cover_rows(builder, classes, [(p, c.shares) for p, c in zip(positions, columns, strict=True)])
    _stock_rows(builder, stock, [(p, c.candidate.gpu, c.gpus) for p, c in zip(positions, columns, strict=True)])
    return builder.build()


def bound_program(
    sets: Mapping[str, ColumnSet], classes: Mapping[str, Sequence[RequestClass]], stock: Mapping[str, int]
) -> Program:
    """A relaxation of the whole problem: its optimum is no more than the cost of any fleet.

    A model with one class enters with its own columns at the infeasible side of the
    frontier. A model with several enters with integer counts n_j and flows x_kj:
    sum_k x_kj w_kj <= n_j with an optimistic share w of step time, and
    x_kj <= r_kj n_j with r the share that a replica carries of that class alone.

    Args:
        sets: columns by model.
        classes: classes by model.
        stock: GPUs by type, for the types that are limited.
    """
    builder = ProgramBuilder()
    covers: list[tuple[int, Mapping[str, float]]] = []
    stocks: list[tuple[int, str, int]] = []
    for model, found in sets.items():
        if len(classes[model]) == 1:
            _add_columns(builder, found, covers, stocks)
        else:
            _add_flows(builder, found, classes[model], covers, stocks)
    _cover_rows(builder, [item for group in classes.values() for item in group], covers)
    _stock_rows(builder, stock, stocks)
    return builder.build()


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
    found: ColumnSet,
    classes: Sequence[RequestClass],
    covers: list[tuple[int, Mapping[str, float]]],
    stocks: list[tuple[int, str, int]],
) -> None:
    shares = np.array([resource_shares(found.candidates, item) for item in classes])
    ratios = np.array([found.ratios[item.name] for item in classes])
    alone = np.divide(1.0, ratios, out=np.full(ratios.shape, np.inf), where=ratios > 0)
    for j, candidate in enumerate(found.candidates):
        usable = [k for k in range(len(classes)) if np.isfinite(shares[k, j]) and np.isfinite(alone[k, j])]
        if not usable:
            continue
        label = f"{candidate.gpu} {candidate.layout} {candidate.precision or ''} {candidate.model}"
        most = float(np.ceil(np.maximum(shares[usable, j], alone[usable, j]).sum()))
        count = builder.variable(f"replicas {label}", cost=candidate.cost_usd_per_hour, upper=most, integer=True)
        stocks.append((count, candidate.gpu, candidate.layout.gpus))
        together: dict[int, float] = {count: -1.0}
        for k in usable:
            name = classes[k].name
            flow = builder.variable(f"flow {name} {label}", cost=0.0, upper=1.0, integer=False)
            covers.append((flow, {name: 1.0}))
            together[flow] = float(shares[k, j])
            builder.row(f"alone {name} {label}", {flow: float(alone[k, j]), count: -1.0}, "<=", 0.0)
        builder.row(f"time {label}", together, "<=", 0.0)


def _column_variable(builder: ProgramBuilder, column: Column, shares: Mapping[str, float]) -> int:
    item = column.candidate
    mix = " ".join(sorted(shares))
    label = f"pool {item.gpu} {item.layout} {item.precision or ''} x{column.replicas} {item.model} {mix}"
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
