"""The integer program: formulation, solvers, bound, diagnosis of infeasibility; a fleet on hosts."""

from qmodel.optimize.base_programs import least_risk_base
from qmodel.optimize.chosen_pools import Choice, Outcome, ShadowPrice
from qmodel.optimize.fleet_hosting import FleetPlacement, HostShare, PlacedReplica, place_fleet
from qmodel.optimize.fleet_wide import WideChoice, WidePool, choose_fleet_wide
from qmodel.optimize.infeasibility import diagnose
from qmodel.optimize.limit_diagnosis import Diagnosis
from qmodel.optimize.open_pools import OpenChoice, balanced
from qmodel.optimize.period_pools import PeriodPools
from qmodel.optimize.period_programs import ChangingFleet, Frame, OneFleet
from qmodel.optimize.programs import Program, ProgramBuilder
from qmodel.optimize.separate_choices import choose
from qmodel.optimize.served import Served, most_served
from qmodel.optimize.solvers import SolverOptions, cancelled, check_solver, solve_integer, solved_point, stopped_by
from qmodel.optimize.target_keys import target_key

__all__ = [
    "ChangingFleet",
    "Choice",
    "Diagnosis",
    "FleetPlacement",
    "Frame",
    "HostShare",
    "OneFleet",
    "OpenChoice",
    "Outcome",
    "PeriodPools",
    "PlacedReplica",
    "Program",
    "ProgramBuilder",
    "Served",
    "ShadowPrice",
    "SolverOptions",
    "WideChoice",
    "WidePool",
    "balanced",
    "cancelled",
    "check_solver",
    "choose",
    "choose_fleet_wide",
    "diagnose",
    "least_risk_base",
    "most_served",
    "place_fleet",
    "solve_integer",
    "solved_point",
    "stopped_by",
    "target_key",
]
