"""Rows that classes of a replica keep together: no mix on the frontier breaks them, and where they are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmodel.candidates import Candidate, frontier, joint_levels
from qmodel.candidates.joint_rows import least_replicas
from qmodel.types import Burst, Law, Lengths, Replica, RequestClass, Slo, StepLaw
from tests.optimize.pieces import candidate, request_class


def with_replica(router: str = "random", **settings_: Any) -> Candidate:
    return replace(candidate(cost=1.0), replica=Replica(**settings_), router=router)  # type: ignore[arg-type]


def exponential(mean: float) -> Law:
    """Atoms at evenly spaced levels of an exponential law."""
    levels = (np.arange(24) + 0.5) / 24
    return Law.from_atoms(np.maximum(np.round(-mean * np.log(1.0 - levels)), 1.0), np.full(24, 1.0 / 24))


def drawn_class(name: str, rng: np.random.Generator) -> RequestClass:
    prompt, output = float(rng.choice([50, 400, 3000])), float(rng.choice([20, 100, 600]))
    return RequestClass(
        name=name,
        model="m",
        rate_rps=float(rng.uniform(0.2, 4.0)),
        lengths=Lengths.independent(exponential(prompt), exponential(output)),
        slos=(
            Slo(metric="tpot", p=None, target_s=float(rng.uniform(0.02, 0.15))),
            Slo(metric="ttft", p=0.95, target_s=float(rng.uniform(1.0, 10.0))),
        ),
    )


def test_a_linear_law_leaves_what_its_fixed_time_takes_of_every_step() -> None:
    alpha, beta, gamma, delta, target = 0.01, 1e-4, 3e-8, 4e-5, 0.04
    step = StepLaw.linear(alpha_s=alpha, beta_s=beta, gamma_s=gamma, delta_s=delta)
    item = with_replica(step=step, max_num_seqs=4096)
    request = request_class("a", tpot_mean=target)  # prompts of 100, outputs of 50 tokens
    ((level,),) = joint_levels([item], [request])
    busy = request.rate_rps * (beta * 49 + gamma * (100 * 50 + 50**2 / 2) + delta * 100)
    assert level.limit_s == target and level.classes == (0,)
    assert least_replicas([level], [0]) == pytest.approx(busy / (1.0 - alpha / target), rel=0.01)


def test_without_a_target_on_tokens_only_slots_and_memory_bind() -> None:
    step = StepLaw.linear(alpha_s=0.01, beta_s=1e-4)
    request = replace(request_class("a"), slos=(Slo(metric="ttft", p=0.95, target_s=1.0),))
    ((slots,),) = joint_levels([with_replica(step=step, max_num_seqs=10)], [request])
    assert slots.limit_s == np.inf
    assert slots.rows.max() == pytest.approx(request.rate_rps * 49 * (0.01 / 10 + 1e-4), rel=2e-3)
    held = 50 * 100 + 50**2 / 2  # tokens held times steps
    ((memory,),) = joint_levels([with_replica(step=step, max_num_seqs=1024, kv_tokens=1000.0)], [request])
    assert memory.rows.max() == pytest.approx(0.01 * held / 1000 + 49 * 1e-4, rel=2e-3)


def test_stricter_levels_hold_fewer_classes_and_ask_for_more() -> None:
    item = with_replica(step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4, delta_s=3e-5))
    classes = [request_class(name, tpot_mean=target) for name, target in (("a", 0.03), ("b", 0.06), ("c", 0.03))]
    (levels,) = joint_levels([item], classes)
    assert [level.classes for level in levels] == [(1,), (0, 1, 2)]
    assert levels[1].rows[:, 1].max() > levels[0].rows[:, 1].max()
    assert least_replicas(levels, [0, 1]) > least_replicas(levels, [1]) + least_replicas(levels, [0]) - 1e-12


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_no_mix_that_a_pool_carries_breaks_the_rows_of_every_level(seed: int) -> None:
    rng = np.random.default_rng(seed)
    classes = [drawn_class(name, rng) for name in "abcdef"]
    alpha = float(rng.uniform(0.003, 0.02))
    if rng.random() < 0.5:
        step = StepLaw.linear(alpha_s=alpha, beta_s=float(rng.uniform(5e-5, 3e-4)), gamma_s=3e-8, delta_s=4e-5)
    else:  # concave, as with experts
        rise = alpha * rng.uniform(0.5, 3.0)
        batch = np.array([0.0, 4.0, 16.0, 64.0, 256.0])
        times = alpha + rise * (1.0 - np.exp(-batch / 20.0)) + 4e-5 * batch
        step = StepLaw.table(batch=batch.tolist(), step_s=times.tolist(), gamma_s=3e-8, delta_s=4e-5)
    kv_tokens = float(rng.uniform(3e4, 4e5)) if rng.random() < 0.5 else None
    router = str(rng.choice(["random", "jsq", "round_robin"]))
    slots = int(rng.choice([16, 128, 512]))
    item = with_replica(router, step=step, max_num_seqs=slots, kv_tokens=kv_tokens)
    (levels,) = joint_levels([item], classes)
    mix = rng.dirichlet(np.full(len(classes), 0.5))
    mix[mix < 0.02] = 0.0
    present = set(np.flatnonzero(mix).tolist())
    load = [one.part(float(part)) for one, part in zip(classes, mix, strict=True) if part > 0.0]
    count = int(rng.choice([1, 3]))
    carried = frontier([item], load, np.array([count])).low[0]
    taken = [float((level.rows @ mix).max()) for level in levels if present <= set(level.classes)]
    assert carried == 0.0 or min(taken) * carried <= count * (1.0 + 1e-9)


def test_classes_that_come_in_bursts_have_no_levels() -> None:
    bursty = replace(request_class("a"), burst=Burst(excess=(3.0,), decay_per_s=(0.1,)))
    assert joint_levels([candidate(cost=1.0)], [request_class("b"), bursty]) == []
