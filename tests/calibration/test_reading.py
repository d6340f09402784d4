"""Files of measurements: our own tables, results of tools, recorded requests, and what is wrong with them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import qmodel as qm
from qmodel.calibration import Measurements, points_of_requests, read_measurements
from qmodel.calibration.parameters import PARAMETERS
from qmodel.catalog import load_catalog
from qmodel.errors import ScenarioError
from qmodel.perf import step_law
from qmodel.trace import Trace
from qmodel.types import Layout, Replica
from tests import step_engine
from tests.calibration.synthetic import target, true_model

SERVING = Path(__file__).parents[1] / "data" / "perf" / "measured_serving.csv"
TRACES = Path(__file__).parents[1] / "data" / "trace"
VLLM = {"request_rate": "inf", "max_concurrency": 16, "duration": 30.0, "completed": 200, "total_input_tokens": 200_000}
VLLM |= {"total_output_tokens": 40_000, "mean_ttft_ms": 150.0, "median_ttft_ms": 90.0, "mean_tpot_ms": 10.5}
INFMAX = {"hw": "h100-sxm", "conc": 4, "model": "openai/gpt-oss-120b", "framework": "vllm", "tp": 2, "ep": 1}
INFMAX |= {"dp_attention": False, "isl": 1024, "osl": 1024, "output_tput_per_gpu": 450, "median_ttft": 0.045}
INFMAX |= {"mean_tpot": 0.0048}


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def problems(file: Path) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        read_measurements(file)
    return [str(problem).removeprefix(f"{file.parent}/") for problem in caught.value.problems]


def test_step_times_are_read_with_their_units(tmp_path: Path) -> None:
    file = written(tmp_path, "s.csv", "batch;kv_tokens;prefill_tokens;step_us\n8;8000;0;9100\n1;500;512;20000\n")
    first, second = read_measurements(file).steps
    assert (first.batch, first.context_tokens, first.step_s) == (8.0, 1000.0, pytest.approx(0.0091))
    assert (second.prefill_tokens, second.place) == (512.0, f"{file}:3")


def test_points_are_read_under_the_names_of_tools(tmp_path: Path) -> None:
    file = written(
        tmp_path, "p.csv", "Concurrency,ISL,OSL,mean_tpot_ms,ttft_ms,tp\n1,900,200,8,40,2\n\n16,900,200,11,,4\n"
    )
    found = read_measurements(file)
    assert [point.users for point in found.points] == [1.0, 16.0]
    assert [point.layout for point in found.points] == [Layout(tp=2), Layout(tp=4)]
    assert (found.points[0].ttft_s, found.points[1].ttft_s) == (pytest.approx(0.04), None)
    assert found.files[0].kind == "benchmarks at a fixed concurrency"
    assert len(found.files[0].sha256) == 64


def test_a_summary_of_vllm_bench_is_one_point(tmp_path: Path) -> None:
    point = read_measurements(written(tmp_path, "v.json", json.dumps(VLLM))).points[0]
    assert (point.users, point.prompt_tokens, point.output_tokens) == (16.0, 1000.0, 200.0)
    assert (point.tpot_s, point.ttft_s, point.burst_share) == (pytest.approx(0.0105), pytest.approx(0.09), 0.0)


def test_the_mean_time_to_first_token_counts_the_common_start(tmp_path: Path) -> None:
    mean = {name: value for name, value in VLLM.items() if name != "median_ttft_ms"}
    assert read_measurements(written(tmp_path, "v.json", json.dumps(mean))).points[0].burst_share == 0.08


def test_a_stream_at_a_rate_is_served_in_the_company_that_littles_law_says(tmp_path: Path) -> None:
    stream = {**VLLM, "max_concurrency": None, "request_rate": 4.0, "duration": 50.0, "median_ttft_ms": 100.0}
    point = read_measurements(written(tmp_path, "v.json", json.dumps(stream))).points[0]
    assert point.users == pytest.approx(1 + 4.0 * (0.1 + 199 * 0.0105))


def test_requests_all_at_once_say_no_concurrency(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps(item) for item in (VLLM, {**VLLM, "max_concurrency": None}))
    found = read_measurements(written(tmp_path, "v.jsonl", lines))
    assert len(found.points) == 1
    assert found.left_out[0].reason == "does not say how many requests were served at once"
    assert found.left_out[0].place.endswith("v.jsonl:2")


def test_details_without_arrivals_count_as_their_summary(tmp_path: Path) -> None:
    details = {"input_lens": [1000, 1000], "output_lens": [200, 200], "ttfts": [0.1, 0.1], "itls": [[0.01], [0.01]]}
    found = read_measurements(written(tmp_path, "v.json", json.dumps({**VLLM, **details})))
    assert [point.users for point in found.points] == [16.0]


def test_rows_of_inferencemax_are_seconds_without_a_unit(tmp_path: Path) -> None:
    rows = [INFMAX, {**INFMAX, "dp_attention": True, "ep": 2, "tp": 4}]
    first, second = read_measurements(written(tmp_path, "agg_bmk.json", json.dumps(rows))).points
    assert (first.tpot_s, first.ttft_s, first.output_tokens_per_s) == (0.0048, 0.045, 900.0)
    assert (first.layout, second.layout) == (Layout(tp=2), Layout(dp=4, ep=4))


def test_rows_of_something_else_are_left_out_by_name() -> None:
    found = qm.calibrate(SERVING, model="gpt-oss-120b", gpu="h200-sxm", max_batched_tokens=8192)
    reasons = {item.reason for item in found.left_out}
    assert found.points == 51
    assert reasons >= {"measures model deepseek-r1, not gpt-oss-120b", "measures GPU b200-sxm, not h200-sxm"}


def test_yaml_states_points_and_steps_with_one_layout(tmp_path: Path) -> None:
    text = "layout: {tp: 2}\npoints:\n- {users: 1, isl: 900, osl: 200, tpot_ms: 6}\n"
    text += "steps:\n- {batch: 3, context: 900, step_ms: 6}\n"
    found = read_measurements(written(tmp_path, "m.yaml", text))
    assert len(found) == 2
    assert {item.layout for item in found.all} == {Layout(tp=2)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "users,isl,tpot_ms\n1,1000,8\n",
            ["x.csv:1:1: benchmarks at a fixed concurrency: nothing states output_tokens"],
        ),
        (
            "batch_x,context,step_ms\n1,8,8\n",
            ["x.csv:1:1: step times: nothing states batch; name it batch, batch_size"],
        ),
        (
            "users,isl,osl,tpot_ms\n1,900,200,-8\n2,900,200,abc\n0,900,200,9\n4,900,200,nan\n8,inf,200,9\n9,900,1,9\n",
            [
                "x.csv:2:11: tpot_ms: must be greater than 0 and finite (got -8)",
                "x.csv:3:11: tpot_ms: must be a number (got 'abc')",
                "x.csv:4:1: users: must be at least 1 and finite (got 0)",
                "x.csv:5:11: tpot_ms: must be a number (got 'nan')",
                "x.csv:6:3: isl: must be greater than 0 and finite (got inf)",
                "x.csv:7:7: osl: must be at least 2 and finite (got 1)",
            ],
        ),
        (
            "users,isl,osl,tpot_ms,tp\n1,900,200,8,0\n",
            ["x.csv:2:13: tp: must be a whole number of at least 1 (got '0')"],
        ),
        ("foo,bar\n1,2\n", ["x.csv: has no column prompt_tokens", "x.csv: and it holds no rows of measurements; give"]),
    ],
)
def test_every_mistake_is_said_with_its_place(tmp_path: Path, text: str, said: list[str]) -> None:
    found = problems(written(tmp_path, "x.csv", text))
    assert len(found) == len(said)
    for message, start in zip(found, said, strict=True):
        assert message.startswith(start)


def test_mistakes_in_yaml_have_a_line_and_a_suggestion(tmp_path: Path) -> None:
    text = "layout: {tq: 2}\npoints:\n- {users: 1, isl: 900, osl: 200, tptms: 6}\npionts: []\n"
    assert problems(written(tmp_path, "m.yaml", text)) == [
        "m.yaml:4:1: pionts: unknown key 'pionts'; did you mean 'points'?",
        "m.yaml:1:1: layout: must be degrees (got {'tq': 2}); write {tp: 4}",
        "m.yaml:3:34: points[0].tptms: unknown key 'tptms'; did you mean 'tpot_ms'?",
    ]


def test_a_trace_without_times_is_refused() -> None:
    assert "records no times to first token and no completion times" in problems(TRACES / "azure.csv")[0]


def test_company_counts_a_request_with_those_beside_it() -> None:
    """One request alone for half of its tokens, then five in all."""
    trace = Trace(
        arrival_s=np.array([0.0, 5.0, 5.0, 5.0, 5.0]),
        prompt_tokens=np.full(5, 10),
        output_tokens=np.full(5, 101),
        ttft_s=np.full(5, 1e-9),
        completion_s=np.array([10.0, 5.0, 5.0, 5.0, 5.0]),
        source="five",
    )
    found = points_of_requests(trace)
    assert [item.reason for item in found.left_out] == [
        "fewer than 5 requests with about 3 at once",
        "fewer than 5 requests with about 5 at once",
    ]


def test_requests_of_a_simulated_replica_give_its_step_times_back() -> None:
    """A plain step engine with known constants under rising load; the calibration sees times of requests only."""
    true = {"weights": 1.2, "gemm": 1.2, "layers": 1.4}
    of = target()
    constants = true_model(of, true).constants
    own = {name: getattr(constants, name) for item in PARAMETERS for name in (*item.divided, *item.multiplied)}
    entry = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "engine": "vllm", "precision": "bf16", "layouts": ["tp1"]}
    entry |= {"points": 9, "largest_batch": 1.0, "largest_context_tokens": 1.0, "as_of": "2026", "constants": own}
    entry |= {"band": {"p50": 0.01, "p90": 0.02}}
    catalog = load_catalog()
    law = step_law(
        of.model,
        of.gpu,
        of.layout,
        of.engine,
        context_tokens=650,
        prompt_tokens=600,
        batch=16,
        constants=replace(catalog.constants, calibrations=(entry,)),  # type: ignore[arg-type]
    )
    rng = np.random.default_rng(4)
    gaps = np.concatenate([rng.exponential(1 / rate, 150) for rate in (0.5, 4.0, 12.0, 24.0, 40.0)])
    requests = [
        step_engine.Request(cls="x", arrival_s=float(moment), prompt=600, output=101) for moment in np.cumsum(gaps)
    ]
    step_engine.replay(Replica(step=law, max_num_seqs=256, max_batched_tokens=8192), iter(requests))
    trace = Trace(
        arrival_s=np.array([item.arrival_s for item in requests]),
        prompt_tokens=np.full(len(requests), 600),
        output_tokens=np.full(len(requests), 101),
        ttft_s=np.array([item.first_token_s - item.arrival_s for item in requests]),
        completion_s=np.array([item.done_s - item.arrival_s for item in requests]),
        source="replay",
    )
    found = qm.calibrate(
        points_of_requests(trace), model="llama-3.1-8b", gpu="h100-sxm", max_batched_tokens=8192, max_num_seqs=256
    )
    assert found.points >= 8
    assert any(item.reason.endswith("requests that ended after the last had come") for item in found.left_out)
    assert found.errors[0].before.median > 0.12
    assert found.errors[0].left_out.median < 0.03
    assert found.errors[0].left_out.p90 < 0.08


def test_measurements_join(tmp_path: Path) -> None:
    first = written(tmp_path, "a.csv", "users,isl,osl,tpot_ms\n1,900,200,8\n")
    second = written(tmp_path, "b.csv", "users,isl,osl,tpot_ms\n64,900,200,16\n")
    found = qm.calibrate([first, second], model="llama-3.1-8b", gpu="h100-sxm")
    assert found.points == 2
    assert [item.file for item in found.files] == [str(first), str(second)]
    assert len(Measurements().joined(read_measurements(first))) == 1
