"""Predicted against measured time of collectives and of expert exchanges.

Prints the page docs/accuracy-collectives.md:

    .venv/bin/python benchmarks/collectives.py > docs/accuracy-collectives.md

With ``--held-out`` it fits the NVSwitch constants of the NCCL rows to all generations but one and prints what that does
to the one left out (a minute). Same input, same digits.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from qmodel.catalog import load_catalog
from qmodel.topology import exchange_costs, link_costs
from qmodel.types import Layout

DATA = Path(__file__).parents[1] / "tests" / "data" / "topology"
NODES = {
    "A100-80-SXM": "hgx-a100-8",
    "H100-SXM": "dgx-h100",
    "H200-SXM": "dgx-h200",
    "B200-SXM": "dgx-b200",
    "B300-SXM": "dgx-b300",
    "GB200": "gb200-tray",
    "GB300": "gb200-tray",
    "L40S": "pcie-8xl40s",
    "RTXPRO6000": "pcie-8xrtxpro6000",
}
LINKS = {"L40S": "PCIe 4 tree", "RTXPRO6000": "PCIe 5 tree"}  # the others: NVSwitch
COSTS = {"all_reduce": "tp_all_reduce", "all_to_all": "stage_all_to_all"}  # the others: stage_all_gather
HIDDEN, EXPERTS, PER_TOKEN = 7168, 256, 8
BYTES = {"fp8": 1 + 4 / 128, "bfloat16": 2.0, "nvfp4": 0.5 + 1 / 16}  # of one element with its scale

_HEAD = """# Accuracy of collectives

Printed by `benchmarks/collectives.py`; do not edit.

Time of one call, predicted by `qmodel.topology` from the catalog's node and fabric, against what was measured.
Errors are per cent of the measured value: median and 90th percentile of the absolute error, and the median signed
error (bias). Rows, sources and licences: `tests/data/topology/README.md`. What the model is:
[topology](theory/topology.md). Inside an island the step-time model uses constants of its own, fitted to engines
rather than to NCCL.
"""


def nccl_rows() -> pd.DataFrame:
    """NCCL inside a node: half precision, sizes are total buffers. In-sample."""
    rows = pd.read_csv(DATA / "nccl_intra_node.csv")
    catalog = load_catalog()
    rows["predicted_us"] = [
        1e6 * getattr(_links(catalog, row), COSTS.get(row.operation, "stage_all_gather")).seconds(float(row.bytes))
        for row in rows.itertuples()
    ]
    rows["link"] = [LINKS.get(gpu, "NVSwitch") for gpu in rows["gpu"]]
    return _with_error(rows, rows["us"])


def across_rows() -> pd.DataFrame:
    """All-reduce over several nodes or a rack. The first system gave the constants between nodes."""
    rows = pd.read_csv(DATA / "nccl_across.csv")
    catalog = load_catalog()
    systems = {
        "H100 tcpxo": ("gcp-a3-megagpu-8g", "tcpxo-200"),
        "H100 ib-ndr": ("dgx-h100", "ib-ndr"),
        "B200 ib-ndr": ("dgx-b200", "ib-ndr"),
        "GB200 nvl72": ("gb200-tray", "ib-ndr"),
        "MI300X xgmi": ("mi300x-8", "roce-400"),
    }
    predicted = []
    for row in rows.itertuples():
        node, fabric = systems[row.system]
        cost = link_costs(Layout(tp=row.gpus), catalog.node(node), catalog.fabric(fabric)).tp_all_reduce
        predicted.append(1e6 * cost.seconds(float(row.bytes)))
    rows["predicted_us"] = predicted
    return _with_error(rows, rows["us"])


def exchange_rows() -> pd.DataFrame:
    """Expert exchanges: DeepEP on H100 and TensorRT-LLM on GB200; one row each for dispatch and combine."""
    parts = []
    for name, kernel in (("deepep_low_latency", "low_latency"), ("deepep_normal", "normal")):
        rows = pd.read_csv(DATA / f"{name}.csv").assign(kernel=kernel, node="dgx-h100", dtype="fp8")
        if "notify_us" in rows:
            rows["dispatch_us"] += rows["notify_us"]
        parts.append(rows.assign(table=f"DeepEP {kernel.replace('_', ' ')}, H100, ConnectX-7"))
    rack = pd.read_csv(DATA / "exchange_nvl72.csv").rename(columns={"kernel": "what"})
    parts.append(rack.assign(kernel="one_island", node="gb200-tray", table="TensorRT-LLM " + rack["what"] + ", GB200"))
    published = pd.read_csv(DATA / "deepep_published.csv").assign(kernel="low_latency", node="h800", dtype="fp8")
    parts.append(published.assign(table="DeepEP low latency, H800, not fitted"))
    rows = pd.concat(parts, ignore_index=True)
    long = rows.melt(
        id_vars=["table", "kernel", "node", "dtype", "ep", "tokens_per_rank"],
        value_vars=["dispatch_us", "combine_us"],
        var_name="direction",
        value_name="us",
    )
    long["direction"] = long["direction"].str.removesuffix("_us")
    long["predicted_us"] = [_exchange_us(row) for row in long.itertuples()]
    return _with_error(long, long["us"])


def _exchange_us(row: Any) -> float:
    """DeepEP's own test lets a token of the normal kernels visit at most four nodes; a group of experts is a node."""
    catalog = load_catalog()
    islands = row.ep // 8
    limited = row.kernel == "normal" and islands > 1
    cost = exchange_costs(
        Layout(dp=row.ep, ep=row.ep),
        _h800(catalog) if row.node == "h800" else catalog.node(row.node),
        experts=EXPERTS,
        experts_per_token=PER_TOKEN,
        groups=islands if limited else 1,
        groups_per_token=min(islands, 4) if limited else 1,
        kernel=row.kernel,
    )
    dtype = row.dtype if row.direction == "dispatch" else "bfloat16"
    return 1e6 * cost.seconds(float(row.tokens_per_rank), HIDDEN * BYTES[dtype])


def _h800(catalog: Any) -> Any:
    """A DGX H100 with the NVLink of the export variant: 400 GB/s in both directions together."""
    node = catalog.node("dgx-h100")
    return replace(node, domain=replace(node.domain, gbps_per_gpu=200.0))


def _links(catalog: Any, row: Any) -> Any:
    return link_costs(Layout(tp=row.gpus), catalog.node(NODES[row.gpu]))


def _with_error(rows: pd.DataFrame, measured_us: pd.Series) -> pd.DataFrame:
    return rows.assign(error=rows["predicted_us"] / measured_us - 1.0)


def summary(rows: pd.DataFrame, by: list[str]) -> Iterator[str]:
    """Lines of a table of errors for all rows and for each value of some columns."""
    yield f"| {' | '.join(['rows', 'number', 'median', '90th percentile', 'bias'])} |"
    yield "|---|---|---|---|---|"
    yield _summary_line("all", rows["error"])
    for column in by:
        for value, of_value in rows.groupby(column, sort=False):
            label = f"{value}" if isinstance(value, str) else f"{column.replace('_', ' ')} {_size(column, value)}"
            yield _summary_line(label, of_value["error"])


def _summary_line(label: str, errors: Iterable[float]) -> str:
    found = 100 * np.asarray(list(errors))
    absolute = np.abs(found)
    return (
        f"| {label} | {len(found)} | {np.median(absolute):.1f} | {np.quantile(absolute, 0.9):.1f} "
        f"| {np.median(found):+.1f} |"
    )


def _size(column: str, value: float) -> str:
    if column != "bytes":
        return f"{value}"
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= scale:
            return f"{value / scale:g} {unit}"
    return f"{value:g} B"


def print_page() -> None:
    """Print docs/accuracy-collectives.md."""
    print(_HEAD)
    nccl = nccl_rows()
    print(
        "## NCCL inside a node\n\nAll-reduce, all-gather, reduce-scatter and all-to-all of 2 to 8 GPUs, 512 B to"
        " 256 MiB. The constants were fitted to these rows;\n[topology](theory/topology.md#accuracy) has what happens"
        " to a generation of GPUs that was left out.\n"
    )
    print("\n".join(summary(nccl, ["link", "operation", "gpu", "gpus", "bytes"])))
    print("\nWorst rows:\n")
    print("| GPU | operation | GPUs | size | measured us | predicted us | error % |\n|---|---|---|---|---|---|---|")
    for row in nccl.loc[nccl["error"].abs().sort_values(ascending=False, kind="stable").index[:12]].itertuples():
        print(
            f"| {row.gpu} | {row.operation} | {row.gpus} | {_size('bytes', row.bytes)} | {row.us:.1f} "
            f"| {row.predicted_us:.1f} | {100 * row.error:+.0f} |"
        )
    print(
        "\n## All-reduce across nodes and over a rack\n\nThe steps and the small-message share between nodes come from"
        " the first system; the others were not fitted.\n"
    )
    print("| system | GPUs | nodes | size | measured us | predicted us | error % |\n|---|---|---|---|---|---|---|")
    for row in across_rows().itertuples():
        print(
            f"| {row.system} | {row.gpus} | {row.nodes} | {_size('bytes', row.bytes)} | {row.us:.1f} "
            f"| {row.predicted_us:.1f} | {100 * row.error:+.0f} |"
        )
    exchanges = exchange_rows()
    print(
        "\n## Expert exchanges\n\nDispatch and combine of 256 experts, 8 per token, hidden size 7168. Starting times"
        " and the fraction inside an island were\nchosen on the first four tables; the bytes on the network ports"
        " follow from the routing and the fabric alone.\n"
    )
    print("\n".join(summary(exchanges, ["table", "direction"])))
    deepep = exchanges[exchanges["table"].str.startswith("DeepEP")]
    print("\nDeepEP alone:\n")
    print("\n".join(summary(deepep, ["ep", "tokens_per_rank"])))


@dataclass(frozen=True)
class _Form:
    """NCCL inside an NVSwitch island written out, for fitting: launch, hops, fraction and small-group term per line."""

    operation: np.ndarray
    members: np.ndarray
    gbps: np.ndarray
    generation: np.ndarray
    payload: np.ndarray
    measured_us: np.ndarray

    def predicted_us(self, point: np.ndarray) -> np.ndarray:
        lines = point[:24].reshape(3, 2, 4)
        factor = np.exp(np.where(self.generation == 450.0, point[24], 0.0))
        passes = np.where(self.operation == 0, 2, 1)
        steps = np.where(self.operation == 2, 1, passes * (self.members - 1))
        share = passes * (self.members - 1) / self.members
        times = []
        for line in (0, 1):
            launch, hop, fraction, small = lines[self.operation, line].T
            rate = self.gbps * 1e3 * np.exp(fraction) * np.maximum(1 - small / self.members**2, 0.05)
            times.append(factor * (np.exp(launch) + np.exp(hop) * steps) + share * self.payload / rate)
        return np.minimum(*times)

    def only(self, chosen: np.ndarray) -> _Form:
        return _Form(**{name: getattr(self, name)[chosen] for name in self.__dataclass_fields__})


def print_held_out() -> None:
    """Fit without one generation of NVSwitch GPUs, predict it, for each in turn."""
    rows = pd.read_csv(DATA / "nccl_intra_node.csv")
    rows = rows[~rows["gpu"].isin(LINKS)].reset_index(drop=True)
    catalog = load_catalog()
    gbps = np.array([catalog.node(NODES[gpu]).domain.gbps_per_gpu for gpu in rows["gpu"]])
    names = {"all_reduce": 0, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 2}
    form = _Form(
        operation=rows["operation"].map(names).to_numpy(),
        members=rows["gpus"].to_numpy(float),
        gbps=gbps,
        generation=gbps,
        payload=rows["bytes"].to_numpy(float),
        measured_us=rows["us"].to_numpy(),
    )
    start = np.array([[8.1, 1.2, 0.43, 1.5], [13, 6.2, 0.84, 1.1], [8.1, 1.2, 0.31, 1.5], [14, 4.7, 0.74, 1.3]])
    start = np.vstack([start, [[9.2, 1.2, 0.021, 1.8], [17, 0.1, 0.6, 1.4]]])
    start[:, :3] = np.log(start[:, :3])
    print("| left out | rows | median error % | 90th percentile |\n|---|---|---|---|")
    for left_out in (300.0, 450.0, 900.0):
        kept = form.only(form.generation != left_out)
        first = np.append(start.ravel(), np.log(0.63))

        def loss(point: np.ndarray, kept: _Form = kept) -> float:
            return float(np.mean(np.abs(np.log(kept.predicted_us(point) / kept.measured_us))))

        point = minimize(loss, first, method="Powell", options={"maxiter": 30}).x
        if left_out == 450.0:
            point[24] = 0.0  # nothing else tells it
        rest = form.only(form.generation == left_out)
        errors = 100 * np.abs(rest.predicted_us(point) / rest.measured_us - 1.0)
        middle, tail = np.quantile(errors, [0.5, 0.9])
        print(f"| NVSwitch {left_out:.0f} GB/s | {len(errors)} | {middle:.1f} | {tail:.1f} |")


def main() -> None:
    """Print the page, or the errors of generations left out of the fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--held-out", action="store_true")
    if parser.parse_args().held_out:
        print_held_out()
    else:
        print_page()


if __name__ == "__main__":
    main()
