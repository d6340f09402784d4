"""Batches that arrive on the clock of decode work, and how far they spread the number in service."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmodel.queueing import pool
from qmodel.queueing.replica.prefill_pauses import overlap, spread_ratio
from qmodel.queueing.replica.work import Work, pooled_work
from qmodel.types import Law, Lengths, Replica, StepLaw, Stream
from qmodel.workload import lognormal_law
from tests.queueing.slot_cells import cells


def work_of(prompt: Law, output: Law) -> Work:
    replica = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=0.0))
    return pooled_work(replica, [Stream(name="a", rate_rps=1.0, lengths=Lengths.independent(prompt, output))])


def test_exponential_outputs_overlap_by_a_half() -> None:
    values = np.arange(1.0, 20_000.0)
    assert overlap(Law.from_atoms(values, np.exp(-values / 800.0))) == pytest.approx(0.5, rel=2e-3)


def test_the_overlap_is_the_mean_of_the_smaller_of_two() -> None:
    law = lognormal_law(300.0, 0.9)
    smaller = np.minimum.outer(law.values, law.values)
    assert overlap(law) == pytest.approx(float(law.weights @ smaller @ law.weights) / law.mean, rel=1e-3)


LONG_PROMPTS = work_of(lognormal_law(900.0, 0.7), Law.constant(200.0))


@given(busy=st.floats(0.0, 0.9), more=st.floats(0.0, 0.1))
def test_more_prefill_spreads_the_batch_more(busy: float, more: float) -> None:
    few, many = spread_ratio(LONG_PROMPTS, np.array([busy, busy + more]))
    assert 1.0 <= few <= many


def test_without_prefill_the_chain_stands() -> None:
    assert spread_ratio(work_of(Law.constant(100.0), Law.constant(10.0)), np.array([0.0])).tolist() == [1.0]


def test_the_batch_of_constant_prompts_has_the_moments_of_a_simulated_tree() -> None:
    rng = np.random.default_rng(5)
    busy, sizes = 0.4, []
    for _ in range(20_000):
        size = alive = 1
        while alive:
            alive = int(rng.poisson(busy * alive))
            size += alive
        sizes.append(size)
    tree = np.array(sizes, dtype=float)
    found = spread_ratio(work_of(Law.constant(100.0), Law.constant(10.0)), np.array([busy]))
    assert float(found[0]) == pytest.approx((1.0 - busy) * (tree**2).mean() / tree.mean(), rel=0.06)


def test_slots_fill_as_often_as_simulated() -> None:
    noticed = [
        cell
        for cell in cells()
        if cell.replicas == 1 and cell.load < 0.93 and cell.share_full > 0.01 and not cell.aside
    ]
    found = np.array([pool(cell.replica, cell.streams, 1).p_wait for cell in noticed], dtype=float)
    ratio = found / np.array([cell.share_full for cell in noticed])
    assert len(noticed) >= 10
    assert float(np.median(np.abs(ratio - 1.0))) < 0.15
