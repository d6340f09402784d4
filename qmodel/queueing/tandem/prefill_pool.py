"""A pool that only prefills: prompts share steps up to the token budget, and each leaves with its first token.

The tokens that wait when a step begins are a Markov chain; its law is found on a lattice by solving the balance
equations as they stand. Own construction, see docs/theory/stages.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qmodel.queueing.replica.percentiles import GridLaw
from qmodel.queueing.tandem.prefill_pool_chain import lattice_of, settled
from qmodel.queueing.tandem.prefill_pool_times import first_token_law, met_by
from qmodel.types import Law, Overload, Replica, Stream, mix_laws

__all__ = ["PrefillPool", "prefill_load", "solve_prefill"]

_HEAVY = 0.97  # utilisation from which waits grow as used / (1 - used); the lattice would become too coarse


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrefillPool:
    """A prefill pool under its load.

    Attributes:
        overload: why the load cannot be carried; None where it can, and the rest then has numbers.
        utilisation: offered load over the largest stable load.
        kv_fill: mean tokens held over the tokens of a replica; None where memory is not limited.
        mean_batch: mean prompts at work in a replica.
        first_s: law of the time from arrival to the first token, by class.
        batch: mean number of requests that one step finishes.
        batch_pairs: E[X (X - 1)] of that number.
        epoch_scv: squared coefficient of variation of the time between them, of one replica.
        replicas: of the pool.
    """

    overload: Overload | None
    utilisation: float
    kv_fill: float | None = None
    mean_batch: float | None = None
    first_s: Mapping[str, GridLaw]
    batch: float = 1.0
    batch_pairs: float = 0.0
    epoch_scv: float = 1.0
    replicas: int = 1


def solve_prefill(replica: Replica, streams: Sequence[Stream], replicas: int, router: str = "jsq") -> PrefillPool:
    """First-token times of a pool whose replicas prefill and hand over.

    A step takes as many waiting prompt tokens as its budget allows, first come, first served, and nothing decodes in
    it. The first token of a prompt is made by the step that ends it.

    Args:
        replica: engine instance; memory and slots bound what one step can hold.
        streams: classes with the rates of the whole pool, requests/s.
        replicas: at least 1.
        router: ``random``, or ``jsq`` (fewest requests present).

    Example:
        >>> from qmodel.types import Lengths, StepLaw
        >>> engine = Replica(step=StepLaw.linear(alpha_s=0.0, beta_s=0.0, delta_s=1e-3), max_batched_tokens=1000)
        >>> lengths = Lengths.independent(Law.constant(1000), Law.constant(10))
        >>> found = solve_prefill(engine, [Stream(name="a", rate_rps=0.5, lengths=lengths)], 1, "random")
        >>> round(float(found.first_s["a"].mean_s[0]), 1)  # M/D/1: 1 + 0.5 / (2 * 0.5)
        1.5

    Source: own construction, see docs/theory/stages.md; arrival rates under ``jsq`` after Gupta, Harchol-Balter,
    Sigman and Whitt, Analysis of join-the-shortest-queue routing for web server farms (2007).
    """
    rate_rps = float(sum(item.rate_rps for item in streams))
    prompt = mix_laws([item.lengths.prompt for item in streams], [item.rate_rps for item in streams])
    budget, top_rps = _budget(replica, prompt), _top_rps(replica, prompt)
    tau_s, delta_s = float(replica.step.tau_s(0.0, 0.0)), replica.step.delta_s
    used = rate_rps / (replicas * top_rps)
    overload = _too_long(replica, streams) or _too_much(rate_rps, replicas, top_rps)
    if overload is not None:
        return PrefillPool(overload=overload, utilisation=used, first_s={}, replicas=replicas)
    each = min(used, _HEAVY) * top_rps
    machines = replicas if router == "jsq" else 1
    lattice = lattice_of(prompt, each, tau_s, delta_s, budget, machines)
    solved = settled(lattice, each, machines)
    met = met_by(lattice, solved)
    first = {item.name: first_token_law(lattice, solved, met, item.lengths.prompt) for item in streams}
    if used > _HEAVY:
        longer = used / (1.0 - used) * (1.0 - _HEAVY) / _HEAVY
        first = {name: (_stretched(law, longer), own_s) for name, (law, own_s) in first.items()}
    present = {item.name: item.rate_rps / replicas * first[item.name][1] for item in streams}
    held = sum(
        present[item.name] * (replica.kv_slope * item.lengths.prompt.mean + replica.kv_fixed_tokens) for item in streams
    )
    return PrefillPool(
        overload=None,
        utilisation=used,
        kv_fill=None if replica.kv_tokens is None else held / replica.kv_tokens,
        mean_batch=sum(present.values()),
        first_s={name: law for name, (law, _) in first.items()},
        batch=solved.arrivals,
        batch_pairs=solved.pairs,
        epoch_scv=solved.epoch_scv,
        replicas=replicas,
    )


def prefill_load(replica: Replica, streams: Sequence[Stream]) -> float:
    """Utilisation of one replica that prefills all prompts; infinite where some are too long for it.

    Example:
        >>> from qmodel.types import Lengths, StepLaw
        >>> engine = Replica(step=StepLaw.linear(alpha_s=0.0, beta_s=0.0, delta_s=1e-3), max_batched_tokens=1000)
        >>> lengths = Lengths.independent(Law.constant(1000), Law.constant(10))
        >>> prefill_load(engine, [Stream(name="a", rate_rps=0.5, lengths=lengths)])
        0.5
    """
    if _too_long(replica, streams) is not None:
        return float("inf")
    prompt = mix_laws([item.lengths.prompt for item in streams], [item.rate_rps for item in streams])
    return float(sum(item.rate_rps for item in streams)) / _top_rps(replica, prompt)


def _top_rps(replica: Replica, prompt: Law) -> float:
    """Prompts/s of a replica whose steps are all full."""
    budget = _budget(replica, prompt)
    step_s = float(replica.step.tau_s(0.0, 0.0)) + replica.step.delta_s * budget
    return budget / (prompt.mean * max(step_s, 1e-300))


def _stretched(law: GridLaw, longer: float) -> GridLaw:
    """A law in heavy traffic, where waits are all there is, at another load: every time grows as the mean wait."""
    return GridLaw(mean_s=law.mean_s * longer, times_s=law.times_s * longer, cdf=law.cdf)


def _budget(replica: Replica, prompt: Law) -> float:
    """Prompt tokens that one step can take: its budget, or what memory and slots let in."""
    budget = min(float(replica.max_batched_tokens), replica.max_num_seqs * prompt.mean)
    if replica.kv_tokens is not None:
        room = ((1.0 - replica.watermark) * replica.kv_tokens) / max(replica.kv_slope, 1e-12)
        budget = min(budget, max(room, 1.0))
    return budget


def _too_long(replica: Replica, streams: Sequence[Stream]) -> Overload | None:
    if replica.kv_tokens is None:
        return None
    room = (1.0 - replica.watermark) * replica.kv_tokens
    worst = max(item.lengths.prompt.quantile(0.99) for item in streams if item.rate_rps > 0.0)
    need = replica.kv_slope * worst + replica.kv_fixed_tokens
    if need <= room:
        return None
    reason = (
        f"more than 1 prompt in 100 of a class needs over {room:,.0f} pool tokens, all a replica admits"
        f" (99th percentile {need:,.0f}); use a layout with more KV memory or cap the prompts"
    )
    return Overload(kind="length", value=need, limit=room, reason=reason)


def _too_much(rate_rps: float, replicas: int, top_rps: float) -> Overload | None:
    if rate_rps < replicas * top_rps:
        return None
    reason = (
        f"{rate_rps:.4g} prompts/s arrive, {replicas} replicas prefill less than {replicas * top_rps:.4g};"
        f" at least {int(rate_rps / top_rps) + 1} are needed"
    )
    return Overload(kind="steps", value=rate_rps, limit=replicas * top_rps, reason=reason)
