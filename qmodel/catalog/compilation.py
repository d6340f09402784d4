"""The data files, checked and compiled into one JSON file that loads in milliseconds.

The build hook of the package compiles; a checkout whose data files changed compiles again when it is next
loaded. Reading 300 kB of YAML with positions takes seconds, reading the compiled file milliseconds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qmodel.errors import Problem, ScenarioError

if TYPE_CHECKING:
    from qmodel.files import Document

__all__ = ["DATA", "canonical_digest", "compile_files", "compiled_sections", "write_compiled"]

DATA = Path(__file__).parent / "data"
_COMPILED = "compiled.json"
_FORMAT = 1  # raise when the layout of the compiled file changes
_SECTIONS_BY_FILE = {
    "gpus.yaml": ("gpus",),
    "nodes.yaml": ("nodes",),
    "fabrics.yaml": ("scale_out", "topologies", "scale_up_domains"),
    "models.yaml": ("models",),
    "prices.yaml": ("gpu_hour",),
    "engines.yaml": ("engines",),
}
_CONSTANTS = "engine_constants.yaml"
_ALIASES = "aliases.yaml"
_FILES = (*_SECTIONS_BY_FILE, _CONSTANTS, _ALIASES)


def compiled_sections(directory: Path = DATA) -> tuple[dict[str, Any], str]:
    """The catalog's sections as plain data, and their digest.

    Reads the compiled file where it is up to date with the data files: same sizes and times of change, or
    the same content. Otherwise compiles, and writes the compiled file if the folder allows it.

    Raises:
        CatalogFileError: a data file breaks the schema.
    """
    compiled = _read_compiled(directory / _COMPILED)
    if compiled is None or not _is_current(compiled, directory):
        compiled = write_compiled(directory)
    return compiled["sections"], compiled["digest"]


def write_compiled(directory: Path = DATA) -> dict[str, Any]:
    """Compile the data files of a folder into its ``compiled.json``, whole or not at all.

    Several processes may do this at once; each replaces the file by the same content. In a folder that
    cannot be written the result is only returned.
    """
    from qmodel.files import write_text

    stamp, content = _stamp(directory), _content_digest(directory)
    sections = compile_files(directory)
    compiled = {
        "format": _FORMAT,
        "stamp": stamp,
        "content": content,
        "digest": canonical_digest(sections),
        "sections": sections,
    }
    with contextlib.suppress(ScenarioError):  # a read-only installation compiles in memory
        write_text(directory / _COMPILED, json.dumps(compiled, separators=(",", ":"), ensure_ascii=False))
    return compiled


def compile_files(directory: Path = DATA) -> dict[str, Any]:
    """The checked sections of the data files.

    Returns:
        entries by id for ``gpus``, ``nodes``, ``scale_out``, ``topologies``, ``scale_up_domains``, ``models``
        and ``engines``; rows for ``gpu_hour``; ``constants`` and ``aliases`` as their files have them.

    Raises:
        CatalogFileError: with the position of everything that is wrong.
    """
    from qmodel.catalog.schema import CatalogFileError, check_constants, unsourced_numbers
    from qmodel.files import read_yaml

    documents = {name: read_yaml(directory / name) for name in _FILES}
    sections: dict[str, Any] = {}
    places: dict[tuple[str, str], tuple[Document, str]] = {}
    problems: list[Problem] = []
    for name, typed in _SECTIONS_BY_FILE.items():
        document = documents[name]
        for section in typed:
            sections[section] = _entries(section, document, places, problems)
        rest = {key: value for key, value in document.data.items() if key not in typed}
        problems += [document.problem(key, "a number without source and as_of") for key in unsourced_numbers(rest)]
    constants = documents[_CONSTANTS]
    problems += check_constants(constants.data, constants, "")
    sections["constants"] = constants.data
    sections["aliases"] = {key: value for key, value in documents[_ALIASES].data.items() if key != "about"}
    if not problems:
        problems += _references(sections, places, constants) + _aliases(sections, documents[_ALIASES])
    if problems:
        raise CatalogFileError(problems)
    return sections


def canonical_digest(data: object) -> str:
    """SHA-256 of plain data, the same for the same content."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _entries(
    section: str,
    document: Document,
    places: dict[tuple[str, str], tuple[Document, str]],
    problems: list[Problem],
) -> dict[str, Any] | list[Any]:
    from qmodel.catalog.schema import check_entry, entry_id

    rows = document.data.get(section)
    if not isinstance(rows, list):
        problems.append(document.problem(section, f"a list of entries is missing (section {section!r})"))
        return {}
    by_id: dict[str, Any] = {}
    for index, row in enumerate(rows):
        key = f"{section}[{index}]"
        if not isinstance(row, Mapping):
            problems.append(document.problem(key, f"must be a mapping (got {row!r})"))
            continue
        problems += check_entry(section, row, document, key)
        identity = str(index) if section == "gpu_hour" else entry_id(section, row)
        if identity in by_id:
            problems.append(document.problem(key, f"a second entry {identity!r}"))
        by_id[identity] = row
        places[section, identity] = (document, key)
    return list(by_id.values()) if section == "gpu_hour" else by_id


def _references(
    sections: Mapping[str, Any],
    places: Mapping[tuple[str, str], tuple[Document, str]],
    constants: Document,
) -> list[Problem]:
    from qmodel.catalog.schema import check_references

    problems = []
    for section, identity, key, what in check_references(sections):
        document, place = places.get((section, identity), (constants, ""))
        problems.append(document.problem(f"{place}.{key}" if place else key, what))
    return problems


def _aliases(sections: Mapping[str, Any], document: Document) -> list[Problem]:
    from qmodel.files import join_key

    aliases, problems = sections["aliases"], []
    for kind, field in (("models", "hf_id"), ("gpus", "catalog_id"), ("engines", "catalog_id")):
        for short, alias in aliases[kind].items():
            if alias.get(field) not in sections[kind]:
                key = join_key(f"{kind}", short)
                problems.append(document.problem(f"{key}.{field}", f"no entry {alias.get(field)!r} in {kind}"))
    for gpu, node in aliases["default_node"].items():
        if gpu not in aliases["gpus"] or node not in sections["nodes"]:
            problems.append(document.problem(join_key("default_node", gpu), f"no GPU {gpu!r} or no node {node!r}"))
    return problems


def _read_compiled(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("format") == _FORMAT else None


def _is_current(compiled: Mapping[str, Any], directory: Path) -> bool:
    """Whether the compiled file still says what the data files say; without data files it is all there is."""
    try:
        if compiled["stamp"] == _stamp(directory):
            return True
        return bool(compiled["content"] == _content_digest(directory))
    except FileNotFoundError:
        return True


def _stamp(directory: Path) -> dict[str, list[int]]:
    stats = {name: os.stat(directory / name) for name in _FILES}  # noqa: PTH116  (half the cost of Path.stat here)
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def _content_digest(directory: Path) -> str:
    digest = hashlib.sha256()
    for name in _FILES:
        digest.update((directory / name).read_bytes())
    return digest.hexdigest()
