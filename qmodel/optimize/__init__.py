"""The integer program: formulation, solvers, bound, diagnosis of infeasibility; a fleet on hosts."""

from qmodel.optimize.choice import Choice, ShadowPrice, choose
from qmodel.optimize.fleet_hosting import FleetPlacement, HostShare, PlacedReplica, place_fleet
from qmodel.optimize.infeasibility import diagnose
from qmodel.optimize.limit_diagnosis import Diagnosis
from qmodel.optimize.open_pools import OpenChoice
from qmodel.optimize.programs import Program, ProgramBuilder
from qmodel.optimize.served import Served, most_served
from qmodel.optimize.solvers import SolverOptions, check_solver, solved_point

__all__ = [
    "Choice",
    "Diagnosis",
    "FleetPlacement",
    "HostShare",
    "OpenChoice",
    "PlacedReplica",
    "Program",
    "ProgramBuilder",
    "Served",
    "ShadowPrice",
    "SolverOptions",
    "check_solver",
    "choose",
    "diagnose",
    "most_served",
    "solved_point",
    "place_fleet",
]
