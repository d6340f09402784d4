"""Constants of synthetic and of measured benchmarks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qmodel as qm
from qmodel.calibration import Calibration, Measurements, ServingPoint, StepTime
from qmodel.calibration.estimation import estimate
from qmodel.calibration.parameters import PARAMETERS, prior_terms
from qmodel.calibration.replicas import Target
from qmodel.catalog import load_catalog
from qmodel.errors import CatalogError, ScenarioError
from qmodel.types import Band, FloatArray, Layout
from tests.calibration.synthetic import grid_step_s, loop_points, step_times, target, true_model


def calibrated(measurements: Measurements, of: Target | None = None) -> Calibration:
    return estimate(measurements, of or target(), load_catalog(), as_of="2026-12-01")


def factors(found: Calibration) -> dict[str, float]:
    return {item.parameter: item.factor for item in found.parameters}


def standings(found: Calibration) -> dict[str, str]:
    return {item.parameter: item.standing for item in found.parameters}


def grid_errors(found: Calibration, true: dict[str, float]) -> FloatArray:
    """Errors of clean step times with the factors found, where others were measured."""
    of = target()
    return np.abs(grid_step_s(true_model(of, factors(found))) / grid_step_s(true_model(of, true)) - 1.0)


@settings(max_examples=6, deadline=None)
@given(
    weights=st.floats(0.98, 1.5),
    gemm=st.floats(0.8, 1.4),
    kv=st.floats(0.98, 1.5),
    layers=st.floats(0.6, 1.8),
    seed=st.integers(0, 1000),
)
def test_known_constants_are_found_again(weights: float, gemm: float, kv: float, layers: float, seed: int) -> None:
    true = {"weights": weights, "gemm": gemm, "kv": kv, "layers": layers}
    found = calibrated(step_times(true_model(target(), true), 60, seed))
    assert np.quantile(grid_errors(found, true), 0.9) < 0.05


def test_two_per_cent_noise_and_a_tenth_of_outliers_leave_the_constants_readable() -> None:
    true = {"weights": 1.25, "gemm": 1.15, "kv": 1.3, "layers": 1.6, "host_sequence": 1.5}
    found = calibrated(step_times(true_model(target(), true), 160, 1, outliers=0.1))
    assert np.quantile(grid_errors(found, true), 0.9) < 0.03
    for item in found.parameters:
        if item.standing in ("identified", "weak"):
            assert item.low * 0.97 < true.get(item.parameter, 1.0) < item.high * 1.03
    for name in ("gemm", "kv"):
        assert factors(found)[name] == pytest.approx(true[name], rel=0.06)
    assert sum(row.weight < 0.3 for row in found.rows) == pytest.approx(16, abs=8)
    assert found.band.p90 < found.band_before.p90


def test_benchmarks_at_fixed_concurrency_give_the_time_per_token_back() -> None:
    true = {"weights": 1.2, "gemm": 1.2, "layers": 1.5}
    users = (1, 2, 4, 8, 16, 32, 64, 128)
    found = calibrated(loop_points(true_model(target(), true), users))
    assert found.errors[0].quantity == "tpot"
    assert found.errors[0].before.median > 0.1
    assert found.errors[0].left_out.p90 < 0.03


def test_throughput_serves_where_no_time_per_token_is_stated() -> None:
    true = {"weights": 1.2, "layers": 1.5}
    points = []
    for point in loop_points(true_model(target(), true), (1, 8, 32, 96)).points:
        assert point.tpot_s is not None
        seconds = 0.05 + (point.output_tokens - 1) * point.tpot_s
        points.append(
            ServingPoint(
                users=point.users,
                prompt_tokens=point.prompt_tokens,
                output_tokens=point.output_tokens,
                output_tokens_per_s=point.users * point.output_tokens / seconds,
            )
        )
    found = calibrated(Measurements(points=tuple(points)))
    assert found.errors[0].quantity == "throughput"
    assert found.errors[0].fitted.mean < found.errors[0].before.mean / 2


def test_what_no_measurement_depends_on_is_left_alone_and_named() -> None:
    found = calibrated(step_times(true_model(target(), {"layers": 1.3}), 40, 3, prompts=0.0))
    reasons = {item.parameter: item.reason for item in found.parameters if item.standing == "left alone"}
    for name in ("expert_weights", "collectives", "prompt_attention", "prompt_layers", "front_end"):
        assert reasons[name] == "no measurement depends on it"
        assert factors(found)[name] == 1.0
    assert standings(found)["layers"] != "left alone"


def test_what_looks_like_something_larger_has_no_factor_of_its_own_and_is_named() -> None:
    found = calibrated(loop_points(true_model(target(), {}), (1, 4, 16, 64)))
    reasons = {item.parameter: item.reason for item in found.parameters}
    assert reasons["host_pass"] == "cannot be told apart from layers"
    assert standings(found)["host_pass"] == "together"


def test_efficiencies_never_pass_the_data_sheet() -> None:
    found = calibrated(step_times(true_model(target(), {"kv": 0.5}), 60, 2))
    assert max(found.constants[name] for name in ("e_w", "e_kv", "e_f", "e_mw")) <= 1.0 + 1e-9
    kv = next(item for item in found.parameters if item.parameter == "kv")
    assert kv.reason == "as fast as the data sheet allows"


def test_measurements_of_the_defaults_move_nothing_far() -> None:
    found = calibrated(loop_points(true_model(target(), {}), (1, 2, 4, 8, 16, 32, 64)))
    assert all(item.factor == pytest.approx(1.0, abs=0.01) for item in found.parameters)
    assert found.band.p90 < found.band_before.p90


def test_three_points_move_less_than_fifteen() -> None:
    """Of a model with a fit of its own: the prior is narrow there."""
    of = target("qwen3-32b", layout=Layout(tp=2))
    model = true_model(of, {item.name: 1.15 for item in PARAMETERS})
    few, many = ((1, 8, 64), tuple(range(1, 90, 6)))
    moves = [
        np.log(found.rows[0].fitted_s / found.rows[0].before_s)
        for found in (calibrated(loop_points(model, users), of) for users in (few, many))
    ]
    assert 0 < moves[0] < moves[1] < np.log(1.15) + 0.01


def test_the_prior_is_as_wide_as_the_band() -> None:
    names = [item.name for item in PARAMETERS]
    usual = true_model(target(), {}).constants
    wide, narrow = (prior_terms(Band(p50=p90 / 4, p90=p90), usual, np.ones(3), -1.0) for p90 in (0.43, 0.105))
    assert wide.common > 3 * narrow.common
    assert np.all(wide.own[wide.shared] > narrow.own[wide.shared])
    of_weights = np.hypot(wide.common, wide.own[names.index("weights")])
    assert of_weights == pytest.approx(np.log(1.43) / 1.645, rel=0.05)


def test_a_point_beyond_the_memory_is_left_out_with_the_reason() -> None:
    points = loop_points(true_model(target(), {}), (1, 16)).points
    beyond = ServingPoint(users=4000, prompt_tokens=1000, output_tokens=200, tpot_s=0.5, place="x.csv:9")
    found = calibrated(Measurements(points=(*points, beyond)))
    assert [item.place for item in found.left_out] == ["x.csv:9"]
    assert found.left_out[0].reason.startswith("4000 users, but memory and slots hold")


def test_a_layout_that_the_model_cannot_have_is_left_out_with_the_reason() -> None:
    points = loop_points(true_model(target(), {}), (1, 16)).points
    odd = ServingPoint(users=4, prompt_tokens=1000, output_tokens=200, tpot_s=0.01, layout=Layout(tp=3), place="x:2")
    found = calibrated(Measurements(points=(*points, odd)))
    assert found.left_out[0].reason.startswith("tp3: ")
    assert found.layouts == ("tp1",)


def test_too_little_is_said_with_a_way_out() -> None:
    point = ServingPoint(users=4, prompt_tokens=1000, output_tokens=200, tpot_s=0.01)
    with pytest.raises(ScenarioError, match="one usable measurement; a calibration needs two at least"):
        calibrated(Measurements(points=(point,)))
    with pytest.raises(ScenarioError, match="no usable measurement"):
        calibrated(Measurements())
    with pytest.raises(ScenarioError, match="all 2 usable measurements are at a batch of 4"):
        calibrated(Measurements(points=(point, point)))


def test_times_in_the_wrong_unit_are_refused() -> None:
    points = [ServingPoint(users=users, prompt_tokens=900, output_tokens=200, tpot_s=9.0) for users in (1, 8)]
    with pytest.raises(
        ScenarioError, match=r"measured times are 1.* times what the defaults predict .*check the units"
    ):
        calibrated(Measurements(points=tuple(points)))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0, 0.0])
def test_records_take_no_impossible_numbers(bad: float) -> None:
    with pytest.raises(ValueError, match="tpot_s must be finite and above 0"):
        ServingPoint(users=1, prompt_tokens=1, output_tokens=2, tpot_s=bad)
    with pytest.raises(ValueError, match="step_s must be finite and above 0"):
        StepTime(batch=1, step_s=bad)
    with pytest.raises(ValueError, match="users must be finite and at least 1"):
        ServingPoint(users=bad, prompt_tokens=1, output_tokens=2, tpot_s=1)


def test_records_say_something() -> None:
    with pytest.raises(ValueError, match="neither is"):
        ServingPoint(users=1, prompt_tokens=1, output_tokens=2)
    with pytest.raises(ValueError, match="a step without work"):
        StepTime(batch=0, step_s=1)


def test_prompts_of_two_sizes_at_one_batch_are_enough() -> None:
    steps = [
        StepTime(batch=8, context_tokens=1000, prefill_tokens=size, step_s=0.01 + size * 2e-5) for size in (0, 2048)
    ]
    assert calibrated(Measurements(steps=tuple(steps))).points == 2


def test_a_mixture_in_several_layouts_is_calibrated() -> None:
    points = [
        ServingPoint(users=users, prompt_tokens=900, output_tokens=900, tpot_s=tpot_s, layout=Layout(tp=tp))
        for users, tp, tpot_s in ((1, 1, 0.0048), (8, 1, 0.0072), (4, 2, 0.0050), (32, 2, 0.0080), (64, 4, 0.0085))
    ]
    found = calibrated(Measurements(points=tuple(points)), target("gpt-oss-120b"))
    assert found.layouts == ("tp1", "tp2", "tp4")
    assert found.precision == "w4"
    assert found.errors[0].fitted.mean <= found.errors[0].before.mean


def test_the_public_call_names_what_it_does_not_know() -> None:
    few = loop_points(true_model(target(), {}), (1, 16))
    with pytest.raises(CatalogError, match="no model 'lama'"):
        qm.calibrate(few, model="lama", gpu="h100-sxm")
    with pytest.raises(CatalogError, match="no engine"):
        qm.calibrate(few, model="llama-3.1-8b", gpu="h100-sxm", engine="vlm")
    with pytest.raises(ValueError, match="max_num_seqs must be at least 1"):
        qm.calibrate(few, model="llama-3.1-8b", gpu="h100-sxm", max_num_seqs=0)
    with pytest.raises(ValueError, match="precision: unknown 'fp7'"):
        qm.calibrate(few, model="llama-3.1-8b", gpu="h100-sxm", precision="fp7")
