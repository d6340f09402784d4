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


def commands(page: str) -> list[str]:
    """The lines of a page's shell blocks that call qmodel, in order."""
    return [
        line.strip()
        for found, body in blocks("sh")
        if found == page
        for line in body.replace("\\\n", " ").splitlines()
        if line.strip().startswith("qmodel ")
    ]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one qmodel command as a reader would, in a folder that has the scenarios."""
    words = shlex.split(command, comments=True)[1:]
    return subprocess.run(
        [sys.executable, "-m", "qmodel", *words], cwd=folder, capture_output=True, text=True, check=False
    )


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
    if body.lstrip().startswith(">>>"):
        session = doctest.DocTestParser().get_doctest(body, {}, page, page, 0)
        assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(session).failed == 0
    else:
        exec(compile(body, page, "exec"), {"__name__": "__page__"})


@pytest.mark.parametrize("page", sorted({page for page, _ in blocks("sh")}))
def test_commands_of_the_pages_run_in_order(page: str, tmp_path: Path) -> None:
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    assert commands(page)
    for line in commands(page):
        stated = re.search(r"# exits with (\d)", line)
        done = run(line, tmp_path)
        assert done.returncode == (int(stated[1]) if stated else 0), f"{page}: {line}\n{done.stderr}"


def test_the_plan_that_the_readme_prints_is_the_plan_of_today(tmp_path: Path) -> None:
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    (printed,) = [body for page, body in blocks("text") if page == "README.md"]
    assert run("qmodel plan scenarios/10-quickstart.yaml", tmp_path).stdout.rstrip() == printed.rstrip()
