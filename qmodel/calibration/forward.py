"""What the model predicts for each measurement, for one or several sets of constants at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from qmodel.calibration.measurements import Measurements, ServingPoint, StepTime
from qmodel.calibration.parameters import scaled_constants
from qmodel.perf.components import Pass, PassModel
from qmodel.queueing import closed_loop
from qmodel.types import FloatArray, Layout

__all__ = ["Forward", "Observation", "Quantity", "observations_of"]

Quantity = Literal["step", "tpot", "throughput", "ttft"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One measured number.

    Attributes:
        quantity: what was measured.
        value: seconds; for throughput, seconds per output token of the whole replica.
        source: the measurement it belongs to.
    """

    quantity: Quantity
    value: float
    source: StepTime | ServingPoint


def observations_of(measurements: Measurements) -> tuple[Observation, ...]:
    """The numbers that a fit sees, one measurement after the other.

    Throughput counts only where there is no time per output token: at a fixed concurrency they say the same.
    """
    found: list[Observation] = []
    for step in measurements.steps:
        found.append(Observation(quantity="step", value=step.step_s, source=step))
    for point in measurements.points:
        if point.tpot_s is not None:
            found.append(Observation(quantity="tpot", value=point.tpot_s, source=point))
        elif point.output_tokens_per_s is not None:
            found.append(Observation(quantity="throughput", value=1.0 / point.output_tokens_per_s, source=point))
        if point.ttft_s is not None:
            found.append(Observation(quantity="ttft", value=point.ttft_s, source=point))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Predicts observations of one model, GPU and engine.

    Attributes:
        passes: the step-time model with the defaults, by layout.
        caps: most sequences resident at once, by layout and mean prompt and output.
        layout: of measurements that state none.
        max_batched_tokens: token budget of a step.
    """

    passes: dict[Layout, PassModel]
    caps: dict[tuple[Layout, float, float], float]
    layout: Layout
    max_batched_tokens: int

    def layout_of(self, source: StepTime | ServingPoint) -> Layout:
        """The layout a measurement was taken in."""
        return source.layout or self.layout

    def cap_of(self, point: ServingPoint) -> float:
        """Sequences that memory and slots hold at once at the point's lengths."""
        return self.caps[self.layout_of(point), point.prompt_tokens, point.output_tokens]

    def predict(self, observations: Sequence[Observation], logs: FloatArray) -> FloatArray:
        """Predicted values.

        Args:
            observations: n of them.
            logs: log factors, one set per row, shape (k, p).

        Returns:
            Seconds, shape (k, n).
        """
        result = np.empty((logs.shape[0], len(observations)))
        for layout in dict.fromkeys(self.layout_of(item.source) for item in observations):
            own = [index for index, item in enumerate(observations) if self.layout_of(item.source) == layout]
            steps = [index for index in own if isinstance(observations[index].source, StepTime)]
            loops = [index for index in own if isinstance(observations[index].source, ServingPoint)]
            model = self.passes[layout]
            model = replace(model, constants=scaled_constants(model.constants, logs.T[:, :, None]))
            if steps:
                result[:, steps] = _step_s(model, [observations[index].source for index in steps])
            if loops:
                result[:, loops] = self._loop_s(model, [observations[index] for index in loops], logs.shape[0])
        return result

    def _loop_s(self, model: PassModel, observations: Sequence[Observation], sets: int) -> FloatArray:
        points = [item.source for item in observations]
        assert all(isinstance(point, ServingPoint) for point in points)
        users, prompt, output, burst = (
            np.array([getattr(point, name) for point in points], dtype=float)
            for name in ("users", "prompt_tokens", "output_tokens", "burst_share")
        )
        cap = np.array([self.cap_of(point) for point in points if isinstance(point, ServingPoint)])

        def step(batch: FloatArray, context: FloatArray, prefill: FloatArray) -> FloatArray:
            return model.step_s(Pass.of(batch, context, prefill, prompt))

        loop = closed_loop(
            step,
            np.broadcast_to(users, (sets, users.size)),
            prompt,
            output,
            cap,
            burst,
            max_batched_tokens=self.max_batched_tokens,
            front_end_s=np.asarray(model.constants.t_fe) * 1e-3,
        )
        by_quantity = {"tpot": loop.tpot_s, "ttft": loop.ttft_s, "throughput": 1.0 / loop.output_tokens_per_s}
        kinds = np.array([item.quantity for item in observations])
        return np.asarray(np.select([kinds == name for name in by_quantity], list(by_quantity.values())))


def _step_s(model: PassModel, sources: Sequence[StepTime | ServingPoint]) -> FloatArray:
    steps = [item for item in sources if isinstance(item, StepTime)]
    batch, context, prefill = (
        np.array([getattr(item, name) for item in steps], dtype=float)
        for name in ("batch", "context_tokens", "prefill_tokens")
    )
    prompt = np.array([item.prefill_tokens if item.prompt_tokens is None else item.prompt_tokens for item in steps])
    return model.step_s(Pass.of(batch, context, prefill, prompt))
