"""Checks of catalog files: the shape of every entry, a source and a date for every number, names that exist."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from qmodel.errors import CatalogError, Problem
from qmodel.files import join_key

if TYPE_CHECKING:
    from pydantic import BaseModel

    from qmodel.files import Document

__all__ = ["CatalogFileError", "check_constants", "check_entry", "check_references", "entry_id", "unsourced_numbers"]

_NOT_FACTS = ("schema_version", "schema")
_GENERIC_SOURCES = ("per-entry", "")


class CatalogFileError(CatalogError):
    """Catalog files that break their schema, with all problems found at once.

    Attributes:
        problems: what is wrong and where.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def entry_id(section: str, entry: Mapping[str, Any]) -> str:
    """The id of an entry: ``hf_id`` for models, ``id`` elsewhere, empty where it has none."""
    found = entry.get("hf_id" if section == "models" else "id")
    return found if isinstance(found, str) else ""


def check_entry(section: str, entry: Mapping[str, Any], document: Document, key: str) -> list[Problem]:
    """Problems of one entry of a section that has a schema.

    Args:
        section: name of the section, such as ``gpus``.
        entry: the entry; for one merged over a shipped entry, the result.
        document: the file it stands in.
        key: where in that file.
    """
    from qmodel.catalog.entries import ENTRIES

    return _validate(ENTRIES[section], entry, document, key)


def check_constants(data: Mapping[str, Any], document: Document, key: str) -> list[Problem]:
    """Problems of the step-time constants; same arguments as :func:`check_entry`."""
    from qmodel.catalog.entries import CONSTANTS

    return _validate(CONSTANTS, data, document, key)


def unsourced_numbers(node: Any, key: str = "") -> Iterator[str]:
    """Keys of the numbers in ``node`` that no mapping around them gives a source and a date.

    Example:
        >>> list(unsourced_numbers({"rows": [{"usd": 3, "source": "x", "as_of": "2026"}, {"usd": 4}]}))
        ['rows[1].usd']
    """
    if isinstance(node, Mapping):
        # the head of a file says how it was put together, not where one number comes from
        if key and node.get("as_of") and node.get("source", "") not in _GENERIC_SOURCES:
            return
        for name, value in node.items():
            if key or name not in _NOT_FACTS:
                yield from unsourced_numbers(value, join_key(key, name))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from unsourced_numbers(value, join_key(key, index))
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield key


def check_references(sections: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Names that entries use and the catalog does not have.

    Returns:
        (section, id of the entry or index of the row, key inside it, what is wrong) for each.
    """
    found: list[tuple[str, str, str, str]] = []

    def expect(place: tuple[str, str, str], target: str, name: str) -> None:
        known = sections.get(target, {})
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            found.append((*place, f"no entry {name!r} in {target}{hint}"))

    for node_id, node in sections["nodes"].items():
        expect(("nodes", node_id, "gpu"), "gpus", node["gpu"])
        expect(("nodes", node_id, "scale_up_domain"), "scale_up_domains", node["scale_up_domain"])
        for index, nic in enumerate(node.get("nics") or ()):
            if nic["fabric"] is not None:
                expect(("nodes", node_id, f"nics[{index}].fabric"), "scale_out", nic["fabric"])
    for index, row in enumerate(sections["gpu_hour"]):
        expect(("gpu_hour", str(index), "gpu"), "gpus", row["gpu"])
    constants = sections["constants"]
    for name, spec in constants["gpus"].items():
        if spec["constants_row"] not in constants["gpu_defaults"]:
            what = f"no row {spec['constants_row']!r} in gpu_defaults"
            found.append(("constants", name, f"gpus.{name}.constants_row", what))
    return found


def _validate(model: type[BaseModel], data: Mapping[str, Any], document: Document, key: str) -> list[Problem]:
    from pydantic import ValidationError

    try:
        model.model_validate(dict(data))
    except ValidationError as error:
        return _merge_alternatives(_problem(item, model, document, key) for item in error.errors())
    return []


def _problem(item: Mapping[str, Any], model: type[BaseModel], document: Document, key: str) -> Problem:
    where = key
    *parents, last = item["loc"]
    for segment in parents:
        if isinstance(segment, int) or not _is_branch(segment):
            where = join_key(where, segment)
    kind, given = item["type"], item.get("input")
    if kind == "missing":
        why = "; a number without a source and a date does not land" if last in ("source", "as_of") else ""
        return document.problem(where, f"{last!r} is missing{why}")
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(str(last), _keys(model, parents), n=1)
        return document.problem(
            join_key(where, last), f"unknown key {last!r}", f"did you mean {near[0]!r}?" if near else ""
        )
    if isinstance(last, int) or not _is_branch(last):
        where = join_key(where, last)
    text = re.sub(r"^Value error, ", "", item["msg"])
    text = re.sub(r"^Input should be ", "must be ", text)
    if kind == "string_pattern_mismatch" and last == "as_of":
        text = "must be a date: YYYY, YYYY-MM or YYYY-MM-DD"
    return document.problem(where, f"{text} (got {given!r})")


def _is_branch(segment: str) -> bool:
    """Whether pydantic put the name of a union's branch, not a key, into the location."""
    return bool(re.search(r"[\[\]()]", segment)) or segment in ("str", "int", "float", "bool")


def _merge_alternatives(problems: Iterable[Problem]) -> list[Problem]:
    """One problem per key: a value that fits no branch of a union is one mistake."""
    kept: dict[tuple[str, str], Problem] = {}
    for problem in problems:
        about = problem.what if "missing" in problem.what else ""
        kept.setdefault((problem.key, about), problem)
    return list(kept.values())


def _keys(model: type[BaseModel], parents: list[str | int]) -> list[str]:
    """Keys that the model at ``parents`` knows, for a suggestion."""
    from pydantic import BaseModel

    current: Any = model
    for segment in parents:
        if not isinstance(segment, str) or not hasattr(current, "model_fields"):
            continue
        annotation = current.model_fields[segment].annotation if segment in current.model_fields else None
        nested = [part for part in _parts(annotation) if isinstance(part, type) and issubclass(part, BaseModel)]
        if nested:
            current = nested[0]
    return list(current.model_fields)


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from _parts(part)
