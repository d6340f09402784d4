"""Releases of engines: their numbers, and those that the step-time constants were fitted on."""

from __future__ import annotations

import math
from collections.abc import Mapping

from qmodel.types.layouts import Engine

__all__ = ["release_numbers", "unfitted_release"]

# By family of constants: first and last release with rows in the fit, as its file states them.
FITTED_RELEASES: Mapping[str, tuple[tuple[float, ...], tuple[float, ...], str]] = {
    "vLLM": ((0, 11), (0, 13), "0.11 to 0.13"),
    "SGLang": ((0, 5), (0, 5), "0.5"),
    "TRT": ((0, 17), (math.inf,), "0.17 and later"),
}


def release_numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a release, of the last one of a range; empty where there are none.

    Example:
        >>> [release_numbers(version) for version in ("v0.11.2", "0.8 to 0.11", "1.x (PyTorch backend)", "nightly")]
        [(0, 11), (0, 11), (1,), ()]
    """
    numbers: list[int] = []
    for part in version.rpartition(" to ")[2].strip().lstrip("v").split(".")[:2]:
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def unfitted_release(engine: Engine) -> str:
    """What to call a release that no fitted row has, empty where it has one or is not stated.

    Example:
        >>> from qmodel.types import Engine
        >>> unfitted_release(Engine(version="0.33.0")), unfitted_release(Engine(version="0.12.1"))
        ('release 0.33.0 of vllm', '')
    """
    asked, known = release_numbers(engine.version), FITTED_RELEASES.get(engine.constants)
    if not asked or known is None or known[0] <= asked <= known[1]:
        return ""
    return f"release {engine.version} of {engine.name}"
