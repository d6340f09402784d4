"""The integer program: formulation, solvers, bound, diagnosis of infeasibility."""

from qmodel.optimize.choice import Choice, ShadowPrice, choose
from qmodel.optimize.infeasibility import Diagnosis, diagnose
from qmodel.optimize.solvers import SolverOptions, check_solver

__all__ = ["Choice", "Diagnosis", "ShadowPrice", "SolverOptions", "check_solver", "choose", "diagnose"]
