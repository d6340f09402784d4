"""Time to the first token in a pool that only prefills, from the steps that arrivals meet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qmodel.queueing.replica.percentiles import GridLaw
from qmodel.queueing.tandem.prefill_pool_chain import CELLS, ComplexArray, Lattice, Steps, back, between, on_cells
from qmodel.types import FloatArray, Law

__all__ = ["Met", "first_token_law", "met_by"]

_PLACES = 4  # of an arrival within the step it falls into
_TIMES = 2048  # time lattice of the first token
_NEGLIGIBLE = 1e-6  # share of arrivals that no percentile notices


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Met:
    """What arrivals meet: M groups by step, kind and place within the step.

    Attributes:
        weight: share of arrivals, shape (M,).
        rest_s, width_s: middle and width of the rest of the step, shape (M,).
        ahead, behind: transforms of the tokens that came before and after in the same step, shape (M, F).
        left: cells that the step leaves over, shape (M,).
        come_rps: arrivals at the replica from then on, shape (M,).
    """

    weight: FloatArray
    rest_s: FloatArray
    width_s: FloatArray
    ahead: ComplexArray
    behind: ComplexArray
    left: FloatArray


def met_by(lattice: Lattice, solved: Steps) -> Met:
    """Groups of busy arrivals; the idle ones come first, with weight ``idle / arrivals``."""
    step_s = solved.step_s[:CELLS]
    one, more = solved.alone_rps, solved.shared_rps
    decay = more * (1.0 - lattice.wave)
    edge = np.linspace(0.0, 1.0, _PLACES + 1)
    place = (edge[1:] + edge[:-1]) / 2.0 * step_s[:, None]  # (K, J)
    width = np.broadcast_to(step_s[:, None] / _PLACES, place.shape)
    alone, shared = solved.law[:CELLS, None], solved.law[CELLS:, None]
    from_s, to_s = edge[:-1] * step_s[:, None], edge[1:] * step_s[:, None]
    first = np.exp(-one * from_s) - np.exp(-one * to_s)
    later = more * np.maximum(width - (first / one if one > 0.0 else width), 0.0)
    gap = np.maximum(-np.expm1(-one * place), 1e-300)[..., None]
    ahead_later = lattice.wave * one * between(decay, one, place[..., None]) / gap
    stretch = (solved.window_s / np.maximum(step_s, 1e-300))[:, None]
    ahead_shared = np.exp(-decay * (stretch * place)[..., None])
    behind = np.exp(-decay * (step_s[:, None] - place)[..., None])
    behind_shared = np.exp(-decay * (stretch * (step_s[:, None] - place))[..., None])
    left = np.broadcast_to(np.maximum(np.arange(CELLS) - lattice.budget_cells, 0)[:, None], place.shape)
    weight = np.stack([alone * first, alone * later, shared * more * stretch * width]) / solved.arrivals
    ahead = np.stack([np.ones_like(behind), ahead_later, ahead_shared])
    kept = weight > _NEGLIGIBLE
    kind, row, col = np.nonzero(kept)
    return Met(
        weight=weight[kept],
        rest_s=(step_s[:, None] - place)[row, col],
        width_s=width[row, col],
        ahead=ahead[kind, row, col],
        behind=np.stack([behind, behind, behind_shared])[kind, row, col],
        left=left[row, col].astype(float),
    )


def first_token_law(lattice: Lattice, solved: Steps, met: Met, prompt: Law) -> tuple[GridLaw, float]:
    """Law of the time to the first token of a class, and the mean time in the steps that work on its prompt, s.

    The rest of the step met, then the steps that the tokens ahead and its own need.
    """
    own = np.fft.rfft(on_cells(prompt, lattice.cell), 2 * CELLS)
    points = np.arange(2 * CELLS // 2 + 1)
    moved = np.exp(-2j * np.pi * np.multiply.outer(met.left, points) / (2 * CELLS))
    x = back(own * met.ahead * moved)
    total = back(own * met.ahead * moved * met.behind)
    tokens = lattice.tokens
    budget, cells = lattice.budget, min(lattice.budget_cells, CELLS)
    fits = np.arange(CELLS) <= cells
    short = total * fits  # the last step holds all that came
    full = np.maximum((x * fits).sum(axis=1) - short.sum(axis=1), 0.0)
    long = x * ~fits
    parts = [(lattice.tau_s + lattice.delta_s * np.broadcast_to(tokens, short.shape), short)]
    if cells < CELLS:
        steps = np.ceil(tokens / budget - 1e-9)
        room = np.maximum(steps * budget - tokens, 0.0)
        pace = solved.shared_rps * lattice.prompt.mean
        come = pace * (met.rest_s[:, None] + (steps - 1.0) * (lattice.tau_s + lattice.delta_s * budget))
        fill = -room * np.expm1(-come / np.maximum(room, lattice.prompt.mean))
        parts.append((steps * lattice.tau_s + lattice.delta_s * (tokens + fill), long))
        parts.append((np.full((full.size, 1), lattice.tau_s + lattice.delta_s * budget), full[:, None]))
    start = np.concatenate([item[0] for item in parts], axis=1) + (met.rest_s - met.width_s / 2.0)[:, None]
    mass = np.concatenate([item[1] for item in parts], axis=1) * met.weight[:, None]
    width = np.broadcast_to(met.width_s[:, None], start.shape)
    steps = np.ceil(prompt.values / budget - 1e-9) if np.isfinite(budget) else np.ones_like(prompt.values)
    alone = np.maximum(steps, 1.0) * lattice.tau_s + lattice.delta_s * prompt.values
    idle = prompt.weights * max(solved.idle / solved.arrivals, 1e-12)
    law = _on_grid(
        np.concatenate([start.ravel(), alone]),
        np.concatenate([width.ravel(), np.zeros_like(alone)]),
        np.concatenate([mass.ravel(), idle]),
    )
    if cells < CELLS:  # whole budgets of others come first; then its own steps, the first of them shared
        queue = np.maximum(tokens - budget - prompt.mean, 0.0) / budget * (lattice.tau_s + lattice.delta_s * budget)
        before_s = float(met.weight @ met.rest_s + (long * queue).sum(axis=1) @ met.weight)
    else:
        before_s = float(met.weight @ met.rest_s)
    return law, max(float(law.mean_s[0]) - before_s, 0.0)


def _on_grid(start: FloatArray, width: FloatArray, weight: FloatArray) -> GridLaw:
    """A mixture of uniforms on equally spaced times: kinks of the slope of its CDF, summed twice."""
    weight = weight / weight.sum()
    mean_s = float(weight @ (start + width / 2.0))
    kept = weight > 1e-12
    start, width, weight = start[kept], width[kept], weight[kept]
    order = np.argsort(start + width)
    reach = np.cumsum(weight[order])
    top = float((start + width)[order][min(int(np.searchsorted(reach, 1.0 - 1e-7)), reach.size - 1)]) * 1.02 + 1e-9
    spacing = top / (_TIMES - 1)
    width = np.maximum(width, 2.0 * spacing)
    slope = weight * spacing / width
    change = np.zeros(_TIMES)
    for edge, sign in ((start, 1.0), (start + width, -1.0)):
        position = np.minimum(edge / spacing, _TIMES - 1.0)
        below = np.minimum(position.astype(int), _TIMES - 2)
        part = (position - below) * slope * sign
        change += np.bincount(below, weights=slope * sign - part, minlength=_TIMES)
        change += np.bincount(below + 1, weights=part, minlength=_TIMES)
    slopes = np.cumsum(change)
    cdf = np.concatenate([[0.0], np.cumsum(slopes[:-1])])
    cdf = np.maximum.accumulate(np.clip(cdf, 0.0, 1.0))
    times = np.linspace(0.0, top, _TIMES)
    return GridLaw(mean_s=np.array([mean_s]), times_s=times[None, :], cdf=(cdf / cdf[-1])[None, :])
