"""Length laws as scenario files write them."""

from __future__ import annotations

import pytest

from qmodel.workload import length_law, lognormal_law, mixture_law, normal_law, quantile_law

PARTS = [{"weight": 0.6, "mu": 7.5, "sigma": 0.8}, {"weight": 0.4, "mean": 9000, "cv": 0.5}]


@pytest.mark.parametrize(
    ("spec", "law"),
    [
        ({"constant": 120}, lognormal_law(120, 0.0)),
        ({"mean": 300, "cv": 0.9}, lognormal_law(300, 0.9)),
        ({"mean": 300, "cv": 0.9, "max": 900}, lognormal_law(300, 0.9, maximum=900)),
        ({"normal": {"mean": 512, "sd": 256, "min": 32, "max": 4096}}, normal_law(512, 256, 32, 4096)),
        ({"quantiles": {"p50": 400, "p99.9": 9000}}, quantile_law({0.5: 400, 0.999: 9000})),
        ({"mixture": PARTS, "budget": 8000}, mixture_law(PARTS, maximum=8000)),
        (
            {"mixture": PARTS, "budget": 8000, "at_cap": "truncate"},
            mixture_law(PARTS, maximum=8000, at_cap="truncate"),
        ),
    ],
)
def test_each_form_means_its_family(spec: object, law: object) -> None:
    assert length_law(spec).to_dict() == law.to_dict()  # type: ignore[arg-type, attr-defined]


def test_the_lower_of_two_caps_holds() -> None:
    spec = {"mean": 3000, "cv": 1.0, "max": 8000}
    assert length_law(spec, maximum=5000).to_dict() == lognormal_law(3000, 1.0, maximum=5000).to_dict()
    assert length_law(spec, maximum=9000).to_dict() == lognormal_law(3000, 1.0, maximum=8000).to_dict()


def test_an_outer_cap_on_a_truncated_law_is_an_atom() -> None:
    spec = {"mean": 3000, "cv": 1.0, "budget": 8000, "at_cap": "truncate"}
    whole, law = length_law(spec), length_law(spec, maximum=5000)
    assert law.capped_share == pytest.approx(whole.survival(5000))
    assert law.maximum == 5000
    assert float(law.weights @ law.values) == pytest.approx(law.mean)


def test_max_may_be_a_truncation_as_a_budget_may() -> None:
    law = length_law({"mean": 3000, "cv": 1.0, "max": 8000, "at_cap": "truncate"})
    assert law.to_dict() == length_law({"mean": 3000, "cv": 1.0, "budget": 8000, "at_cap": "truncate"}).to_dict()


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("300", "length: must be a mapping"),
        ({}, "needs one of mean and cv, constant"),
        ({"mean": 3, "normal": {"mean": 3}}, "needs one of mean and cv"),
        ({"mean": 300, "cvv": 0.9}, r"unknown key 'cvv' beside mean; did you mean 'cv'\?"),
        ({"mean": "300", "cv": 0.9}, r"mean: must be a number \(got '300'\)"),
        ({"mean": -3, "cv": 0.9}, r"mean: must be at least 1 \(got -3\)"),
        ({"mean": 300}, "cv: is missing"),
        ({"constant": 2.5}, "constant: must be a whole number from 1"),
        ({"mean": 300, "cv": 1, "max": 0}, "max: must be a whole number from 1"),
        ({"mean": 300, "cv": 1, "max": 5, "budget": 9}, "budget and max, which exclude each other"),
        ({"mean": 300, "cv": 1, "budget": 5, "at_cap": "stop"}, "at_cap: must be atom or truncate"),
        ({"mean": 300, "cv": 1, "at_cap": "truncate"}, "at_cap: means nothing without max or budget"),
        ({"normal": 5}, "normal: must be a mapping"),
        ({"mixture": "x"}, "mixture: must be a list"),
        ({"quantiles": {"50": 3, "p90": 5}}, "levels are written p50"),
        ({"quantiles": {"p100": 3, "p90": 5}}, "levels are written p50"),
    ],
)
def test_a_wrong_spec_says_what_is_wrong(spec: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        length_law(spec)  # type: ignore[arg-type]
