"""The command line in this process, with answers made by hand where a test does not need the planner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

import qmodel
from qmodel.cli.main import app


@dataclass(frozen=True)
class Run:
    """What a command left behind."""

    code: int
    out: str
    err: str


Command = Callable[..., Run]


@pytest.fixture
def qm(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run ``qmodel`` with words; keyword arguments replace public functions of the package."""

    def run(*words: object, **replaced: object) -> Run:
        for name, function in replaced.items():
            monkeypatch.setattr(qmodel, name, function, raising=False)
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Run(code=result.exit_code, out=result.stdout, err=result.stderr)

    return run
