"""Measurements of known constants, with noise and outliers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qmodel.calibration import Measurements, ServingPoint, StepTime
from qmodel.calibration.parameters import PARAMETERS, scaled_constants
from qmodel.calibration.replicas import Target
from qmodel.catalog import load_catalog
from qmodel.perf.components import Pass, PassModel, pass_model
from qmodel.queueing import closed_loop
from qmodel.types import Engine, FloatArray, Layout, LinkCosts

GRID = tuple(part.ravel() for part in np.meshgrid([1.0, 8.0, 48.0, 200.0], [500.0, 3000.0, 8000.0], [0.0, 1024.0]))


def target(model: str = "llama-3.1-8b", gpu: str = "h100-sxm", layout: Layout | None = None) -> Target:
    catalog = load_catalog()
    return Target(model=catalog.model(model), gpu=catalog.gpu(gpu), engine=Engine(), layout=layout or Layout())


def true_model(of: Target, factors: dict[str, float]) -> PassModel:
    """The step-time model with factors on its constants."""
    catalog = load_catalog()
    usual = pass_model(of.model, of.gpu, of.layout, of.engine, constants=catalog.constants, links=LinkCosts())
    logs = np.array([np.log(factors.get(item.name, 1.0)) for item in PARAMETERS])
    return replace(usual, constants=scaled_constants(usual.constants, logs))


def grid_step_s(model: PassModel) -> FloatArray:
    """Step times without noise over batches, contexts and prompts."""
    return model.step_s(Pass.of(*GRID))


def step_times(
    model: PassModel, count: int, seed: int, *, noise: float = 0.02, outliers: float = 0.0, prompts: float = 0.3
) -> Measurements:
    """Random step times; a share of them is 1.3 to 3 times too long."""
    rng = np.random.default_rng(seed)
    batch = np.round(np.exp(rng.uniform(0, np.log(256), count)))
    context = np.exp(rng.uniform(np.log(200), np.log(8000), count))
    prefill = np.where(rng.random(count) < prompts, rng.uniform(256, 4096, count), 0.0)
    seconds = model.step_s(Pass.of(batch, context, prefill)) * np.exp(noise * rng.standard_normal(count))
    seconds = seconds * np.where(rng.random(count) < outliers, rng.uniform(1.3, 3.0, count), 1.0)
    steps = [
        StepTime(batch=float(b), context_tokens=float(s), prefill_tokens=float(q), step_s=float(t))
        for b, s, q, t in zip(batch, context, prefill, seconds, strict=True)
    ]
    return Measurements(steps=tuple(steps))


def loop_points(
    model: PassModel, users: tuple[int, ...], prompt: float = 1000.0, output: float = 200.0
) -> Measurements:
    """What a benchmark at fixed concurrency measures, without noise."""
    points = []
    for count in users:
        loop = closed_loop(
            lambda batch, context, prefill: model.step_s(Pass.of(batch, context, prefill, prompt)),
            count,
            prompt,
            output,
        )
        points.append(
            ServingPoint(
                users=float(count),
                prompt_tokens=prompt,
                output_tokens=output,
                tpot_s=float(loop.tpot_s),
                place=f"{count}",
            )
        )
    return Measurements(points=tuple(points))
