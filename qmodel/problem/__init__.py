"""A scenario bound to catalog, traces, prices and profiles: typed classes and pool options."""

from qmodel.problem.aic_steps import aic_missing
from qmodel.problem.arrivals import arrival_processes
from qmodel.problem.binding import bind, name_problems, price_of
from qmodel.problem.engine_settings import engine_of, fully_stated, profile_for, settings_of, with_engine
from qmodel.problem.fleet_files import fleet_from_file
from qmodel.problem.fleet_limits import with_running
from qmodel.problem.instances import Confidence, GpuOption, Instance, LayoutRules, Objective, Policy, Price, Profile
from qmodel.problem.names import unknown_names
from qmodel.problem.replicas import at_confidence, reference_lengths, replica_of

__all__ = [
    "Confidence",
    "GpuOption",
    "Instance",
    "LayoutRules",
    "Objective",
    "Policy",
    "Price",
    "Profile",
    "aic_missing",
    "arrival_processes",
    "at_confidence",
    "bind",
    "engine_of",
    "fleet_from_file",
    "fully_stated",
    "name_problems",
    "price_of",
    "profile_for",
    "reference_lengths",
    "replica_of",
    "settings_of",
    "unknown_names",
    "with_engine",
    "with_running",
]
