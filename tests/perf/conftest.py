"""Catalog records and plain architectures that the performance tests share."""

from __future__ import annotations

import pytest

from qmodel.catalog import load_catalog
from qmodel.types import Gpu, Model


@pytest.fixture(scope="session")
def h100() -> Gpu:
    return load_catalog().gpu("h100-sxm")


@pytest.fixture(scope="session")
def h200() -> Gpu:
    return load_catalog().gpu("h200-sxm")


@pytest.fixture(scope="session")
def b200() -> Gpu:
    return load_catalog().gpu("b200-sxm")


@pytest.fixture(scope="session")
def llama_70b() -> Model:
    return load_catalog().model("llama-3.3-70b")


@pytest.fixture(scope="session")
def llama_8b() -> Model:
    return load_catalog().model("llama-3.1-8b")


@pytest.fixture(scope="session")
def r1() -> Model:
    return load_catalog().model("deepseek-r1")


@pytest.fixture(scope="session")
def gpt_oss() -> Model:
    return load_catalog().model("gpt-oss-120b")
