"""Predictions against step-level simulations: stored runs, and random pools simulated here."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from qmodel.queueing import Replica, pool, utilisation
from qmodel.types import Lengths, Router, Stream
from qmodel.workload import lognormal_law
from tests.queueing.fresh_cells import fresh_runs
from tests.queueing.llm_cases import linear, runs
from tests.queueing.slot_cells import cells
from tests.step_engine import simulate

# mean |error| over the stored runs up to 80 % load: TTFT, TPOT and completion means, then their 95th percentiles
LIMITS = {
    "single class, random split": (0.035, 0.01, 0.015, 0.04, 0.03, 0.02),
    "join-shortest-queue": (0.01, 0.005, 0.01, 0.015, 0.015, 0.015),
}

# mean |error| over the simulated cells up to 85 % load: TTFT, TPOT and completion, each mean, p95, p99
CELL_LIMITS = {
    "one class, independent": (0.04, 0.05, 0.07, 0.02, 0.05, 0.07, 0.02, 0.04, 0.06),
    "mix, independent": (0.035, 0.035, 0.10, 0.025, 0.05, 0.08, 0.025, 0.045, 0.06),
    "join-shortest-queue": (0.05, 0.065, 0.07, 0.02, 0.05, 0.08, 0.02, 0.03, 0.045),
}

# the same over the development cells that no constant was fitted to
FRESH_LIMITS = {
    "one class, independent": (0.05, 0.06, 0.12, 0.02, 0.04, 0.05, 0.025, 0.045, 0.045),
    "mix, independent": (0.06, 0.09, 0.11, 0.03, 0.045, 0.065, 0.035, 0.045, 0.055),
    "join-shortest-queue": (0.035, 0.05, 0.05, 0.025, 0.07, 0.065, 0.025, 0.025, 0.035),
}


@pytest.mark.parametrize("group", LIMITS)
def test_predictions_match_the_stored_runs(group: str) -> None:
    errors = defaultdict(list)
    for run in runs():
        if run.group != group or run.rho > 0.8 or run.config.startswith("D_"):
            continue
        found = pool(run.replica, [run.stream], run.replicas, run.router)["a"]
        for metric, item in (("ttft", found.ttft), ("tpot", found.tpot), ("e2e", found.completion)):
            errors[metric, "mean"].append(item.mean / run.measured_s[metric, "mean"] - 1.0)
            errors[metric, "p95"].append(item.quantile(0.95) / run.measured_s[metric, "p95"] - 1.0)
    mean = [
        float(np.mean(np.abs(errors[metric, stat]))) for stat in ("mean", "p95") for metric in ("ttft", "tpot", "e2e")
    ]
    assert all(found <= limit for found, limit in zip(mean, LIMITS[group], strict=True)), mean


@pytest.mark.parametrize("group", CELL_LIMITS)
def test_predictions_match_the_simulated_cells(group: str) -> None:
    chosen = [cell for cell in cells() if cell.group == group and cell.load < 0.87 and not cell.aside]
    errors = np.array([row for cell in chosen for row in cell.signed_errors()])
    found = np.nanmean(np.abs(errors), axis=0)
    assert np.all(found <= CELL_LIMITS[group]), found


@pytest.mark.parametrize("group", FRESH_LIMITS)
def test_predictions_match_the_fresh_cells(group: str) -> None:
    chosen = [run for run in fresh_runs() if run.cell.group == group and run.cell.rho < 0.87 and not run.cell.aside]
    found = [run.signed_errors() for run in chosen if run.stable]
    errors = np.array([row for rows in found if rows is not None for row in rows.values()])
    mean = np.nanmean(np.abs(errors), axis=0)
    assert np.all(mean <= FRESH_LIMITS[group]), mean


def random_pool(seed: int) -> tuple[Replica, list[Stream], int, Router]:
    """A pool of one to four replicas with one or two classes at 30 to 80 % of its capacity."""
    rng = np.random.default_rng(seed)
    replica = Replica(
        step=linear(rng.uniform(5, 20), rng.uniform(0.02, 0.2), rng.uniform(1e-5, 1e-4), rng.uniform(0.02, 0.12)),
        max_num_seqs=int(rng.choice([32, 64, 256])),
        max_batched_tokens=int(rng.choice([2048, 8192])),
    )
    streams = [
        Stream(
            name=name,
            rate_rps=float(rng.uniform(0.5, 2.0)),
            lengths=Lengths.independent(
                lognormal_law(float(rng.uniform(100, 1500)), float(rng.uniform(0.2, 1.0)), maximum=8000),
                lognormal_law(float(rng.uniform(50, 500)), float(rng.uniform(0.2, 1.0)), maximum=4000),
            ),
        )
        for name in ("a", "b")[: int(rng.integers(1, 3))]
    ]
    replicas, router = int(rng.integers(1, 5)), rng.choice(["random", "jsq"])
    factor = float(rng.uniform(0.3, 0.8)) / float(utilisation(replica, streams, [replicas], [1.0])[0])
    loaded = [replace(item, rate_rps=item.rate_rps * factor) for item in streams]
    return replica, loaded, replicas, "jsq" if router == "jsq" else "random"


@pytest.mark.parametrize("seed", range(10))
def test_means_of_random_pools_match_the_step_engine(seed: int) -> None:
    replica, streams, replicas, router = random_pool(seed)
    predicted = pool(replica, streams, replicas, router)
    simulated = simulate(replica, streams, replicas=replicas, router=router, requests=20_000, seed=seed)
    assert predicted.mean_batch == pytest.approx(simulated.mean_batch, rel=0.06)
    for stream in streams:
        found, measured = predicted[stream.name], simulated.classes[stream.name]
        assert found.tpot.mean == pytest.approx(measured.tpot_s.mean(), rel=0.05)
        assert found.completion.mean == pytest.approx(measured.completion_s.mean(), rel=0.05)
