"""Where a scenario states a target: for a class, or under one of its models."""

from __future__ import annotations

from qmodel.files import join_key
from qmodel.types import RequestClass, Slo

__all__ = ["target_key"]


def target_key(item: RequestClass, slo: Slo) -> tuple[str, bool]:
    """The key of a target in the scenario, and whether it is stated under the model of the class.

    Args:
        item: a class as pools of one of its models see it.
        slo: one of its targets.

    Example:
        >>> from qmodel.types import Law, Lengths, ModelTier
        >>> slo = Slo(metric="ttft", p=0.95, target_s=0.5)
        >>> tiers = (ModelTier(model="fast", slos=(slo,), own_targets=("ttft_p95_s",)),)
        >>> lengths = Lengths.independent(Law.constant(100), Law.constant(50))
        >>> item = RequestClass(name="chat", model="fast", rate_rps=1.0, lengths=lengths, slos=(slo,))
        >>> target_key(item, slo)
        ('classes.chat.slo.ttft_p95_s', False)
        >>> from dataclasses import replace
        >>> target_key(replace(item, alternatives=tiers), slo)
        ('classes.chat.models.fast.slo.ttft_p95_s', True)
    """
    at = join_key("classes", item.name)
    if slo.metric == "makespan":
        return f"{at}.batch.deadline_s", False
    if any(tier.model == item.model and slo.key in tier.own_targets for tier in item.alternatives):
        return join_key(f"{join_key(f'{at}.models', item.model)}.slo", slo.key), True
    return join_key(f"{at}.slo", slo.key), False
