"""Classes that several models may serve: the share of each model, and the rows that hold their average quality."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from qmodel.optimize.programs import Program, ProgramBuilder
from qmodel.types import FloatArray, RequestClass

__all__ = ["add_model_shares", "each_once", "model_shares", "quality_limits"]

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


def quality_limits(
    classes: Sequence[RequestClass], shares: Mapping[tuple[str, str], int]
) -> list[tuple[str, dict[int, float], float]]:
    """Name, coefficients and most of a row per class with a least average quality Q: sum_m (Q - q_m) x_km <= 0.

    Shares that sum to more than 1 may be scaled down: the row still holds. Quality counts in parts of the best model's,
    so that its scale does not matter to a solver.
    """
    rows: list[tuple[str, dict[int, float], float]] = []
    for item in classes:
        qualities = {model: quality for model, quality in item.alternatives if (item.name, model) in shares}
        if qualities and item.min_quality is not None:
            best = max(qualities.values())
            missing = {m: (item.min_quality - quality) / best for m, quality in qualities.items()}
            rows.append((f"quality {item.name}", {shares[item.name, m]: part for m, part in missing.items()}, 0.0))
    return rows


def model_shares(program: Program, values: FloatArray) -> dict[tuple[str, str], float]:
    """Shares of the models of a solution, by class and model; those of one class sum to 1."""
    found = {key: float(values[position]) for key, position in program.model_shares.items()}
    found = {key: share if share > _LEAST_SHARE else 0.0 for key, share in found.items()}
    names = dict.fromkeys(name for name, _ in found)
    sums = {name: float(np.sum([share for (other, _), share in found.items() if other == name])) for name in names}
    return {(name, model): share / sums[name] for (name, model), share in found.items()}
