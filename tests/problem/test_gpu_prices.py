"""Prices of GPUs: tiers, providers and regions, and entries that name the GPU they are."""

from __future__ import annotations

from typing import Any

import pytest

import qmodel as qm
from qmodel.problem import Instance, bind

PROFILE = {"model": "llama-3.1-8b", "alpha_s": 0.01, "beta_s": 1e-4, "gamma_s": 0.0, "delta_s": 1e-4}


def fleet_of(**gpus: Any) -> dict[str, Any]:
    return {
        "qmodel": 1,
        "classes": {
            "chat": {
                "model": "llama-3.1-8b",
                "rate_rps": 3,
                "prompt_tokens": {"mean": 500, "cv": 1},
                "output_tokens": {"mean": 200, "cv": 1},
                "slo": {"ttft_p95_s": 0.5},
            }
        },
        "fleet": {"gpus": {name.replace("_", "-"): gpu for name, gpu in gpus.items()}},
    }


def bound(**gpus: Any) -> Instance:
    return bind(qm.load_scenario(fleet_of(**gpus)))


def told(**gpus: Any) -> list[str]:
    return [str(problem).removeprefix("<dict>: ") for problem in qm.validate(fleet_of(**gpus))]


def test_tiers_are_offers_in_merit_order_with_the_key_of_their_limit() -> None:
    tiers = [
        {"term": "on_demand", "usd_per_gpu_hour": 3.0},
        {"term": "reserved_1y", "usd_per_gpu_hour": 2.0, "max_count": 8},
    ]
    option = bound(h100_sxm={"tiers": tiers}).gpus["h100-sxm"]
    assert [(offer.term, offer.usd_per_gpu_hour, offer.max_gpus, offer.key) for offer in option.offers] == [
        ("reserved_1y", 2.0, 8, "fleet.gpus.h100-sxm.tiers[1].max_count"),
        ("on_demand", 3.0, None, ""),
    ]
    assert (option.price.tier, option.price.usd_per_gpu_hour) == ("reserved_1y", 2.0)


def test_a_tier_without_a_price_has_that_of_its_term_in_the_price_book() -> None:
    instance = bound(
        aws={
            "gpu": "h100-sxm",
            "provider": "aws",
            "tiers": [{"term": "reserved_3y", "max_count": 8}, {"term": "on_demand"}],
        }
    )
    reserved, on_demand = instance.gpus["aws"].offers
    assert (reserved.usd_per_gpu_hour, on_demand.usd_per_gpu_hour) == (2.972, 6.88)
    assert any("providers aws" in note and "reserved-3y" in note for note in instance.assumptions)
    said = "aws: GPUs are bought cheapest first: up to 8 at reserved_3y (2.972 USD per GPU-hour), then any number at"
    assert any(note.startswith(said) for note in instance.assumptions)


def test_provider_and_region_pick_the_price() -> None:
    gcp = {"gpu": "h200-sxm", "provider": "gcp"}
    instance = bound(west=gcp | {"region": "europe-west1"}, central=gcp | {"region": "us-central1"})
    prices = {name: option.price.usd_per_gpu_hour for name, option in instance.gpus.items()}
    assert prices == {"west": 11.4934, "central": 10.4365}
    assert {option.gpu.name for option in instance.gpus.values() if option.gpu is not None} == {"h200-sxm"}
    assert "west: h200-sxm of the catalog from gcp in europe-west1" in instance.assumptions


def test_entries_of_one_gpu_are_planned_as_pools_of_their_own() -> None:
    data = fleet_of(
        here={"gpu": "h100-sxm", "provider": "aws", "price": {"usd_per_gpu_hour": 2.0}, "max_count": 1},
        there={"gpu": "h100-sxm", "region": "moon", "price": {"usd_per_gpu_hour": 9.0}},
    )
    data["classes"]["chat"]["rate_rps"] = 60
    data["layouts"] = {"tp": [1], "pp": [1]}
    plan = qm.plan(data)
    assert {row.gpu for row in plan.pools} == {"here", "there"}
    here, there = plan.purchases
    assert (here.gpu, here.provider, here.region, here.gpus) == ("here", "aws", "", 1)
    assert (there.region, there.usd_per_gpu_hour) == ("moon", 9.0)
    assert qm.verify(plan).ok


def test_a_profile_describes_every_entry_that_is_its_gpu() -> None:
    price = {"price": {"usd_per_gpu_hour": 1.0}}
    data = fleet_of(one={"gpu": "mine", **price}, two={"gpu": "mine", **price})
    data["profiles"] = [{**PROFILE, "gpu": "mine"}]
    assert qm.validate(data) == []
    assert set(bind(qm.load_scenario(data)).profiles) == {("llama-3.1-8b", "one"), ("llama-3.1-8b", "two")}
    data["profiles"].append({**PROFILE, "gpu": "two"})
    (problem,) = qm.validate(data)
    assert "llama-3.1-8b on two in layout tp1 is profiled twice" in str(problem)


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (
            {"cheap": {"gpu": "h100-smx"}},
            "fleet.gpus.cheap.gpu: no gpu 'h100-smx' in the catalog; nearest: 'h100-sxm'",
        ),
        (
            {"h200_sxm": {"provider": "aws", "region": "eu-north-9"}},
            "fleet.gpus.h200-sxm: no on_demand price for 'h200-sxm' from aws in eu-north-9 in the price book; "
            "state fleet.gpus.h200-sxm.price.usd_per_gpu_hour in the scenario, "
            "or take a region that the book has: us-east-1",
        ),
        (
            {"dear": {"gpu": "h200-sxm", "provider": "aws", "tiers": [{"term": "reserved_1y"}]}},
            "fleet.gpus.dear.tiers[0]: no reserved_1y price for 'h200-sxm' from aws in the price book; "
            "state fleet.gpus.dear.tiers[0].usd_per_gpu_hour in the scenario, or choose another term: on_demand, spot",
        ),
    ],
)
def test_a_price_that_is_not_known_is_told_with_its_place(gpus: dict[str, Any], expected: str) -> None:
    assert told(**gpus)[0].startswith(expected)


def test_a_provider_that_the_book_does_not_know_needs_a_stated_price() -> None:
    (problem,) = told(h200_sxm={"provider": "nobody"})
    assert problem.startswith("fleet.gpus.h200-sxm: no provider 'nobody' in the price book; providers: aws, ")
    assert told(h200_sxm={"provider": "nobody", "price": {"usd_per_gpu_hour": 2}}) == []
