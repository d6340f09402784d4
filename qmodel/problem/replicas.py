"""From a model, a GPU option and a layout to the replica that the queueing models take."""

from __future__ import annotations

from dataclasses import replace

from qmodel.perf import MemoryPlan, memory, prompt_budget, step_law
from qmodel.problem.aic_steps import aic_step_law
from qmodel.problem.instances import GpuOption, Instance, Profile
from qmodel.problem.lost_work import at_spot
from qmodel.problem.swapping import with_swapping
from qmodel.topology import link_costs
from qmodel.types import Engine, Layout, Lengths, MeasuredCapacity, Model, Refusal, Replica, mix_lengths

__all__ = ["at_confidence", "no_prompt_room", "replica_of"]


def at_confidence(replica: Replica, level: str) -> Replica:
    """The replica whose every step takes its 90 % upper band, where the level asks for that.

    Args:
        level: ``nominal``, ``p90`` (steps times 1 + p90) or ``low`` (divided by it).
    """
    if level == "nominal" or replica.step.band.p90 == 0.0:
        return replica
    factor = 1.0 + replica.step.band.p90
    return replace(replica, step=replica.step.scaled(factor if level == "p90" else 1.0 / factor))


def no_prompt_room(settings: Engine | Replica) -> tuple[str, str] | None:
    """What is wrong with a token budget that full batches use up, and a way out; None where prompts have room."""
    budget, sequences = settings.max_batched_tokens, settings.max_num_seqs
    if budget > sequences:
        return None
    what = f"steps of max_batched_tokens {budget} have no room for prompts beside max_num_seqs {sequences}"
    return what, "state max_batched_tokens greater than max_num_seqs"


def replica_of(
    instance: Instance,
    *,
    model: str,
    gpu: str,
    layout: Layout,
    engine: Engine | None = None,
    precision: str | None = None,
) -> Replica | MeasuredCapacity | Refusal:
    """The replica of a model on a GPU type in a layout, or why there is none.

    A pair with profiles has only those: another layout is refused. Else memory and step
    law come from the catalog; the step law is taken around the mean prompt and context of
    the model's classes. On spot GPUs steps are longer by the work that is done twice.

    Args:
        instance: the bound problem.
        model: model name as the classes use it.
        gpu: GPU name as the scenario uses it.
        layout: degrees of one replica.
        engine: engine settings; None: those of the GPU option.
        precision: weight type; None: the checkpoint's own.
    """
    found = _replica_of(instance, model, gpu, layout, engine, precision)
    terms = instance.limits.of(gpu).spot
    if terms is None or not isinstance(found, Replica):
        return found
    return at_spot(found, terms, reference_lengths(instance, model), layout)


def _replica_of(
    instance: Instance, model: str, gpu: str, layout: Layout, engine: Engine | None, precision: str | None
) -> Replica | MeasuredCapacity | Refusal:
    """The replica at its own step times, wherever its GPUs come from."""
    option = instance.gpus[gpu]
    profiles = instance.profiles.get((model, gpu))
    if profiles is not None:
        measured = _from_profile(profiles, layout, option, engine or option.engine)
        return _completed(measured, instance.models[model], layout, engine or option.engine, precision)
    record = instance.models[model]
    if record is None or option.gpu is None or option.node is None:
        missing = f"model '{model}'" if record is None else f"GPU '{gpu}'"
        return Refusal(
            layout=layout,
            kind="engine",
            reason=f"{missing} is known by profiles only, and none is for {model} on {gpu}",
            change="add a profile for the pair",
        )
    lengths = reference_lengths(instance, model)
    found = _from_catalog(instance, record, option, lengths, layout, engine or option.engine, precision)
    return _completed(found, record, layout, engine or option.engine, precision)


def reference_lengths(instance: Instance, model: str) -> Lengths:
    """Joint length law of all requests for one model, by rate; the operating point of its step laws."""
    classes = instance.classes_of(model)
    return mix_lengths([item.lengths for item in classes], [item.rate_rps for item in classes])


def _completed(
    found: Replica | MeasuredCapacity | Refusal,
    model: Model | None,
    layout: Layout,
    engine: Engine,
    precision: str | None,
) -> Replica | MeasuredCapacity | Refusal:
    """The same with what swapping takes, where its steps have room for prompts."""
    if not isinstance(found, Replica):
        return found
    room = no_prompt_room(found)
    if room is None:
        return with_swapping(found, model, layout, engine, precision)
    return Refusal(layout=layout, kind="engine", reason=room[0], change=room[1])


def _from_profile(
    profiles: tuple[Profile, ...], layout: Layout, option: GpuOption, engine: Engine
) -> Replica | MeasuredCapacity | Refusal:
    for profile in profiles:
        if profile.layout == layout:
            if isinstance(profile.replica, MeasuredCapacity):
                return profile.replica
            usual = option.engine.max_num_seqs
            return replace(
                profile.replica,
                max_num_seqs=profile.replica.max_num_seqs if engine.max_num_seqs == usual else engine.max_num_seqs,
                max_batched_tokens=engine.max_batched_tokens,
                watermark=engine.watermark,
                admission=engine.admission,
                recompute_factor=engine.recompute_factor,
            )
    pair = f"{profiles[0].model} on {profiles[0].gpu}"
    known = ", ".join(str(profile.layout) for profile in profiles)
    return Refusal(
        layout=layout,
        kind="engine",
        reason=f"{pair} has profiles for {known} only",
        change=f"use {known.split(', ')[0]}, or add a profile",
    )


def _from_catalog(
    instance: Instance,
    model: Model,
    option: GpuOption,
    lengths: Lengths,
    layout: Layout,
    engine: Engine,
    precision: str | None,
) -> Replica | Refusal:
    assert option.gpu is not None and option.node is not None
    plan = memory(model, option.gpu, layout, engine, precision=precision, context_tokens=lengths.mean_context)
    if not plan.fits:
        return Refusal(layout=layout, kind="memory", reason=plan.reason, change=plan.change)
    batch = _operating_batch(plan, engine, layout, lengths)
    law = aic_step_law if engine.step_times == "aic" else step_law
    step = law(
        model,
        option.gpu,
        layout,
        engine,
        constants=instance.constants,
        links=link_costs(layout, option.node, option.fabric, option.topology),
        context_tokens=lengths.mean_context,
        prompt_tokens=lengths.prompt.moments[1] / lengths.prompt.mean,
        batch=batch,
        precision=precision,
    )
    if isinstance(step, Refusal):
        return step
    return Replica(
        step=step,
        max_num_seqs=engine.max_num_seqs * layout.dp,
        kv_tokens=plan.kv_tokens,
        max_batched_tokens=prompt_budget(engine, batch / layout.dp) * layout.dp,
        watermark=engine.watermark,
        admission=engine.admission,
        recompute_factor=engine.recompute_factor,
        kv_slope=plan.kv_slope,
        kv_fixed_tokens=plan.kv_fixed_tokens,
        memory_tight=plan.tight,
    )


def _operating_batch(plan: MemoryPlan, engine: Engine, layout: Layout, lengths: Lengths) -> float:
    """Half of the sequences that slots and memory allow: where the prefill slope is taken."""
    held = plan.kv_slope * lengths.mean_context + plan.kv_fixed_tokens
    return max(min(engine.max_num_seqs * layout.dp, plan.kv_tokens / held) / 2.0, 1.0)
