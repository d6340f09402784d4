"""What a reader must know of a bound problem, in sentences: hardware, engine, layouts, priorities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from qmodel.perf import accepted_spread, tokens_per_step
from qmodel.problem.engine_settings import ListedSettings
from qmodel.problem.instances import LayoutRules
from qmodel.types import Engine, Fabric, Node, RequestClass, Topology

__all__ = ["engine_note", "hardware_note", "layouts_note", "priority_notes"]

_CHOSEN = ("kv_dtype", "max_batched_tokens", "max_num_seqs")
TYPICAL_OUTPUT = 300  # tokens; only to say how large a spread is


def priority_notes(classes: Mapping[str, RequestClass]) -> list[str]:
    """What to know where classes of one model, which may share a pool, differ in priority."""
    notes = []
    for model in dict.fromkeys(model for item in classes.values() for model in item.models):
        members = sorted((item for item in classes.values() if item.served_by(model)), key=lambda item: -item.priority)
        if members[0].priority > members[-1].priority:
            order = ", ".join(f"{item.name} {item.priority}" for item in members)
            notes.append(f"{model}: engines admit requests by priority ({order}), which their scheduler must be set to")
    return notes


def hardware_note(name: str, node: Node, fabric: Fabric | None, topology: Topology | None) -> str:
    """Where the GPUs of a type sit."""
    doubt = ", of low confidence in the catalog" if node.confidence == "low" else ""
    joined = f" joined by {fabric.name} ({topology.name})" if fabric is not None and topology is not None else ""
    return f"{name}: {node.gpus_per_node} per node ({node.name}{doubt}){joined}"


def layouts_note(rules: LayoutRules) -> str:
    """Which layouts are tried."""
    experts = "whole experts or slices" if rules.ep == "auto" else f"ep {_listed(rules.ep)}"
    ranks = "attention ranks for latent-attention models" if rules.dp == "auto" else f"dp {_listed(rules.dp)}"
    contexts = "" if tuple(rules.cp) == (1,) else f", cp {_listed(rules.cp)}"
    apart = {
        True: "separate prefill and decode pools too",
        False: "no separate prefill and decode pools",
        "auto": "separate prefill and decode pools only where unified ones are not enough",
    }[rules.disaggregate]
    return f"layouts tried: tp {_listed(rules.tp)} x pp {_listed(rules.pp)}, {experts}, {ranks}{contexts}; {apart}"


def _listed(degrees: Iterable[int]) -> str:
    return ", ".join(map(str, degrees))


def engine_note(engine: Engine, listed: ListedSettings) -> str:
    """The engine's settings that decide waits and memory, with all values of those that are chosen for each pool."""
    values = {key: " or ".join(map(str, listed.listed.get(key, (getattr(engine, key),)))) for key in _CHOSEN}
    version = f" {engine.version}" if engine.version else ""
    source = ", step times of aiconfigurator, without host time" if engine.step_times == "aic" else ""
    unknown = f" (not in the catalog: defaults of {engine.defaults_of})" if engine.defaults_of else ""
    return (
        f"{engine.name}{version}{unknown},"
        f" up to {values['max_num_seqs']} sequences and {values['max_batched_tokens']} tokens a step,"
        f" {engine.gpu_memory_utilization:.1%} of the memory, {engine.watermark:.0%} of it kept free at admission"
        f" ({engine.admission}), KV type {values['kv_dtype']}, router {engine.router}{source}"
        f"{_speculation_note(engine)}"
    )


def _speculation_note(engine: Engine) -> str:
    drafting = engine.drafting
    if drafting is None:
        return ""
    mean = tokens_per_step(drafting.acceptance, drafting.tokens)
    spread = accepted_spread(drafting, TYPICAL_OUTPUT)
    return (
        f"; {drafting.draft} drafts {drafting.tokens} tokens a step, acceptance {drafting.acceptance:g} as stated: "
        f"{mean:.2f} tokens a step. The luck of the draft, {spread:.1%} of a request's time per token (one standard "
        f"deviation at {TYPICAL_OUTPUT} tokens), is not in the percentiles"
    )
