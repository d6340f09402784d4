"""The whole scenario: frozen, checked, and aware of where each key was written."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr

from qmodel.errors import Problem
from qmodel.scenario.class_section import Classes
from qmodel.scenario.demand_section import DemandSpec
from qmodel.scenario.engine_section import EngineSpec
from qmodel.scenario.fleet_section import FleetSpec, LayoutsSpec, ProfileSpec
from qmodel.scenario.layering import Layered
from qmodel.scenario.objective_section import Objective
from qmodel.scenario.sections import Count, Name, NonNegative, Positive, Section, Text, as_tuple

__all__ = ["PolicySpec", "Scenario", "Source"]


class ChangeSpec(Section):
    """What it costs to turn a running fleet into another."""

    start_usd_per_gpu: NonNegative = Field(default=0.0, description="Once, for each GPU of a replica started, USD.")
    stop_usd_per_gpu: NonNegative = Field(default=0.0, description="Once, for each GPU of a replica stopped, USD.")
    spread_h: Positive = Field(description="Hours over which these are counted against the cost of a fleet.")


class PolicySpec(Section):
    """Rules of the decision."""

    confidence: Literal["nominal", "p90"] = Field(
        default="nominal",
        description="nominal, or p90: targets must hold at the upper 90 % bands of step times and queueing.",
    )
    slo_scope: Literal["pool", "fleet"] = Field(
        default="pool",
        description="Targets hold in every pool that serves the class, or for all of its requests together.",
    )
    spare_replicas: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=0, description="Targets hold in every pool with so many of its replicas lost."
    )
    survive_nodes: Annotated[int, Field(ge=0, le=1)] = Field(
        default=0, description="1: targets hold in every pool with any one node lost."
    )
    max_pools: Count | None = Field(default=None, description="Most pools of the fleet; no limit if left out.")
    change: ChangeSpec | None = Field(
        default=None, description="What it costs to change a fleet that runs already, where one is given."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a scenario comes from, and what it was made of."""

    file: str
    base_dir: str
    merged: Layered = field(default_factory=Layered)
    stated: Layered = field(default_factory=Layered)
    applied: tuple[str, ...] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    catalog_files: tuple[str, ...] = ()


class Scenario(Section):
    """One planning problem as the user states it; names are not yet looked up in the catalog.

    Example:
        >>> from qmodel.scenario import read_scenario
        >>> scenario = read_scenario(
        ...     {"qmodel": 1, "fleet": {"gpus": {"h100-sxm": {}}},
        ...      "classes": {"chat": {"model": "llama-3.1-8b", "rate_rps": 4, "prompt_tokens": {"constant": 1000},
        ...                           "output_tokens": {"mean": 300, "cv": 0.9}, "slo": {"ttft_p95_s": 0.5}}}})
        >>> scenario.classes["chat"].rate, scenario.with_(overrides={"classes.chat.rate_rps": 8}).classes["chat"].rate
        (4.0, 8.0)
    """

    qmodel: Literal[1] = Field(description="Version of the file format.")
    title: str = Field(default="", description="One line for people.")
    description: str = Field(default="", description="More lines for people.")
    classes: Classes = Field(description="Request classes by name.")
    fleet: FleetSpec = Field(description="The hardware a plan may use.")
    engine: EngineSpec = Field(default_factory=EngineSpec, description="Settings of the serving engine.")
    layouts: LayoutsSpec = Field(default_factory=LayoutsSpec, description="Layouts that may be enumerated.")
    profiles: Annotated[tuple[ProfileSpec, ...], BeforeValidator(as_tuple)] = Field(
        default=(), description="Measured step laws; a model and GPU with profiles has only those as candidates."
    )
    policy: PolicySpec = Field(default_factory=PolicySpec, description="Rules of the decision.")
    objective: Objective = Field(default_factory=Objective, description="What a plan makes small.")
    demand: DemandSpec | None = Field(default=None, description="Demand that is uncertain; certain if left out.")
    calibrations: Annotated[tuple[Text, ...], BeforeValidator(as_tuple)] = Field(
        default=(), description="Files of qmodel calibrate, relative to this file: step times from own measurements."
    )
    variants: dict[Name, dict[str, Any]] = Field(
        default_factory=dict, description="Named changes: dotted key, or nested mapping, to the new value."
    )
    comparisons: dict[Name, Annotated[tuple[Name, ...], Field(min_length=1), BeforeValidator(as_tuple)]] = Field(
        default_factory=dict, description="Named lists of variants to compare; base is the file itself."
    )

    _source: Source = PrivateAttr(default_factory=lambda: Source(file="<scenario>", base_dir="."))

    @property
    def file(self) -> str:
        """The file as the user named it, or ``<dict>`` or ``<text>``."""
        return self._source.file

    @property
    def base_dir(self) -> str:
        """The folder that relative paths of the scenario start at."""
        return self._source.base_dir

    @property
    def applied(self) -> tuple[str, ...]:
        """Variants that are applied, in order."""
        return self._source.applied

    @property
    def overrides(self) -> Mapping[str, Any]:
        """Overrides in force, by dotted key."""
        return dict(self._source.overrides)

    @property
    def catalog_files(self) -> tuple[str, ...]:
        """The user's catalog files, to be layered over the shipped catalog."""
        return self._source.catalog_files

    def where(self, key: str) -> tuple[str, int, int]:
        """File, line and column of a dotted key, or of the nearest key above it."""
        return self._source.merged.where(key, self.file)

    def problem(self, key: str, what: str, hint: str = "") -> Problem:
        """A problem about ``key`` that carries its position.

        Args:
            key: dotted key, for example ``classes.chat.model``.
            what: the problem, with the value that was given.
            hint: a way out.
        """
        file, line, column = self.where(key)
        return Problem(what=what, key=key, file=file, line=line, column=column, hint=hint)

    def resolved(self) -> dict[str, Any]:
        """The problem as plain data with all layers merged; variants and comparisons are left out.

        It can be read again as a scenario on its own, from the same folder.
        """
        tree = self._source.merged.tree
        return copy.deepcopy({key: value for key, value in tree.items() if key not in ("variants", "comparisons")})

    def engine_settings(self, gpu: str, cls: str | None = None) -> dict[str, Any]:
        """Engine keys that are stated: ``engine`` under ``fleet.gpus.<gpu>.engine`` under ``classes.<cls>.engine``."""
        return {name: value for part in self._engines(gpu, cls).values() for name, value in part.settings().items()}

    def engine_key(self, gpu: str, name: str, cls: str | None = None) -> str:
        """Where an engine setting is stated that is in force on a GPU, for a class if one is named."""
        stated = [key for key, part in self._engines(gpu, cls).items() if getattr(part, name) is not None]
        return f"{stated[-1] if stated else 'engine'}.{name}"

    def _engines(self, gpu: str, cls: str | None) -> dict[str, EngineSpec]:
        """Sections with engine settings by their key, of which later ones win."""
        spec, asking = self.fleet.gpus.get(gpu), None if cls is None else self.classes[cls].engine
        found: dict[str, EngineSpec] = {"engine": self.engine}
        if spec is not None and spec.engine is not None:
            found[f"fleet.gpus.{gpu}.engine"] = spec.engine
        if asking is not None:
            found[f"classes.{cls}.engine"] = asking
        return found

    def with_(self, *, apply: Sequence[str] = (), overrides: Mapping[str, Any] | None = None) -> Scenario:
        """The same scenario with further variants and overrides.

        Args:
            apply: names of variants, applied after those in force.
            overrides: dotted key to value; they win over the overrides in force and over variants.

        Raises:
            ScenarioError: the result is not a scenario; all problems at once.
        """
        from qmodel.scenario.checking import derive

        return derive(self._source, apply=apply, overrides=overrides or {})
