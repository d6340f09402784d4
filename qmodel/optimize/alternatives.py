"""Classes that several models may serve: the share of each model, and the rows that hold shares and average quality."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from qmodel.optimize.programs import Program, ProgramBuilder
from qmodel.types import FloatArray, RequestClass

__all__ = ["add_model_shares", "each_once", "model_shares", "share_limits"]

_LEAST_SHARE = 1e-6  # of a class: less is rounding


def each_once(classes: Iterable[RequestClass]) -> list[RequestClass]:
    """Classes in their order, those that are in the groups of several models once.

    Example:
        >>> each_once([])
        []
    """
    found: dict[str, RequestClass] = {}
    for item in classes:
        found.setdefault(item.name, item)
    return list(found.values())


def add_model_shares(builder: ProgramBuilder, classes: Sequence[RequestClass]) -> dict[tuple[str, str], int]:
    """A variable x_km in [0, 1] per class with several models and model: the share of its requests that go there.

    Returns:
        Positions by name of the class and model; empty where every class has one model.
    """
    for item in classes:
        for model in item.models if len(item.models) > 1 else ():
            position = builder.variable(f"share {item.name} by {model}", cost=0.0, upper=1.0, integer=False)
            builder.model_shares[item.name, model] = position
    return dict(builder.model_shares)


def share_limits(
    classes: Sequence[RequestClass], shares: Mapping[tuple[str, str], int]
) -> list[tuple[str, dict[int, float], float]]:
    """Name, coefficients and most of each row on the shares of the models of a class.

    With X = sum_m x_km, a least average quality Q is sum_m (Q - q_m) x_km <= 0, and a share between l_m and h_m is
    l_m X <= x_km <= h_m X: shares that sum to more than 1 may be scaled down, and every row still holds. Quality counts
    in parts of the best model's, so that its scale does not matter to a solver.
    """
    rows: list[tuple[str, dict[int, float], float]] = []
    for item in classes:
        tiers = [tier for tier in item.alternatives if (item.name, tier.model) in shares]
        places = [shares[item.name, tier.model] for tier in tiers]
        if tiers and item.min_quality is not None:
            scores = [tier.quality or 0.0 for tier in tiers]
            missing = ((item.min_quality - score) / max(scores) for score in scores)
            rows.append((f"quality {item.name}", dict(zip(places, missing, strict=True)), 0.0))
        for tier, place in zip(tiers, places, strict=True):
            if tier.least > 0.0:
                least = {**dict.fromkeys(places, tier.least), place: tier.least - 1.0}
                rows.append((f"least {item.name} by {tier.model}", least, 0.0))
            if tier.most < 1.0:
                most = {**dict.fromkeys(places, -tier.most), place: 1.0 - tier.most}
                rows.append((f"most {item.name} by {tier.model}", most, 0.0))
    return rows


def model_shares(program: Program, values: FloatArray) -> dict[tuple[str, str], float]:
    """Shares of the models of a solution, by class and model; those of one class sum to 1."""
    found = {key: float(values[position]) for key, position in program.model_shares.items()}
    found = {key: share if share > _LEAST_SHARE else 0.0 for key, share in found.items()}
    names = dict.fromkeys(name for name, _ in found)
    sums = {name: float(np.sum([share for (other, _), share in found.items() if other == name])) for name in names}
    return {(name, model): share / sums[name] for (name, model), share in found.items()}
