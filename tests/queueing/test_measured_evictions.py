"""What evictions cost where it was measured: first-chunk admission, and swapping instead of recomputing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import qmodel as qm
from qmodel.problem import bind
from qmodel.queueing import Replica, StepLaw, pool, utilisation
from qmodel.scenario import check_scenario
from qmodel.simulation import EnginePolicy, draw_requests, simulate_pool
from qmodel.types import Lengths, Stream
from qmodel.workload import lognormal_law
from tests.scenario.examples import small

DENSE = StepLaw.linear(alpha_s=0.0131, beta_s=7.1e-5, gamma_s=3.06e-8, delta_s=7.1e-5)
CHAT = Stream(name="chat", rate_rps=1.0, lengths=Lengths.independent(lognormal_law(1000, 1.0), lognormal_law(300, 0.9)))
FIRST_CHUNK = {"engine__admission": "first_chunk"}
TIGHT = Replica(step=DENSE, kv_tokens=40_000.0, max_batched_tokens=512, watermark=0.0, admission="first_chunk")


def capacity_rps(replica: Replica) -> float:
    return 1.0 / float(utilisation(replica, [CHAT], [1], [1.0])[0])


def test_first_chunk_admission_asks_for_a_measurement() -> None:
    with pytest.raises(ValueError, match=r"recompute_factor must be given with admission 'first_chunk'.*simulate"):
        pool(TIGHT, [CHAT], 1)
    assert pool(replace(TIGHT, recompute_factor=2.0), [CHAT], 1).stable
    assert pool(replace(TIGHT, kv_tokens=None), [CHAT], 1).stable  # memory that never limits evicts nobody
    with pytest.raises(ValueError, match=r"recompute_factor must be at least 0 and finite \(got -1\.0\)"):
        pool(replace(TIGHT, recompute_factor=-1.0), [CHAT], 1)


def test_more_recomputation_carries_less() -> None:
    found = [capacity_rps(replace(TIGHT, recompute_factor=factor)) for factor in (0.0, 1.0, 4.0)]
    assert found[0] > found[1] > found[2]


def test_swapping_for_nothing_costs_nothing() -> None:
    swapping = replace(TIGHT, recompute_factor=4.0, preemption="swap")
    assert capacity_rps(swapping) == pytest.approx(capacity_rps(replace(TIGHT, recompute_factor=0.0)))
    slow = replace(swapping, swap_out_s_per_token=4e-5, swap_in_s_per_token=DENSE.delta_s - 4e-5)
    assert capacity_rps(slow) == pytest.approx(capacity_rps(replace(TIGHT, recompute_factor=4.0)))
    assert Replica.from_dict(slow.to_dict()).eviction_s_per_token == pytest.approx(DENSE.delta_s)


def test_the_simulator_takes_the_rules_of_the_record() -> None:
    policy = EnginePolicy.for_replica(replace(TIGHT, preemption="swap", swap_in_s_per_token=1e-5), block_tokens=16)
    assert (policy.preemption, policy.swap_in_s_per_token, policy.block_tokens) == ("swap", 1e-5, 16)
    assert policy.rule(TIGHT) == "first_chunk"


def test_a_scenario_states_the_measurement_beside_the_admission() -> None:
    found = [str(problem).removeprefix("<dict>: ") for problem in check_scenario(small(**FIRST_CHUNK)).problems]
    assert found == [
        "engine.admission: first_chunk needs recompute_factor: no formula predicts its evictions; "
        "simulate the fleet in overload with recompute_factor: 0.5, "
        "and state the recomputed tokens per request over the mean output"
    ]
    measured = small(**FIRST_CHUNK, engine__recompute_factor=1.5)
    assert not check_scenario(measured).problems
    instance = bind(qm.load_scenario(measured))
    assert next(iter(instance.gpus.values())).engine.recompute_factor == 1.5


@pytest.mark.slow
def test_a_measured_factor_gives_the_simulated_throughput() -> None:
    table = draw_requests([replace(CHAT, rate_rps=100.0)], rng=np.random.default_rng(1), count=3000)
    log = simulate_pool(table, TIGHT).log
    done = np.sort(log.completion_s)
    low, high = 300, 2700
    simulated = (high - low) / (done[high] - done[low])
    factor = float(log.recomputed_tokens.mean()) / CHAT.lengths.output.mean
    assert capacity_rps(replace(TIGHT, recompute_factor=factor)) == pytest.approx(simulated, rel=0.1)
