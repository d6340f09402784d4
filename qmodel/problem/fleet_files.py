"""A fleet record from a fleet file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmodel.errors import ScenarioError
from qmodel.types import Fleet, Path, Pool, PoolLink

if TYPE_CHECKING:
    from qmodel.scenario import FleetFile

__all__ = ["fleet_from_file"]

_ONE_PER_SCENARIO = ("name", "version")  # engine keys that decide which constants apply


def fleet_from_file(file: FleetFile) -> Fleet:
    """The pools and routing that a fleet file states; prices and engine keys left out come from the scenario.

    Args:
        file: checked against its schema.

    Raises:
        ScenarioError: for a pool that names another engine.
    """
    problems = []
    pools = {}
    for name, spec in file.pools.items():
        engine = spec.engine.settings() if spec.engine is not None else {}
        for key in _ONE_PER_SCENARIO:
            if key in engine:
                what = "is set by the scenario for each GPU type, not by a pool"
                problems.append(file.problem(f"pools.{name}.engine.{key}", what, "move it to the scenario's engine"))
        pools[name] = Pool(
            name=name,
            model=spec.model,
            gpu=spec.gpu,
            layout=spec.layout.layout,
            precision=None if spec.precision == "auto" else spec.precision,
            replicas=spec.replicas,
            engine=engine,
            price_tier=(spec.price.term if spec.price is not None and spec.price.term else "on_demand"),
            usd_per_gpu_hour=spec.price.usd_per_gpu_hour if spec.price is not None else None,
            role=spec.role,
            link=PoolLink(**spec.link.model_dump()) if spec.link is not None else None,
        )
    if problems:
        raise ScenarioError(problems)
    return Fleet(
        pools=pools,
        routing={
            name: tuple(Path(pools=tuple(path.path), share=path.share) for path in paths)
            for name, paths in file.routing.items()
        },
    )
