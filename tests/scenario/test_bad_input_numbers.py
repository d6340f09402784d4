"""Numbers in spellings that YAML reads as something else than a person means."""

from __future__ import annotations

import qmodel as qm
from qmodel.scenario import check_scenario

TEXT = """\
qmodel: 1
classes:
  chat:
    model: llama-3.1-8b
    rate_rps: 1
    prompt_tokens: {constant: 1e3}
    output_tokens: {normal: {mean: 200, sd: 50, max: 4e2}}
    max_tokens: 1e3
    slo: {tpot_mean_s: 0.1}
fleet: {gpus: {h100-sxm: {max_count: 8.0, price: {usd_per_gpu_hour: 3}}}}
engine: {max_num_seqs: 2.56e2}
layouts: {tp: [1.0]}
"""


def test_whole_numbers_may_be_written_with_an_exponent_or_a_point() -> None:
    checked = check_scenario(TEXT)
    assert checked.problems == ()
    assert checked.scenario is not None
    scenario = checked.scenario
    chat = scenario.classes["chat"]
    assert chat.prompt_tokens is not None and chat.prompt_tokens.constant == 1000
    assert (chat.max_tokens, scenario.engine.max_num_seqs, scenario.layouts.tp) == (1000, 256, (1,))
    assert scenario.fleet.gpus["h100-sxm"].max_count == 8


def test_the_same_degree_in_two_spellings_is_listed_twice() -> None:
    problems = qm.validate(TEXT.replace("[1.0]", "[1, 1.0]"))
    assert [problem.key for problem in problems] == ["layouts.tp"]
