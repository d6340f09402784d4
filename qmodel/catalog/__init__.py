"""Facts about accelerators, nodes, fabrics, models, engines and prices, each with source and date.

Names resolve on first use, so that the step that compiles the data when the package is built can import
its modules without the numerical libraries.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qmodel.catalog.huggingface import read_model_config
    from qmodel.catalog.parameters import parameter_count
    from qmodel.catalog.prices import Market, PriceChoice, PriceRow, PriceRule, Term
    from qmodel.catalog.schema import CatalogFileError
    from qmodel.catalog.store import Catalog, load_catalog

__all__ = [
    "Catalog",
    "CatalogFileError",
    "Market",
    "PriceChoice",
    "PriceRow",
    "PriceRule",
    "Term",
    "load_catalog",
    "parameter_count",
    "read_model_config",
]

_HOME = {
    "Catalog": "store",
    "CatalogFileError": "schema",
    "Market": "prices",
    "PriceChoice": "prices",
    "PriceRow": "prices",
    "PriceRule": "prices",
    "Term": "prices",
    "load_catalog": "store",
    "parameter_count": "parameters",
    "read_model_config": "huggingface",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
