"""Memory above the level of admission: the walk's decay, its limits, and what a watermark saves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import floats

from qmodel.queueing.replica.memory_growth import memory_swing, walk_decay
from qmodel.queueing.replica.work import pooled_work
from qmodel.types import Law, Lengths, Replica, StepLaw, Stream

STEP = StepLaw.linear(alpha_s=0.01, beta_s=1e-4)


def stream(prompt: Law, output: Law) -> Stream:
    return Stream(name="a", rate_rps=1.0, lengths=Lengths.independent(prompt, output))


def test_growth_against_exponential_departures_decays_as_in_a_single_server_queue() -> None:
    # departures exponential with mean m, growth exponential with mean g: theta = 1/g - 1/m, as in M/M/1
    atoms = -1000.0 * np.log1p(-(np.arange(4000) + 0.5) / 4000)
    prompts = Law.from_atoms(atoms, np.ones(4000))
    replica = Replica(step=STEP, kv_tokens=1e6)
    found = walk_decay(replica, pooled_work(replica, [stream(prompts, Law.constant(1.0))]))
    assert found == pytest.approx(1.0 - 1.0 / 1000.0, rel=2e-3)


@pytest.mark.parametrize(("prompt", "output"), [(50.0, 5000.0), (300.0, 300.0), (4000.0, 100.0)])
def test_the_decay_solves_its_equation(prompt: float, output: float) -> None:
    replica = Replica(step=STEP, kv_tokens=1e6, kv_slope=0.5, kv_fixed_tokens=30.0)
    work = pooled_work(replica, [stream(Law.constant(prompt), Law.constant(output))])
    theta = walk_decay(replica, work)
    assert 0.0 < theta <= 2.0 / output
    assert np.exp(-theta * (0.5 * (prompt + output) + 30.0)) == pytest.approx(1.0 - theta * 0.5 * output, abs=1e-7)


def test_a_small_drift_decays_as_its_diffusion() -> None:
    # mean drift -d and variance s^2 a move: theta = 2 d / s^2; here d = 1, s^2 = 1000^2 of growth alone
    replica = Replica(step=STEP, kv_tokens=1e6)
    work = pooled_work(replica, [stream(Law.constant(1.0), Law.constant(1000.0))])
    assert walk_decay(replica, work) == pytest.approx(2.0 / 1000.0**2, rel=0.01)


@given(watermark=floats(0.0, 0.3), more=floats(0.0, 0.3), output=floats(10.0, 5000.0))
def test_a_larger_watermark_recomputes_less_and_swings_inside_it(watermark: float, more: float, output: float) -> None:
    replica = Replica(step=STEP, kv_tokens=1e5, watermark=watermark)
    work = pooled_work(replica, [stream(Law.constant(300.0), Law.constant(output))])
    less, swing = memory_swing(replace(replica, watermark=watermark + more), work), memory_swing(replica, work)
    assert 0.0 <= less.recompute <= swing.recompute <= 0.92
    assert swing.above_tokens <= less.above_tokens + 1e-6
    assert swing.above_tokens <= watermark * 1e5 + 1e-6


def test_without_growth_there_is_no_swing() -> None:
    free, reserving = Replica(step=STEP), Replica(step=STEP, kv_tokens=1e5, admission="no_evict")
    for replica in (free, reserving):
        swing = memory_swing(replica, pooled_work(replica, [stream(Law.constant(300.0), Law.constant(200.0))]))
        assert swing.above_tokens == swing.recompute == 0.0
