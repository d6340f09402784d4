"""Every kind of row of the master against the same program written from the docs and solved by SciPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from qmodel.candidates import Blend, Candidate, Column, MeasuredCandidate, OpenPool
from qmodel.optimize.formulation import master_program
from qmodel.optimize.solvers import solve_integer
from qmodel.problem import Price
from qmodel.types import (
    Change,
    GpuLimits,
    Layout,
    Limits,
    MeasuredCapacity,
    ModelTier,
    Offer,
    PoolKey,
    Quota,
    RequestClass,
    Running,
)
from tests.optimize.pieces import candidate, column, request_class
from tests.optimize.stated_programs import least_cost

GPUS = {"g": 4.0, "h": 2.5}
Pieces = tuple[list[Column], list[RequestClass], Limits, list[Blend], list[OpenPool]]


def random_pieces(seed: int) -> Pieces:
    """Columns, blends and measured pools of two models on two GPU types, and limits of which each is there or not."""
    rng = np.random.default_rng([seed, 31])
    limits = _limits(rng)
    spare = int(rng.choice([0, 0, 1, 2]))
    kinds = [_kind(rng, limits, gpu, model, spare) for gpu in GPUS for model in ("m", "n")]
    classes = [request_class("a"), request_class("b"), request_class("c", model="n")]
    if rng.random() < 0.5:
        bounds = sorted(rng.uniform(0.0, 1.0, 2).tolist()) if rng.random() < 0.3 else [0.0, 1.0]
        first = ModelTier(model="m", quality=0.8, least=bounds[0], most=bounds[1])
        both = (first, ModelTier(model="n", quality=0.6))
        least = float(rng.uniform(0.6, 0.8)) if rng.random() < 0.7 else None
        classes[1] = replace(classes[1], alternatives=both, min_quality=least)
    columns, blends = [], []
    for kind in kinds:
        names = [one.name for one in classes if one.served_by(kind.model)]
        for name in names:
            serving = 1 if kind.adds_up else int(rng.integers(1, 4))
            columns.append(column(kind, serving, **{name: float(rng.uniform(0.2, 0.6)) * serving**1.1}))
        if len(names) > 1 and rng.random() < 0.7:
            serving = 1 if kind.adds_up else int(rng.integers(1, 4))
            points = rng.uniform(0.1, 0.5, (int(rng.integers(2, 4)), len(names))) * serving
            blends.append(Blend(candidate=kind, replicas=serving, points=points, names=tuple(names)))
    return columns, classes, limits, blends, _measured(rng, limits, spare) if rng.random() < 0.5 else []


def _limits(rng: np.random.Generator) -> Limits:
    gpus = {}
    for gpu, usd in GPUS.items():
        some = rng.random(5) < 0.35
        offers: tuple[Offer, ...] = (Offer(term="on_demand", usd_per_gpu_hour=usd),)
        if some[0]:
            cheap = Offer(term="reserved_1y", usd_per_gpu_hour=0.6 * usd, max_gpus=int(rng.integers(1, 9)))
            offers = (cheap, *offers)
        if some[1]:
            offers = (*offers[:-1], replace(offers[-1], max_gpus=int(rng.integers(4, 12))))
        gpus[gpu] = GpuLimits(
            node_gpus=4,
            whole_nodes=bool(some[2]),
            max_nodes=int(rng.integers(2, 5)) if some[3] else None,
            max_count=int(rng.integers(4, 14)) if some[4] else None,
            kw_per_gpu=0.7,
            offers=offers,
        )
    more = rng.random(4) < 0.3
    quota = Quota(name="provider one", key="x", gpus=("g",), max_gpus=int(rng.integers(3, 9)), max_usd_per_hour=25.0)
    change = None
    if more[3]:
        keys = [PoolKey.of(model, "g", Layout(tp=1), None) for model in ("m", "n")]
        running = tuple(Running(key=key, replicas=int(rng.integers(1, 4))) for key in keys)
        change = Change(running=running, start_usd_per_gpu=20.0, stop_usd_per_gpu=5.0, spread_h=10.0)
    return Limits(
        gpus=gpus,
        quotas=(quota,) if more[0] else (),
        power_kw=float(rng.uniform(4.0, 12.0)) if more[1] else None,
        max_pools=int(rng.integers(2, 6)) if more[2] else None,
        change=change,
    )


def _kind(rng: np.random.Generator, limits: Limits, gpu: str, model: str, spare: int) -> Candidate:
    tp, stated = int(rng.choice([1, 1, 2, 3])), limits.of(gpu)
    router: Literal["random", "jsq"] = "random" if rng.random() < 0.5 else "jsq"
    made = candidate(cost=stated.usd_per_gpu_hour * tp, gpu=gpu, tp=tp, model=model)
    held = stated.held_gpus(tp) if stated.counts_nodes else None
    return replace(made, router=router, spare=spare, held_gpus=held, whole_nodes=stated.whole_nodes)


def _measured(rng: np.random.Generator, limits: Limits, spare: int) -> list[OpenPool]:
    stated = limits.of("h")
    kind = MeasuredCandidate(
        model="m",
        gpu="h",
        layout=Layout(tp=1),
        precision=None,
        capacity=MeasuredCapacity(max_rate_rps={"a": 1.0}),
        price=Price(usd_per_gpu_hour=stated.usd_per_gpu_hour, tier="on_demand", basis="test"),
        max_replicas=1000,
        spare=spare,
        held_gpus=stated.held_gpus(1) if stated.counts_nodes else None,
        whole_nodes=stated.whole_nodes,
    )
    return [OpenPool(candidate=kind, takes={"a": float(rng.uniform(1.0, 4.0))})]


@pytest.mark.parametrize("seed", range(60))
def test_the_master_has_the_optimum_of_the_same_program_written_anew(seed: int) -> None:
    columns, classes, limits, blends, open_pools = random_pieces(seed)
    program = master_program(columns, classes, limits, blends, open_pools)
    solved = solve_integer(program, solver="highs", mip_gap=0.0, time_limit_s=60.0)
    least = least_cost(columns, classes, limits, blends, open_pools)
    assert (np.inf if solved.objective is None else solved.objective) == pytest.approx(least, rel=1e-6)


def test_the_seeds_have_every_kind_of_row() -> None:
    kinds = set()
    for seed in range(60):
        program = master_program(*random_pieces(seed))
        kinds |= {name.split("_")[0] for name in program.row_names}
    assert kinds >= {"cover", "stock", "nodes", "offer", "gpus", "usd", "power", "pools", "packed", "bought", "parts"}
    assert kinds >= {"carried", "open", "started", "stopped", "quality", "served", "least", "most"}
