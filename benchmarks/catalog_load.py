"""Prints what loading the catalog costs: a fresh process, a warm one, and compiling from the YAML files.

Run: python benchmarks/catalog_load.py
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_FRESH = """
import time
import qmodel.types
start = time.perf_counter()
import qmodel.catalog.store
imported = time.perf_counter()
catalog = qmodel.catalog.store.load_catalog()
loaded = time.perf_counter()
catalog.model("deepseek-r1"), catalog.gpu("h200-sxm"), catalog.default_node("h200-sxm"), catalog.price("h200-sxm")
print(imported - start, loaded - imported, time.perf_counter() - loaded)
"""
_RUNS = 15


def main() -> None:
    from qmodel.catalog.compilation import DATA, compile_files, compiled_sections

    compiled_sections()
    runs = [[float(part) for part in _fresh().split()] for _ in range(_RUNS)]
    for name, values in zip(("import", "load_catalog()", "four look-ups"), zip(*runs, strict=True), strict=True):
        print(f"{name:38} median {1e3 * statistics.median(values):7.2f} ms   max {1e3 * max(values):7.2f} ms")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for path in [*DATA.glob("*.yaml"), DATA / "compiled.json"]:
            shutil.copy(path, copy)  # new times of change, as in an installed wheel
        print(f"{'load where times differ, content not':38} median {1e3 * _median(compiled_sections, copy):7.2f} ms")
    print(f"{'compile from YAML':38} once   {1e3 * _seconds(compile_files, DATA):7.0f} ms")


def _fresh() -> str:
    return subprocess.run([sys.executable, "-c", _FRESH], check=True, capture_output=True, text=True).stdout


def _seconds(call: object, argument: Path) -> float:
    assert callable(call)
    start = time.perf_counter()
    call(argument)
    return time.perf_counter() - start


def _median(call: object, argument: Path) -> float:
    return statistics.median(_seconds(call, argument) for _ in range(_RUNS))


if __name__ == "__main__":
    main()
