"""Plans for recorded traffic, with its burstiness and with Poisson arrivals, against a replay of the trace.

Prints the page docs/accuracy-traces.md, in minutes; run from the checkout:

    .venv/bin/python -m benchmarks.replayed_traces > docs/accuracy-traces.md

``--more FOLDER`` adds the traces of ServeGen's DeepSeek-R1 service, which do not ship, from the folder that has them.
Same input, same digits.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import qmodel as qm

ROOT = Path(__file__).parents[1]
STATS = (("ttft", "mean"), ("ttft", "p95"), ("ttft", "p99"), ("tpot", "mean"), ("tpot", "p95"), ("completion", "mean"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One trace with a model and GPUs that suit it."""

    name: str
    file: str
    model: str
    gpus: tuple[str, ...]
    slo: dict[str, float]
    rate_scale: float = 1.0

    def scenario(self, folder: Path, arrivals: str) -> dict[str, object]:
        """The scenario that plans for ``measured`` or ``poisson`` arrivals."""
        trace = {"file": str(folder / self.file), "rate_scale": self.rate_scale, "arrivals": arrivals}
        return {
            "qmodel": 1,
            "classes": {"requests": {"model": self.model, "trace": trace, "slo": self.slo}},
            "fleet": {"gpus": {gpu: {} for gpu in self.gpus}},
        }


SHIPPED = (
    Case(
        name="Azure conversation, 2023, at twice its rate",
        file="azure_2023_conv.csv.gz",
        model="llama-3.1-70b",
        gpus=("h100-sxm",),
        slo={"ttft_p95_s": 1.5, "tpot_p95_s": 0.05},
        rate_scale=2.0,
    ),
    Case(
        name="Azure code, 2023",
        file="azure_2023_code.csv.gz",
        model="llama-3.1-70b",
        gpus=("h100-sxm",),
        slo={"ttft_p95_s": 2.0, "tpot_p95_s": 0.1},
    ),
    Case(
        name="Mooncake conversation",
        file="mooncake_fast25_conversation.csv.gz",
        model="qwen3-30b-a3b",
        gpus=("h200-sxm",),
        slo={"ttft_p95_s": 6.0, "tpot_p95_s": 0.05},
    ),
)
MORE = (
    Case(
        name="DeepSeek-R1 service, 20 to 21 h (ServeGen, drawn from published fits)",
        file="servegen_deepseek_r1_2000_2100.csv.gz",
        model="deepseek-r1",
        gpus=("h200-sxm",),
        slo={"ttft_p95_s": 2.0, "tpot_p95_s": 0.06},
    ),
    Case(
        name="DeepSeek-R1 service, long outputs, 24 h (ServeGen, drawn from published fits)",
        file="servegen_deepseek_r1_longout_24h.csv.gz",
        model="deepseek-r1",
        gpus=("h200-sxm",),
        slo={"ttft_p95_s": 2.0, "tpot_p95_s": 0.06},
    ),
)


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--more", type=Path, help="folder of the ServeGen traces")
    more = parser.parse_args().more
    print("\n".join(INTRODUCTION))
    cases = [(case, ROOT / "scenarios" / "data") for case in SHIPPED]
    cases += [(case, more) for case in MORE] if more is not None else []
    for case, folder in cases:
        print("\n".join(section(case, folder)), flush=True)
    print("\n".join(LIMITS))


def section(case: Case, folder: Path) -> Iterator[str]:
    """The part of the page about one trace."""
    measured, poisson = (case.scenario(folder, arrivals) for arrivals in ("measured", "poisson"))
    texts = qm.plan(measured).assumptions
    words = next(found[1] for text in texts if (found := re.match("class requests: arrivals are (.*?): [0-9]", text)))
    targets = ", ".join(f"{key} {value:g}" for key, value in case.slo.items())
    yield f"## {case.name}"
    yield ""
    yield f"{case.model}, targets {targets}. Arrivals are {words}."
    yield ""
    for aim, planned in (("for the measured burstiness", measured), ("for Poisson arrivals", poisson)):
        plan = qm.plan(planned)
        fleet = plan.fleet
        assert fleet is not None
        pools = ", ".join(f"{item.replicas} x {item.gpus // item.replicas} {item.gpu}" for item in plan.pools)
        utilisation = ", ".join(f"{item.utilisation:.2f}" for item in plan.pools if item.utilisation is not None)
        yield f"Planned {aim}: {pools}, {plan.cost_usd_per_hour:.2f} USD/h, utilisation {utilisation}."
        yield ""
        yield "| | " + " | ".join(f"{metric} {stat}" for metric, stat in STATS) + " |"
        yield "|---" * (len(STATS) + 1) + "|"
        yield _row("predicted, Poisson", predicted(poisson, fleet))
        yield _row("predicted, measured burstiness", predicted(measured, fleet))
        yield _row("replayed", replayed(measured, fleet))
        yield ""


def predicted(scenario: dict[str, object], fleet: qm.Fleet) -> list[float]:
    """Predictions in the order of ``STATS``, s."""
    rows = {row.metric: row for row in qm.evaluate(scenario, fleet).latency}
    return [float(getattr(rows[metric], f"{stat}_s") or float("nan")) for metric, stat in STATS]


def replayed(scenario: dict[str, object], fleet: qm.Fleet) -> list[float]:
    """What the requests of the trace meet, in the order of ``STATS``, s."""
    found = {(row.metric, row.stat): row.simulated_s for row in qm.simulate(scenario, fleet).latency}
    return [float("nan") if found[key] is None else float(found[key] or 0.0) for key in STATS]


def _row(name: str, values: list[float]) -> str:
    return f"| {name} | " + " | ".join(f"{value:.3g}" for value in values) + " |"


INTRODUCTION = [
    "# Plans against replayed traces",
    "",
    "Printed by `benchmarks/replayed_traces.py --more FOLDER`; do not edit. Seconds throughout.",
    "",
    "Each trace is planned twice, with the burstiness that is measured in it and with Poisson arrivals at its mean",
    "rate. The recorded requests are then served one by one by both fleets, each request when it came. The rows",
    "compare what was predicted without and with the burst with what the replay shows. One trace is one hour (or day)",
    "that happened once: its percentiles hang on a few busy minutes. The ServeGen traces do not ship; they are drawn",
    "from the fits that github.com/alibaba/ServeGen publishes (f891d1189eb32b3868dfc443800c4150548c282a).",
    "",
]
LIMITS = [
    "## Limits of this comparison",
    "",
    "* Only arrivals and lengths are real. Step times are those of the model on both sides, so errors of the hardware",
    "  model do not show.",
    "* The burst is measured in the trace that is then replayed. Another hour of the same service has another one.",
    "* A recording shows nothing of changes slower than about a fifth of its length.",
    "* On-and-off traffic (Azure code: twelve idle minutes in an hour) has more levels than the model gives a",
    "  component, so its percentiles stay too low.",
    "* The Mooncake trace was sampled from a larger service; its prefix cache hits are left out.",
]


if __name__ == "__main__":
    main()
