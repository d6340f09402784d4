"""Plans: make, verify, explain, save and load them."""

from qmodel.planning.checking import Growth, PlanCheck, checked_plan
from qmodel.planning.planner import plan_instance
from qmodel.planning.plans import Alternative, Plan, PriceRow, Why
from qmodel.planning.progress import Cancel, OnProgress, Progress
from qmodel.planning.storage import is_saved_plan, load_plan
from qmodel.planning.verification import Check, Verification, verify

__all__ = [
    "Alternative",
    "Cancel",
    "Check",
    "Growth",
    "OnProgress",
    "Plan",
    "PlanCheck",
    "PriceRow",
    "Progress",
    "Verification",
    "Why",
    "checked_plan",
    "is_saved_plan",
    "load_plan",
    "plan_instance",
    "verify",
]
