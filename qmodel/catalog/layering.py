"""A user's own catalog files laid over the shipped entries."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qmodel.catalog.architectures import expand_variants
from qmodel.catalog.names import NameIndex, index_names
from qmodel.catalog.schema import (
    CatalogFileError,
    check_constants,
    check_entry,
    check_references,
    entry_id,
    unsourced_numbers,
)
from qmodel.errors import Problem
from qmodel.files import Document, join_key, read_yaml

__all__ = ["CATALOG_SECTIONS", "Layered", "layer_files"]

CALIBRATION_VERSION = 1
_BY_ID = ("gpus", "nodes", "scale_out", "topologies", "scale_up_domains", "models", "engines")
_HEAD = ("schema_version", "qmodel_calibration", "about", "source", "as_of", "confidence", "note")
CATALOG_SECTIONS = (*_BY_ID, "gpu_hour", "constants", "default_node")  # without what calibrations add
_SECTIONS = (*CATALOG_SECTIONS, "calibrations")
_CALIBRATED = ("model", "gpu", "engine", "precision")  # what tells one calibration from another
_KIND = {"gpus": "gpu", "nodes": "node", "scale_out": "fabric", "topologies": "topology", "models": "model"}
_KIND["engines"] = "engine"
_MISPLACED = {"prices": "gpu_hour", "fabrics": "scale_out", "engine_constants": "constants"}


@dataclass(slots=True)
class Layered:
    """The sections with the user's entries in, and what those entries state.

    Attributes:
        sections: as :func:`qmodel.catalog.compilation.compile_files` returns them.
        stated: dotted keys that user files state, by id of the GPU.
        shipped_gpus: shipped entries of the GPUs that user files change, by id.
    """

    sections: dict[str, Any]
    stated: dict[str, frozenset[str]] = field(default_factory=dict)
    shipped_gpus: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    places: dict[tuple[str, str], tuple[Document, str]] = field(default_factory=dict)


def layer_files(sections: Mapping[str, Any], paths: Sequence[str | Path]) -> Layered:
    """Lay files over the sections, in order; later files win.

    An entry whose id (or another name of it) is known merges over that entry: mappings merge, all else
    replaces. Other entries are new. Rows of ``gpu_hour`` are added. ``source`` and ``as_of`` at the head of
    a file hold for all of its entries that do not state their own.

    Raises:
        CatalogFileError: a file breaks the schema; all problems with their positions.
        ScenarioError: a file is missing or is not YAML.
    """
    merged = {name: dict(part) if isinstance(part, Mapping) else list(part) for name, part in sections.items()}
    layered = Layered(sections=merged)
    problems: list[Problem] = []
    for path in paths:
        problems += _layer(layered, read_yaml(path), shipped=sections)
    if not problems:
        problems = list(_broken_references(layered))
    if problems:
        raise CatalogFileError(problems)
    return layered


def _layer(layered: Layered, document: Document, *, shipped: Mapping[str, Any]) -> list[Problem]:
    problems: list[Problem] = []
    calibrations: object = []
    for section, content in document.data.items():
        if section in _HEAD:
            continue
        names = index_names(layered.sections)
        if section in _BY_ID or section == "gpu_hour":
            problems += _add_entries(layered, document, section, content, names, shipped)
        elif section == "constants":
            problems += _add_constants(layered, document, content)
        elif section == "default_node":
            problems += _add_default_nodes(layered, document, content, names)
        elif section == "calibrations":
            calibrations = content
        else:
            problems.append(_unknown_section(document, section))
    return problems + _add_calibrations(layered, document, calibrations)


def _add_entries(
    layered: Layered,
    document: Document,
    section: str,
    content: object,
    names: Mapping[str, NameIndex],
    shipped: Mapping[str, Any],
) -> list[Problem]:
    if not isinstance(content, list):
        return [document.problem(section, f"must be a list of entries (got {content!r})", "write '- id: ...' items")]
    problems: list[Problem] = []
    for index, raw in enumerate(content):
        key = f"{section}[{index}]"
        if not isinstance(raw, Mapping):
            problems.append(document.problem(key, f"must be a mapping (got {raw!r})"))
            continue
        entry = _with_head(raw, document)
        problems += _unsourced(entry, document, key)
        entry = _canonical(section, entry, names)
        if section == "gpu_hour":
            entry = _new_entry(section, entry)
            problems += check_entry(section, entry, document, key)
            layered.places[section, str(len(layered.sections[section]))] = (document, key)
            layered.sections[section].append(entry)
            continue
        identity = entry_id(section, entry)
        if not identity:
            field_name = "hf_id" if section == "models" else "id"
            problems.append(document.problem(key, f"{field_name!r} is missing"))
            continue
        known = layered.sections[section].get(identity)
        result = _merge(known, entry) if known else _new_entry(section, entry)
        problems += check_entry(section, result, document, key)
        layered.sections[section][identity] = result
        layered.places[section, identity] = (document, key)
        if section == "gpus" and identity in shipped["gpus"]:
            layered.shipped_gpus[identity] = shipped["gpus"][identity]
            layered.stated[identity] = layered.stated.get(identity, frozenset()) | frozenset(_leaves(raw))
    return problems


def _add_constants(layered: Layered, document: Document, content: object) -> list[Problem]:
    if not isinstance(content, Mapping):
        return [document.problem("constants", f"must be a mapping (got {content!r})")]
    entry = _with_head(content, document)
    problems = _unsourced(entry, document, "constants")
    entry.setdefault("provenance", {"user": entry.get("source", "")})
    base = layered.sections["constants"]
    own = entry.pop("overrides", [])
    result = _merge(base, entry)
    if isinstance(own, list) and all(isinstance(item, Mapping) for item in own):
        replaced = {_fit(item) for item in own}
        result["overrides"] = [*own, *(item for item in base["overrides"] if _fit(item) not in replaced)]
    else:
        problems.append(document.problem("constants.overrides", f"must be a list of mappings (got {own!r})"))
    problems += check_constants(result, document, "constants")
    layered.sections["constants"] = result
    return problems


def _add_calibrations(layered: Layered, document: Document, content: object) -> list[Problem]:
    """Add the user's own fits after all other sections, whose names they use; a later fit of the same wins."""
    version = document.data.get("qmodel_calibration", CALIBRATION_VERSION)
    if version != CALIBRATION_VERSION:
        what = f"calibration files of version {version!r} are not known (this is version {CALIBRATION_VERSION})"
        return [document.problem("qmodel_calibration", what, "calibrate again with this version of qmodel")]
    if not isinstance(content, list):
        return [document.problem("calibrations", f"must be a list (got {content!r})", "write '- model: ...' items")]
    if not content:
        return []
    names = index_names(layered.sections, expand_variants(layered.sections["models"]))
    problems: list[Problem] = []
    for index, raw in enumerate(content):
        key = f"calibrations[{index}]"
        if not isinstance(raw, Mapping):
            problems.append(document.problem(key, f"must be a mapping (got {raw!r})"))
            continue
        entry = {"confidence": "high", **_with_head(raw, document)}
        broken = check_entry("calibrations", entry, document, key)
        for kind in ("model", "gpu", "engine"):
            identity = names[kind].find(str(entry.get(kind)))
            if kind == "model" and str(entry.get(kind)).lower().endswith(".json"):
                continue  # a configuration file, by the path that scenarios name it
            if identity is not None:
                entry[kind] = names[kind].shown[identity]
            elif isinstance(entry.get(kind), str):
                near = names[kind].nearest(entry[kind])
                hint = f"nearest: {', '.join(map(repr, near))}" if near else "lay its catalog file under this one"
                what = f"no {kind} {entry[kind]!r} in the catalog"
                broken.append(document.problem(f"{key}.{kind}", what, hint))
        problems += broken
        if not broken:
            constants = layered.sections["constants"]
            kept = [item for item in constants.get("calibrations", []) if not _same_fit(item, entry)]
            layered.sections["constants"] = {**constants, "calibrations": [*kept, entry]}
    return problems


def _same_fit(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(one[name] == other[name] for name in _CALIBRATED)


def _add_default_nodes(
    layered: Layered, document: Document, content: object, names: Mapping[str, NameIndex]
) -> list[Problem]:
    if not isinstance(content, Mapping):
        return [document.problem("default_node", f"must be a mapping of GPU to node (got {content!r})")]
    problems: list[Problem] = []
    defaults = dict(layered.sections["aliases"].get("default_node", {}))
    for gpu, node in content.items():
        gpu_id, node_id = names["gpu"].find(gpu), names["node"].find(str(node))
        if gpu_id is None or node_id is None:
            missing = f"no gpu {gpu!r}" if gpu_id is None else f"no node {node!r}"
            problems.append(document.problem(join_key("default_node", gpu), f"{missing} in the catalog"))
        else:
            defaults |= dict.fromkeys(names["gpu"].names_of(gpu_id), node_id)
    layered.sections["aliases"] = {**layered.sections["aliases"], "default_node": defaults}
    return problems


def _with_head(entry: Mapping[str, Any], document: Document) -> dict[str, Any]:
    head: dict[str, Any] = {
        key: document.data[key] for key in ("source", "as_of", "confidence") if key in document.data
    }
    return {**head, **entry}


def _unsourced(entry: Mapping[str, Any], document: Document, key: str) -> list[Problem]:
    """A problem where the user's numbers lack a source or a date, whatever the entry below them has."""
    if next(iter(unsourced_numbers(dict(entry), key)), None) is None:
        return []
    missing = " and ".join(name for name in ("source", "as_of") if not entry.get(name))
    hint = "state them in the entry, or once at the head of the file"
    return [document.problem(key, f"a number without {missing or 'a source'}", hint)]


def _canonical(section: str, entry: dict[str, Any], names: Mapping[str, NameIndex]) -> dict[str, Any]:
    """The entry with the catalog's own ids where it uses other names of known entries."""
    own = "hf_id" if section == "models" else "id"
    result = dict(entry)
    references = [("gpu", "gpu")] if section in ("nodes", "gpu_hour") else []
    if section in _KIND:
        references.append((own, _KIND[section]))
    for key, kind in references:
        value = result.get(key)
        if isinstance(value, str):
            result[key] = names[kind].find(value) or value
    return result


def _new_entry(section: str, entry: dict[str, Any]) -> dict[str, Any]:
    """A new entry, with the fields filled that a user need not state."""
    filled: dict[str, Any] = {}
    if section == "gpus":
        filled = {"vendor": "unknown", "architecture": "unknown"}
    elif section == "models":
        filled = {"intermediate_size": None}
    return {"confidence": "high", **filled, **entry}


def _merge(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in top.items():
        below = result.get(key)
        result[key] = _merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result


def _leaves(entry: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in entry.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _fit(item: Mapping[str, Any]) -> tuple[object, object, object]:
    return item.get("gpu"), item.get("engine"), item.get("quant")


def _broken_references(layered: Layered) -> Iterable[Problem]:
    for section, identity, key, what in check_references(layered.sections):
        place = layered.places.get((section, identity))
        if place is not None:
            document, where = place
            yield document.problem(f"{where}.{key}", what)


def _unknown_section(document: Document, section: str) -> Problem:
    near = [_MISPLACED[section]] if section in _MISPLACED else difflib.get_close_matches(section, _SECTIONS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"sections: {', '.join(_SECTIONS)}"
    return document.problem(section, f"unknown section {section!r}", hint)
