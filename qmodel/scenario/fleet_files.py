"""Fleet files: pools with their counts, and the way each class takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationError

from qmodel.errors import Problem, ScenarioError
from qmodel.files import parent_key
from qmodel.scenario.engine_section import PoolEngineSpec
from qmodel.scenario.fleet_section import LayoutSpec
from qmodel.scenario.inheritance import FileSource, read_document, source_name
from qmodel.scenario.layering import Layered, Place, layer_of
from qmodel.scenario.price_section import StatedPriceSpec
from qmodel.scenario.sections import Complaint, Count, Name, NonNegative, Positive, Section, Text, as_tuple
from qmodel.scenario.shapes import prune_nulls, shape_of
from qmodel.scenario.unsupported import FLEET_FILE_UNSUPPORTED, known_keys, strip_unsupported
from qmodel.scenario.wording import did_you_mean, find_all
from qmodel.types import ROLES_IN_A_ROW

__all__ = ["CheckedFleet", "FleetFile", "LinkSpec", "PathSpec", "PoolSpec", "check_fleet", "read_fleet"]

_SHARE_TOLERANCE = 1e-6
_FED = ("decode", "answer")


class LinkSpec(Section):
    """The link that brings KV into a decode or answer pool; what is left out follows from nodes, fabric and model."""

    bandwidth_gbps: Positive | None = Field(default=None, description="Bandwidth of one lane, 1e9 bytes/s.")
    latency_s: NonNegative | None = Field(default=None, description="From the last byte sent to the arrival, s.")
    lanes: Count | None = Field(
        default=None, description="Sequences that travel at a time; as many as the smaller pool has replicas."
    )
    kv_bytes_per_token: Positive | None = Field(
        default=None, description="KV bytes of one token of context; needed for models that only profiles describe."
    )


class PoolSpec(Section):
    """Equal replicas of one model on one GPU type."""

    model: Text = Field(description="Model the pool serves, named as in the scenario.")
    gpu: Name = Field(description="GPU type, one of the scenario's fleet.gpus.")
    layout: LayoutSpec = Field(default_factory=LayoutSpec, description="How one replica is spread.")
    precision: Literal["auto", "bf16", "fp8", "fp4", "w4"] = Field(
        default="auto", description="Weight type; auto is the checkpoint's own."
    )
    replicas: Count = Field(description="Number of replicas.")
    role: Literal["unified", "prefill", "decode", "answer"] = Field(
        default="unified",
        description="What the pool makes: all tokens; the first; those after it; those after the thinking.",
    )
    link: LinkSpec | None = Field(default=None, description="Link that brings KV into a decode or answer pool.")
    engine: PoolEngineSpec | None = Field(default=None, description="Engine settings; they win over the scenario's.")
    price: StatedPriceSpec | None = Field(default=None, description="Price; the scenario's if left out.")


class PathSpec(Section):
    """One way of a class."""

    path: Annotated[tuple[Text, ...], Field(min_length=1), BeforeValidator(as_tuple)] = Field(
        description="Pools a request visits, in order: unified; prefill, decode; or prefill, decode, answer."
    )
    share: Annotated[float, Field(gt=0, le=1)] = Field(default=1.0, description="Share of the class's requests.")


Paths = Annotated[tuple[PathSpec, ...], Field(min_length=1), BeforeValidator(as_tuple)]


class FleetFile(Section):
    """A fleet as a user writes it, to be evaluated against a scenario.

    Example:
        >>> fleet = read_fleet({"qmodel": 1, "routing": {"chat": [{"path": ["a"]}]},
        ...                     "pools": {"a": {"model": "m", "gpu": "h100-sxm", "replicas": 2}}})
        >>> fleet.pools["a"].layout.layout.gpus
        1
    """

    qmodel: Literal[1] = Field(description="Version of the file format.")
    title: str = Field(default="", description="One line for people.")
    pools: Annotated[dict[Name, PoolSpec], Field(min_length=1)] = Field(description="Pools by name.")
    routing: Annotated[dict[Name, Paths], Field(min_length=1)] = Field(
        description="For each class its paths with their shares."
    )

    _layer: Layered = PrivateAttr(default_factory=Layered)
    _file: str = PrivateAttr(default="<fleet>")

    @property
    def file(self) -> str:
        """The file as the user named it."""
        return self._file

    def problem(self, key: str, what: str, hint: str = "") -> Problem:
        """A problem about ``key`` that carries its position."""
        return self._layer.problem(key, what, hint, file=self._file)

    def complaints(self) -> Iterator[Complaint]:
        used: set[str] = set()
        for name, paths in self.routing.items():
            total = math.fsum(path.share for path in paths)
            if abs(total - 1.0) > _SHARE_TOLERANCE:
                yield Complaint(f"shares must add up to 1 (got {total:.9g})", ("routing", name))
            for index, path in enumerate(paths):
                used.update(path.path)
                if any(other.path == path.path for other in paths[:index]):
                    yield Complaint(
                        f"names {', '.join(path.path)} twice", ("routing", name, index, "path"), "add up the shares"
                    )
                yield from self._path_complaints(path.path, ("routing", name, index, "path"))
        for name, spec in self.pools.items():
            if name not in used:
                yield Complaint("serves no class", ("pools", name), "give it a path in routing, or take it out")
            if spec.link is not None and spec.role not in _FED:
                what = f"a {spec.role} pool gets no KV from another pool"
                yield Complaint(what, ("pools", name, "link"), "state the link of the decode or answer pool")

    def _path_complaints(self, path: tuple[str, ...], key: tuple[str | int, ...]) -> Iterator[Complaint]:
        """Pools that do not exist, or do not follow each other in the order of the stages."""
        unknown = [(step, pool) for step, pool in enumerate(path) if pool not in self.pools]
        for step, pool in unknown:
            hint = did_you_mean(pool, self.pools) or f"there are {', '.join(self.pools)}"
            yield Complaint(f"no pool {pool!r}", (*key, step), hint)
        roles = tuple(self.pools[pool].role for pool in path if pool in self.pools)
        if not unknown and roles not in ROLES_IN_A_ROW:
            told = ", ".join(f"{pool} ({role})" for pool, role in zip(path, roles, strict=True))
            hint = "a path is one unified pool, or prefill, decode, or prefill, decode, answer"
            yield Complaint(f"pools do not follow each other: {told}", key, hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFleet:
    """A fleet, or what keeps the source from being one; attributes as for a checked scenario."""

    fleet: FleetFile | None
    problems: tuple[Problem, ...]
    tree: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""
    layer: Layered = field(default_factory=Layered)

    def where(self, key: str) -> Place:
        """File, line and column of a dotted key, or of the nearest key above it."""
        return self.layer.where(key, self.file)


def check_fleet(source: FileSource) -> CheckedFleet:
    """Read a fleet file and collect everything that is wrong with it; content never raises.

    Args:
        source: path of a YAML or JSON file, YAML text (a str with a line break), or a dict.
    """
    name = source_name(source)
    try:
        document = read_document(source)
    except ScenarioError as error:
        return CheckedFleet(fleet=None, problems=error.problems, file=name)
    layer = layer_of(document)
    shape = shape_of(FleetFile)
    tree = prune_nulls(layer.tree, shape)
    layer = Layered(tree=tree, places=layer.places)
    stripped, refused = strip_unsupported(tree, FLEET_FILE_UNSUPPORTED)
    problems = [layer.problem(key, what, hint, file=name) for key, what, hint in refused]
    fleet = None
    try:
        fleet = FleetFile.model_validate(stripped)
    except ValidationError as error:
        incomplete = {parent_key(key) for key, _, _ in refused}
        for found in find_all(error.errors(), shape, lambda path: known_keys(path, FLEET_FILE_UNSUPPORTED)):
            if not (found.kind in ("missing", "cross") and found.key in incomplete):
                problems.append(layer.problem(found.key, found.what, found.hint, file=name, at=found.at))
    if problems or fleet is None:
        ordered = sorted(problems, key=lambda problem: (problem.line, problem.column, problem.key))
        return CheckedFleet(fleet=None, problems=tuple(ordered), tree=tree, file=name, layer=layer)
    fleet._layer, fleet._file = layer, name
    return CheckedFleet(fleet=fleet, problems=(), tree=tree, file=name, layer=layer)


def read_fleet(source: FileSource) -> FleetFile:
    """Read a fleet file.

    Args:
        source: as for :func:`check_fleet`.

    Raises:
        ScenarioError: all problems at once.
    """
    checked = check_fleet(source)
    if checked.fleet is None:
        raise ScenarioError(checked.problems)
    return checked.fleet
