"""The machines a fleet is put on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Cluster", "Host"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One island of GPUs: a node, or a rack whose GPUs share one scale-up domain.

    Attributes:
        name: unique in its cluster.
        gpu: GPU type as fleets write it.
        gpus: GPUs that are free.
        rack: hosts with the same rack share a leaf of the network.
    """

    name: str
    gpu: str
    gpus: int
    rack: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a host needs a name")
        if isinstance(self.gpus, bool) or not isinstance(self.gpus, int) or self.gpus < 0:
            raise ValueError(f"host {self.name}: gpus must be a whole number of at least 0 (got {self.gpus!r})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Hosts and what a byte between two of them costs.

    Attributes:
        hosts: at least one, names unique.
        between_hosts: weight of a byte between hosts of one rack; switch hops, one leaf.
        between_racks: weight of a byte between racks; leaf, spine, leaf, and more where the uplinks are oversubscribed.

    Example:
        >>> cluster = Cluster.of_equal_hosts(24, gpu="h100-sxm", gpus=8, hosts_per_rack=4)
        >>> len(cluster.hosts), cluster.hosts[-1].name, cluster.hosts[-1].rack
        (24, 'host-23', 'rack-5')
    """

    hosts: tuple[Host, ...]
    between_hosts: float = 1.0
    between_racks: float = 3.0

    def __post_init__(self) -> None:
        if not self.hosts:
            raise ValueError("a cluster needs at least one host")
        names = [host.name for host in self.hosts]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two hosts are named {twice[0]!r}; names must be unique")
        if not 0.0 < self.between_hosts <= self.between_racks < float("inf"):
            raise ValueError(
                "between_hosts must be greater than 0 and at most between_racks"
                f" (got {self.between_hosts} and {self.between_racks})"
            )

    @classmethod
    def of_equal_hosts(
        cls, count: int, *, gpu: str, gpus: int, hosts_per_rack: int, used: Sequence[int] = ()
    ) -> Cluster:
        """Hosts of one type, rack after rack.

        Args:
            count: hosts.
            gpu: their GPU type.
            gpus: GPUs of one.
            hosts_per_rack: how many share a leaf; the last rack may have fewer.
            used: GPUs in use on the first hosts, 0 for the others.

        Raises:
            ValueError: if ``count`` or ``hosts_per_rack`` is below 1, or more GPUs are in use than a host has.
        """
        if count < 1 or hosts_per_rack < 1:
            raise ValueError(f"count and hosts_per_rack must be at least 1 (got {count} and {hosts_per_rack})")
        if len(used) > count:
            raise ValueError(f"used has {len(used)} entries for {count} hosts")
        taken = [*used, *(0 for _ in range(count - len(used)))]
        return cls(
            hosts=tuple(
                Host(name=f"host-{at}", gpu=gpu, gpus=gpus - taken[at], rack=f"rack-{at // hosts_per_rack}")
                for at in range(count)
            )
        )
