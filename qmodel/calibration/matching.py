"""Rows of a file that measure another model, GPU, engine or weight type than the one that is calibrated."""

from __future__ import annotations

from collections.abc import Mapping

from qmodel.calibration.replicas import Target
from qmodel.catalog import Catalog
from qmodel.errors import CatalogError, ScenarioError
from qmodel.perf import quant_family

__all__ = ["Matching"]

_MODEL = ("model", "modelid", "modelname")
_GPU = ("gpu", "hw", "hardware", "accelerator")
_ENGINE = ("engine", "framework", "backend")
_PRECISION = ("precision", "dtypeweights", "quantization")


class Matching:
    """Tells why a row is not of the target; names that the catalog does not know say nothing."""

    def __init__(self, target: Target, catalog: Catalog) -> None:
        self._target = target
        self._catalog = catalog
        self._seen: dict[tuple[str, ...], str] = {}

    def mismatch(self, values: Mapping[str, object]) -> str:
        """Why the row is of something else, empty where nothing says so.

        Args:
            values: cells by plain name.
        """
        named = tuple(
            next((text for name in names if (text := str(values.get(name) or ""))), "")
            for names in (_MODEL, _GPU, _ENGINE, _PRECISION)
        )
        if named not in self._seen:
            self._seen[named] = self._reason(*named)
        return self._seen[named]

    def _reason(self, model: str, gpu: str, engine: str, precision: str) -> str:
        target = self._target
        for kind, text, own in (
            ("model", model, target.model.name),
            ("GPU", gpu, target.gpu.name),
            ("engine", engine, target.engine.name),
        ):
            found = self._name(kind, text)
            if found and found != own:
                return f"measures {kind} {found}, not {own}"
        if precision:
            try:
                family = quant_family(target.model, target.gpu, precision)
            except ValueError:  # another word for it, or none of ours
                return ""
            if family != target.family:
                return f"measures {family} weights, not {target.family}"
        return ""

    def _name(self, kind: str, text: str) -> str:
        """Catalog name of what a cell says, empty where the catalog does not know it."""
        if not text or text.lower().endswith(".json"):
            return ""
        try:
            if kind == "model":
                return self._catalog.model(text).name
            if kind == "GPU":
                return self._catalog.gpu(text).name
            return self._catalog.engine(text, self._target.gpu).name
        except (CatalogError, ScenarioError):
            return ""
