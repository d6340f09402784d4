"""A scenario bound to catalog, traces, prices and profiles: typed classes and pool options."""

from qmodel.problem.arrivals import arrival_processes
from qmodel.problem.binding import bind, name_problems, price_of
from qmodel.problem.fleet_files import fleet_from_file
from qmodel.problem.fleet_limits import with_running
from qmodel.problem.instances import Confidence, GpuOption, Instance, LayoutRules, Objective, Policy, Price, Profile
from qmodel.problem.names import unknown_names
from qmodel.problem.replicas import at_confidence, reference_lengths, replica_of, with_engine

__all__ = [
    "Confidence",
    "GpuOption",
    "Instance",
    "LayoutRules",
    "Objective",
    "Policy",
    "Price",
    "Profile",
    "arrival_processes",
    "at_confidence",
    "bind",
    "fleet_from_file",
    "name_problems",
    "price_of",
    "reference_lengths",
    "replica_of",
    "unknown_names",
    "with_engine",
    "with_running",
]
