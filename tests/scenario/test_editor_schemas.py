"""JSON Schemas for editors."""

from __future__ import annotations

import re
from typing import Any

from qmodel.scenario import fleet_json_schema, scenario_json_schema


def undescribed(schema: Any, path: str = "") -> list[str]:
    """Paths of properties without a description, their own or that of the part they refer to."""
    missing = []
    if isinstance(schema, dict):
        for name, part in schema.get("properties", {}).items():
            if "description" not in part and "$ref" not in part:
                missing.append(f"{path}.{name}")
        for name, part in schema.items():
            missing += undescribed(part, f"{path}.{name}")
    return missing


def test_every_key_has_a_description():
    assert undescribed(scenario_json_schema()) == []
    assert all("description" in part for part in scenario_json_schema()["$defs"].values())
    assert undescribed(fleet_json_schema()) == []


def test_the_dialect_is_2020_12_and_unknown_keys_are_refused():
    for schema in (scenario_json_schema(), fleet_json_schema()):
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert schema["additionalProperties"] is False
        assert all(part.get("additionalProperties") is False for part in schema["$defs"].values())


def test_references_lead_somewhere():
    for schema in (scenario_json_schema(), fleet_json_schema()):
        for name in re.findall(r"'#/\$defs/(\w+)'", str(schema)):
            assert name in schema["$defs"]


def test_a_gpu_may_be_left_empty_and_a_file_may_extend_another():
    schema = scenario_json_schema()
    gpus = schema["$defs"]["FleetSpec"]["properties"]["gpus"]
    assert {"type": "null"} in gpus["additionalProperties"]["anyOf"]
    assert {"required": ["extends"]} in schema["anyOf"]
    assert "class" in schema["$defs"]["TraceSpec"]["properties"]


def test_targets_are_checked_by_pattern():
    pattern = scenario_json_schema()["$defs"]["ClassSpec"]["properties"]["slo"]["propertyNames"]["pattern"]
    assert re.match(pattern, "ttft_p99.9_s") and re.match(pattern, "answer_start_mean_s")
    assert not re.match(pattern, "ttft_p95_ms") and not re.match(pattern, "latency_p95_s")
