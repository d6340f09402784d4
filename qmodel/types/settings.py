"""Engine settings of a pool in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["settings_text"]


def settings_text(settings: Mapping[str, Any]) -> str:
    """Engine settings that a pool states, for people, in the same order whoever states them.

    Args:
        settings: by key of an engine section; ``speculative`` is a mapping.

    Example:
        >>> settings_text({"max_num_seqs": 64, "kv_dtype": "fp8"})
        'kv_dtype fp8, max_num_seqs 64'
        >>> settings_text({"speculative": {"draft": "mtp", "tokens": 3, "acceptance": 0.8}})
        'speculative mtp 3 at 0.8'
    """
    return ", ".join(f"{name} {_value_text(settings[name])}" for name in sorted(settings))


def _value_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{value['draft']} {value['tokens']} at {value['acceptance']:g}"
    return f"{value:g}" if isinstance(value, float) else str(value)
