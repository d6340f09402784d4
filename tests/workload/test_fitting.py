"""Fits find the law that made the sample, and say how far off they are on recorded lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qmodel.trace import read_trace
from qmodel.workload import fit, fit_lengths, length_law

DATA = Path(__file__).parents[2] / "scenarios" / "data"


def test_a_mixture_is_found_again() -> None:
    rng = np.random.default_rng(1)
    low = rng.random(20_000) < 0.7
    sample = np.rint(np.exp(np.where(low, rng.normal(5.0, 0.5, low.size), rng.normal(8.0, 0.4, low.size))))
    best = fit_lengths(sample).best
    assert best.family == "mixture"
    assert best.ks < 0.01
    (first, second) = best.spec["mixture"]  # type: ignore[misc]
    assert first["weight"] == pytest.approx(0.7, abs=0.02)
    assert (first["mu"], second["mu"]) == pytest.approx((5.0, 8.0), abs=0.03)
    assert (first["sigma"], second["sigma"]) == pytest.approx((0.5, 0.4), abs=0.03)


def test_gamma_lengths_are_recognised() -> None:
    sample = np.maximum(np.rint(np.random.default_rng(2).gamma(1.5, 400.0, 20_000)), 1)
    families = {law.family: law for law in fit_lengths(sample).families}
    assert families["gamma"].ks < 0.01 < families["lognormal"].ks
    law = length_law(families["gamma"].spec)
    assert families["gamma"].spec_ks < 0.02
    assert law.scv == pytest.approx(1 / 1.5, rel=0.03)


def test_every_spec_can_be_read_and_keeps_the_mean() -> None:
    sample = np.maximum(np.rint(np.random.default_rng(3).lognormal(6.0, 1.0, 3000)), 1)
    found = fit_lengths(sample)
    for law in found.families:
        assert length_law(law.spec).mean == pytest.approx(found.mean, rel=1e-3)


def test_one_repeated_count_is_a_constant() -> None:
    found = fit_lengths([7, 7, 7])
    assert (found.mean, found.scv, found.share_at_largest) == (7.0, 0.0, 1.0)
    assert length_law(found.spec).values.tolist() == [7.0]


def test_reasoning_outputs_of_a_benchmark_set_are_two_lognormals_with_an_atom_at_the_cap() -> None:
    found = fit(read_trace(DATA / "mlperf_deepseek_r1_lengths.csv.gz"))
    assert found.rate_rps is None
    assert found.output.mean == pytest.approx(4043.4, abs=0.1)
    assert found.output.scv == pytest.approx(1.57, abs=0.01)
    assert found.output.share_at_largest == pytest.approx(0.0109, abs=1e-4)
    assert found.output.best.family == "mixture"
    assert found.output.best.ks < 0.01
    assert found.prompt_output_correlation == pytest.approx(-0.34, abs=0.01)


def test_conversation_outputs_are_no_single_family() -> None:
    found = fit(read_trace(DATA / "azure_2023_conv.csv.gz"))
    families = {law.family: law.ks for law in found.output.families}
    assert families["mixture"] < 0.06 < 0.15 < min(families["lognormal"], families["gamma"])
    assert found.rate_rps == pytest.approx(5.53, abs=0.01)


def test_an_empty_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        fit_lengths([])
