"""Every example that a reader may copy runs: docstrings, README blocks, docs blocks."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import qmodel

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
MODULES = sorted(module.name for module in pkgutil.walk_packages(qmodel.__path__, "qmodel."))


def blocks(language: str) -> list[tuple[str, str]]:
    """(page, body) of every fenced block in a language."""
    return [
        (str(page.relative_to(ROOT)), match["body"])
        for page in PAGES
        for match in BLOCK.finditer(page.read_text(encoding="utf-8"))
        if match["info"].strip() == language
    ]


def commands() -> list[tuple[str, str]]:
    """(page, command) of every line that calls qmodel in a shell block."""
    return [
        (page, line.strip())
        for page, body in blocks("sh")
        for line in body.replace("\\\n", " ").splitlines()
        if line.strip().startswith("qmodel ")
    ]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


@pytest.mark.parametrize(("page", "body"), blocks("python"))
def test_python_blocks_of_the_pages_run(page: str, body: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("scenarios", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    exec(compile(body, page, "exec"), {"__name__": "__page__"})


@pytest.mark.parametrize(("page", "line"), commands())
def test_commands_of_the_pages_run(page: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    command = line.split("  #")[0].strip()
    expected = 0
    if (stated := re.search(r"# exits with (\d)", line)) is not None:
        expected = int(stated[1])
    done = subprocess.run(
        [sys.executable, "-m", "qmodel.cli.main", *shlex.split(command)[1:]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == expected, f"{page}: {command}\n{done.stderr}"
