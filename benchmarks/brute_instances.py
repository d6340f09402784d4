"""Random scenarios that mix features: cost and bound of each plan against brute force over counts and splits.

Run from the checkout: ``python -m benchmarks.brute_instances [first] [last]``; 0 to 199 if left out. One takes a second
or two of processor time.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator

import numpy as np

import qmodel as qm
from tests.planning.brute_force import cheapest_fleet
from tests.planning.mixed_scenarios import existing_fleet, mixed_scenario, running_fleet

_SAME = 1e-6  # of a cost
_ENOUGH_TIME = qm.SolverOptions(time_limit_s=300.0)  # so that a busy machine ends no search


def main() -> None:
    """Print what brute force says of some instances."""
    numbers = [int(word) for word in sys.argv[1:]]
    first, last = (numbers + [0, 199][len(numbers) :])[:2]
    for line in mixed_lines(range(first, last + 1)):
        print(line, flush=True)


def mixed_lines(seeds: range) -> Iterator[str]:
    """A line for every instance that is not proven or that brute force contradicts, and the sums at the end."""
    gaps: list[float] = []
    equal = proven = none = left = 0
    wrong: list[int] = []
    for seed in seeds:
        data = mixed_scenario(seed)
        plan = qm.plan(data, existing=existing_fleet(seed, data), solver=_ENOUGH_TIME)
        best = cheapest_fleet(data, running_fleet(seed, data)).cost_usd_per_hour
        cost, bound = plan.cost_usd_per_hour, plan.bound_usd_per_hour
        if cost is None:
            none += plan.status == "infeasible" and bool(np.isinf(best))
            if plan.status != "infeasible" or np.isfinite(best):
                wrong.append(seed)
                yield f"  {seed}: {plan.status}, brute force {best:.3f}"
            continue
        gap = plan.gap or 0.0
        gaps.append(gap)
        equal += cost <= best * (1.0 + _SAME)
        proven += plan.status == "optimal"
        above = bound is not None and bound > best * (1.0 + _SAME)
        false = plan.status == "optimal" and cost > best * (1.0 + _ENOUGH_TIME.mip_gap + _SAME)
        if above or false or not qm.verify(plan).ok:
            wrong.append(seed)
        if above or false or plan.status != "optimal" or cost > best * (1.0 + _SAME):
            left += 1
            yield f"  {seed}: {plan.status}, {cost:.3f} USD/h, bound {bound:.3f}, gap {gap:.2%}, brute force {best:.3f}"
    yield (
        f"{len(seeds)} scenarios, {none} infeasible in both; of the {len(gaps)} others {equal} cost no more than brute"
        f" force, {proven} are proven; gap mean {statistics.mean(gaps):.2%}, nine in ten up to"
        f" {np.quantile(gaps, 0.9):.2%}, largest {max(gaps):.2%}; bound above, false proof or false infeasible:"
        f" {wrong or 'none'}; listed above: {left}"
    )


if __name__ == "__main__":
    main()
