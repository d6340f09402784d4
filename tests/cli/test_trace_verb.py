"""``qmodel trace``: describe, fit and convert."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

import qmodel
from qmodel.cli.trace_verbs import FIT_TABLES, SUMMARY_TABLES
from qmodel.report.trace_pages import FIT_TABLES as FIT_COLUMNS
from qmodel.report.trace_pages import SUMMARY_TABLES as SUMMARY_COLUMNS
from qmodel.trace import FORMATS, read_trace
from tests.cli.conftest import Command

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "tests" / "data" / "trace"
CONV = ROOT / "scenarios" / "data" / "azure_2023_conv.csv.gz"
MOONCAKE = ROOT / "scenarios" / "data" / "mooncake_fast25_conversation.csv.gz"


def scenario_of(fragment: str) -> dict[str, object]:
    """A whole scenario from a fragment, with a model and a target for each class."""
    import ruamel.yaml

    data = ruamel.yaml.YAML(typ="safe").load(fragment)
    classes = {
        name: {**spec, "model": "llama-3.1-8b", "slo": {"ttft_p95_s": 2}} for name, spec in data["classes"].items()
    }
    return {"qmodel": 1, "classes": classes, "fleet": {"gpus": {"h100-sxm": {}}}}


def test_a_trace_is_described_on_a_page(qm: Command) -> None:
    run = qm("trace", "describe", MOONCAKE)
    assert (run.code, run.err) == (0, "")
    assert "12,031 requests" in run.out
    assert re.search(r"squared coefficient of variation of gaps +1\.02 +9\.20", run.out)
    assert re.search(r"^clock +3\.00 s steps$", run.out, flags=re.MULTILINE)
    assert "█" in run.out


def test_a_description_as_json_has_everything(qm: Command) -> None:
    data = json.loads(qm("trace", "describe", SAMPLES / "burstgpt.csv", "--format", "json").out)
    assert data["rejected"] == {"output tokens below 1": 1}
    assert data["classes"] == {"Conversation log": 2, "API log": 1}
    assert data["lengths"][0]["quantiles"]["p50"] == 472
    assert data["unused"] == ["Model", "Total tokens"]


@pytest.mark.parametrize("table", SUMMARY_TABLES)
def test_each_table_has_its_columns(qm: Command, table: str) -> None:
    run = qm("trace", "describe", SAMPLES / "burstgpt.csv", "--format", "csv", "--table", table)
    assert run.code == 0
    assert tuple(run.out.splitlines()[0].split(",")) == SUMMARY_COLUMNS[table]


def test_holding_times_change_the_peakedness(qm: Command) -> None:
    def z(*words: object) -> float:
        data = json.loads(qm("trace", "describe", CONV, "--format", "json", *words).out)
        return float(data["burstiness"]["peakedness"])

    assert z() == pytest.approx(1.56, abs=0.01)
    assert z("--decode-ms", 100, "--prefill-ms", 0.1) > z()


@pytest.mark.parametrize("words", [(), ("--split", "100,400")])
def test_a_fit_is_a_scenario_but_for_model_and_targets(qm: Command, words: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "classes.yaml"
    run = qm("trace", "fit", CONV, *words, "--out", out)
    assert run.code == 0
    assert out.read_text() in run.out
    scenario = qmodel.load_scenario(scenario_of(out.read_text()))
    rates = [spec.rate_rps or 0.0 for spec in scenario.classes.values()]
    assert sum(rates) == pytest.approx(read_trace(CONV).rate_rps, rel=1e-4)


def test_thinking_is_written_as_thinking_and_answer(qm: Command) -> None:
    run = qm("trace", "fit", SAMPLES / "otlp.jsonl", "--by", "class", "--format", "json")
    classes = json.loads(run.out)["scenario"]["classes"]
    assert set(classes) == {"m", "n"}
    assert set(classes["m"]) == {"rate_rps", "prompt_tokens", "reasoning_tokens", "answer_tokens"}
    assert qmodel.load_scenario(scenario_of(json.dumps({"classes": classes}))).classes


def test_fits_as_csv_name_the_distance_of_every_family(qm: Command) -> None:
    rows = list(csv.DictReader(io.StringIO(qm("trace", "fit", CONV, "--format", "csv").out)))
    assert tuple(rows[0]) == FIT_COLUMNS[FIT_TABLES[0]]
    best = {row["family"]: float(row["ks"]) for row in rows if row["length"] == "output_tokens"}
    assert best["mixture"] == pytest.approx(0.055, abs=0.002)


@pytest.mark.parametrize("name", ["vllm-metrics.txt", "sglang-metrics.txt", "servegen-dataset.json"])
def test_histograms_are_described_and_fitted(qm: Command, name: str) -> None:
    run = qm("trace", "describe", SAMPLES / name)
    assert run.code == 0
    assert "laws from histograms" in run.out
    fitted = qm("trace", "fit", SAMPLES / name)
    assert fitted.code == 0
    fragment = fitted.out[fitted.out.index("# fitted to") : fitted.out.index("\nNotes")]
    assert qmodel.load_scenario(scenario_of(fragment)).classes


def test_many_classes_are_gathered(qm: Command, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    rows = "".join(f"{i},{i % 50 + 1},{i % 9 + 1},u{min(i % 40, 20)}\n" for i in range(400))
    file.write_text("arrival_s,prompt_tokens,output_tokens,user\n" + rows)
    run = qm("trace", "fit", file, "--by", "user", "--format", "json")
    data = json.loads(run.out)
    assert len(data["classes"]) == 12
    assert sum(item["requests"] for item in data["classes"].values()) == 400
    assert any("21 classes; all but the 11 largest are in 'other'" in note for note in data["notes"])


@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_a_converted_file_reads_as_the_same_requests(qm: Command, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"out.{ending}"
    run = qm("trace", "convert", SAMPLES / "otlp.jsonl", "--out", out)
    assert (run.code, run.out) == (0, "")
    assert "1 rows left out: prompt tokens are missing" in run.err
    assert read_trace(out).prompt_tokens.tolist() == [100, 10]


def test_conversion_without_a_file_prints_csv(qm: Command) -> None:
    run = qm("trace", "convert", SAMPLES / "burstgpt.csv", "--by", "Model")
    assert run.out.splitlines() == [
        "arrival_s,prompt_tokens,output_tokens,class",
        "0,472,18,ChatGPT",
        "40,1087,230,ChatGPT",
        "113,417,276,GPT-4",
    ]


def test_conversion_can_spread_a_clock_and_name_ranges(qm: Command, tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    assert qm("trace", "convert", MOONCAKE, "--spread", "--split", "350", "--out", out).code == 0
    trace = read_trace(out)
    assert trace.clock_step_s is None
    assert trace.classes == ("above-350", "up-to-350")
    assert trace.only("up-to-350").output_tokens.max() == 350


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["describe", "none.csv"], "none.csv: no such file"),
        (["describe", "azure.csv", "--table", "pools"], "no table 'pools'"),
        (["describe", "azure.csv", "--decode-ms", "-1"], "decode_s, prefill_s: must be at least 0"),
        (["describe", "azure.csv", "--from", "azur"], "did you mean 'azure'?"),
        (["fit", "azure.csv", "--by", "class"], "has no column 'class' to tell classes by"),
        (["fit", "azure.csv", "--split", "many"], "must be whole numbers of tokens"),
        (["fit", "azure.csv", "--split", "9,3"], "edges: must be whole, at least 1 and rising"),
        (["fit", "burstgpt.csv", "--split", "9", "--by", "class"], "--by and --split each say"),
        (["convert", "azure.csv", "--out", "a.parquet"], "must end in .csv or .csv.gz"),
        (["convert", "vllm-metrics.txt"], "has histograms of lengths, not requests"),
    ],
)
def test_bad_input_is_said_in_one_line(
    qm: Command, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(SAMPLES)
    run = qm("trace", *words)
    assert (run.code, run.out) == (2, "")
    assert message in run.err
    assert "Traceback" not in run.err


def test_the_page_has_every_option_and_format(qm: Command) -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for verb in ("describe", "fit", "convert"):
        run = qm("trace", verb, "--help")
        assert run.code == 0
        assert f"trace {verb}" in page
        assert set(re.findall(r"--[a-z-]+", run.out)) - {"--help"} <= set(re.findall(r"--[a-z-]+", page))
    for table, columns in {**SUMMARY_COLUMNS, **FIT_COLUMNS}.items():
        assert f"| `{table}` | `{', '.join(columns)}` |" in page
    formats = (ROOT / "docs" / "workload.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z-]+)` \| ", formats, flags=re.MULTILINE) == [item.name for item in FORMATS]
