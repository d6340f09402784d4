"""What prefill and decode pools carry, against rows of pools as they are predicted from end to end."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import qmodel as qm
from qmodel.candidates import (
    BUDGET_SHARES,
    StageCandidate,
    StageColumns,
    columns_by_stage,
    enumerate_candidates,
    feasible_at,
    frontier,
    least_counts,
    resource_shares,
    stage_part,
    unit_loads,
)
from qmodel.candidates.stage_candidates import STAGES, staged_candidates
from qmodel.problem import Instance, bind
from qmodel.queueing import AnswerStage, DecodeStage, PrefillStage, stages
from qmodel.types import KvLink, Slo
from tests.planning.apart_fleets import apart, thinking


def instance_of(seed: int, **options: object) -> Instance:
    return bind(qm.load_scenario(apart(seed, **options)))  # type: ignore[arg-type]


@cache
def cached(seed: int) -> tuple[Instance, dict[str, StageCandidate]]:
    instance = instance_of(seed)
    return instance, pools(instance)


def pools(instance: Instance) -> dict[str, StageCandidate]:
    """The fast GPU type's pools by stage."""
    unified = [item for item in enumerate_candidates(instance).candidates if item.gpu == "h100-sxm"]
    return {role: staged_candidates(instance, unified, role)[0][0] for role in STAGES}


@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_frontier_of_a_prefill_pool_is_where_the_row_misses_its_time_to_first_token(count: int) -> None:
    instance = instance_of(0)
    chat, able = instance.classes["c0"], pools(instance)
    part = stage_part(chat, "prefill", None)
    found = frontier([able["prefill"]], [part], np.array([count]))
    target = next(slo for slo in chat.slos if slo.metric == "ttft")
    for load, met in ((found.low[0], True), (found.high[0], False)):
        row = [PrefillStage(replica=able["prefill"].replica, replicas=count), decoding(able, 60)]
        value = stages(row, [chat.stream(load)])["c0"].ttft.quantile(target.p)
        assert (value <= target.target_s) is met
    assert found.high[0] / found.low[0] < 1.0062


@pytest.mark.parametrize("count", [1, 3])
def test_the_frontier_of_a_decode_pool_is_where_a_row_without_waits_before_it_misses_its_pace(count: int) -> None:
    instance = instance_of(0)
    chat, able = instance.classes["c0"], pools(instance)
    found = frontier([able["decode"]], [stage_part(chat, "decode", None)], np.array([count]))
    target = next(slo for slo in chat.slos if slo.metric == "tpot")
    wide = replace(able["decode"].link, lanes=1000)
    for load, met in ((found.low[0] * 0.99, True), (found.high[0] * 1.01, False)):
        row = [
            PrefillStage(replica=able["prefill"].replica, replicas=400),
            DecodeStage(replica=able["decode"].replica, replicas=count, link=wide),
        ]
        value = stages(row, [chat.stream(load)])["c0"].tpot.quantile(target.p)
        assert (value <= target.target_s) is met


def decoding(able: dict[str, StageCandidate], count: int) -> DecodeStage:
    return DecodeStage(replica=able["decode"].replica, replicas=count, link=replace(able["decode"].link, lanes=count))


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_more_replicas_carry_more_each_and_none_carries_more_than_it_is_stable_for(role: str) -> None:
    instance = instance_of(4)
    candidate = pools(instance)[role]
    part = stage_part(instance.classes["c0"], candidate.role, None)
    counts = np.array([1, 2, 3, 5])
    found = frontier([candidate] * 4, [part], counts)
    assert (np.diff(found.low / counts) > -0.006 * found.low[:-1] / counts[:-1]).all()
    assert (found.high <= counts / unit_loads([candidate], [part])[0] * (1 + 1e-9)).all()


def test_with_random_routing_replicas_add_up() -> None:
    instance = instance_of(0, router="random")
    candidate = pools(instance)["prefill"]
    part = stage_part(instance.classes["c0"], "prefill", None)
    found = frontier([candidate] * 2, [part], np.array([1, 3]))
    assert found.low[1] == pytest.approx(3 * found.low[0])


def test_least_counts_are_the_first_that_meet_every_target() -> None:
    instance = instance_of(3)
    for role, candidate in pools(instance).items():
        part = stage_part(instance.classes["c0"], candidate.role, None)
        count = int(least_counts([candidate], [part])[0])
        ratios = feasible_at([candidate] * 2, [part], np.array([count, max(count - 1, 1)]), np.ones(2))
        assert ratios[0] <= 1.0, role
        assert count == 1 or ratios[1] > 1.0, role


@pytest.mark.parametrize("seed", [0, 2, 7])
def test_the_optimistic_share_of_step_time_is_no_more_than_what_a_frontier_takes(seed: int) -> None:
    instance = instance_of(seed)
    for candidate in pools(instance).values():
        part = stage_part(instance.classes["c0"], candidate.role, None)
        carried = frontier([candidate] * 2, [part], np.array([1, 6]))
        share = resource_shares([candidate], part)[0]
        assert (carried.high * share <= np.array([1, 6]) * (1 + 1e-9)).all()


@settings(max_examples=25, deadline=None)
@given(
    split=st.sampled_from(BUDGET_SHARES),
    p=st.sampled_from([None, 0.5, 0.9, 0.99]),
    rate_rps=st.floats(0.5, 3.0),
    counts=st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
def test_parts_of_a_target_that_both_stages_meet_are_sufficient_for_the_whole(
    split: float, p: float | None, rate_rps: float, counts: tuple[int, int]
) -> None:
    """The target is what the two stages just meet; from end to end it holds with what the link adds."""
    instance, able = cached(0)
    base = replace(instance.classes["c0"], name="c", rate_rps=rate_rps, slos=())
    target_s = 1000.0
    slo = Slo(metric="completion", p=p, target_s=target_s)
    parts = {role: stage_part(replace(base, slos=(slo,)), able[role].role, split) for role in able}
    worst = max(
        float(feasible_at([able[role]], [parts[role]], np.array([count]), np.ones(1))[0])
        for role, count in zip(("prefill", "decode"), counts, strict=True)
    )
    if not np.isfinite(worst):
        return
    link = replace(able["decode"].link, lanes=1000)
    row = [
        PrefillStage(replica=able["prefill"].replica, replicas=counts[0]),
        DecodeStage(replica=able["decode"].replica, replicas=counts[1], link=link),
    ]
    found = stages(row, [base.stream()])["c"].completion
    value = found.mean if p is None else found.quantile(p)
    assert value <= worst * target_s * 1.005  # laws are sums of slices


def test_pools_that_another_outdoes_are_left_out_and_none_that_is_needed() -> None:
    scenario = qm.load_scenario(
        {
            "qmodel": 1,
            "classes": {
                "c": {
                    "model": "llama-3.1-8b",
                    "rate_rps": 3,
                    "prompt_tokens": {"mean": 4000, "cv": 0.5},
                    "output_tokens": {"mean": 100, "cv": 0.5},
                    "slo": {"ttft_p95_s": 2.0, "tpot_p95_s": 0.02},
                }
            },
            "fleet": {"gpus": {"h100-sxm": {"price": {"usd_per_gpu_hour": 2.0}}}},
            "layouts": {"tp": [1, 2], "pp": [1, 2], "disaggregate": True},
        }
    )
    instance = bind(scenario)
    candidates = enumerate_candidates(instance).candidates
    found = columns_by_stage(instance, candidates, instance.sharing())
    kept = {item.label for columns in found.sets.values() for item in columns.candidates}
    assert {"prefill h100-sxm tp1", "prefill h100-sxm tp2", "decode h100-sxm tp1"} <= kept
    assert "prefill h100-sxm tp1-pp2" not in kept  # as large as tp2, and slower
    assert found.serves("c", "llama-3.1-8b") and found.chains == found.bounding


def test_only_targets_over_both_stages_are_split() -> None:
    plain = columns_by_stage_of(False)
    assert not plain.chosen_only and not plain.bounding_only and len(plain.sets) == 2
    split = columns_by_stage_of(True)
    assert len(split.chosen_only) == 2 * len(BUDGET_SHARES) and len(split.bounding_only) == 2
    assert {chain.cls for chain in split.chains} == {"c0"} and len(split.chains) == len(BUDGET_SHARES)
    (hopeful,) = split.hopeful
    assert set(hopeful.sets) == split.bounding_only and hopeful.chains == split.bounding
    assert not plain.hopeful


def test_classes_that_think_may_have_their_answers_made_apart() -> None:
    instance = bind(qm.load_scenario(thinking(4)))
    found = columns_by_stage(instance, enumerate_candidates(instance).candidates, instance.sharing())
    assert sorted({len(chain.parts) for chain in found.bounding}) == [2, 3]
    assert {len(chain.parts) for chain in found.chains} == {2}
    longest = max(found.bounding, key=lambda chain: len(chain.parts))
    assert longest.parts == ("c0 > prefill", "c0 > think", "c0 > answer")
    every, short = found.hopeful
    assert len(every.chains) == 2 and len(short.chains) == 1
    roles = {item.role: item.pool_role for columns in found.sets.values() for item in columns.candidates}
    assert roles == {"prefill": "prefill", "decode": "decode", "think": "decode", "answer": "answer"}


@pytest.mark.slow
@pytest.mark.parametrize("role", ["think", "answer"])
def test_no_row_of_three_meets_what_its_thinking_or_answer_pool_misses_alone(role: str) -> None:
    """At loads beyond the frontier of one stage the row misses its targets, however large the others are."""
    instance = bind(qm.load_scenario(thinking(4)))
    chat, columns = instance.classes["c0"], columns_by_stage_of_thinking()
    able = {item.role: item for part in columns.sets.values() for item in part.candidates if item.gpu == "h100-sxm"}
    part = stage_part(chat, able[role].role, None)
    found = frontier([able[role]], [part], np.array([2]))
    counts = {"prefill": 400, "think": 400, "answer": 400, role: 2}
    for load in (1.02, 1.2):
        row = [
            PrefillStage(replica=able["prefill"].replica, replicas=counts["prefill"]),
            DecodeStage(replica=able["think"].replica, replicas=counts["think"], link=wide(able["think"])),
            AnswerStage(replica=able["answer"].replica, replicas=counts["answer"], link=wide(able["answer"])),
        ]
        predicted = stages(row, [chat.stream(float(found.high[0]) * load)])
        values = [predicted["c0"].metric(slo.metric) for slo in chat.slos] if predicted.stable else []
        missed = [value.quantile(slo.p) > slo.target_s for value, slo in zip(values, chat.slos, strict=False)]
        assert not predicted.stable or any(missed)


def wide(candidate: StageCandidate) -> KvLink:
    return replace(candidate.link, lanes=1000)


@cache
def columns_by_stage_of_thinking() -> StageColumns:
    instance = bind(qm.load_scenario(thinking(4)))
    return columns_by_stage(instance, enumerate_candidates(instance).candidates, instance.sharing())


def columns_by_stage_of(completion: bool) -> StageColumns:
    instance = instance_of(0, completion=completion)
    return columns_by_stage(instance, enumerate_candidates(instance).candidates, instance.sharing())
