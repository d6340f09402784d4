"""Length laws of prompts and outputs: declared, fitted or taken from traces. Numbers and records only."""

from qmodel.workload.families import (
    gamma_law,
    lognormal_law,
    mixture_law,
    normal_law,
    quantile_law,
)
from qmodel.workload.fitting import FittedLaw, LengthFit, TraceFit, fit, fit_lengths
from qmodel.workload.joint import combine_reasoning, lengths_from_arrays
from qmodel.workload.specs import AtCap, length_law

__all__ = [
    "AtCap",
    "FittedLaw",
    "LengthFit",
    "TraceFit",
    "combine_reasoning",
    "fit",
    "fit_lengths",
    "gamma_law",
    "length_law",
    "lengths_from_arrays",
    "lognormal_law",
    "mixture_law",
    "normal_law",
    "quantile_law",
]
