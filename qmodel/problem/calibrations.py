"""Calibration files that a scenario names: read, held against what the scenario runs, and noted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from qmodel.catalog import Catalog, load_catalog
from qmodel.catalog.layering import CATALOG_SECTIONS
from qmodel.catalog.schema import CatalogFileError
from qmodel.errors import Problem, ScenarioError
from qmodel.files import read_yaml
from qmodel.perf import quant_family
from qmodel.problem.instances import GpuOption
from qmodel.types import Model

if TYPE_CHECKING:
    from qmodel.scenario import Scenario

__all__ = ["calibration_notes", "known_catalog", "unused_calibrations"]

_WRITE = "qmodel calibrate --out FILE writes one"
Run = tuple[str, str, str, str]  # model, GPU, engine, kind of weights


def known_catalog(scenario: Scenario) -> Catalog:
    """The shipped catalog under the user's catalog files and the calibrations that the scenario names.

    Raises:
        ScenarioError: a calibration file is missing, is none, or breaks the schema.
        CatalogError: a catalog file does.
    """
    usual = load_catalog(scenario.catalog_files)  # its problems are those of the catalog files alone
    if not scenario.calibrations:
        return usual
    problems = [problem for index in range(len(scenario.calibrations)) for problem in _file_problems(scenario, index)]
    if problems:
        raise ScenarioError(problems)
    paths = [_path(scenario, name) for name in scenario.calibrations]
    try:
        return load_catalog([*scenario.catalog_files, *paths])
    except CatalogFileError as error:
        raise ScenarioError(error.problems) from error


def unused_calibrations(
    scenario: Scenario,
    catalog: Catalog,
    models: Mapping[str, Model | None],
    gpus: Mapping[str, GpuOption],
    precisions: tuple[str, ...],
) -> list[Problem]:
    """Problems for named calibrations of something that the scenario does not run."""
    runs = set(_runs(models, gpus, precisions))
    problems = []
    for index, name in enumerate(scenario.calibrations):
        for item in read_yaml(_path(scenario, name)).data["calibrations"]:
            gpu = catalog.gpu(item["gpu"])
            engine = catalog.engine(item["engine"], gpu).name
            model = item["model"] if item["model"].lower().endswith(".json") else catalog.model(item["model"]).name
            own = (model, gpu.name, engine, item["precision"])
            if own not in runs:
                what = f"calibrates {_words(own)}, which this scenario does not run"
                known = "; ".join(_words(other) for other in sorted(runs)) or "nothing of the catalog"
                problems.append(scenario.problem(f"calibrations[{index}]", what, f"it runs {known}"))
    return problems


def calibration_notes(
    catalog: Catalog, models: Mapping[str, Model | None], gpus: Mapping[str, GpuOption], precisions: tuple[str, ...]
) -> Iterator[str]:
    """One sentence for each calibration in use."""
    runs = set(_runs(models, gpus, precisions))
    for item in catalog.constants.calibrations:
        own = (item["model"], item["gpu"], item["engine"], item["precision"])
        if own in runs:
            yield (
                f"{_words(own)}: step times calibrated on {item['points']} measurements ({item['as_of']}) in"
                f" {', '.join(item['layouts'])}, up to {item['largest_batch']:g} sequences and"
                f" {item['largest_context_tokens']:.0f} tokens of context; beyond is an extrapolation"
            )


def _runs(
    models: Mapping[str, Model | None], gpus: Mapping[str, GpuOption], precisions: tuple[str, ...]
) -> Iterator[Run]:
    for model in models.values():
        for option in gpus.values():
            if model is None or option.gpu is None:
                continue
            for precision in precisions:
                try:
                    family = quant_family(model, option.gpu, precision)
                except ValueError:  # a precision that this checkpoint cannot have
                    continue
                yield model.name, option.gpu.name, option.engine.name, family


def _words(run: Run) -> str:
    model, gpu, engine, precision = run
    return f"{model} ({precision}) on {gpu} under {engine}"


def _path(scenario: Scenario, name: str) -> Path:
    return Path(scenario.base_dir) / name


def _file_problems(scenario: Scenario, index: int) -> list[Problem]:
    name, key = scenario.calibrations[index], f"calibrations[{index}]"
    path = _path(scenario, name)
    if not path.is_file():
        return [scenario.problem(key, f"no file {str(path)!r}", _WRITE)]
    try:
        data = read_yaml(path).data
    except ScenarioError as error:
        return list(error.problems)
    if not data.get("calibrations"):
        return [scenario.problem(key, f"{name!r} holds no calibration", _WRITE)]
    other = [section for section in data if section in CATALOG_SECTIONS]
    if other:
        what = f"{name!r} has more than calibrations: {', '.join(other)}"
        return [scenario.problem(key, what, "give it with --catalog")]
    return []
