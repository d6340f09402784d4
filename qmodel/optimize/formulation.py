"""The master program over columns, and a relaxation of the whole problem that gives a valid bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from qmodel.candidates import Blend, Candidate, Chain, Column, ColumnSet, OpenPool, resource_shares
from qmodel.optimize.alternatives import each_once
from qmodel.optimize.level_rows import Flow, Strain, add_levels
from qmodel.optimize.limit_rows import Ledger
from qmodel.optimize.open_pools import add_open_pools, open_rows
from qmodel.optimize.programs import Program, ProgramBuilder
from qmodel.optimize.stage_rows import add_chains
from qmodel.types import FloatArray, Limits, RequestClass

__all__ = ["Relaxation", "bound_program", "master_program"]


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
    limits: Limits,
    blends: Sequence[Blend] = (),
    open_pools: Sequence[OpenPool] = (),
    chains: Sequence[Chain] = (),
) -> Program:
    """Choose counts of columns that cover every class within the limits, at least cost.

    Variables are integer counts y_c of columns, then for each blend its integer count z and the parts of its points,
    then for each open pool its integer count n and the flows of its classes, then the share that passes each chain,
    then what the ledger adds.
    Rows: ``cover`` of each class, sum theta_ck y_c >= 1, or where several models may serve it sum_m x_km >= 1 with
    x_km <= sum theta_ck y_c over the columns of model m; each limit, e.g. ``stock`` of a GPU type, sum gpus_c y_c <=
    stock; ``parts`` of each blend, sum of its parts <= z. Formulation in docs/theory/optimizer.md.

    Args:
        columns: candidates with counts and shares.
        classes: to be covered.
        limits: of the fleet.
        blends: pools in which any mix between given points may be chosen.
        open_pools: pools of measured capacity.
        chains: classes that pools in a row may carry part by part.
    """
    builder = ProgramBuilder()
    ledger = Ledger(builder=builder, limits=limits)
    parts: list[tuple[str, dict[int, float]]] = []
    for column in columns:
        _add_column(ledger, column, column.shares)
    for blend in blends:
        label = f"{_pool_label(blend.candidate, blend.replicas)} {' '.join(blend.names)}"
        most_of_each = blend.points.max(axis=0)
        most = float(np.ceil((1.0 / most_of_each[most_of_each > 0.0]).sum()))  # a class may be carried by no point
        count = _add_pool(ledger, f"pool {label}", blend.candidate, blend.replicas, most, blend.names)
        row = {count: -1.0}
        for point in blend.points.tolist():
            part = builder.variable(f"part {label}", cost=0.0, upper=most, integer=False)
            shares = {name: share for name, share in zip(blend.names, point, strict=True) if share > 0.0}
            ledger.carries(count, part, shares, model=blend.candidate.model)
            row[part] = 1.0
        parts.append((f"parts {label}", row))
    places = add_open_pools(ledger, open_pools)
    ledger.close(classes, add_chains(ledger, chains))
    for name, row in parts:
        builder.row(name, row, "<=", 0.0)
    open_rows(builder, places)
    return builder.build()


def bound_program(
    sets: Mapping[str, ColumnSet],
    classes: Mapping[str, Sequence[RequestClass]],
    limits: Limits,
    chains: Sequence[Chain] = (),
    strain: Strain | None = None,
    *,
    settings_apart: bool = False,
) -> Relaxation:
    """A relaxation of the whole problem: its optimum is no more than the cost of any fleet.

    A group with one class enters with its own columns at the infeasible side of the
    frontier. A group with several enters with integer counts n_j and flows x_kj:
    sum_k x_kj w_kj <= n_j with an optimistic share w of step time, and
    x_kj <= r_kj n_j with r the share that a replica carries of that class alone. Where the frontier was followed along
    mixes, flows also lie between corners of what those leave open. Open pools enter as they are.

    Args:
        sets: columns by group of classes that may share pools.
        classes: the classes of each group.
        limits: of the fleet.
        chains: classes that pools in a row may carry part by part.
        strain: factors on what many classes take of a replica; with any above 1 this is no relaxation any more, but a
            program that looks for fleets.
        settings_apart: no candidate stands for others that differ in their engine settings only.
    """
    builder = ProgramBuilder()
    ledger = Ledger(builder=builder, limits=limits, by_replica=True)
    flows: list[Flow] = []
    for group, found in sets.items():
        sharing = found.sharing(classes[group])
        if len(sharing) == 1:
            _add_columns(ledger, found, sharing[0].name)
        elif found.levels:
            flows += add_levels(ledger, group, found, sharing, strain)
        else:
            flows += _add_flows(ledger, group, found, sharing, settings_apart=settings_apart)
    places = add_open_pools(ledger, [item for found in sets.values() for item in found.open_pools])
    open_rows(builder, places)
    in_rows = add_chains(ledger, chains)
    members = each_once(item for group in sets for item in classes[group] if item.name not in in_rows)
    ledger.close(members, in_rows)
    return Relaxation(program=builder.build(), flows=tuple(flows))


def _add_columns(ledger: Ledger, found: ColumnSet, name: str) -> None:
    spread = {id(found.candidates[position]) for position in found.spread}
    for column in found.columns:
        if id(column.candidate) not in spread:
            _add_column(ledger, column, column.upper)
    for candidate, ratio in zip(found.candidates, found.ratios[name], strict=True):
        if ratio > 0 and id(candidate) in spread:
            label = f"replicas {candidate.gpu} {candidate.layout} {candidate.variant} {candidate.model}"
            upper = float(np.ceil(1.0 / ratio))
            position = ledger.replicas(label, candidate, most=upper)
            ledger.carries(position, position, {name: float(ratio)}, model=candidate.model)


def _add_flows(
    ledger: Ledger, group: str, found: ColumnSet, classes: Sequence[RequestClass], *, settings_apart: bool = False
) -> list[Flow]:
    """Pools of each candidate with what they carry: by corners where mixes were looked at, by step time everywhere."""
    builder = ledger.builder
    shares = np.array([resource_shares(found.candidates, item) for item in classes])
    ratios = np.array([found.ratios[item.name] for item in classes])
    alone = np.divide(1.0, ratios, out=np.full(ratios.shape, np.inf), where=ratios > 0)
    flows = []
    apart = settings_apart or found.many or ledger.limits.change is not None
    left_out = set() if apart else _joined_settings(found, shares, alone)
    for j, candidate in enumerate(found.candidates):
        if j in left_out:
            continue
        usable = [k for k in range(len(classes)) if np.isfinite(shares[k, j]) and np.isfinite(alone[k, j])]
        if not usable:
            continue
        for pool, replicas, corners in _outlines(found, j):
            label = _pool_label(candidate, replicas)
            most = float(np.ceil(np.maximum(shares[usable, j], alone[usable, j]).sum()))
            single = candidate.adds_up or replicas != pool  # stands for one replica of a pool of any count
            add = ledger.replicas if single else partial(ledger.pools, serving=replicas)
            count = add(f"pools {label}", candidate, most=most)
            together: dict[int, float] = {count: -float(replicas)}
            carried: dict[int, int] = {}
            for k in usable:
                name = classes[k].name
                flow = builder.variable(f"flow {name} {label}", cost=0.0, upper=1.0, integer=False)
                ledger.carries(count, flow, {name: 1.0}, model=candidate.model)
                together[flow] = float(shares[k, j])
                carried[k] = flow
                if corners is None:
                    builder.row(f"alone {name} {label}", {flow: float(alone[k, j]), count: -1.0}, "<=", 0.0)
            builder.row(f"time {label}", together, "<=", 0.0)
            parts = () if corners is None else _between_corners(builder, label, corners, count, carried, most)
            points = np.zeros((0, len(classes))) if corners is None else corners
            flows.append(
                Flow(group=group, position=j, replicas=pool, shares=carried, parts=parts, corners=points, count=count)
            )
    return flows


def _joined_settings(found: ColumnSet, shares: FloatArray, alone: FloatArray) -> set[int]:
    """Let one candidate stand for others that differ from it in their engine settings only; positions of the others.

    While no mix was looked at of any of them it carries what the best of them carries of each class: no fleet loses by
    that, and the program is as small as with one setting. A candidate whose mixes decide is looked at and then stands
    for itself, and another one stands for those that are left.

    Args:
        found: columns of the group.
        shares, alone: step time and replicas that the whole of each class takes, shape (K, J); changed in place.
    """
    kinds: dict[tuple[object, ...], list[int]] = {}
    for j, item in enumerate(found.candidates):
        if j not in found.shared:
            kinds.setdefault((item.gpu, item.layout, item.precision, item.pool_role), []).append(j)
    left_out: set[int] = set()
    for rows in kinds.values():
        first = min(rows, key=lambda j: float(alone[:, j].sum()))
        shares[:, first], alone[:, first] = shares[:, rows].min(axis=1), alone[:, rows].min(axis=1)
        left_out.update(j for j in rows if j != first)
    return left_out


def _outlines(found: ColumnSet, position: int) -> list[tuple[int, int, FloatArray | None]]:
    """Count of a shared pool (0: none), the count that a variable stands for, and corners of what it may carry."""
    pools = found.shared.get(position, ())
    standing = [item for item in pools if item.stands_for_all]
    outlines: list[tuple[int, int, FloatArray | None]] = [
        (item.replicas, 1 if item.stands_for_all else item.replicas, item.outside()) for item in standing or pools
    ]
    return outlines or [(0, 1, None)]


def _between_corners(
    builder: ProgramBuilder, label: str, corners: FloatArray, count: int, carried: Mapping[int, int], most: float
) -> tuple[int, ...]:
    """Flows no more than corners: x_k <= sum_c y_c corner_ck, sum_c y_c <= count; the variables y.

    They are integers: a pool has one mix, and that lies below one corner at least.
    """
    parts = [builder.variable(f"corner {label}", cost=0.0, upper=most, integer=True) for _ in corners]
    builder.corners += parts
    builder.row(f"corners {label}", {**dict.fromkeys(parts, 1.0), count: -1.0}, "<=", 0.0)
    for k, flow in carried.items():
        row = {flow: 1.0, **{part: -float(corner[k]) for part, corner in zip(parts, corners, strict=True)}}
        builder.row(f"within {k} {label}", row, "<=", 0.0)
    return tuple(parts)


def _pool_label(item: Candidate, replicas: int) -> str:
    return f"{item.gpu} {item.layout} {item.variant} x{replicas} {item.model}"


def _add_column(ledger: Ledger, column: Column, shares: Mapping[str, float]) -> None:
    label = f"pool {_pool_label(column.candidate, column.replicas)} {' '.join(sorted(shares))}"
    most = float(np.ceil(1.0 / min(shares.values())))
    position = _add_pool(ledger, label, column.candidate, column.replicas, most, sorted(shares))
    ledger.carries(position, position, shares, model=column.candidate.model)


def _add_pool(
    ledger: Ledger, label: str, candidate: Candidate, replicas: int, most: float, names: Sequence[str]
) -> int:
    """A variable that counts pools, or the replicas of one where pools add up."""
    if candidate.adds_up and replicas == 1:
        return ledger.replicas(label, candidate, most=most)
    return ledger.pools(label, candidate, replicas, most=most, names=names)
