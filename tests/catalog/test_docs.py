"""The blocks of the catalog's page run."""

from __future__ import annotations

import re
from pathlib import Path

from qmodel.catalog import load_catalog

PAGE = (Path(__file__).parents[2] / "docs" / "catalog.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_python_blocks_run() -> None:
    blocks = _blocks("python")
    assert blocks
    for block in blocks:
        exec(block, {})


def test_the_example_file_loads(tmp_path: Path) -> None:
    (block,) = _blocks("yaml")
    path = tmp_path / "own.yaml"
    path.write_text(block)
    catalog = load_catalog(path)
    assert catalog.gpu("X-One").name == "x1"
    assert catalog.default_node("x1").name == "x1-node"
    assert catalog.model("chat-8b").hf_id == "ours/Chat-8B"
