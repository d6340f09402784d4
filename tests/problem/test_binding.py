"""Names are resolved or reported with their position, all at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import qmodel as qm
from qmodel.problem import bind

TEXT = """\
qmodel: 1
classes:
  chat:
    model: lama-3.3-70b
    rate_rps: 3
    prompt_tokens: {mean: 500, cv: 1}
    output_tokens: {mean: 200, cv: 1}
    slo: {ttft_p95_s: 0.5}
  code:
    model: qwen3-32b
    rate_rps: 1
    prompt_tokens: {mean: 500, cv: 1}
    output_tokens: {mean: 200, cv: 1}
    slo: {tpot_mean_s: 0.05}
fleet:
  gpus:
    h100-sxn: {}
    h200-sxm: {fabric: ib-ndrr}
engine: {name: vlm}
"""


def single(**gpu: Any) -> dict[str, Any]:
    return {
        "qmodel": 1,
        "classes": {
            "chat": {
                "model": "llama-3.1-8b",
                "rate_rps": 3,
                "prompt_tokens": {"mean": 500, "cv": 1},
                "output_tokens": {"mean": 200, "cv": 1},
                "slo": {"ttft_p95_s": 0.5},
            }
        },
        "fleet": {"gpus": {"h100-sxm": gpu}},
    }


def test_unknown_names_are_reported_together_with_position_and_nearest_name(tmp_path: Path) -> None:
    path = tmp_path / "typos.yaml"
    path.write_text(TEXT)
    with pytest.raises(qm.ScenarioError) as caught:
        qm.load_scenario(path)
    lines = str(caught.value).splitlines()
    found = "\n".join(lines)
    assert f"{path}:4:5: classes.chat.model: no model 'lama-3.3-70b' in the catalog; nearest: 'llama-3.3-70b'" in found
    assert ":17:5: fleet.gpus.h100-sxn: no gpu 'h100-sxn' in the catalog; nearest: 'h100-sxm'" in found
    assert ":18:16: fleet.gpus.h200-sxm.fabric: no fabric 'ib-ndrr' in the catalog; nearest: 'ib-ndr'" in found
    assert "engine.name: no engine 'vlm' in the catalog; nearest: 'vllm'" in found


def test_price_stated_in_the_scenario_wins_over_the_price_book() -> None:
    price = bind(qm.load_scenario(single(price={"usd_per_gpu_hour": 1.25}))).gpus["h100-sxm"].price
    assert (price.usd_per_gpu_hour, price.basis) == (1.25, "stated in the scenario")


def test_price_book_without_a_row_is_a_problem_with_a_way_out() -> None:
    data = single(price={"term": "reserved_3y"})
    data["fleet"]["price_book"] = {"providers": ["runpod"]}
    problems = qm.validate(data)
    assert len(problems) == 1
    assert "reserved_3y" in str(problems[0])
    assert "usd_per_gpu_hour" in str(problems[0])


def test_gpu_known_by_profiles_only_must_state_its_price() -> None:
    data = single()
    data["fleet"] = {"gpus": {"mine": {}}}
    data["profiles"] = [
        {"model": "llama-3.1-8b", "gpu": "mine", "alpha_s": 0.01, "beta_s": 1e-4, "gamma_s": 0.0, "delta_s": 1e-4}
    ]
    (problem,) = qm.validate(data)
    assert "has no price" in str(problem)


def test_misspelt_profile_gpu_is_a_problem_and_a_gpu_left_out_a_note() -> None:
    profile = {"model": "llama-3.1-8b", "alpha_s": 0.01, "beta_s": 1e-4, "gamma_s": 0.0, "delta_s": 1e-4}
    data = single()
    data["profiles"] = [{**profile, "gpu": "h100-sxn"}]
    (problem,) = qm.validate(data)
    assert "did you mean 'h100-sxm'?" in str(problem)
    data["profiles"] = [{**profile, "gpu": "tpu-v6e"}]
    notes = bind(qm.load_scenario(data)).assumptions
    assert any("tpu-v6e is not used" in note for note in notes)


def test_node_with_other_gpus_is_a_problem() -> None:
    (problem,) = qm.validate(single(node="dgx-b200"))
    assert "has b200-sxm GPUs" in str(problem)


def test_model_from_a_hugging_face_config_is_planned_like_the_catalog_entry(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,'
        ' "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,'
        ' "max_position_embeddings": 131072, "tie_word_embeddings": false, "torch_dtype": "bfloat16"}'
    )
    data = single(price={"usd_per_gpu_hour": 3})
    named = qm.plan(data)
    data["classes"]["chat"]["model"] = str(config)
    own = qm.plan(data)
    assert own.cost_usd_per_hour == named.cost_usd_per_hour
    assert own.slo[0].predicted_s == pytest.approx(named.slo[0].predicted_s, rel=0.02)


def with_lengths(**laws: Any) -> dict[str, Any]:
    scenario = single(price={"usd_per_gpu_hour": 3})
    scenario["classes"]["chat"].update(laws)
    return scenario


def test_prompts_beyond_the_context_are_cut_and_noted() -> None:
    notes = bind(qm.load_scenario(with_lengths(prompt_tokens={"mean": 100_000, "cv": 1}))).assumptions
    assert any(note.startswith("class chat: ") and note.endswith(" of prompts are cut at a cap") for note in notes)


def test_a_class_whose_every_prompt_is_beyond_the_context_is_refused() -> None:
    with pytest.raises(qm.ScenarioError) as caught:
        qm.load_scenario(with_lengths(prompt_tokens={"constant": 200_000}))
    assert "classes.chat.prompt_tokens: every prompt is longer than the context of llama-3.1-8b, 131072" in str(
        caught.value
    )


def test_max_tokens_beyond_the_context_does_not_lengthen_it() -> None:
    long = {"output_tokens": {"mean": 200_000, "cv": 1}}
    plain = bind(qm.load_scenario(with_lengths(**long))).classes["chat"].lengths.output
    capped = bind(qm.load_scenario(with_lengths(**long, max_tokens=1_000_000))).classes["chat"].lengths.output
    assert capped.maximum == plain.maximum == 131072


def test_a_setting_that_is_wrong_for_all_gpus_is_told_once() -> None:
    scenario = with_lengths()
    scenario["fleet"]["gpus"]["h200-sxm"] = {"price": {"usd_per_gpu_hour": 4}}
    scenario["engine"] = {"version": "zz"}
    assert [problem.key for problem in qm.validate(scenario)] == ["engine.version"]


def test_a_trace_scaled_beyond_every_rate_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,10\n1,10,10\n")
    scenario = with_lengths()
    chat = scenario["classes"]["chat"]
    for key in ("rate_rps", "prompt_tokens", "output_tokens"):
        del chat[key]
    for scale in (1e12, 1e-12):
        chat["trace"] = {"file": str(path), "rate_scale": scale}
        with pytest.raises(
            qm.ScenarioError, match=r"classes\.chat\.trace\.rate_scale: turns the trace's 2 requests/s into"
        ):
            qm.load_scenario(scenario)


def test_a_profile_with_more_sequences_than_a_step_has_tokens_is_refused() -> None:
    scenario = with_lengths()
    profile = {
        "model": "llama-3.1-8b",
        "gpu": "h100-sxm",
        "alpha_s": 0.01,
        "beta_s": 1e-4,
        "gamma_s": 0,
        "delta_s": 1e-4,
    }
    scenario["profiles"] = [profile | {"max_num_seqs": 8192}]
    assert [problem.key for problem in qm.validate(scenario)] == ["profiles[0].max_num_seqs"]


def test_speculative_decoding_is_bound_with_its_draft_and_told() -> None:
    stated = {"draft": "llama-3.1-8b", "tokens": 3, "acceptance": 0.7}
    scenario = single()
    scenario["classes"]["chat"]["model"] = "llama-3.3-70b"
    scenario["engine"] = {"speculative": stated, "max_num_seqs": 256}
    instance = bind(qm.load_scenario(scenario))
    bound = instance.gpus["h100-sxm"].engine.speculation
    assert bound is not None and bound.draft_model is not None
    assert (bound.draft_model.name, bound.tokens, bound.acceptance) == ("llama-3.1-8b", 3, 0.7)
    told = "\n".join(instance.assumptions)
    assert "llama-3.1-8b drafts 3 tokens a step, acceptance 0.7 as stated: 2.53 tokens a step" in told
    assert "is not in the percentiles" in told


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"draft": "lama-3.1-8b", "tokens": 3, "acceptance": 0.7}, "engine.speculative.draft: no model 'lama-3.1-8b'"),
        ({"draft": "mtp", "tokens": 3}, "engine.speculative: 'acceptance' is missing"),
        (
            {"draft": "mtp", "tokens": 3, "acceptance": 1.3},
            "engine.speculative.acceptance: must be at most 1 (got 1.3)",
        ),
        ({"draft": "mtp", "tokens": 65, "acceptance": 0.3}, "engine.speculative.tokens: must be at most 64 (got 65)"),
    ],
)
def test_speculative_decoding_that_is_not_whole_is_refused(stated: dict[str, Any], message: str) -> None:
    with pytest.raises(qm.ScenarioError) as caught:
        qm.load_scenario(single() | {"engine": {"speculative": stated}})
    assert message in str(caught.value)


def test_a_draft_that_the_model_cannot_have_makes_the_plan_infeasible_for_it() -> None:
    scenario = single() | {
        "engine": {"speculative": {"draft": "mtp", "tokens": 2, "acceptance": 0.7}, "max_num_seqs": 64}
    }
    plan = qm.plan(qm.load_scenario(scenario))
    assert plan.status == "infeasible"
    assert "llama-3.1-8b has no multi-token-prediction layers" in plan.explain()
    assert "use draft eagle, or a model as draft" in plan.explain()
