"""The order of the rooms, and what importing them costs and shadows."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import qmodel

ROOT = Path(qmodel.__file__).parent
GROUPS = (  # from right to left: a room may import rooms of the groups above its own line, and itself
    ("units", "errors"),
    ("types",),
    ("files",),
    ("catalog", "scenario", "trace"),
    ("topology", "workload"),
    ("perf", "queueing"),
    ("problem",),
    ("evaluation",),
    ("candidates",),
    ("optimize", "simulation", "calibration"),
    ("planning",),
    ("sweeps", "report", "exporters"),
    ("comparison", "batch"),
    ("cli", "service"),
)
LEVEL = {room: level for level, rooms in enumerate(GROUPS) for room in rooms}
TOP_USERS = ("cli", "service")  # only these may use the package's own public names
PURE_ROOMS = ("perf", "queueing", "workload", "topology")
IMPURE = ("pandas", "ruamel", "pulp", "highspy", "cvxpy", "logging", "subprocess", "typer", "rich")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


@cache
def imported(module: str) -> frozenset[str]:
    """Modules that ``module`` imports anywhere, inside functions and for type checkers too."""
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return frozenset(_imported(ast.parse(path.read_text(encoding="utf-8")), package))


def _imported(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            for name in node.names:
                inner = f"{source}.{name.name}"
                yield inner if inner in MODULES else source


def test_every_room_has_its_place_in_the_order() -> None:
    rooms = {room_of(module) for module in MODULES} - {"", "__main__"}
    assert rooms <= LEVEL.keys()


@pytest.mark.parametrize("module", [module for module in MODULES if room_of(module) not in ("", "__main__")])
def test_a_room_imports_only_rooms_to_its_right(module: str) -> None:
    room = room_of(module)
    for other in imported(module):
        if other == "qmodel":
            assert room in TOP_USERS, f"{module} imports the package's public names"
        elif other.startswith("qmodel."):
            target = room_of(other)
            assert target == room or LEVEL[target] < LEVEL[room], f"{module} imports {other}"


@pytest.mark.parametrize("module", [module for module in MODULES if room_of(module) in PURE_ROOMS])
def test_pure_rooms_know_no_files_tables_solvers_or_logs(module: str) -> None:
    found = {other.split(".")[0] for other in imported(module)} & set(IMPURE)
    assert not found, f"{module} imports {found}"
    rooms = {room_of(other) for other in imported(module)} & {"files", "scenario"}
    assert not rooms, f"{module} imports {rooms}"


def test_verification_never_reaches_the_optimizer() -> None:
    """Directly or through other modules of planning."""
    seen: set[str] = set()
    waiting = [module for module in MODULES if module.startswith("qmodel.planning.verif")]
    assert waiting
    while waiting:
        module = waiting.pop()
        seen.add(module)
        assert room_of(module) != "optimize"
        for other in imported(module):
            assert room_of(other) != "optimize", f"{module} imports {other}"
            if other in MODULES and room_of(other) == "planning" and other not in seen and other != "qmodel.planning":
                waiting.append(other)


@cache
def everything() -> dict[str, ModuleType]:
    return {module: import_module(module) for module in MODULES}


def test_every_module_can_be_imported() -> None:
    assert everything().keys() == MODULES.keys()


def functions_of(module: ModuleType) -> set[str]:
    things = {name: getattr(module, name) for name in getattr(module, "__all__", ())}
    return {name for name, thing in things.items() if isinstance(thing, FunctionType)}


def test_no_module_anywhere_has_the_name_of_a_function_of_the_package() -> None:
    everything()
    last_names = {module.rpartition(".")[2] for module in MODULES}
    assert not functions_of(qmodel) & last_names


@pytest.mark.parametrize("module", [module for module in MODULES if module != "qmodel.cli.main"])
def test_no_module_has_the_name_of_a_function_beside_it(module: str) -> None:
    """The entry point ``qmodel.cli.main:main`` apart, which nothing imports by its package."""
    is_package = MODULES[module].name == "__init__.py"
    package = module if is_package else module.rpartition(".")[0]
    for name in functions_of(everything()[module]):
        assert f"{package}.{name}" not in MODULES, f"{module} exports {name}"


@pytest.mark.parametrize("name", [name for name in qmodel.__all__ if name not in ("perf", "queueing", "workload")])
def test_a_public_name_is_still_callable_after_every_module_was_imported(name: str) -> None:
    for _ in range(2):
        everything()
        assert callable(getattr(qmodel, name)), f"qmodel.{name} is a module"


def test_every_public_name_is_listed_and_resolves() -> None:
    for module in everything().values():
        for name in getattr(module, "__all__", ()):
            assert hasattr(module, name), f"{module.__name__}.{name}"
    assert set(qmodel.__all__) <= set(dir(qmodel))


def modules_after(statement: str) -> set[str]:
    """Top-level modules in memory after one statement in a fresh process."""
    code = f"{statement}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return {name.split(".")[0] for name in json.loads(output)}


def test_importing_qmodel_imports_no_library() -> None:
    assert not modules_after("import qmodel") & {"numpy", "scipy", "pandas", "pydantic", "pulp", "typer", "rich"}


def test_the_command_starts_without_the_numerical_libraries() -> None:
    heavy = {"numpy", "scipy", "pandas", "pydantic", "pulp", "highspy", "cvxpy", "networkx", "ruamel"}
    assert not modules_after("import qmodel.cli.main") & heavy
