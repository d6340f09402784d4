"""Step laws in corners where a fit could turn a term around."""

from __future__ import annotations

import pytest

import qmodel.perf as perf
from qmodel.catalog import load_catalog
from qmodel.types import Layout


@pytest.mark.parametrize("gpu", ["gb200", "gb300", "h200-sxm", "mi300x"])
@pytest.mark.parametrize("batch", [1.0, 256.0, 16384.0])
def test_prompt_tokens_never_make_a_step_shorter(gpu: str, batch: float) -> None:
    for ranks in (8, 16, 64):
        layout = Layout(ep=ranks, dp=ranks)
        law = perf.step_law("deepseek-v3", gpu, layout, context_tokens=1000, prompt_tokens=1600, batch=batch)
        assert law.delta_s > 0.0 and law.gamma_s >= 0.0


@pytest.mark.parametrize("model", ["llama-3.1-8b", "deepseek-v3"])
def test_every_precision_that_a_scenario_may_name_has_a_family(model: str) -> None:
    catalog = load_catalog()
    record, gpu = catalog.model(model), catalog.gpu("h100-sxm")
    families = [perf.quant_family(record, gpu, name) for name in ("bf16", "fp8", "fp4", "w4")]
    assert families == ["bf16", "fp8", "w4", "w4"]
