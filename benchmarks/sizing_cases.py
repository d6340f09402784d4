"""Documented sizing and deployment cases against what the package answers.

    python benchmarks/sizing_cases.py CASES_DIR            one line per property that does not hold or is not covered
    python benchmarks/sizing_cases.py CASES_DIR --all      every property

CASES_DIR holds ``cases.yaml``: cases with ``id`` and ``theme``. The checks are in the modules beside it, by id; a case
agrees where all of its covered properties hold.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from pathlib import Path

import sizing_layout_cases
import sizing_load_cases
import sizing_memory_cases
import sizing_practice_cases
from ruamel.yaml import YAML
from sizing_checks import CASES, Check

__all__ = ["main"]


def main() -> None:
    """Print which cases agree, and why the others do not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="CASES_DIR")
    parser.add_argument("--all", action="store_true", help="print every property")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    listed = YAML(typ="safe").load((options.folder / "cases.yaml").read_text(encoding="utf-8"))["cases"]
    found: Counter[str] = Counter()
    by_theme: dict[str, Counter[str]] = {}
    for entry in listed:
        checks = CASES[entry["id"]]() if entry["id"] in CASES else []
        verdict = _verdict(checks)
        found[verdict] += 1
        by_theme.setdefault(entry["theme"], Counter())[verdict] += 1
        print(f"{entry['id']}  {verdict:11s} {entry['theme']}")
        for check in checks:
            if options.all or not check.holds:
                print(f"       {_mark(check)} {check.expected}" + (f": {check.got}" if check.got else ""))
    print()
    for theme, counts in by_theme.items():
        print(f"{theme:18s} " + ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    print(f"{'all':18s} " + ", ".join(f"{count} {verdict}" for verdict, count in sorted(found.items())))


def _verdict(checks: list[Check]) -> str:
    covered = [check for check in checks if check.holds is not None]
    if not covered:
        return "not covered"
    if not all(check.holds for check in covered):
        return "differs"
    return "agrees" if len(covered) == len(checks) else "agrees*"


def _mark(check: Check) -> str:
    return "-" if check.holds is None else "ok" if check.holds else "NO"


_ = (
    sizing_layout_cases,
    sizing_load_cases,
    sizing_memory_cases,
    sizing_practice_cases,
)  # imported for their registrations

if __name__ == "__main__":
    main()
