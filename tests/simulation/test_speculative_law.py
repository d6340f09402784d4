"""The law of speculative steps against an engine that takes them one by one."""

from __future__ import annotations

import numpy as np
import pytest

from qmodel.perf import prompt_budget, tokens_per_step
from qmodel.queueing import pool
from qmodel.simulation import EnginePolicy, Speculation, draw_requests, simulate_pool
from qmodel.types import Engine, Lengths, Replica, StepLaw, Stream
from qmodel.types import Speculation as Drafting
from qmodel.workload import lognormal_law

ALPHA_S, BETA_S, GAMMA_S, DELTA_S = 0.012, 1e-4, 3e-8, 6e-5
TOKENS, ACCEPTANCE, DRAFT_COST = 3, 0.7, 0.05


@pytest.mark.parametrize("rate_rps", [2.0, 6.0])
def test_queues_of_the_law_are_those_of_the_engine(rate_rps: float) -> None:
    # One step of the engine: drafts cost a share of the step and each drafted token the time of a prompt token.
    step = StepLaw.linear(alpha_s=ALPHA_S, beta_s=BETA_S, gamma_s=GAMMA_S, delta_s=DELTA_S)
    real = Replica(step=step, max_num_seqs=256, max_batched_tokens=4096)
    policy = EnginePolicy(speculation=Speculation(draft_tokens=TOKENS, acceptance=ACCEPTANCE, draft_cost=DRAFT_COST))
    lengths = Lengths.independent(lognormal_law(600.0, 0.7), lognormal_law(300.0, 0.7))
    stream = Stream(name="chat", rate_rps=rate_rps, lengths=lengths)
    log = simulate_pool(draw_requests([stream], rng=np.random.default_rng(5), count=6000), real, policy=policy).log
    mean = tokens_per_step(ACCEPTANCE, TOKENS)
    grown = 1.0 + TOKENS * DRAFT_COST
    law = StepLaw.linear(
        alpha_s=ALPHA_S * grown / mean,
        beta_s=(BETA_S * grown + TOKENS * DELTA_S) / mean,
        gamma_s=GAMMA_S / mean,
        delta_s=DELTA_S,
    )
    engine = Engine(max_batched_tokens=4096, speculation=Drafting(draft="eagle", tokens=TOKENS, acceptance=ACCEPTANCE))
    replica = Replica(step=law, max_num_seqs=256, max_batched_tokens=prompt_budget(engine, 16.0))
    predicted = pool(replica, [stream], 1, router="random").classes["chat"]
    warm = slice(500, None)
    assert predicted.tpot.mean == pytest.approx(float(np.nanmean(log.tpot_s[warm])), rel=0.06)
    assert predicted.completion.mean == pytest.approx(float(np.mean(log.completion_after_s[warm])), rel=0.06)
