"""Names to records: the one place where ``perf`` asks the catalog."""

from __future__ import annotations

from qmodel.types.constants import EngineConstants
from qmodel.types.hardware import Fabric, Gpu, Model, Node
from qmodel.types.layouts import Engine

__all__ = ["constants_or_default", "engine_of", "fabric_of", "gpu_of", "model_of", "node_of"]


def model_of(model: Model | str) -> Model:
    """The record itself, or the catalog's model of that name."""
    if isinstance(model, Model):
        return model
    from qmodel.catalog import load_catalog

    return load_catalog().model(model)


def gpu_of(gpu: Gpu | str) -> Gpu:
    """The record itself, or the catalog's GPU of that name."""
    if isinstance(gpu, Gpu):
        return gpu
    from qmodel.catalog import load_catalog

    return load_catalog().gpu(gpu)


def engine_of(engine: Engine | str | None, gpu: Gpu) -> Engine:
    """The record itself, the catalog's defaults of that engine on ``gpu``, or plain defaults for None."""
    if engine is None:
        return Engine()
    if isinstance(engine, Engine):
        return engine
    from qmodel.catalog import load_catalog

    return load_catalog().engine(engine, gpu)


def node_of(node: Node | str | None, gpu: Gpu) -> Node:
    """The record itself, the catalog's node of that name, or the default node of ``gpu`` for None."""
    if isinstance(node, Node):
        return node
    from qmodel.catalog import load_catalog

    catalog = load_catalog()
    return catalog.default_node(gpu.name) if node is None else catalog.node(node)


def fabric_of(fabric: Fabric | str | None) -> Fabric | None:
    """The record itself or the catalog's fabric of that name; None stays None."""
    if fabric is None or isinstance(fabric, Fabric):
        return fabric
    from qmodel.catalog import load_catalog

    return load_catalog().fabric(fabric)


def constants_or_default(constants: EngineConstants | None) -> EngineConstants:
    """The constants themselves, or those of the catalog for None."""
    if constants is not None:
        return constants
    from qmodel.catalog import load_catalog

    return load_catalog().constants
