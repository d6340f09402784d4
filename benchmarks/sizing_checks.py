"""What a documented sizing case is checked by, and helpers that the checks share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import qmodel as qm
from qmodel.catalog import load_catalog
from qmodel.perf import MemoryPlan, layouts, memory, step_law
from qmodel.queueing import closed_loop
from qmodel.topology import link_costs
from qmodel.types import Engine, Gpu, Layout, Model, Refusal

CATALOG = load_catalog()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One property that an answer must have.

    Attributes:
        expected: the property in words.
        holds: whether it does; None: not covered.
        got: what was found, or why it is not covered or fails.
    """

    expected: str
    holds: bool | None
    got: str


Checks = list[Check]
CASES: dict[str, Callable[[], Checks]] = {}


def case(name: str) -> Callable[[Callable[[], Checks]], Callable[[], Checks]]:
    """Register the checks of a case by its id."""

    def register(checks: Callable[[], Checks]) -> Callable[[], Checks]:
        CASES[name] = checks
        return checks

    return register


def check(expected: str, holds: object, got: object = "") -> Check:
    """A property and whether it holds."""
    return Check(expected=expected, holds=bool(holds), got=str(got))


def differs(expected: str, holds: object, got: object, why: str) -> Check:
    """A property whose failure has a known reason."""
    return Check(expected=expected, holds=bool(holds), got=str(got) if holds else f"{got}; {why}")


def uncovered(expected: str, why: str) -> Check:
    """A property that the package does not answer."""
    return Check(expected=expected, holds=None, got=why)


def near(got: float, wanted: float, share: float) -> bool:
    """Whether a value lies within a share of another."""
    return abs(got - wanted) <= share * abs(wanted)


def vllm(version: str = "0.11.0", **settings: Any) -> Engine:
    """vLLM as its defaults are on a large GPU."""
    return replace(Engine(version=version, max_num_seqs=1024), **settings)


def model(name: str, **changes: Any) -> Model:
    """A model of the catalog, some of its facts replaced."""
    return replace(CATALOG.model(name), **changes)


def gpu(name: str, **changes: Any) -> Gpu:
    """A GPU of the catalog, some of its facts replaced."""
    return replace(CATALOG.gpu(name), **changes)


def small_gpu(usable_gib: float) -> Gpu:
    """A consumer or older card of another size, as it is not in the catalog."""
    return gpu("rtx4090", hbm_gib=usable_gib + 0.5, usable_gib=usable_gib)


def plan_of(name: Model | str, on: Gpu | str, layout: Layout, engine: Engine | None = None, **more: Any) -> MemoryPlan:
    """Memory under vLLM 0.11 unless another engine is given."""
    return memory(name, on, layout, engine or vllm(), **more)


def refusal(
    name: Model | str, on: Gpu | str, layout: Layout, engine: Engine | None = None, **more: Any
) -> Refusal | None:
    """Why a layout is refused, None where it is legal."""
    accelerator = CATALOG.gpu(on) if isinstance(on, str) else on
    found = layouts(
        name,
        accelerator,
        CATALOG.default_node(accelerator.name),
        tp=[layout.tp],
        pp=[layout.pp],
        ep=[layout.ep],
        dp=[layout.dp],
        cp=[layout.cp],
        engine=engine or vllm(),
        **more,
    )
    return found.refused[0] if found.refused else None


def serving(
    name: str | Model,
    on: str,
    layout: Layout,
    engine: Engine,
    *,
    users: float,
    prompt: float,
    output: float,
    fabric: str | None = None,
    node: str | None = None,
    precision: str | None = None,
) -> tuple[float, float]:
    """Output tokens per second and time per output token of a replica at fixed concurrency."""
    machine = CATALOG.node(node) if node else CATALOG.default_node(on)
    network = CATALOG.fabric(fabric) if fabric else None
    plan = memory(name, on, layout, engine, precision=precision, context_tokens=prompt + output)
    law = step_law(
        name,
        on,
        layout,
        engine,
        links=link_costs(layout, machine, network, None),
        context_tokens=prompt + output / 2,
        prompt_tokens=prompt,
        batch=max(min(users, 64.0), 1.0),
        precision=precision,
    )
    cap = min(plan.kv_tokens / (prompt + output / 2), engine.max_num_seqs * layout.dp)
    loop = closed_loop(law, users=users, prompt_mean=prompt, output_mean=output, cap=max(float(int(cap)), 1.0))
    return float(loop.output_tokens_per_s), float(loop.tpot_s)


def scenario(**parts: Any) -> dict[str, Any]:
    """A small chat scenario; keys of ``chat`` and of the top level may be replaced."""
    chat = {
        "model": "llama-3.1-8b",
        "rate_rps": 2,
        "prompt_tokens": {"mean": 1000, "cv": 0.5},
        "output_tokens": {"mean": 200, "cv": 0.5},
        "slo": {"ttft_p95_s": 2.0},
        **parts.pop("chat", {}),
    }
    whole: dict[str, Any] = {"qmodel": 1, "classes": {"chat": chat}, "fleet": {"gpus": {"h100-sxm": {}}}}
    return whole | parts


def problems(data: Mapping[str, Any] | str) -> str:
    """What is said of a scenario that cannot be used, empty where it can."""
    try:
        qm.load_scenario(dict(data) if isinstance(data, Mapping) else data)
    except qm.ScenarioError as error:
        return str(error)
    return ""
