"""``calibrate``: constants of the step-time model from measurements, as a file that scenarios can name."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qmodel.cli import options
from qmodel.cli.failures import DONE, guarded
from qmodel.cli.options import OutputFormat
from qmodel.cli.output import Answer, check_target, deliver, written
from qmodel.errors import Problem, ScenarioError

if TYPE_CHECKING:
    from qmodel.calibration import Calibration
    from qmodel.types import Layout

__all__ = ["calibrate_command"]

TABLES = ("parameters", "errors", "points", "left_out")
_YAML = (".yaml", ".yml")

Degree = Annotated[int, typer.Option(min=1, help="Degree of the measured replica, where a row states none.")]


@guarded(outcome="Nothing was calibrated.")
def calibrate_command(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="CSV, JSON or YAML: step times, benchmark results, recorded requests."),
    ],
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="Model that was measured.")],
    gpu: Annotated[str, typer.Option("--gpu", metavar="NAME", help="GPU it ran on.")],
    engine: Annotated[str, typer.Option("--engine", metavar="NAME", help="Engine it ran under.")] = "vllm",
    tp: Degree = 1,
    pp: Degree = 1,
    ep: Degree = 1,
    dp: Degree = 1,
    precision: Annotated[
        str | None, typer.Option("--precision", metavar="TYPE", help="bf16, fp8, fp4 or w4, if not the checkpoint's.")
    ] = None,
    max_num_seqs: Annotated[int | None, typer.Option("--max-num-seqs", min=1, help="As the engine ran.")] = None,
    max_batched_tokens: Annotated[
        int | None, typer.Option("--max-batched-tokens", min=1, help="As the engine ran.")
    ] = None,
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="DATE", help="Date of the measurements, else today.")
    ] = None,
    catalog: options.CatalogFiles = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the constants to FILE (.yaml), for scenarios to name."),
    ] = None,
    format_: options.Format = OutputFormat.TABLE,
    table: options.Table = None,
    debug: options.Debug = False,
) -> int:
    """Fit the constants of the step-time model to your own measurements."""
    import qmodel
    from qmodel.types import Layout

    check_target(out, table, format_, TABLES)
    if out is not None and out.suffix.lower() not in _YAML:
        raise ScenarioError([Problem(what="must end in .yaml", file=str(out), hint="scenarios read it as YAML")])
    _check_date(as_of)
    try:
        found = qmodel.calibrate(
            files,
            model=model,
            gpu=gpu,
            engine=engine,
            layout=_layout(Layout, tp=tp, pp=pp, ep=ep, dp=dp),
            precision=precision,
            max_num_seqs=max_num_seqs,
            max_batched_tokens=max_batched_tokens,
            catalog=tuple(catalog or ()),
            as_of=as_of,
        )
    except ScenarioError:
        raise
    except ValueError as error:  # an option that makes no sense
        raise ScenarioError([Problem(what=str(error), file="<command line>")]) from error
    if out is not None:
        target = out
        written(target, lambda: found.save(target))
    deliver(_answer(found), fmt=format_, table=table)
    return DONE


def _layout(layout: type[Layout], *, tp: int, pp: int, ep: int, dp: int) -> Layout:
    return layout(tp=tp, pp=pp, ep=tp * dp if ep > 1 else 1, dp=dp)


def _check_date(as_of: str | None) -> None:
    from datetime import date

    try:
        date.fromisoformat(as_of or "2000-01-01")
    except ValueError as error:
        what = f"must be a date, YYYY-MM-DD (got {as_of!r})"
        raise ScenarioError([Problem(what=what, file="--as-of")]) from error


def _answer(found: Calibration) -> Answer:
    from qmodel.report import calibration_pages

    def rows(name: str) -> tuple[list[dict[str, object]], tuple[str, ...]]:
        return calibration_pages.calibration_rows(found, name), calibration_pages.CALIBRATION_TABLES[name]

    return Answer(
        data=found.to_dict,
        page=lambda: calibration_pages.calibration_page(found),
        tables={name: partial(rows, name) for name in TABLES},
    )
