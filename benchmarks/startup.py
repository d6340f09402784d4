"""How long a user waits: ``qmodel --help`` and a whole plan of the quickstart, imports included.

Run from the checkout: ``python benchmarks/startup.py``. Prints the least and the median of five fresh processes.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

RUNS = 5
ROOT = Path(__file__).resolve().parent.parent
COMMANDS = {
    "import qmodel": ["-c", "import qmodel"],
    "qmodel --help": ["-m", "qmodel", "--help"],
    "qmodel catalog gpus": ["-m", "qmodel", "catalog", "gpus"],
    "qmodel validate scenarios/10-quickstart.yaml": ["-m", "qmodel", "validate", "scenarios/10-quickstart.yaml"],
    "qmodel plan scenarios/10-quickstart.yaml": ["-m", "qmodel", "plan", "scenarios/10-quickstart.yaml"],
}


def main() -> None:
    """Print one line per command."""
    print(f"{'command':<46}{'min s':>8}{'median s':>10}")
    for name, words in COMMANDS.items():
        times = [_seconds(words) for _ in range(RUNS)]
        print(f"{name:<46}{min(times):>8.2f}{statistics.median(times):>10.2f}")


def _seconds(words: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
