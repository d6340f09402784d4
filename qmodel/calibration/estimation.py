"""From measurements to a calibration: fit, errors on points left out, band, and what could not be told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from qmodel.calibration.fitting import (
    LARGEST_LOG,
    LEARNT,
    SMALL,
    TOLD,
    Fit,
    Solution,
    Terms,
    fit_factors,
    robust_weights,
)
from qmodel.calibration.forward import Forward, Observation, Quantity, observations_of
from qmodel.calibration.measurements import LeftOut, Measurements, ServingPoint, SourceFile, StepTime
from qmodel.calibration.parameters import NORMAL_P90, PARAMETERS, prior_terms, scaled_constants
from qmodel.calibration.replicas import Target, measured_replicas
from qmodel.calibration.results import Calibration, ErrorRow, ParameterRow, PointRow, Standing
from qmodel.calibration.validation import blended_band, held_out_logs, summarise_errors
from qmodel.catalog import Catalog
from qmodel.errors import Problem, ScenarioError
from qmodel.perf import StepConstants, resolve_constants
from qmodel.types import FloatArray

__all__ = ["estimate"]

# Noise of a value over that of a step time. The time to first token depends on how requests come and on the work of
# the front end: on benchmarks at a fixed concurrency the model misses it about five times as far (docs/calibration.md).
NOISE_RATIO: dict[Quantity, float] = {"step": 1.0, "tpot": 1.0, "throughput": 1.0, "ttft": 5.0}
QUANTITIES: tuple[Quantity, ...] = ("step", "tpot", "throughput", "ttft")
TIMES_OF_STEPS = ("step", "tpot", "throughput")  # what the band of a step time is about
MOST_OFF = 6.0  # above what factors may make up for
AT_LIMIT = 1e-6


def estimate(measurements: Measurements, target: Target, catalog: Catalog, *, as_of: str) -> Calibration:
    """Constants of the target from its measurements.

    Raises:
        ScenarioError: fewer than two usable measurements, or all at one batch size.
    """
    forward, used, unusable = measured_replicas(measurements, target, catalog)
    left_out = (*measurements.left_out, *unusable)
    sources = used.all
    _check_enough(sources, left_out, measurements.files)
    observations = observations_of(used)
    usual = resolve_constants(
        target.model, target.gpu, target.engine, constants=catalog.constants, precision=target.precision
    )
    measured = np.array([item.value for item in observations])
    ratio = np.array([NOISE_RATIO[item.quantity] for item in observations])
    terms = prior_terms(usual.band, usual, ratio, -LARGEST_LOG)
    _check_plausible(measured, forward.predict(observations, np.zeros((1, len(PARAMETERS))))[0], measurements.files)
    fit = fit_factors(lambda logs: forward.predict(observations, logs), measured, terms)
    groups = np.array([next(i for i, source in enumerate(sources) if source is item.source) for item in observations])
    batch = np.array([_batch(source) for source in sources])
    folds, part = held_out_logs(fit, terms, groups=groups, order=batch)
    predicted = forward.predict(observations, np.vstack([np.zeros(len(PARAMETERS)), fit.solution.logs, folds]))
    before, after = predicted[0], predicted[1]
    unseen = predicted[2 + part, np.arange(measured.size)]
    steps = np.array([item.quantity in TIMES_OF_STEPS for item in observations])
    band = blended_band((unseen / measured - 1.0)[steps], usual.band, "calibrated")
    return Calibration(
        model=target.model.name,
        gpu=target.gpu.name,
        engine=target.engine.name,
        precision=target.family,
        layouts=tuple(str(layout) for layout in sorted({forward.layout_of(source) for source in sources})),
        as_of=as_of,
        points=len(sources),
        largest_batch=float(batch.max()),
        largest_context_tokens=max(_context(source) for source in sources),
        parameters=_parameter_rows(usual, fit, terms),
        constants=_constants(scaled_constants(usual, fit.solution.logs)),
        noise=fit.solution.noise,
        errors=_error_rows(observations, measured, before, unseen, after),
        rows=_point_rows(forward, observations, fit, ratio, before, unseen, after),
        left_out=left_out,
        band_before=usual.band,
        band=band,
        provenance=usual.provenance,
        files=measurements.files,
    )


def _check_enough(
    sources: Sequence[StepTime | ServingPoint], left_out: Sequence[LeftOut], files: Sequence[SourceFile]
) -> None:
    file = files[0].file if files else "<measurements>"
    reasons = Counter(item.reason for item in left_out).most_common(3)
    why = "; left out: " + "; ".join(f"{count} x {reason}" for reason, count in reasons) if reasons else ""
    if len(sources) < 2:
        what = f"{'one' if sources else 'no'} usable measurement{why}"
        hint = "a calibration needs two at least: one at 1 sequence and one at the batch that is planned"
        raise ScenarioError([Problem(what=what, file=file, hint=hint)])
    batches = {round(_batch(source), 3) for source in sources}
    prefills = {source.prefill_tokens for source in sources if isinstance(source, StepTime)}
    if len(batches) == 1 and len(prefills) < 2:
        what = f"all {len(sources)} usable measurements are at a batch of {batches.pop():g}{why}"
        hint = "what a pass costs and what a sequence costs cannot be told apart; measure two batches at least"
        raise ScenarioError([Problem(what=what, file=file, hint=hint)])


def _check_plausible(measured: FloatArray, predicted: FloatArray, files: Sequence[SourceFile]) -> None:
    """Refuse measurements that are so far off altogether that they are of something else."""
    ratio = float(np.median(measured / predicted))
    if not 1.0 / MOST_OFF <= ratio <= MOST_OFF:
        times = f"{ratio:.3g} times" if ratio > 1 else f"1/{1 / ratio:.3g} of"
        what = f"measured times are {times} what the defaults predict (median)"
        hint = "check the units in the names of columns, the model, the GPU and the layout (--tp)"
        raise ScenarioError([Problem(what=what, file=files[0].file if files else "<measurements>", hint=hint)])


def _batch(source: StepTime | ServingPoint) -> float:
    return source.batch if isinstance(source, StepTime) else source.users


def _context(source: StepTime | ServingPoint) -> float:
    if isinstance(source, StepTime):
        return source.context_tokens
    return source.prompt_tokens + source.output_tokens


def _constants(constants: StepConstants) -> dict[str, float]:
    names = [name for item in PARAMETERS for name in (*item.divided, *item.multiplied)]
    return {name: float(getattr(constants, name)) for name in names}


def _parameter_rows(usual: StepConstants, fit: Fit, terms: Terms) -> tuple[ParameterRow, ...]:
    found = fit.solution
    changed = scaled_constants(usual, found.logs)
    weighted = fit.jacobian / terms.ratio[:, None]
    rows = []
    for index, item in enumerate(PARAMETERS):
        names = (*item.divided, *item.multiplied)
        factor, spread = float(np.exp(found.logs[index])), float(np.exp(NORMAL_P90 * found.deviation[index]))
        standing = _standing(found, index)
        own = standing in ("identified", "weak")
        rows.append(
            ParameterRow(
                parameter=item.name,
                about=item.about,
                standing=standing,
                factor=factor,
                low=factor / spread,
                high=factor * spread,
                before={name: float(getattr(usual, name)) for name in names},
                after={name: float(getattr(changed, name)) for name in names},
                reason=_limit(found.logs[index], terms.lowest[index]) if own else _why_not(index, weighted, fit),
            )
        )
    return tuple(rows)


def _standing(found: Solution, index: int) -> Standing:
    left = found.remaining[index]
    if left <= LEARNT:
        return "identified" if left <= TOLD else "weak"
    return "together" if found.moved[index] else "left alone"


def _limit(log: float, lowest: float) -> str:
    if log <= lowest + AT_LIMIT:
        return "as fast as the data sheet allows" if lowest > -LARGEST_LOG else "as far as a factor may go"
    return "as far as a factor may go" if log >= LARGEST_LOG - AT_LIMIT else ""


def _why_not(index: int, weighted: FloatArray, fit: Fit) -> str:
    """Why the measurements do not tell a factor by itself."""
    most = float(np.max(np.abs(fit.jacobian[:, index])))
    if most < 1e-6:
        return "no measurement depends on it"
    if most < SMALL:
        return f"at most {100 * most:.1f} % of any measured time"
    own = weighted[:, index]
    free = np.flatnonzero(fit.solution.remaining <= LEARNT)
    if not free.size:
        return "too few or too noisy measurements to tell it by itself"
    alike = np.abs(weighted[:, free].T @ own) / np.linalg.norm(weighted[:, free], axis=0)
    return f"cannot be told apart from {PARAMETERS[free[int(np.argmax(alike))]].name}"


def _error_rows(
    observations: Sequence[Observation],
    measured: FloatArray,
    before: FloatArray,
    unseen: FloatArray,
    after: FloatArray,
) -> tuple[ErrorRow, ...]:
    kinds = np.array([item.quantity for item in observations])
    rows = []
    for quantity in QUANTITIES:
        own = kinds == quantity
        usual, left_out, fitted = (
            summarise_errors((values / measured - 1.0)[own]) for values in (before, unseen, after)
        )
        if usual is not None and left_out is not None and fitted is not None:
            rows.append(ErrorRow(quantity=quantity, before=usual, left_out=left_out, fitted=fitted))
    return tuple(rows)


def _point_rows(
    forward: Forward,
    observations: Sequence[Observation],
    fit: Fit,
    ratio: FloatArray,
    before: FloatArray,
    unseen: FloatArray,
    after: FloatArray,
) -> tuple[PointRow, ...]:
    weights = robust_weights(fit.gap / (fit.solution.noise * ratio))
    return tuple(
        PointRow(
            place=item.source.place,
            layout=str(forward.layout_of(item.source)),
            quantity=item.quantity,
            batch=_batch(item.source),
            measured_s=item.value,
            before_s=float(before[index]),
            left_out_s=float(unseen[index]),
            fitted_s=float(after[index]),
            weight=float(weights[index]),
        )
        for index, item in enumerate(observations)
    )
