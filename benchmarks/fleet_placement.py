"""How long placing a fleet on 24 nodes of 8 GPUs takes, and how close to its bound it comes.

    .venv/bin/python benchmarks/fleet_placement.py [--cases 30]

Random fleets of six pools fill a share of the free GPUs; half of the clusters are partly used. Same input, same
placements; times depend on the machine.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from qmodel.optimize import FleetPlacement, place_fleet
from qmodel.types import Cluster, Fleet, Layout, Pool

LAYOUTS = (
    Layout(tp=1),
    Layout(tp=2),
    Layout(tp=4),
    Layout(tp=8),
    Layout(tp=4, pp=2),
    Layout(tp=2, pp=4),
    Layout(tp=3, pp=2),
    Layout(tp=8, pp=2),
    Layout(tp=4, pp=3),
    Layout(tp=8, dp=2, ep=16),
    Layout(dp=16, ep=16),
    Layout(dp=32, ep=32),
)
NODES, GPUS, PER_RACK, POOLS = 24, 8, 4, 6


def drawn_case(seed: int) -> tuple[Fleet, Cluster, int]:
    """A fleet, a cluster, and the GPUs that are free."""
    generator = np.random.default_rng(seed)
    used = generator.choice([0, 0, 0, 1, 2, 3, 4, 6], NODES).tolist() if seed % 2 else ()
    cluster = Cluster.of_equal_hosts(NODES, gpu="h100-sxm", gpus=GPUS, hosts_per_rack=PER_RACK, used=used)
    free = sum(host.gpus for host in cluster.hosts)
    left = int(free * generator.uniform(0.8, 0.97))
    pools: dict[str, Pool] = {}
    for place in generator.choice(len(LAYOUTS), POOLS, replace=False):
        layout = LAYOUTS[place]
        replicas = min(int(generator.integers(1, 8)), left // layout.gpus)
        if replicas:
            name = str(layout)
            pools[name] = Pool(name=name, model="any", gpu="h100-sxm", layout=layout, replicas=replicas)
            left -= replicas * layout.gpus
    return Fleet(pools=pools, routing={}), cluster, free


def main() -> None:
    """Print one line a case and the worst of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=30)
    cases = parser.parse_args().cases
    print(f"{NODES} nodes of {GPUS} GPUs, {PER_RACK} to a rack; traffic in vectors a token, weighted by switch hops\n")
    print("seed  free  asked  pools  status      traffic      bound  gap %  seconds")
    slowest = widest = 0.0
    counts: dict[str, int] = {}
    for seed in range(cases):
        fleet, cluster, free = drawn_case(seed)
        start = time.perf_counter()
        found: FleetPlacement = place_fleet(fleet, cluster)
        seconds = time.perf_counter() - start
        asked = sum(pool.gpus for pool in fleet.pools.values())
        gap = found.gap
        print(
            f"{seed:4d}  {free:4d}  {asked:5d}  {len(fleet.pools):5d}  {found.status:10s} {found.traffic:9.1f}"
            f"  {'' if found.bound is None else f'{found.bound:.1f}':>9s}"
            f"  {'' if gap is None else f'{100 * gap:.2f}':>5s}  {seconds:7.2f}"
        )
        counts[found.status] = counts.get(found.status, 0) + 1
        slowest = max(slowest, seconds)
        widest = max(widest, gap or 0.0)
    print(f"\n{', '.join(f'{count} {status}' for status, count in sorted(counts.items()))}", end="; ")
    print(f"slowest {slowest:.2f} s, widest gap {100 * widest:.2f} %")


if __name__ == "__main__":
    main()
