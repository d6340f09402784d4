"""Open pools in the integer program: whole counts, and flows of classes that need not be whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from qmodel.candidates import OpenPool
from qmodel.optimize.limit_rows import Ledger
from qmodel.optimize.programs import Program, ProgramBuilder
from qmodel.types import FloatArray

__all__ = ["OpenChoice", "OpenVariables", "add_open_pools", "balanced", "open_choices", "open_rows"]

_LEAST_FLOW = 1e-6  # of a class: less is rounding


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenChoice:
    """An open pool with its count and the share of each class's demand that it carries.

    Attributes:
        shares: by class name, in (0, 1].
    """

    pool: OpenPool
    replicas: int
    shares: Mapping[str, float]

    @property
    def gpus(self) -> int:
        """GPUs of the whole pool."""
        return self.pool.candidate.pool_gpus(self.replicas)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenVariables:
    """Where a program holds an open pool.

    Attributes:
        count: variable of the whole count.
        flows: variable of the share of each class, by class name.
    """

    pool: OpenPool
    count: int
    flows: Mapping[str, int]


def add_open_pools(ledger: Ledger, pools: Sequence[OpenPool]) -> list[OpenVariables]:
    """Variables of open pools: a whole count n, then a flow x_k in [0, 1] of each class that it serves.

    Of an API n is the share of the limit on its rate, and the flows are what is paid.
    """
    places = []
    for item in pools:
        candidate = item.candidate
        label = f"{candidate.gpu} {candidate.layout} {candidate.variant} {candidate.model}"
        count = (
            ledger.builder.variable(f"rate {label}", cost=0.0, upper=1.0, integer=False)
            if item.is_api
            else ledger.replicas(f"measured {label}", candidate, most=float(max(item.most, 1)))
        )
        flows = {
            name: ledger.builder.variable(
                f"flow {name} {label}", cost=item.flow_usd_per_hour.get(name, 0.0), upper=1.0, integer=False
            )
            for name in item.takes
        }
        for name, flow in flows.items():
            ledger.carries(count, flow, {name: 1.0}, model=candidate.model)
        places.append(OpenVariables(pool=item, count=count, flows=flows))
    return places


def open_rows(builder: ProgramBuilder, places: Sequence[OpenVariables]) -> None:
    """A row for each open pool: what its flows take is no more than its count, sum_k takes_k x_k <= n.

    Groups of classes that share no pool have pools of their own; an API has one limit on its rate for all.
    """
    rates: dict[int, list[OpenVariables]] = {}
    for item in places:
        if item.pool.is_api:
            rates.setdefault(id(item.pool.candidate), []).append(item)
    for members in rates.values():
        if len(members) > 1:
            shared = {item.count: 1.0 for item in members}
            builder.row(f"rate {members[0].pool.candidate.gpu}", shared, "<=", 1.0)
    for item in places:
        row = {flow: item.pool.takes[name] for name, flow in item.flows.items()}
        name = f"carried {item.pool.candidate.gpu} {item.pool.candidate.layout}"
        builder.row(name, {**row, item.count: -1.0}, "<=", 0.0)


def open_choices(pools: Sequence[OpenPool], values: FloatArray, start: int) -> list[OpenChoice]:
    """The open pools that a solution uses.

    Args:
        pools: in the order in which their variables were added.
        values: of all variables.
        start: position of the first of them.
    """
    found = []
    for item in pools:
        names = list(item.takes)
        flows = values[start + 1 : start + 1 + len(names)].tolist()
        shares = {name: flow for name, flow in zip(names, flows, strict=True) if flow > _LEAST_FLOW}
        if shares and (item.is_api or values[start] > 0):
            replicas = 0 if item.is_api else int(values[start])
            found.append(OpenChoice(pool=item, replicas=replicas, shares=shares))
        start += 1 + len(names)
    return found


def balanced(
    choices: Sequence[OpenChoice], elsewhere: Mapping[str, float], solve: Callable[[Program], FloatArray | None]
) -> list[OpenChoice]:
    """The same counts with flows that spread the room: the fullest pool of each model is as empty as it can be.

    Args:
        choices: open pools with their counts.
        elsewhere: share of each class's demand that other pools carry.
        solve: the point that a program's optimum is at; None where it was not found.

    Returns:
        Open pools whose shares of a class add up to what is left of it; without those that carry nothing.
    """
    apis = [item for item in choices if item.pool.is_api]
    left = dict(elsewhere)
    for item in apis:  # what is paid by the token stays what it is
        for name, share in item.shares.items():
            left[name] = left.get(name, 0.0) + share
    return [*_spread([item for item in choices if not item.pool.is_api], left, solve), *apis]


def _spread(
    choices: Sequence[OpenChoice], elsewhere: Mapping[str, float], solve: Callable[[Program], FloatArray | None]
) -> list[OpenChoice]:
    found: list[OpenChoice] = []
    for model in dict.fromkeys(item.pool.candidate.model for item in choices):
        members = [item for item in choices if item.pool.candidate.model == model]
        names = dict.fromkeys(name for item in members for name in item.shares)
        wanted = {name: left for name in names if (left := 1.0 - elsewhere.get(name, 0.0)) > _LEAST_FLOW}
        flows = _even_flows(members, wanted, solve) or [dict(item.shares) for item in members]
        carried = {name: sum(item.get(name, 0.0) for item in flows) for name in wanted}
        for item, own in zip(members, flows, strict=True):
            shares = {name: own[name] * wanted[name] / carried[name] for name in wanted if own.get(name, 0.0) > 0.0}
            if shares:
                found.append(replace(item, shares=shares))
    return found


def _even_flows(
    members: Sequence[OpenChoice], wanted: Mapping[str, float], solve: Callable[[Program], FloatArray | None]
) -> list[dict[str, float]] | None:
    """Flows with the least utilisation z of the fullest pool: sum_j x_kj >= wanted_k, sum_k takes_kj x_kj <= n_j z."""
    if len(members) < 2:
        return None
    builder = ProgramBuilder()
    fullest = builder.variable("fullest", cost=1.0, upper=2.0, integer=False)
    places = []
    for number, item in enumerate(members):
        flows = {
            name: builder.variable(f"flow {name} {number}", cost=0.0, upper=1.0, integer=False)
            for name in item.pool.takes
            if name in wanted
        }
        row = {flow: item.pool.takes[name] for name, flow in flows.items()}
        builder.row(f"carried {number}", {**row, fullest: -float(item.replicas)}, "<=", 0.0)
        places.append(flows)
    for name, share in wanted.items():
        builder.row(f"cover {name}", {flows[name]: 1.0 for flows in places if name in flows}, ">=", share)
    values = solve(builder.build())
    if values is None:
        return None
    return [
        {name: float(values[flow]) for name, flow in flows.items() if values[flow] > _LEAST_FLOW} for flows in places
    ]
