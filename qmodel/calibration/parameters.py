"""What a calibration may move: groups of constants that scale the time of one part of the step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qmodel.calibration.fitting import USUAL_NOISE, Terms
from qmodel.perf import StepConstants
from qmodel.types import Band, FloatArray

__all__ = ["PARAMETERS", "Parameter", "least_logs", "prior_terms", "scaled_constants"]

NORMAL_P90 = 1.645  # a normal error stays within this many deviations nine times in ten
SHARED = 0.5  # of the prior variance: a GPU or an engine that is off tends to be off in all parts of the step
HARDWARE, SOFTWARE = 1.0, 2.0  # prior deviation over that of the whole step: overheads differ most between releases
FRONT_END_DEVIATION = 1.0
LEAST_SYSTEMATIC = (
    0.5  # of the band: releases of an engine and settings of a machine differ even where all else is known
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A factor on the time of one part of a step.

    Attributes:
        name: what it is called in reports and files.
        about: what it scales, for people.
        divided: efficiencies that are divided by the factor.
        multiplied: times that are multiplied by it.
        spread: prior deviation of its logarithm over that of the whole step.
    """

    name: str
    about: str
    divided: tuple[str, ...] = ()
    multiplied: tuple[str, ...] = ()
    spread: float = HARDWARE


PARAMETERS: tuple[Parameter, ...] = (
    Parameter(name="weights", about="reading dense weights", divided=("e_w",)),
    Parameter(name="gemm", about="arithmetic of dense weights", divided=("e_f",)),
    Parameter(name="expert_weights", about="reading experts", divided=("e_mw",)),
    Parameter(name="expert_gemm", about="arithmetic of experts", divided=("e_mf",)),
    Parameter(name="kv", about="reading the KV cache, decode attention", divided=("e_kv", "e_fa")),
    Parameter(name="prompt_attention", about="attention of prompts", divided=("e_ap",)),
    Parameter(name="layers", about="fixed time per layer", multiplied=("c_l", "c_m"), spread=SOFTWARE),
    Parameter(name="prompt_layers", about="fixed time per layer with a prompt", multiplied=("c_pl",), spread=SOFTWARE),
    Parameter(name="collectives", about="start of collectives", multiplied=("ar_a",), spread=SOFTWARE),
    Parameter(name="links", about="bytes of collectives", divided=("ar_f", "ar_fp")),
    Parameter(name="host_pass", about="host time per pass", multiplied=("h0",), spread=SOFTWARE),
    Parameter(name="host_sequence", about="host time per sequence", multiplied=("h1",), spread=SOFTWARE),
    Parameter(
        name="front_end", about="time before the engine; no part of predictions", multiplied=("t_fe",), spread=SOFTWARE
    ),
)


def scaled_constants(
    base: StepConstants, logs: FloatArray, parameters: Sequence[Parameter] = PARAMETERS
) -> StepConstants:
    """The constants with factors applied.

    Args:
        base: constants to start from.
        logs: logarithm of each factor on a time, shape (p,), or (p, k, 1) for k sets at once: the constants then
            hold arrays of shape (k, 1), which broadcast through the step-time model like numbers.
        parameters: what the rows of ``logs`` are.

    Example:
        >>> from qmodel.catalog import load_catalog
        >>> from qmodel.perf import resolve_constants
        >>> from qmodel.types import Engine
        >>> catalog = load_catalog()
        >>> base = resolve_constants(catalog.model("qwen3-32b"), catalog.gpu("h100-sxm"), Engine(),
        ...                          constants=catalog.constants)
        >>> logs = np.zeros(len(PARAMETERS))
        >>> logs[0] = np.log(2.0)
        >>> round(float(base.e_w / scaled_constants(base, logs).e_w), 9)
        2.0
    """
    values: dict[str, object] = {}
    for parameter, log in zip(parameters, logs, strict=True):
        factor = np.exp(log)
        values |= {name: getattr(base, name) / factor for name in parameter.divided}
        values |= {name: getattr(base, name) * factor for name in parameter.multiplied}
    return replace(base, **values)  # type: ignore[arg-type]  # arrays stand for numbers, see Args


def least_logs(base: StepConstants, smallest: float, parameters: Sequence[Parameter] = PARAMETERS) -> FloatArray:
    """Least log factors: no part of a GPU works faster than its data sheet, or than the defaults where they say so.

    Args:
        base: constants to start from.
        smallest: bound of factors that scale no efficiency.
        parameters: the rows wanted.
    """
    return np.array(
        [
            max([math.log(min(getattr(base, name), 1.0)) for name in item.divided], default=smallest)
            for item in parameters
        ]
    )


def prior_terms(
    band: Band, base: StepConstants, ratio: FloatArray, smallest: float, parameters: Sequence[Parameter] = PARAMETERS
) -> Terms:
    """What is known before anything is measured: as much as the band of the defaults says.

    The band holds two errors: what constants of this model, GPU and engine would put right, and what no constants would
    (``USUAL_NOISE``); the prior is the first. Half of its variance is common to all parts of a step. The time before
    the engine stands alone.

    Args:
        band: of the constants to start from.
        base: constants to start from.
        ratio: noise of each measured value over the usual one.
        smallest: least log factor of what scales no efficiency.
        parameters: what is scaled.

    Reference: own construction, see docs/calibration.md.
    """
    total = math.log1p(max(band.p90, 0.01)) / NORMAL_P90
    deviation = max(math.sqrt(max(total**2 - USUAL_NOISE**2, 0.0)), LEAST_SYSTEMATIC * total)
    shared = np.array([item.name != "front_end" for item in parameters])
    spread = np.array([item.spread for item in parameters])
    own = deviation * np.sqrt(spread**2 - SHARED)
    return Terms(
        ratio=ratio,
        common=deviation * math.sqrt(SHARED),
        own=np.where(shared, own, FRONT_END_DEVIATION),
        shared=shared,
        lowest=least_logs(base, smallest, parameters),
    )
