"""How many parts of a group one token reaches when its experts are spread over them."""

from __future__ import annotations

from math import comb

__all__ = ["parts_reached"]


def parts_reached(
    experts: int, experts_per_token: int, parts: int, groups: int = 1, groups_per_token: int = 1
) -> float:
    """Expected number of parts that hold at least one expert of a token; its own part counts like any other.

    Experts are spread evenly over the parts and every expert is as likely as any other. With node-limited routing a
    token first picks ``groups_per_token`` of the ``groups`` of experts and then experts among those; neighbouring
    groups share a part. Where parts and groups do not divide one another the limit is left out, which overstates.

    Args:
        experts: routed experts of a layer.
        experts_per_token: of them, those one token visits.
        parts: GPUs, nodes or islands that the experts are spread over.
        groups: groups of experts for node-limited routing, 1 without.
        groups_per_token: groups one token may visit.

    Returns:
        At least 1 and at most ``parts``.

    Raises:
        ValueError: if a count is below 1, there are more parts than experts, a token visits more experts or groups than
            there are, or the groups that it may visit hold fewer experts than it visits.

    Example:
        >>> [round(parts_reached(256, 8, nodes, groups=8, groups_per_token=4), 2) for nodes in (2, 4, 8)]
        [1.93, 2.93, 3.63]

    Source: own construction; counting of draws without replacement.
    """
    for name, value in (("experts", experts), ("parts", parts), ("groups", groups)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1 (got {value})")
    if parts > experts:
        raise ValueError(f"parts must be at most {experts}, the experts (got {parts})")
    if not 1 <= experts_per_token <= experts:
        raise ValueError(f"experts_per_token must be between 1 and {experts}, the experts (got {experts_per_token})")
    if not 1 <= groups_per_token <= groups:
        raise ValueError(f"groups_per_token must be between 1 and {groups}, the groups (got {groups_per_token})")
    grouped = experts % groups == 0 and (parts % groups == 0 or groups % parts == 0)
    if not grouped:
        groups = groups_per_token = 1
    pool = experts * groups_per_token // groups
    if experts_per_token > pool:
        raise ValueError(
            f"{groups_per_token} of {groups} groups hold {pool} experts, fewer than the {experts_per_token} a token"
            " visits; raise groups_per_token"
        )
    return parts * (1.0 - _missed(experts, experts_per_token, parts, groups, groups_per_token, pool))


def _missed(experts: int, picks: int, parts: int, groups: int, chosen: int, pool: int) -> float:
    """Probability that a part holds no expert of a token."""
    whole = comb(pool, picks)
    if parts >= groups:
        inside = comb(pool - min(experts // parts, pool), picks) / whole
        return 1.0 - chosen / groups * (1.0 - inside)
    held = groups // parts
    missed = 0.0
    for own in range(max(0, chosen - groups + held), min(held, chosen) + 1):
        chance = comb(held, own) * comb(groups - held, chosen - own) / comb(groups, chosen)
        missed += chance * comb(pool - own * experts // groups, picks) / whole
    return missed
