"""Scenario and fleet files: their schema, the layers they are merged from, and what differs between two."""

from qmodel.scenario.arrival_section import Arrivals, PeakednessSpec, RateSwings
from qmodel.scenario.checking import Checked, check_scenario, read_scenario
from qmodel.scenario.class_section import ClassSpec, TraceSpec
from qmodel.scenario.differences import Difference, diff_scenarios
from qmodel.scenario.editor_schemas import fleet_json_schema, scenario_json_schema
from qmodel.scenario.engine_section import EngineSpec
from qmodel.scenario.fleet_files import CheckedFleet, FleetFile, PathSpec, PoolSpec, check_fleet, read_fleet
from qmodel.scenario.fleet_section import (
    FleetSpec,
    GpuSpec,
    LayoutSpec,
    LayoutsSpec,
    ProfileSpec,
    StepTable,
)
from qmodel.scenario.length_section import LengthSpec
from qmodel.scenario.objective_section import Objective
from qmodel.scenario.overriding import parse_set
from qmodel.scenario.price_section import OwnedSpec, PriceBook, PriceSpec, QuotaSpec, TierSpec
from qmodel.scenario.schema import PolicySpec, Scenario

__all__ = [
    "Arrivals",
    "Checked",
    "CheckedFleet",
    "ClassSpec",
    "Difference",
    "EngineSpec",
    "FleetFile",
    "FleetSpec",
    "GpuSpec",
    "LayoutSpec",
    "LayoutsSpec",
    "LengthSpec",
    "Objective",
    "OwnedSpec",
    "PathSpec",
    "PeakednessSpec",
    "PolicySpec",
    "PoolSpec",
    "PriceBook",
    "PriceSpec",
    "QuotaSpec",
    "TierSpec",
    "ProfileSpec",
    "RateSwings",
    "Scenario",
    "StepTable",
    "TraceSpec",
    "check_fleet",
    "check_scenario",
    "diff_scenarios",
    "fleet_json_schema",
    "parse_set",
    "read_fleet",
    "read_scenario",
    "scenario_json_schema",
]
