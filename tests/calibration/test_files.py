"""Calibration files: written, read back as catalog files, named in scenarios, kept in plans."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import qmodel as qm
from qmodel.calibration import Calibration
from qmodel.catalog import load_catalog
from qmodel.errors import ScenarioError
from qmodel.perf import resolve_constants, step_law
from qmodel.types import Engine, Layout
from tests.calibration.synthetic import loop_points, target, true_model

USERS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96)


@pytest.fixture(scope="module")
def found() -> Calibration:
    slower = true_model(target(), {"weights": 1.3, "gemm": 1.3, "layers": 1.3, "kv": 1.3})
    return qm.calibrate(loop_points(slower, USERS), model="llama-3.1-8b", gpu="h100-sxm", as_of="2026-12-01")


@pytest.fixture
def file(found: Calibration, tmp_path: Path) -> Path:
    path = tmp_path / "cal.yaml"
    found.save(path)
    return path


def scenario(**more: Any) -> dict[str, Any]:
    return {
        "qmodel": 1,
        "classes": {
            "chat": {
                "model": "llama-3.1-8b",
                "rate_rps": 20,
                "prompt_tokens": {"mean": 900, "cv": 1},
                "output_tokens": {"mean": 200, "cv": 1},
                "slo": {"tpot_mean_s": 0.03},
            }
        },
        "fleet": {"gpus": {"h100-sxm": {"price": {"usd_per_gpu_hour": 3.0}}}},
        "layouts": {"tp": [1], "pp": [1]},
        **more,
    }


def tpot(given: dict[str, Any], **more: Any) -> tuple[float, float, list[str]]:
    fleet = {
        "qmodel": 1,
        "pools": {"p": {"model": "llama-3.1-8b", "gpu": "h100-sxm", "layout": {"tp": 1}, "replicas": 2}},
        "routing": {"chat": [{"path": ["p"], "share": 1}]},
    }
    result = qm.evaluate(qm.load_scenario(given, **more), qm.load_fleet(fleet))
    return result.slo[0].predicted_s, result.slo[0].high_s, list(result.assumptions)


def test_a_file_gives_the_constants_back(found: Calibration, file: Path) -> None:
    catalog = load_catalog(file)
    read = resolve_constants(
        catalog.model("llama-3.1-8b"), catalog.gpu("h100-sxm"), Engine(), constants=catalog.constants
    )
    for name, value in found.constants.items():
        assert getattr(read, name) == pytest.approx(value, rel=1e-5)
    assert (read.band.p50, read.band.p90) == (
        pytest.approx(found.band.p50, rel=1e-5),
        pytest.approx(found.band.p90, rel=1e-5),
    )
    assert read.provenance.startswith("calibrated on 10 measured points (2026-12-01), up to 96 sequences")


def test_the_same_calibration_gives_the_same_bytes(found: Calibration, file: Path, tmp_path: Path) -> None:
    found.save(tmp_path / "again.yaml")
    assert (tmp_path / "again.yaml").read_bytes() == file.read_bytes()
    assert file.read_text(encoding="utf-8").count("qmodel_calibration: 1\n") == 1


def test_the_band_holds_in_the_measured_layout_only(found: Calibration, file: Path) -> None:
    catalog = load_catalog(file)
    laws = {
        tp: step_law(
            catalog.model("llama-3.1-8b"),
            catalog.gpu("h100-sxm"),
            Layout(tp=tp),
            context_tokens=1000,
            prompt_tokens=900,
            batch=32,
            constants=catalog.constants,
        )
        for tp in (1, 2)
    }
    assert laws[1].band.p90 == pytest.approx(found.band.p90, rel=1e-5)
    assert laws[1].band.level == "calibrated on 10 points in tp1"
    assert laws[2].band.p90 >= found.band_before.p90
    assert laws[2].band.level.startswith("calibrated in tp1 only; GPU x engine x model")


def test_other_models_gpus_engines_and_weights_keep_the_shipped_constants(file: Path) -> None:
    own, shipped = load_catalog(file), load_catalog()
    for model, gpu, engine, precision in (
        ("qwen3-32b", "h100-sxm", "vllm", None),
        ("llama-3.1-8b", "h200-sxm", "vllm", None),
        ("llama-3.1-8b", "h100-sxm", "sglang", None),
        ("llama-3.1-8b", "h100-sxm", "vllm", "fp8"),
    ):
        rows = [
            resolve_constants(
                catalog.model(model),
                catalog.gpu(gpu),
                catalog.engine(engine, catalog.gpu(gpu)),
                constants=catalog.constants,
                precision=precision,
            )
            for catalog in (own, shipped)
        ]
        assert rows[0] == rows[1]


def test_a_scenario_names_a_calibration_and_predictions_follow(found: Calibration, file: Path) -> None:
    usual, usual_high, _ = tpot(scenario())
    own, own_high, assumptions = tpot(scenario(calibrations=[str(file)]))
    through_catalog, _, _ = tpot(scenario(), catalog=[file])
    assert own == through_catalog
    assert 1.15 < own / usual < 1.6
    assert own_high / own < usual_high / usual
    assert any("step times calibrated on 10 measurements (2026-12-01) in tp1" in text for text in assumptions)
    assert any(f"within {found.band.p90:.0%} of this model (calibrated on 10 points" in text for text in assumptions)


def test_a_plan_embeds_the_calibration_and_is_verified_without_the_file(file: Path, tmp_path: Path) -> None:
    plan = qm.plan(qm.load_scenario(scenario(calibrations=[str(file)])))
    plan.save(tmp_path / "plan.json")
    file.unlink()
    again = qm.load_plan(tmp_path / "plan.json")
    assert qm.verify(again).ok
    embedded = again.inputs["catalog"]["calibrations"]  # type: ignore[call-overload, index]
    assert embedded[0]["constants"]["e_w"] < 0.97
    assert embedded[0]["points"] == 10


def test_a_model_of_a_configuration_file_goes_by_its_path(file: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(file.read_text(encoding="utf-8").replace("model: llama-3.1-8b", "model: config.json"), "utf-8")
    assert load_catalog(own).constants.calibrations[0]["model"] == "config.json"


def test_a_later_calibration_of_the_same_wins(found: Calibration, file: Path, tmp_path: Path) -> None:
    second = tmp_path / "second.yaml"
    second.write_text(re.sub(r"e_w: [0-9.]+", "e_w: 0.5", file.read_text(encoding="utf-8")), encoding="utf-8")
    kept = load_catalog([file, second]).constants.calibrations
    assert [item["constants"]["e_w"] for item in kept] == [0.5]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("model: llama-3.1-8b", "model: lama-3.1-8b"), "calibrations[0].model: no model 'lama-3.1-8b' in the catalog"),
        (("gpu: h100-sxm", "gpu: h1-sxm"), "calibrations[0].gpu: no gpu 'h1-sxm' in the catalog"),
        (("engine: vllm", "engine: vlm"), "calibrations[0].engine: no engine 'vlm' in the catalog"),
        (("qmodel_calibration: 1", "qmodel_calibration: 9"), "calibration files of version 9 are not known"),
        (("e_kv:", "e_x:"), "calibrations[0].constants"),
        (("precision: bf16", "precision: int3"), "calibrations[0].precision: must be 'bf16', 'fp8', 'fp4' or 'w4'"),
        (("as_of:", "wrong:"), "calibrations[0]: 'as_of' is missing; a number without a source"),
    ],
)
def test_a_file_that_was_edited_wrongly_is_refused_with_its_place(
    file: Path, change: tuple[str, str], said: str
) -> None:
    file.write_text(file.read_text(encoding="utf-8").replace(*change), encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        qm.load_scenario(scenario(calibrations=[str(file)]))
    text = str(caught.value)
    assert said in text
    assert re.search(r"cal\.yaml:\d+:\d+: ", text)


def test_a_calibration_of_something_that_the_scenario_does_not_run_is_refused(file: Path) -> None:
    other = scenario(calibrations=[str(file)])
    other["classes"]["chat"]["model"] = "qwen3-32b"
    with pytest.raises(ScenarioError) as caught:
        qm.load_scenario(other)
    assert "calibrates llama-3.1-8b (bf16) on h100-sxm under vllm, which this scenario does not run" in str(
        caught.value
    )
    assert "it runs qwen3-32b (bf16) on h100-sxm under vllm" in str(caught.value)
    assert qm.validate({**other, "calibrations": []}) == []


def test_a_file_that_is_no_calibration_is_refused(tmp_path: Path) -> None:
    none = tmp_path / "none.yaml"
    none.write_text("source: x\n", encoding="utf-8")
    more = tmp_path / "more.yaml"
    more.write_text("calibrations: [1]\nmodels: []\n", encoding="utf-8")
    messages = [
        str(problem)
        for problem in qm.validate(scenario(calibrations=[str(none), str(more), str(tmp_path / "missing.yaml")]))
    ]
    assert "holds no calibration; qmodel calibrate --out FILE writes one" in messages[0]
    assert "has more than calibrations: models; give it with --catalog" in messages[1]
    assert "missing.yaml'; qmodel calibrate --out FILE writes one" in messages[2]


def test_a_calibration_as_plain_data_has_everything(found: Calibration) -> None:
    data = found.to_dict()
    assert data["points"] == 10
    assert {item["parameter"] for item in data["parameters"]} >= {"weights", "layers"}  # type: ignore[union-attr]
    assert data["band"]["p90"] < data["band_before"]["p90"]  # type: ignore[index]
