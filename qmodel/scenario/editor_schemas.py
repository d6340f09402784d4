"""JSON Schemas that let an editor complete and check scenario and fleet files."""

from __future__ import annotations

from typing import Any

from qmodel.scenario.fleet_files import FleetFile
from qmodel.scenario.schema import Scenario

__all__ = ["fleet_json_schema", "scenario_json_schema"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NAMES = {"pattern": "^[A-Za-z0-9_][A-Za-z0-9_-]*$"}
_TARGETS = {"pattern": "^(abandoned_share|(ttft|answer_start|tpot|completion)_(mean|p[0-9]{1,2}(\\.[0-9])?)_s)$"}
_EXTENDS = {
    "description": "File, or list of files, that this one is laid over; later files over earlier ones.",
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
}


def scenario_json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a scenario file.

    It knows the keys, their types and ranges; what keys mean together is checked when the file is read.

    Example:
        >>> scenario_json_schema()["properties"]["classes"]["description"]
        'Request classes by name.'
    """
    schema = Scenario.model_json_schema()
    parts = schema["$defs"]
    required = schema.pop("required")
    schema["properties"] = {"qmodel": schema["properties"].pop("qmodel"), "extends": _EXTENDS, **schema["properties"]}
    schema["anyOf"] = [{"required": required}, {"required": ["extends"]}]
    for name in ("classes", "variants", "comparisons"):
        schema["properties"][name]["propertyNames"] = _NAMES
    for name in ("ClassSpec", "ModelTierSpec"):
        parts[name]["properties"]["slo"]["propertyNames"] = _TARGETS
    gpus = parts["FleetSpec"]["properties"]["gpus"]
    gpus["propertyNames"] = _NAMES
    gpus["additionalProperties"] = {"anyOf": [gpus["additionalProperties"], {"type": "null"}]}
    # A file that extends another may state part of a section only.
    for name in ("ClassSpec", "FleetSpec"):
        parts[name].pop("required", None)
    return {"$schema": _DIALECT, **schema, "title": "qmodel scenario"}


def fleet_json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a fleet file.

    Example:
        >>> sorted(fleet_json_schema()["required"])
        ['pools', 'qmodel', 'routing']
    """
    schema = FleetFile.model_json_schema()
    for name in ("pools", "routing"):
        schema["properties"][name]["propertyNames"] = _NAMES
    return {"$schema": _DIALECT, **schema, "title": "qmodel fleet"}
