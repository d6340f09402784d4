"""What a calibration is worth: measured benchmarks left out of it, and known constants found again.

    .venv/bin/python benchmarks/calibration.py

Prints the tables of docs/calibration.md, in about two minutes. Same input, same digits.

Measured rows: the trust-A rows of tests/data/perf/measured_serving.csv by model, GPU, engine and weight type. Of every
slice a third of the rows, or three rows, are drawn; constants are calibrated on them and the time per output token of
the other rows is predicted through the whole catalog path. The shipped constants were fitted to all of these rows, so
they are also tried with the fit of the slice taken out: what an engine, GPU and model without a fit of their own see.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter

import numpy as np
import pandas as pd
from accuracy import BURST_SHARE, PRECISIONS, _engine, _layout, read_rows

from qmodel.calibration import Calibration, Measurements, ServingPoint, StepTime
from qmodel.calibration.estimation import estimate
from qmodel.calibration.parameters import PARAMETERS, scaled_constants
from qmodel.calibration.replicas import Target
from qmodel.catalog import Catalog, load_catalog
from qmodel.errors import ScenarioError
from qmodel.perf import memory, resolve_constants, step_law
from qmodel.perf.components import Pass, pass_model
from qmodel.queueing import closed_loop, resident_cap
from qmodel.topology import link_costs
from qmodel.types import CalibratedConstants, Engine, EngineConstants, Layout, LinkCosts

SLICE = ["model", "gpu", "engine", "dtype_weights"]
DRAWS = 4
LEAST_ROWS = 6
DATE = "2026-12-01"
KNOWN_FACTORS = {"weights": 1.25, "gemm": 1.15, "kv": 1.3, "layers": 1.6, "host_sequence": 1.5}


def target_of(rows: pd.DataFrame, catalog: Catalog) -> Target:
    """What a slice of rows measures."""
    row = rows.iloc[0]
    gpu = catalog.gpu(row["gpu"])
    return Target(
        model=catalog.model(row["model"]),
        gpu=gpu,
        engine=_engine(row["engine"], gpu),
        layout=Layout(),
        precision=PRECISIONS.get(str(row["dtype_weights"]), "bf16"),
    )


def points_of(rows: pd.DataFrame) -> Measurements:
    """Rows as points."""
    points = [
        ServingPoint(
            users=float(row.load_value),
            prompt_tokens=row.isl_mean,
            output_tokens=row.osl_mean,
            tpot_s=row.tpot_ms_mean / 1e3,
            ttft_s=row.ttft_ms_p50 / 1e3,
            layout=_layout(int(row.tp), int(row.ep), int(row.dp)),
            place=row.id,
        )
        for row in rows.itertuples()
    ]
    return Measurements(points=tuple(points))


def without_fit(catalog: Catalog, target: Target) -> Catalog:
    """The catalog without the fit of the target's GPU, engine and weight type."""
    key = (target.gpu.constants_row, target.engine.constants, target.family)
    kept = [item for item in catalog.constants.overrides if (item["gpu"], item["engine"], item["quant"]) != key]
    return replace(catalog, constants=replace(catalog.constants, overrides=tuple(kept)))


def tpot_errors(rows: pd.DataFrame, target: Target, constants: EngineConstants) -> np.ndarray:
    """Predicted over measured time per output token, minus 1, from the step law that plans use."""
    errors = []
    for row in rows.itertuples():
        layout = _layout(int(row.tp), int(row.ep), int(row.dp))
        engine, prompt, output = target.engine, row.isl_mean, row.osl_mean
        plan = memory(
            target.model, target.gpu, layout, engine, precision=target.precision, context_tokens=prompt + output
        )
        slots = engine.max_num_seqs * layout.dp
        cap = resident_cap(max(plan.kv_tokens, 1.0), prompt, output, engine.admission, slots, plan.kv_slope)
        law = step_law(
            target.model,
            target.gpu,
            layout,
            engine,
            context_tokens=prompt + output / 2,
            prompt_tokens=prompt,
            batch=min(float(row.load_value), float(cap)),
            constants=constants,
            links=link_costs(layout, load_catalog().default_node(target.gpu.name), None, None),
            precision=target.precision,
        )
        loop = closed_loop(
            law, float(row.load_value), prompt, output, cap, BURST_SHARE, max_batched_tokens=engine.max_batched_tokens
        )
        errors.append(float(loop.tpot_s) / (row.tpot_ms_mean / 1e3) - 1.0)
    return np.array(errors)


def with_calibration(catalog: Catalog, found: Calibration) -> EngineConstants:
    """Constants in which the calibration counts."""
    entry: CalibratedConstants = {**found.catalog_entry(), "as_of": found.as_of}  # type: ignore[typeddict-item]
    return replace(catalog.constants, calibrations=(entry,))


def slices() -> Iterator[tuple[str, pd.DataFrame]]:
    """Trust-A rows by what they measure."""
    rows = read_rows()
    for key, part in rows[rows["trust"] == "A"].groupby(SLICE):
        if len(part) >= LEAST_ROWS:
            yield " / ".join(map(str, key)), part


def summary(errors: np.ndarray) -> str:
    """Median, mean, 90th percentile of the absolute error, median signed error, per cent."""
    size = 100 * np.abs(errors)
    return f"{np.median(size):.1f} / {size.mean():.1f} / {np.quantile(size, 0.9):.1f}, {100 * np.median(errors):+.1f}"


def measured_table(*, keep_fit: bool, share: float | None, count: int = 3) -> None:
    """One line per slice: errors on rows that were not drawn, before and after."""
    shipped = load_catalog()
    all_before, all_after, covered = [], [], []
    for name, rows in slices():
        target = target_of(rows, shipped)
        catalog = shipped if keep_fit else without_fit(shipped, target)
        usual = tpot_errors(rows, target, catalog.constants)
        before, after = [], []
        for seed in range(DRAWS):
            order = np.random.default_rng(seed).permutation(len(rows))
            drawn = order[: count if share is None else round(share * len(rows))]
            rest = np.setdiff1d(order, drawn)
            try:
                found = estimate(points_of(rows.iloc[drawn]), target, catalog, as_of=DATE)
            except ScenarioError:  # the rows drawn are all at one number of users, or beyond what memory holds
                continue
            errors = tpot_errors(rows.iloc[rest], target, with_calibration(catalog, found))
            before.append(usual[rest])
            after.append(errors)
            covered.append(np.mean(np.abs(errors) <= found.band.p90))
        all_before += before
        all_after += after
        print(f"| {name} | {len(rows)} | {summary(np.concatenate(before))} | {summary(np.concatenate(after))} |")
    total = summary(np.concatenate(all_before)), summary(np.concatenate(all_after))
    print(f"| all | | {total[0]} | {total[1]} |")
    print(f"\nWithin the new band's 90 %: {100 * float(np.mean(covered)):.0f} % of the rows left out.")


def layout_table() -> None:
    """Calibrate in the smallest tensor-parallel degree, predict the others."""
    shipped = load_catalog()
    for name, rows in slices():
        plain = rows[rows["dp"] == 1]
        if plain["tp"].nunique() < 2:
            continue
        target = target_of(plain, shipped)
        catalog = without_fit(shipped, target)
        own = plain["tp"] == plain["tp"].min()
        found = estimate(points_of(plain[own]), target, catalog, as_of=DATE)
        before = tpot_errors(plain[~own], target, catalog.constants)
        after = tpot_errors(plain[~own], target, with_calibration(catalog, found))
        print(f"| {name} | {int(own.sum())} | {int((~own).sum())} | {summary(before)} | {summary(after)} |")


def synthetic_steps(count: int, seed: int, catalog: Catalog) -> tuple[Measurements, Target, np.ndarray]:
    """Step times of known constants with 2 % noise, one in ten of them 1.3 to 3 times too long."""
    rng = np.random.default_rng(seed)
    target = Target(model=catalog.model("llama-3.1-8b"), gpu=catalog.gpu("h100-sxm"), engine=Engine(), layout=Layout())
    true = np.array([np.log(KNOWN_FACTORS.get(item.name, 1.0)) for item in PARAMETERS])
    batch = np.round(np.exp(rng.uniform(0, np.log(256), count)))
    context = np.exp(rng.uniform(np.log(200), np.log(8000), count))
    prefill = np.where(rng.random(count) < 0.3, rng.uniform(256, 4096, count), 0.0)
    seconds = exact_steps(target, catalog, true, batch, context, prefill) * np.exp(0.02 * rng.standard_normal(count))
    seconds *= np.where(rng.random(count) < 0.1, rng.uniform(1.3, 3.0, count), 1.0)
    steps = [
        StepTime(batch=b, context_tokens=s, prefill_tokens=q, step_s=t)
        for b, s, q, t in zip(batch, context, prefill, seconds, strict=True)
    ]
    return Measurements(steps=tuple(steps)), target, true


def exact_steps(
    target: Target, catalog: Catalog, logs: np.ndarray, batch: np.ndarray, context: np.ndarray, prefill: np.ndarray
) -> np.ndarray:
    """Step times with factors on the constants, without noise."""
    model = pass_model(
        target.model, target.gpu, target.layout, target.engine, constants=catalog.constants, links=LinkCosts()
    )
    usual = resolve_constants(target.model, target.gpu, target.engine, constants=catalog.constants)
    return replace(model, constants=scaled_constants(usual, logs)).step_s(Pass.of(batch, context, prefill))


def synthetic_table() -> None:
    """Found against known factors, and errors of clean step times elsewhere."""
    catalog = load_catalog()
    grid = np.meshgrid([1.0, 8.0, 48.0, 200.0], [500.0, 3000.0, 8000.0], [0.0, 1024.0])
    batch, context, prefill = (part.ravel() for part in grid)
    for count in (6, 12, 40, 160):
        before, after, factors = [], [], []
        for seed in range(DRAWS):
            measured, target, true = synthetic_steps(count, seed, catalog)
            found = estimate(measured, target, catalog, as_of=DATE)
            logs = np.log([item.factor for item in found.parameters])
            exact = exact_steps(target, catalog, true, batch, context, prefill)
            before.append(exact_steps(target, catalog, 0 * true, batch, context, prefill) / exact - 1)
            after.append(exact_steps(target, catalog, logs, batch, context, prefill) / exact - 1)
            factors.append({item.parameter: item.factor for item in found.parameters})
        named = ", ".join(f"{name} {np.mean([item[name] for item in factors]):.2f}" for name in KNOWN_FACTORS)
        print(f"| {count} | {summary(np.concatenate(before))} | {summary(np.concatenate(after))} | {named} |")


def main() -> None:
    """Print all tables."""
    start = perf_counter()
    for keep_fit in (True, False):
        for share, words in ((1 / 3, "a third of the rows"), (None, "three rows")):
            constants = "shipped constants" if keep_fit else "fit of the slice taken out"
            print(f"\n### Calibrated on {words}; {constants}\n")
            print("| slice | rows | before: median / mean / p90, signed | after |\n|---|---|---|---|")
            measured_table(keep_fit=keep_fit, share=share)
    print("\n### Calibrated in the smallest tensor-parallel degree, the others predicted; fit of the slice taken out\n")
    print("| slice | rows | predicted | before | after |\n|---|---|---|---|---|")
    layout_table()
    known = ", ".join(f"{name} {factor}" for name, factor in KNOWN_FACTORS.items())
    print(f"\n### Known constants ({known}), 2 % noise, one in ten an outlier\n")
    print("| step times | before | after | factors found, mean |\n|---|---|---|---|")
    synthetic_table()
    print(f"\n{perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
