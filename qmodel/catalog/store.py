"""The catalog: look-ups by name that answer with records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from qmodel.catalog.architectures import expand_variants, model_record
from qmodel.catalog.compilation import canonical_digest, compiled_sections
from qmodel.catalog.engines import engine_record, nearest_version, version_matches
from qmodel.catalog.hardware import (
    constants_name,
    fabric_record,
    gpu_record,
    lone_node,
    node_record,
    topology_record,
)
from qmodel.catalog.names import NameIndex, index_names, plural, singular
from qmodel.catalog.prices import PriceChoice, PriceRule, choose_price
from qmodel.errors import CatalogError
from qmodel.types import Engine, EngineConstants, Fabric, Gpu, Model, Node, Topology

__all__ = ["Catalog", "load_catalog"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Catalog:
    """Facts by name. Look-ups ignore case and take short ids, catalog ids, Hugging Face ids and other names.

    Every look-up of an unknown name raises :class:`~qmodel.errors.CatalogError` with the nearest names.

    Attributes:
        digest: SHA-256 of the content, user files included.
        constants: step-time constants.

    Example:
        >>> catalog = load_catalog()
        >>> catalog.gpu("H100-SXM").name, catalog.model("meta-llama/Llama-3.1-8B-Instruct").name
        ('h100-sxm', 'llama-3.1-8b')
        >>> catalog.gpu("h10-sxm")
        Traceback (most recent call last):
        qmodel.errors.CatalogError: no gpu 'h10-sxm' in the catalog; nearest: 'h100-sxm', 'h800-sxm', 'h200-sxm'
    """

    digest: str
    constants: EngineConstants
    _sections: Mapping[str, Any] = field(repr=False)
    _variants: Mapping[str, Mapping[str, Any]] = field(repr=False)
    _names: Mapping[str, NameIndex] = field(repr=False)
    _stated: Mapping[str, Collection[str]] = field(repr=False, default_factory=dict)
    _shipped_gpus: Mapping[str, Mapping[str, Any]] = field(repr=False, default_factory=dict)

    def has_gpu(self, name: str) -> bool:
        """Whether an accelerator goes by ``name``."""
        return self._names["gpu"].find(name) is not None

    def gpu(self, name: str) -> Gpu:
        """The accelerator that goes by ``name``."""
        identity = self._find("gpu", name)
        names = self._names["gpu"].names_of(identity)
        return gpu_record(
            self._sections["gpus"][identity],
            name=self._names["gpu"].shown[identity],
            constants=self._sections["constants"],
            constants_key=constants_name(self._sections["constants"], names),
            shipped=self._shipped_gpus.get(identity),
            stated=self._stated.get(identity, ()),
        )

    def node(self, name: str) -> Node:
        """The machine or rack shape that goes by ``name``."""
        identity = self._find("node", name)
        entry = self._sections["nodes"][identity]
        gpu = self._names["gpu"].shown[entry["gpu"]]
        domain = self._sections["scale_up_domains"][entry["scale_up_domain"]]
        return node_record(entry, name=identity, gpu=gpu, domain=domain)

    def default_node(self, gpu_name: str) -> Node:
        """The node a GPU comes in when nothing is said.

        The catalog's default for it; else the one node that has it; else one GPU per node over PCIe, of low
        confidence.
        """
        identity = self._find("gpu", gpu_name)
        defaults = self._sections["aliases"].get("default_node", {})
        for name in self._names["gpu"].names_of(identity):
            if name in defaults:
                return self.node(defaults[name])
        having = [node for node, entry in self._sections["nodes"].items() if entry["gpu"] == identity]
        return self.node(having[0]) if len(having) == 1 else lone_node(self.gpu(gpu_name))

    def fabric(self, name: str) -> Fabric:
        """The scale-out port type that goes by ``name``."""
        return fabric_record(self._sections["scale_out"][self._find("fabric", name)])

    def topology(self, name: str) -> Topology:
        """The arrangement of switches that goes by ``name``."""
        return topology_record(self._sections["topologies"][self._find("topology", name)])

    def model(self, name: str, base_dir: str | Path | None = None) -> Model:
        """The architecture that goes by ``name``, or that a Hugging Face ``config.json`` describes.

        Args:
            name: a name, or the path of a file that ends in ``.json``.
            base_dir: folder that a relative path starts from; None: the working directory.

        Raises:
            CatalogError: the name is not in the catalog.
            ScenarioError: the configuration file cannot be read or used.
        """
        if name.lower().endswith(".json"):
            from qmodel.catalog.huggingface import read_model_config

            return read_model_config(Path(base_dir or ".") / name, name=name)
        identity = self._find("model", name)
        entry = self._sections["models"].get(identity) or self._variants[identity]
        return model_record(entry, name=self._names["model"].shown[identity])

    def engine(self, name: str, gpu: Gpu, version: str | None = None) -> Engine:
        """Default settings of a serving engine on a GPU.

        Args:
            name: ``vllm``, ``sglang``, ``tensorrt-llm`` or another name of an entry.
            gpu: the GPU it runs on.
            version: release, None for the one the step-time constants describe. One that no entry describes takes the
                defaults of the nearest older entry, else of the oldest; ``defaults_of`` of the record says so.

        Raises:
            CatalogError: for an unknown engine, or a version without a number.
        """
        identity = self._find("engine", name)
        short = self._names["engine"].shown[identity]
        constants = self._constants_family(identity, short, name)
        if version is not None:
            identity = self._version(short, str(version))
        entry = self._sections["engines"][identity]
        return engine_record(entry, name=short, constants=constants, gpu=gpu, version=version and str(version))

    def price(self, gpu_name: str, rule: PriceRule | None = None, *, key: str = "") -> PriceChoice:
        """A price per GPU-hour by a rule, with the rows it rests on.

        Args:
            gpu_name: name of the GPU.
            rule: the rule; None: median of the newest high-confidence on-demand rows.
            key: key of a scenario that states a price instead, for messages.

        Raises:
            CatalogError: the price book has no row that the rule admits.
        """
        identity = self._find("gpu", gpu_name)
        name = self._names["gpu"].shown[identity]
        return choose_price(self._sections["gpu_hour"], identity, name=name, rule=rule or PriceRule(), key=key)

    def gpu_names(self) -> list[str]:
        """Short ids of all accelerators."""
        return self._listed("gpu")

    def node_names(self) -> list[str]:
        """Ids of all nodes."""
        return self._listed("node")

    def fabric_names(self) -> list[str]:
        """Ids of all scale-out fabrics."""
        return self._listed("fabric")

    def topology_names(self) -> list[str]:
        """Ids of all topologies."""
        return self._listed("topology")

    def model_names(self) -> list[str]:
        """Short ids of all architectures; checkpoints that share one are found by their Hugging Face id too."""
        return self._listed("model")

    def engine_names(self) -> list[str]:
        """Names of all engines."""
        return list(dict.fromkeys(self._listed("engine")))

    def engine_versions(self, name: str) -> list[str]:
        """Versions the catalog describes of an engine, the one taken when none is stated first."""
        identity = self._find("engine", name)
        short = self._names["engine"].shown[identity]
        stated = [text for key, text in self._versions(short).items() if key != identity]
        return [self._sections["engines"][identity]["version"], *stated]

    def nearest(self, kind: str, name: str) -> list[str]:
        """Up to three names of a kind (``gpu``, ``model``, ...) that look like ``name``."""
        return self._names[singular(kind)].nearest(name)

    def entries(self, kind: str) -> list[dict[str, object]]:
        """Rows of a table of one kind.

        Args:
            kind: ``gpus``, ``nodes``, ``fabrics``, ``topologies``, ``models``, ``engines`` or ``prices``.

        Raises:
            ValueError: the kind is not one of these.
        """
        from qmodel.catalog.tables import table_rows

        return table_rows(self, kind)

    def entry(self, kind: str, name: str) -> dict[str, object]:
        """Everything the catalog says about one entry, as its file says it."""
        kind = singular(kind)
        identity = self._find(kind, name)
        section = {"fabric": "scale_out", "topology": "topologies"}.get(kind, f"{kind}s")
        found = self._sections[section].get(identity) or self._variants[identity]
        return dict(found)

    def _listed(self, kind: str) -> list[str]:
        names = self._names[kind]
        return [names.shown[identity] for identity in names.listed]

    def _find(self, kind: str, name: str) -> str:
        found = self._names[kind].find(name)
        if found is None:
            near = self._names[kind].nearest(name)
            hint = f"nearest: {', '.join(map(repr, near))}" if near else f"'qmodel catalog {plural(kind)}' lists them"
            raise CatalogError(f"no {kind} {name!r} in the catalog; {hint}")
        return found

    def _constants_family(self, identity: str, short: str, asked: str) -> str:
        """Family of step-time constants of an engine; one engine may have two, each with names of its own."""
        aliases = self._sections["aliases"]["engines"]
        wanted = asked.strip().lower()
        for alias, content in aliases.items():
            if wanted in (alias.lower(), *(also.lower() for also in content.get("also", ()))):
                return str(content["constants"])
        fallback = self._sections["engines"][identity].get("constants") or "vLLM"
        return str(aliases.get(short, {}).get("constants", fallback))

    def _versions(self, name: str) -> dict[str, str]:
        """Versions by id of the entries that go by the engine's short name."""
        shown = self._names["engine"].shown
        return {key: entry["version"] for key, entry in self._sections["engines"].items() if shown[key] == name}

    def _version(self, name: str, version: str) -> str:
        stated = self._versions(name)
        for key, text in stated.items():
            if version_matches(text, version):
                return key
        nearest = nearest_version(list(stated.values()), version)
        if nearest is not None:
            return next(key for key, text in stated.items() if text == nearest)
        known = ", ".join(repr(text) for text in stated.values())
        raise CatalogError(f"no version {version!r} of engine {name!r} in the catalog; versions: {known}")


def load_catalog(extra: str | Path | Sequence[str | Path] = ()) -> Catalog:
    """The shipped catalog with the user's files laid over it, in order.

    Args:
        extra: a YAML file, or several, with the sections of the shipped ones; see ``docs/catalog.md``.

    Raises:
        CatalogFileError: a file breaks the schema.
        ScenarioError: a file is missing or is not YAML.

    Example:
        >>> load_catalog().model("gpt-oss-120b").windowed_layers
        18
    """
    if isinstance(extra, str | Path):
        extra = [extra]
    if not extra:
        return _shipped()
    from qmodel.catalog.layering import layer_files

    sections, _ = compiled_sections()
    layered = layer_files(sections, extra)
    return _catalog(
        layered.sections,
        digest=canonical_digest(
            [layered.sections, sorted((gpu, sorted(keys)) for gpu, keys in layered.stated.items())]
        ),
        stated=layered.stated,
        shipped_gpus=layered.shipped_gpus,
    )


@lru_cache(maxsize=1)
def _shipped() -> Catalog:
    sections, digest = compiled_sections()
    return _catalog(sections, digest=digest)


def _catalog(
    sections: Mapping[str, Any],
    *,
    digest: str,
    stated: Mapping[str, Collection[str]] | None = None,
    shipped_gpus: Mapping[str, Mapping[str, Any]] | None = None,
) -> Catalog:
    variants = expand_variants(sections["models"])
    constants = dict(sections["constants"])
    provenance = constants.get("provenance", {})
    constants["source"] = "; ".join(str(text) for text in provenance.values())
    return Catalog(
        digest=digest,
        constants=EngineConstants.from_dict(constants),
        _sections=sections,
        _variants=variants,
        _names=index_names(sections, variants),
        _stated=stated or {},
        _shipped_gpus=shipped_gpus or {},
    )
