"""The package's public names resolve, and none is shadowed by a module of the same name."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import qmodel.queueing


def test_every_public_name_resolves_after_every_submodule_is_imported() -> None:
    for module in pkgutil.walk_packages(qmodel.queueing.__path__, "qmodel.queueing."):
        importlib.import_module(module.name)
    for name in qmodel.queueing.__all__:
        assert callable(getattr(qmodel.queueing, name)), name
    assert set(qmodel.queueing.__all__) == set(dir(qmodel.queueing))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'qmodel\.queueing' has no attribute 'mgcc'"):
        _ = qmodel.queueing.mgcc
