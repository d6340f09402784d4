"""The engine against stored runs of a simulator that was written independently."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simulation.reference_cells import compare, stored_runs


def test_a_short_run_of_each_kind_of_pool_comes_close() -> None:
    kinds = ("A_chat8b_B64", "R4_jsq", "K1_kv_40k", "K1_kv_40k_wm5_fullisl")
    for kind in kinds:
        row = next(row for row in stored_runs() if row["config"] == kind and float(row["rho_nominal"]) >= 0.5)
        for cell in compare(row, seed=1, requests=6000):
            assert cell.found_s == pytest.approx(cell.stored_s, rel=0.1, abs=4 * cell.found_ci_s), cell


@pytest.mark.slow
def test_values_lie_within_the_joint_interval_of_stored_runs() -> None:
    rng = np.random.default_rng(7)
    rows = [row for row in stored_runs() if float(row["rho_nominal"]) <= 0.75]
    sample = [rows[int(place)] for place in rng.choice(len(rows), size=8, replace=False)]
    cells = [cell for seed, row in enumerate(sample) for cell in compare(row, seed=seed, requests=40_000)]
    outside = [cell for cell in cells if not cell.agrees]
    assert len(outside) <= 0.05 * len(cells), outside
