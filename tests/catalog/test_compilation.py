"""The compiled catalog: checked, up to date, written whole."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from qmodel.catalog import CatalogFileError
from qmodel.catalog.compilation import DATA, canonical_digest, compile_files, compiled_sections, write_compiled
from qmodel.catalog.schema import unsourced_numbers
from qmodel.files import Document, read_yaml

Break = Callable[[str, str, str], Path]
_PARSED: dict[tuple[str, str], Document] = {}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for path in DATA.glob("*.yaml"):
        shutil.copy2(path, tmp_path / path.name)
    return tmp_path


@pytest.fixture(autouse=True)
def read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with the same content are parsed once for all tests."""

    def read(path: Path) -> Document:
        name, text = Path(path).name, Path(path).read_text()
        if (name, text) not in _PARSED:
            _PARSED[name, text] = read_yaml(path)
        return replace(_PARSED[name, text], file=str(path))

    monkeypatch.setattr("qmodel.files.read_yaml", read)


@pytest.fixture
def broken(copy: Path) -> Break:
    """A copy of the data in which one text is replaced at its first place."""

    def change(name: str, old: str, new: str) -> Path:
        path = copy / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        return copy

    return change


def _messages(directory: Path) -> list[str]:
    with pytest.raises(CatalogFileError) as caught:
        compile_files(directory)
    return [str(problem).removeprefix(f"{directory}/") for problem in caught.value.problems]


def test_every_section_has_the_entries_it_should() -> None:
    sections, _ = compiled_sections()
    counts = {name: len(part) for name, part in sections.items() if name not in ("constants", "aliases")}
    assert counts == {
        "gpus": 30,
        "nodes": 57,
        "scale_out": 15,
        "topologies": 5,
        "scale_up_domains": 10,
        "models": 64,
        "gpu_hour": 139,
        "engines": 4,
    }


def test_an_entry_without_a_source_fails_with_its_position(broken: Break) -> None:
    directory = broken("gpus.yaml", "  source: ['https://d1.awsstatic", "  note2: ['https://d1.awsstatic")
    messages = _messages(directory)
    assert messages[0] == (
        "gpus.yaml:16:3: gpus[0]: 'source' is missing; a number without a source and a date does not land"
    )
    assert "gpus.yaml:29:3: gpus[0].note2: unknown key 'note2'; did you mean 'note'?" in messages


def test_a_price_without_a_date_fails(broken: Break) -> None:
    directory = broken("prices.yaml", "  as_of: '2026-09-19'\n", "")
    assert any("gpu_hour[0]: 'as_of' is missing" in message for message in _messages(directory))


def test_a_measured_table_without_a_date_fails(broken: Break) -> None:
    directory = broken("fabrics.yaml", "collectives_intra_node:\n", "collectives_intra_node:\n  extra: 1\n")
    text = (directory / "fabrics.yaml").read_text()
    start = text.index("collectives_intra_node:")
    (directory / "fabrics.yaml").write_text(text[:start] + text[start:].replace("  as_of: '2026-11-29'\n", "", 1))
    assert any("collectives_intra_node.extra: a number without source" in message for message in _messages(directory))


def test_constants_without_provenance_fail(broken: Break) -> None:
    directory = broken("engine_constants.yaml", "provenance:", "about_provenance:")
    assert any("'provenance' is missing" in message for message in _messages(directory))


def test_a_number_given_as_text_fails_with_line_and_column(broken: Break) -> None:
    directory = broken("gpus.yaml", "  hbm_gib: 22.49", "  hbm_gib: '22.49'")
    assert _messages(directory) == ["gpus.yaml:23:3: gpus[0].hbm_gib: must be a valid number (got '22.49')"]


def test_a_negative_number_fails(broken: Break) -> None:
    directory = broken("models.yaml", "  layers: 32\n", "  layers: -32\n")
    assert _messages(directory) == ["models.yaml:16:3: models[0].layers: must be greater than or equal to 1 (got -32)"]


def test_an_unknown_reference_fails(broken: Break) -> None:
    directory = broken("nodes.yaml", "  gpu: A100-80-SXM\n", "  gpu: A100-80-SMX\n")
    (message,) = _messages(directory)
    assert message.endswith("nodes[0].gpu: no entry 'A100-80-SMX' in gpus; did you mean 'A100-80-SXM'?")


def test_an_alias_to_nothing_fails(broken: Break) -> None:
    directory = broken("aliases.yaml", "    catalog_id: A10G\n", "    catalog_id: A10X\n")
    (message,) = _messages(directory)
    assert message.endswith("gpus.a10g.catalog_id: no entry 'A10X' in gpus")


def test_a_second_entry_with_the_same_id_fails(broken: Break) -> None:
    directory = broken("gpus.yaml", "- id: L4\n", "- id: A10G\n")
    assert any("a second entry 'A10G'" in message for message in _messages(directory))


def test_all_problems_are_reported_at_once(broken: Break) -> None:
    broken("gpus.yaml", "  hbm_gib: 22.49", "  hbm_gib: '22.49'")
    directory = broken("models.yaml", "  layers: 32\n", "  layers: 0\n")
    assert len(_messages(directory)) == 2


def test_a_number_under_a_sourced_mapping_is_sourced() -> None:
    sourced = {"table": {"source": "x", "as_of": "2026", "rows": [[1, 2], [3, 4]]}}
    assert not list(unsourced_numbers(sourced))
    assert list(unsourced_numbers({"table": {"source": "per-entry", "as_of": "2026", "n": 1}})) == ["table.n"]


def test_a_changed_file_is_compiled_again(copy: Path) -> None:
    sections, digest = compiled_sections(copy)
    assert sections["gpus"]["A10G"]["hbm_gib"] == 22.49
    path = copy / "gpus.yaml"
    path.write_text(path.read_text().replace("hbm_gib: 22.49", "hbm_gib: 22.5", 1))
    again, changed = compiled_sections(copy)
    assert again["gpus"]["A10G"]["hbm_gib"] == 22.5
    assert changed != digest
    assert json.loads((copy / "compiled.json").read_text())["digest"] == changed


def test_a_touched_file_with_the_same_content_is_not_compiled_again(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, digest = compiled_sections(copy)
    os.utime(copy / "gpus.yaml", (1, 1))
    monkeypatch.setattr("qmodel.catalog.compilation.compile_files", lambda directory: pytest.fail("compiled again"))
    assert compiled_sections(copy)[1] == digest


def test_a_folder_that_cannot_be_written_compiles_in_memory(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from qmodel.errors import ScenarioError

    def refuse(path: Path, text: str) -> None:
        raise ScenarioError("read-only")

    monkeypatch.setattr("qmodel.files.write_text", refuse)
    sections, digest = compiled_sections(copy)
    assert digest == canonical_digest(sections)
    assert not (copy / "compiled.json").exists()


def test_a_damaged_compiled_file_is_replaced(copy: Path) -> None:
    (copy / "compiled.json").write_text('{"format": 1, "sec')
    _, digest = compiled_sections(copy)
    assert json.loads((copy / "compiled.json").read_text())["digest"] == digest


def test_an_installation_without_the_yaml_files_uses_the_compiled_one(copy: Path) -> None:
    _, digest = compiled_sections(copy)
    for path in copy.glob("*.yaml"):
        path.unlink()
    assert compiled_sections(copy)[1] == digest


def test_processes_that_start_at_once_agree(copy: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from qmodel.catalog.compilation import compiled_sections;"
        "print(compiled_sections(Path(sys.argv[1]))[1])"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(copy)], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    digests = {process.communicate()[0].strip() for process in started}
    assert digests == {write_compiled(copy)["digest"]}
    assert not list(copy.glob(".*.tmp"))


def test_compiling_needs_no_numerical_library() -> None:
    code = (
        "import sys\n"
        "for name in ('numpy', 'scipy', 'pandas', 'networkx'): sys.modules[name] = None\n"
        "from qmodel.catalog.compilation import compile_files; compile_files()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_loading_reads_no_yaml_and_no_schema() -> None:
    code = (
        "import sys; from qmodel.catalog import load_catalog; load_catalog();"
        "print(sorted({'ruamel', 'pydantic', 'pandas', 'scipy'} & {name.split('.')[0] for name in sys.modules}))"
    )
    compiled_sections()
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
