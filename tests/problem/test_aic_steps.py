"""Step times of aiconfigurator: a stand-in of the few calls that the adapter makes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from types import ModuleType
from typing import Any, ClassVar

import pytest

import qmodel as qm
from qmodel.catalog import load_catalog
from qmodel.problem import aic_steps
from qmodel.problem.aic_steps import aic_missing, aic_step_law
from qmodel.types import Engine, Layout, LinkCosts, Refusal, Speculation, StepLaw

FIXED_MS, PER_SEQUENCE_MS, PER_KV_TOKEN_MS, PER_PROMPT_TOKEN_MS = 5.0, 0.1, 2e-5, 0.04
CATALOG = load_catalog()


class PerfDataNotAvailableError(Exception):
    """As the package has it."""


class HuggingFaceDownloadError(Exception):
    """As the package has it."""


class Handle:
    """An engine whose steps are linear, of the stand-in package."""

    asked: ClassVar[list[tuple[str, str, str, dict[str, Any]]]] = []

    @classmethod
    def compile(cls, model_path: str, system: str, backend: str, **settings: Any) -> Handle:
        cls.asked.append((model_path, system, backend, settings))
        if "Mistral" in model_path:
            raise HuggingFaceDownloadError("no config.json")
        return cls()

    def decode_step_latency(self, gen_tokens: int, isl: int, osl: int) -> float:
        assert all(isinstance(value, int) and value > 0 for value in (gen_tokens, isl, osl))
        return FIXED_MS + PER_SEQUENCE_MS * gen_tokens + PER_KV_TOKEN_MS * gen_tokens * (isl + osl / 2)

    def mixed_step_latency(self, ctx_tokens: int, gen_tokens: int, isl: int, osl: int) -> float:
        if ctx_tokens == 7:
            raise PerfDataNotAvailableError("context data missing\nat some path")
        return self.decode_step_latency(gen_tokens, isl, osl) + PER_PROMPT_TOKEN_MS * ctx_tokens


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    parts = {"engine": {"EngineHandle": Handle}}
    parts |= {"utils": {"HuggingFaceDownloadError": HuggingFaceDownloadError}}
    parts |= {"errors": {"PerfDataNotAvailableError": PerfDataNotAvailableError}}
    for name in ("aiconfigurator_core", "aiconfigurator_core.sdk"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for name, content in parts.items():
        module = ModuleType(f"aiconfigurator_core.sdk.{name}")
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(metadata, "version", lambda name: "0.12.0")
    aic_steps._compiled.cache_clear()
    Handle.asked.clear()
    yield
    aic_steps._compiled.cache_clear()


def law(name: str = "qwen3-32b", layout: Layout | None = None, **changes: Any) -> StepLaw | Refusal:
    work: dict[str, Any] = {"context_tokens": 2000.0, "prompt_tokens": 1000.0, "batch": 32.0} | changes
    engine = work.pop("engine", Engine(max_num_seqs=256))
    gpu = CATALOG.gpu(work.pop("gpu", "h100-sxm"))
    links = work.pop("links", LinkCosts())
    return aic_step_law(
        CATALOG.model(name),
        gpu,
        layout or Layout(tp=2),
        engine,
        links=links,
        constants=CATALOG.constants,
        **work,
    )


def test_its_steps_become_the_law_that_queues_read(installed: None) -> None:
    found = law()
    assert isinstance(found, StepLaw)
    assert found.gamma_s == pytest.approx(1e-3 * PER_KV_TOKEN_MS)
    assert found.delta_s == pytest.approx(1e-3 * PER_PROMPT_TOKEN_MS)
    for batch in (1.0, 32.0, 256.0):
        step_ms = FIXED_MS + PER_SEQUENCE_MS * batch + PER_KV_TOKEN_MS * batch * 2000
        assert float(found.tau_s(batch, 2000.0)) == pytest.approx(1e-3 * step_ms)
    assert found.provenance == "aiconfigurator 0.12.0: h100_sxm, vllm, without host time"
    unseen = CATALOG.constants.bands["GPU x engine x model slice never seen"]["p90"] / 100
    assert (found.band.confidence, found.band.p90) == ("low", unseen)
    (asked,) = Handle.asked
    assert asked[:3] == ("Qwen/Qwen3-32B", "h100_sxm", "vllm")
    assert asked[3]["tp_size"] == asked[3]["moe_tp_size"] == 2 and asked[3]["kvcache_quant_mode"] is None


def test_attention_ranks_share_the_sequences(installed: None) -> None:
    found = law("deepseek-r1", Layout(dp=8, ep=8), gpu="h200-sxm", engine=Engine(name="sglang", kv_dtype="fp8"))
    assert isinstance(found, StepLaw)
    step_ms = FIXED_MS + PER_SEQUENCE_MS * 32 + PER_KV_TOKEN_MS * 32 * 2000
    assert float(found.tau_s(256.0, 2000.0)) == pytest.approx(1e-3 * step_ms)
    assert found.delta_s == pytest.approx(1e-3 * PER_PROMPT_TOKEN_MS / 8)
    settings = Handle.asked[0][3]
    assert (settings["attention_dp_size"], settings["moe_ep_size"], settings["moe_tp_size"]) == (8, 8, 1)
    assert settings["kvcache_quant_mode"] == "fp8"


@pytest.mark.parametrize(
    ("ask", "reason", "change"),
    [
        ({"gpu": "mi300x"}, "does not know mi300x", "step_times fitted"),
        ({"layout": Layout(tp=2, pp=2)}, "stages and split contexts", "pp 1 and cp 1"),
        ({"precision": "fp8"}, "a checkpoint's own type only (got precision fp8)", "precision auto"),
        ({"links": LinkCosts(stage_in_island=False)}, "inside one scale-up island", "fewer GPUs"),
        (
            {"engine": Engine(speculation=Speculation(draft="eagle", tokens=2, acceptance=0.5))},
            "speculative decoding",
            "no speculative",
        ),
        ({"prompt_tokens": 7.0}, "under vllm: context data missing", "step_times fitted"),
        ({"name": "mistral-7b"}, "under vllm: no config.json", "step_times fitted"),
    ],
)
def test_what_its_tables_do_not_cover_is_a_refusal(
    installed: None, ask: dict[str, Any], reason: str, change: str
) -> None:
    found = law(**ask)
    assert isinstance(found, Refusal)
    assert (found.kind, found.change) == ("engine", change)
    assert reason in found.reason and "\n" not in found.reason


def scenario() -> dict[str, Any]:
    return {
        "qmodel": 1,
        "classes": {
            "chat": {
                "model": "qwen3-32b",
                "rate_rps": 2,
                "prompt_tokens": {"mean": 800, "cv": 1},
                "output_tokens": {"mean": 200, "cv": 1},
                "slo": {"tpot_mean_s": 0.05},
            }
        },
        "fleet": {"gpus": {"h100-sxm": {"price": {"usd_per_gpu_hour": 2.5}}}},
        "layouts": {"tp": [2, 4], "pp": [1]},
        "engine": {"step_times": "aic", "max_num_seqs": 128},
    }


def test_a_plan_with_its_step_times_says_so(installed: None) -> None:
    plan = qm.plan(scenario())
    assert plan.status == "optimal"
    assert "step times of aiconfigurator, without host time" in plan.explain()
    assert "operator tables of aiconfigurator, not validated here" in plan.explain()


def test_without_the_package_the_way_to_install_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    with pytest.raises(qm.ScenarioError) as caught:
        qm.plan(scenario())
    assert (
        "engine.step_times: step times of aiconfigurator need the package, which is not installed; "
        "pip install 'qmodel[aic]'"
    ) in str(caught.value)


def test_another_release_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "0.11.3")
    assert aic_missing() == (
        "step times of aiconfigurator need its release 0.12 (got 0.11.3)",
        "pip install 'qmodel[aic]' --upgrade",
    )


def test_fitted_step_times_need_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    fitted = scenario() | {"engine": {"step_times": "fitted", "max_num_seqs": 128}}
    assert qm.plan(fitted).status == "optimal"
    assert replace(Engine(), step_times="fitted") == Engine()
