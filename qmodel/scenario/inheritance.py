"""Scenario sources read into one layer: the file over the files it extends."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from qmodel.errors import Problem, ScenarioError
from qmodel.files import Document, join_key, read_json, read_yaml, read_yaml_text
from qmodel.scenario.layering import Layered, layer_of, merge_layers

__all__ = ["DICT_NAME", "TEXT_NAME", "FileSource", "plain_data", "read_document", "source_name", "stack_files"]

DICT_NAME = "<dict>"
TEXT_NAME = "<text>"
_MAX_DEPTH = 100

FileSource = str | os.PathLike[str] | Mapping[str, Any]
Chain = tuple[tuple[str, str], ...]  # (real path, name) of the files that led here


def source_name(source: FileSource) -> str:
    """What messages call a source: the path as given, ``<dict>`` or ``<text>``."""
    if isinstance(source, Mapping):
        return DICT_NAME
    name = os.fspath(source)
    return TEXT_NAME if "\n" in name else name


def read_document(source: FileSource) -> Document:
    """A path, YAML text (a str with a line break) or a dict as a document.

    Raises:
        ScenarioError: the source cannot be read or is not plain data.
    """
    if isinstance(source, Mapping):
        return Document(data=plain_data(source, DICT_NAME, ""), file=DICT_NAME, positions={})
    if isinstance(source, str) and "\n" in source:
        return read_yaml_text(source, TEXT_NAME)
    name = os.fspath(source)
    return read_json(name) if name.lower().endswith(".json") else read_yaml(name)


def plain_data(value: Any, file: str, key: str, depth: int = 0) -> Any:
    """A copy made of dict, list and scalars; tuples become lists, numpy scalars numbers.

    Raises:
        ScenarioError: a key is not text, or the data is nested too deeply.
    """
    if depth > _MAX_DEPTH:
        raise ScenarioError([Problem(what=f"is nested more than {_MAX_DEPTH} levels deep", key=key, file=file)])
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise ScenarioError([Problem(what=f"keys must be text (got {name!r})", key=key, file=file)])
        return {str(name): plain_data(item, file, join_key(key, str(name)), depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(item, file, join_key(key, index), depth + 1) for index, item in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "ndim", None) == 0 else value


def stack_files(document: Document, folder: str) -> tuple[Layered, list[Problem]]:
    """The document over everything it extends, later files of a list over earlier ones.

    Args:
        document: the file that was asked for.
        folder: where its relative paths start.

    Returns:
        The merged layers, and what kept files from being read.
    """
    problems: list[Problem] = []
    start = (os.path.realpath(document.file), document.file)
    return _stack(document, folder, (start,), problems), problems


def _stack(document: Document, folder: str, chain: Chain, problems: list[Problem]) -> Layered:
    below = Layered()
    for key, reference in _references(document, problems):
        path = os.path.normpath(Path(folder) / reference)
        real = os.path.realpath(path)
        if real in {known for known, _ in chain}:
            circle = " > ".join(name for _, name in (*chain, (real, path)))
            problems.append(document.problem(key, f"extends itself: {circle}", "take one link out"))
        elif not Path(path).exists():
            problems.append(document.problem(key, f"no such file {path!r}"))
        else:
            try:
                parent = read_document(Path(path))
            except ScenarioError as error:
                problems.extend(error.problems)
            else:
                layer = _stack(parent, str(Path(path).parent), (*chain, (real, path)), problems)
                below = merge_layers(below, layer)
    own = {key: value for key, value in document.data.items() if key != "extends"}
    return merge_layers(below, layer_of(Document(data=own, file=document.file, positions=document.positions)))


def _references(document: Document, problems: list[Problem]) -> Iterator[tuple[str, str]]:
    stated = document.data.get("extends")
    if stated is None:
        return
    entries = (
        [(join_key("extends", index), item) for index, item in enumerate(stated)]
        if isinstance(stated, list)
        else [("extends", stated)]
    )
    for key, item in entries:
        if isinstance(item, str) and item.strip() and "\0" not in item:
            yield key, item
        else:
            problems.append(document.problem(key, f"must be a file name or a list of them (got {item!r})"))
