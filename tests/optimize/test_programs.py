"""Programs as arrays: names, feasibility, and the same optimum from independent solvers."""

from __future__ import annotations

import itertools
from threading import Thread

import highspy
import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from qmodel.candidates import Blend
from qmodel.errors import SolverUnavailableError
from qmodel.optimize import SolverOptions, check_solver
from qmodel.optimize.formulation import master_program
from qmodel.optimize.programs import Program, ProgramBuilder, safe_names
from qmodel.optimize.solvers import solve_integer, solve_relaxed
from tests.optimize.pieces import candidate, column, request_class, stock_of


def random_master(seed: int) -> Program:
    rng = np.random.default_rng(seed)
    gpus = ["h100-sxm", "h200-sxm"]
    pool = [candidate(cost=float(rng.uniform(1, 9)), gpu=gpus[i % 2], tp=int(rng.choice([1, 2]))) for i in range(4)]
    columns = []
    for item in pool:
        for _ in range(2):
            shares = {name: float(rng.uniform(0.2, 1.0)) for name in ("a", "b") if rng.random() < 0.8}
            if shares:
                columns.append(column(item, int(rng.integers(1, 3)), **shares))
    stock = stock_of({"h100-sxm": int(rng.integers(2, 9))})
    return master_program(columns, [request_class("a"), request_class("b")], stock)


def brute_force(program: Program) -> float:
    """Least cost over all integer points within the bounds, infinite where none is feasible."""
    best = np.inf
    for point in itertools.product(*(range(int(upper) + 1) for upper in program.upper)):
        values = np.array(point, dtype=float)
        if program.cost @ values < best and not program.violations(values):
            best = float(program.cost @ values)
    return best


def scipy_optimum(program: Program) -> float:
    sense = np.array([item == ">=" for item in program.senses])
    rows = LinearConstraint(program.matrix, np.where(sense, program.rhs, -np.inf), np.where(sense, np.inf, program.rhs))
    found = milp(
        program.cost, constraints=rows, bounds=Bounds(0, program.upper), integrality=program.integer.astype(int)
    )
    return float(found.fun) if found.success else np.inf


def test_names_that_collide_after_cleaning_stay_apart() -> None:
    assert safe_names(["stock h100-sxm", "stock h100.sxm", "8b"]) == ("stock_h100_sxm", "stock_h100_sxm_2", "x8b")


@pytest.mark.parametrize("seed", range(40))
def test_highs_through_pulp_finds_the_optimum_of_scipy_and_of_brute_force(seed: int) -> None:
    program = random_master(seed)
    solved = solve_integer(program, solver="highs", mip_gap=0.0, time_limit_s=20.0)
    cost = np.inf if solved.objective is None else solved.objective
    assert cost == pytest.approx(scipy_optimum(program), rel=1e-6)
    if np.prod(program.upper + 1) < 50_000:
        assert cost == pytest.approx(brute_force(program), rel=1e-6)
    assert (solved.outcome == "infeasible") == (not np.isfinite(cost))
    assert solved.bound <= cost + 1e-9


def test_relaxed_duals_are_the_change_of_the_optimum() -> None:
    program = random_master(3)
    relaxed = solve_relaxed(program, solver="highs")
    assert relaxed is not None
    objective, duals = relaxed
    step = 1e-4
    for row in range(2):
        rhs = program.rhs.copy()
        rhs[row] += step
        moved = Program(**{name: getattr(program, name) for name in program.__slots__} | {"rhs": rhs})
        again = solve_relaxed(moved, solver="highs")
        assert again is not None
        assert (again[0] - objective) / step == pytest.approx(duals[row], abs=1e-3)


def test_highs_that_ran_with_workers_of_its_own_before_is_used_with_them() -> None:
    program, found = random_master(3), []

    def used_before() -> None:  # HiGHS keeps its workers for the thread that calls it
        model = highspy.Highs()  # type: ignore[no-untyped-call]
        model.setOptionValue("output_flag", False)
        model.setOptionValue("threads", 2)
        column = model.addVariable(lb=0.0, ub=5.0, type=highspy.HighsVarType.kInteger)
        model.addConstr(2 * column >= 3)
        model.minimize(column)
        assert model.getModelStatus() == highspy.HighsModelStatus.kOptimal
        found.append(solve_integer(program, solver="highs", mip_gap=0.0, time_limit_s=20.0))

    thread = Thread(target=used_before)
    thread.start()
    thread.join()
    assert [item.outcome for item in found] == ["optimal"]
    assert found[0].objective == pytest.approx(scipy_optimum(program), rel=1e-6)


def test_solver_prints_nothing_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    solve_integer(random_master(1), solver="highs", mip_gap=0.0, time_limit_s=5.0)
    assert capfd.readouterr().out == ""


def test_an_unknown_solver_is_refused_with_the_names_known() -> None:
    with pytest.raises(SolverUnavailableError, match="no solver 'gurobbi'; known: highs, cbc, scip"):
        check_solver("gurobbi")


@pytest.mark.parametrize(("key", "value"), [("mip_gap", -0.1), ("mip_gap", 1.0), ("time_limit_s", 0.0)])
def test_solver_options_out_of_range_name_the_argument_and_the_value(key: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"{key} must be .*got {value}"):
        SolverOptions(**{key: value})  # type: ignore[arg-type]


def test_master_program_has_cover_and_stock_rows_by_name() -> None:
    items = [candidate(cost=4.0, gpu="h100-sxm"), candidate(cost=7.0, gpu="h200-sxm", tp=2)]
    columns = [column(items[0], 2, chat=0.6), column(items[1], 1, chat=0.5, code=0.5)]
    program = master_program(columns, [request_class("chat"), request_class("code")], stock_of({"h200-sxm": 8}))
    assert program.row_names == ("cover_chat", "cover_code", "stock_h200_sxm")
    assert program.names == ("pool_h100_sxm_tp1_x2_m_chat", "pool_h200_sxm_tp2_x1_m_chat_code")
    np.testing.assert_allclose(program.matrix, [[0.6, 0.5], [0.0, 0.5], [0.0, 2.0]])
    np.testing.assert_allclose(program.cost, [8.0, 7.0])
    np.testing.assert_allclose(program.rhs, [1.0, 1.0, 8.0])


def test_a_program_without_integers_is_bounded_by_its_own_optimum() -> None:
    builder = ProgramBuilder()
    flow = builder.variable("flow", cost=3.0, upper=1.0, integer=False)
    builder.row("cover", {flow: 1.0}, ">=", 0.5)
    solved = solve_integer(builder.build(), solver="highs", mip_gap=0.0, time_limit_s=5.0)
    assert (solved.objective, solved.bound) == (1.5, 1.5)


def test_a_class_that_no_point_of_a_blend_carries_leaves_its_count_bounded() -> None:
    pool, names = candidate(cost=1.0), ("a", "b", "c")
    points = np.array([[0.5, 0.0, 0.0], [0.0, 0.25, 0.0]])
    blend = Blend(candidate=pool, replicas=1, points=points, names=names)
    alone = column(pool, 1, c=1.0)
    program = master_program([alone], [request_class(name) for name in names], stock_of({}), [blend])
    assert np.isfinite(program.upper).all()
    assert solve_integer(program, solver="highs", mip_gap=0.0, time_limit_s=20.0).objective == pytest.approx(7.0)
