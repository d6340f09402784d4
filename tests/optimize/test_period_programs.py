"""Programs over several periods: their rows, and their optimum by another solver."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from qmodel.optimize.formulation import master_program
from qmodel.optimize.linked_parts import solve_linked
from qmodel.optimize.parts import solve_in_parts
from qmodel.optimize.period_programs import ChangingFleet, OneFleet, OnePeriod
from qmodel.optimize.programs import Program, ProgramBuilder
from qmodel.types import GpuLimits, Layer, Limits, Offer
from tests.optimize.pieces import candidate, column, request_class


def optimum(program: Program) -> float:
    """By scipy."""
    sign = np.where(np.array(program.senses) == ">=", 1.0, -1.0)
    rows = LinearConstraint(sign[:, None] * program.matrix, sign * program.rhs, np.inf)
    found = milp(
        program.cost,
        constraints=[rows],
        bounds=Bounds(0.0, program.upper),
        integrality=program.integer.astype(int),
        options={"mip_rel_gap": 1e-9},
    )
    assert found.status == 0
    return float(found.fun)


def pieces(seed: int, *, reserved: bool = True) -> tuple[Program, Limits]:
    """Two classes, two GPU types, columns of several sizes."""
    rng = np.random.default_rng(seed)
    offers = {
        gpu: (
            *((Offer(term="reserved_1y", usd_per_gpu_hour=0.6 * usd),) if reserved else ()),
            Offer(term="on_demand", usd_per_gpu_hour=usd),
        )
        for gpu, usd in (("g", 3.0), ("h", 1.0))
    }
    limits = Limits(gpus={gpu: GpuLimits(offers=own, by_hour=True) for gpu, own in offers.items()})
    columns = []
    for gpu, each in (("g", 0.5), ("h", 0.14)):
        one = candidate(cost=offers[gpu][0].usd_per_gpu_hour, gpu=gpu)
        for name in ("a", "b"):
            for count in (1, 2, 3):
                share = min(each * count * float(rng.uniform(0.8, 1.2)), 1.0)
                columns.append(column(one, count, **{name: share}))
    classes = [request_class("a"), request_class("b")]
    return master_program(columns, classes, limits), limits


def periods(seed: int, number: int = 4) -> tuple[np.ndarray, tuple[Layer, ...]]:
    rng = np.random.default_rng([seed, 5])
    factors = rng.uniform(0.1, 1.0, size=(number, 2))
    factors[0, 0] = factors[-1, 1] = 1.0
    alone = [Layer(weight=0.8 / number, members=(place,)) for place in range(number)]
    both = [Layer(weight=0.2 / number, members=(place, (place + 1) % number)) for place in range(number)]
    return factors, (*alone, *both)


@pytest.mark.parametrize("seed", range(6))
def test_a_changing_fleet_is_solved_to_the_optimum(seed):
    single, limits = pieces(seed)
    factors, layers = periods(seed)
    frame = ChangingFleet(factors=factors, layers=layers, limits=limits)
    joined = frame.joined(single)
    best = optimum(joined.program)
    lasting = OneFleet(factors=factors).joined(single)
    found = solve_linked(joined, solver="highs", mip_gap=1e-6, time_limit_s=60.0, lasting=lasting)
    assert found.objective == pytest.approx(best, rel=1e-5)
    assert found.bound <= best * (1.0 + 1e-6)
    assert optimum(lasting.program) >= best * (1.0 - 1e-9)  # one fleet is one that may change


@pytest.mark.parametrize("seed", range(6))
def test_pricing_the_links_bounds_the_optimum(seed):
    single, limits = pieces(seed)
    factors, layers = periods(seed)
    joined = ChangingFleet(factors=factors, layers=layers, limits=limits).joined(single)
    found = solve_linked(joined, solver="highs", mip_gap=1e-6, time_limit_s=60.0, bound_only=True)
    assert 0.5 * optimum(joined.program) < found.bound <= optimum(joined.program) * (1.0 + 1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_turns_alone_stay_between_the_bound_and_one_fleet(seed, monkeypatch):
    import qmodel.optimize.linked_parts as module

    single, limits = pieces(seed)
    factors, layers = periods(seed)
    joined = ChangingFleet(factors=factors, layers=layers, limits=limits).joined(single)
    lasting = OneFleet(factors=factors).joined(single)
    calls = []

    def stopped_at_first(program, **limits):
        calls.append(program)
        found = solve_in_parts(program, **limits)
        if len(calls) > 1:
            return found
        return module.replace(found, values=None, objective=None, bound=-np.inf, outcome="time")

    monkeypatch.setattr(module, "solve_in_parts", stopped_at_first)
    found = solve_linked(joined, solver="highs", mip_gap=1e-6, time_limit_s=60.0, lasting=lasting)
    best = optimum(joined.program)
    assert found.bound <= best * (1.0 + 1e-6)
    assert best * (1.0 - 1e-6) <= found.objective <= optimum(lasting.program) * (1.0 + 1e-6)
    assert joined.program.violations(found.values) == ()


def test_without_a_base_periods_have_nothing_to_do_with_each_other():
    single, limits = pieces(1, reserved=False)
    factors, _ = periods(1)
    layers = tuple(Layer(weight=0.25, members=(place,)) for place in range(4))
    joined = ChangingFleet(factors=factors, layers=layers, limits=limits).joined(single)
    alone = [
        optimum(OneFleet(factors=factors[place : place + 1]).joined(single).program) for place in range(len(factors))
    ]
    found = solve_linked(joined, solver="highs", mip_gap=1e-6, time_limit_s=60.0)
    assert found.objective == pytest.approx(sum(alone) / 4.0)


def test_one_period_is_the_program_itself():
    single, _ = pieces(2)
    joined = OneFleet(factors=np.ones((1, 2))).joined(single)
    assert optimum(joined.program) == pytest.approx(optimum(single))
    kept = OnePeriod().joined(single)
    assert kept.program is single and np.array_equal(kept.places[0], np.arange(len(single.names)))


def test_parts_add_up():
    builder = ProgramBuilder()
    x, y, z = (
        builder.variable(name, cost=cost, upper=9.0, integer=True) for name, cost in zip("xyz", (1, 2, 4), strict=False)
    )
    builder.row("first", {x: 2.0, y: 3.0}, ">=", 5.0)
    builder.row("second", {z: 2.0}, ">=", 3.0)
    found = solve_in_parts(builder.build(), solver="highs", mip_gap=0.0, time_limit_s=10.0)
    assert found.objective == pytest.approx(11.0) and found.bound == pytest.approx(11.0)
    builder.row("beyond", {z: 1.0}, ">=", 99.0)
    assert solve_in_parts(builder.build(), solver="highs", mip_gap=0.0, time_limit_s=10.0).outcome == "infeasible"
    builder.row("empty", {}, ">=", 1.0)
    assert solve_in_parts(builder.build(), solver="highs", mip_gap=0.0, time_limit_s=10.0).outcome == "infeasible"
