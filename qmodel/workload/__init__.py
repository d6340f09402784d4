"""Length laws (declared, fitted or from traces), arrival processes and burstiness. Numbers and records only."""

from qmodel.workload.arrival_processes import (
    ArrivalProcess,
    Batches,
    GammaRenewal,
    HyperexponentialRenewal,
    Poisson,
    Regular,
    TwoRates,
)
from qmodel.workload.burstiness import (
    Burstiness,
    autocorrelation,
    dispersion_index,
    interarrival_scv,
    measure_burstiness,
    peak_to_mean,
    peakedness,
    peakedness_of_law,
)
from qmodel.workload.families import (
    gamma_law,
    lognormal_law,
    mixture_law,
    normal_law,
    quantile_law,
)
from qmodel.workload.fitting import FittedLaw, LengthFit, TraceFit, fit, fit_law, fit_lengths
from qmodel.workload.joint import combine_reasoning, lengths_from_arrays
from qmodel.workload.specs import AtCap, length_law
from qmodel.workload.summaries import LengthSummary, TraceSummary, summarise_law, summarise_trace

__all__ = [
    "ArrivalProcess",
    "AtCap",
    "Batches",
    "Burstiness",
    "FittedLaw",
    "GammaRenewal",
    "HyperexponentialRenewal",
    "LengthFit",
    "LengthSummary",
    "Poisson",
    "Regular",
    "TraceFit",
    "TraceSummary",
    "TwoRates",
    "autocorrelation",
    "combine_reasoning",
    "dispersion_index",
    "fit",
    "fit_law",
    "fit_lengths",
    "gamma_law",
    "interarrival_scv",
    "length_law",
    "lengths_from_arrays",
    "lognormal_law",
    "measure_burstiness",
    "mixture_law",
    "normal_law",
    "peak_to_mean",
    "peakedness",
    "peakedness_of_law",
    "quantile_law",
    "summarise_law",
    "summarise_trace",
]
