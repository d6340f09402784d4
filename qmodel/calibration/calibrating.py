"""The public call: constants of the step-time model from measurements."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from qmodel.calibration.estimation import estimate
from qmodel.calibration.matching import Matching
from qmodel.calibration.measurements import Measurements
from qmodel.calibration.reading import read_measurements
from qmodel.calibration.replicas import Target
from qmodel.calibration.results import Calibration
from qmodel.catalog import load_catalog
from qmodel.types import Layout

__all__ = ["calibrate"]

Source = str | os.PathLike[str] | Measurements


def calibrate(
    measurements: Source | Sequence[Source],
    *,
    model: str,
    gpu: str,
    engine: str = "vllm",
    layout: Layout | None = None,
    precision: str | None = None,
    max_num_seqs: int | None = None,
    max_batched_tokens: int | None = None,
    catalog: Sequence[str | os.PathLike[str]] = (),
    as_of: str | None = None,
) -> Calibration:
    """Fit the constants of the step-time model to measurements of one model on one GPU under one engine.

    The constants start from the catalog's and move as far as the measurements ask for, less where they are few; what
    the measurements cannot tell stays and is named. Errors are of points left out of the fit.

    Args:
        measurements: a file, or several, see :func:`qmodel.calibration.read_measurements`; or records.
        model: catalog name, or the path of a ``config.json``.
        gpu: catalog name.
        engine: catalog name.
        layout: of measurements that state none; None: one GPU.
        precision: weight type, None for the checkpoint's own.
        max_num_seqs: as the engine was started, None: the engine's default on this GPU.
        max_batched_tokens: the same.
        catalog: the user's catalog files, laid over the shipped one in order.
        as_of: date of the measurements, ``YYYY-MM-DD``; None: today.

    Returns:
        The calibration; ``calibration.save(path)`` writes what scenarios can name.

    Raises:
        CatalogError: a name is not in the catalog.
        ScenarioError: files that cannot be used, or too little in them.
        ValueError: for a precision that the checkpoint cannot have, or settings below 1.

    Example:
        >>> import qmodel as qm
        >>> from qmodel.calibration import Measurements, ServingPoint
        >>> points = [ServingPoint(users=users, prompt_tokens=1000, output_tokens=200, tpot_s=tpot_s)
        ...           for users, tpot_s in ((1, 0.0085), (8, 0.0095), (32, 0.0125))]
        >>> found = qm.calibrate(Measurements(points=tuple(points)), model="llama-3.1-8b", gpu="h100-sxm")
        >>> found.points, found.errors[0].fitted.median < found.errors[0].before.median
        (3, True)

    Reference: docs/calibration.md.
    """
    known = load_catalog(tuple(os.fspath(path) for path in catalog))
    architecture, accelerator = known.model(model), known.gpu(gpu)
    settings = known.engine(engine, accelerator)
    for name, value in (("max_num_seqs", max_num_seqs), ("max_batched_tokens", max_batched_tokens)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1 (got {value})")
    target = Target(
        model=architecture,
        gpu=accelerator,
        engine=replace(
            settings,
            max_num_seqs=settings.max_num_seqs if max_num_seqs is None else max_num_seqs,
            max_batched_tokens=settings.max_batched_tokens if max_batched_tokens is None else max_batched_tokens,
        ),
        layout=layout or Layout(),
        precision=precision,
    )
    _ = target.family  # a precision that cannot be is said before files are read
    matching = Matching(target, known)
    found = Measurements()
    for source in _listed(measurements):
        found = found.joined(
            source if isinstance(source, Measurements) else read_measurements(Path(source), mismatch=matching.mismatch)
        )
    return estimate(found, target, known, as_of=as_of or date.today().isoformat())


def _listed(measurements: Source | Sequence[Source]) -> Sequence[Source]:
    if isinstance(measurements, str | os.PathLike | Measurements):
        return [measurements]
    return measurements
