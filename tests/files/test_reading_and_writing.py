"""Files that cannot be read or written, JSON, and writing whole or not at all."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from qmodel.errors import ScenarioError
from qmodel.files import read_json, read_raw, read_yaml, write_text


def message(call, *arguments, **options) -> str:
    with pytest.raises(ScenarioError) as caught:
        call(*arguments, **options)
    return str(caught.value)


def test_a_missing_file_names_its_neighbour(tmp_path):
    (tmp_path / "10-quickstart.yaml").write_text("a: 1")
    path = tmp_path / "10-quikstart.yaml"
    assert message(read_yaml, path) == f"{path}: no such file; did you mean '{tmp_path / '10-quickstart.yaml'}'?"


def test_folders_and_other_encodings_are_refused(tmp_path):
    assert message(read_yaml, tmp_path) == f"{tmp_path}: is a directory, not a file"
    assert message(read_yaml, "") == "<input>: no file name is given"
    assert "cannot be read" in message(read_yaml, "a\0b")
    path = tmp_path / "x.yaml"
    path.write_bytes(b"a: 1\nb: caf\xe9\n")
    assert message(read_yaml, path) == f"{path}:2:7: is not UTF-8 text (byte 0xe9); save it as UTF-8"
    path.write_bytes("a: 1".encode("utf-16"))
    assert message(read_yaml, path) == f"{path}: is UTF-16 text; save it as UTF-8"


def test_a_file_without_read_permission_is_told(tmp_path, monkeypatch):
    path = tmp_path / "x.yaml"
    path.write_text("a: 1")

    def refuse(*_, **__):  # root may read everything, so permissions alone would not show it
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert message(read_yaml, path) == f"{path}: cannot be read: permission denied"


def test_absurdly_large_files_are_refused_before_they_are_parsed(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\n" * 10)
    assert "is larger than 20 bytes" in message(read_raw, path, max_bytes=20)


def test_json_is_read_strictly(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"a": [1, 2.5, null, true], "b": {"c": "d"}}')
    assert read_json(path).data == {"a": [1, 2.5, None, True], "b": {"c": "d"}}
    for text, expected in (
        ('{"a": 1,}', f"{path}:1:"),
        ("", f"{path}:1:1: is empty"),
        ('{"a": NaN}', f"{path}: numbers must be finite (got NaN)"),
        ('{"a": 1e999}', f"{path}: numbers must be finite (got 1e999)"),
        ('{"a": 1, "a": 2}', f"{path}: key 'a' is given twice in one object"),
        ('{"a": ' + "9" * 30 + "}", f"{path}: a number is too large"),
        ("[1]", f"{path}: must be an object with keys at the top level"),
        ('{"a": ' + "[" * 100_000, f"{path}: is nested too deeply"),
    ):
        path.write_text(text)
        assert message(read_json, path).startswith(expected)


def test_writing_replaces_the_whole_file_and_keeps_its_permissions(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("a long old text\n" * 100)
    path.chmod(0o640)
    write_text(path, "new é\n")
    assert path.read_bytes() == "new é\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.txt"]


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new \ud800")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.txt"]


def test_writing_where_there_is_no_folder_is_told(tmp_path):
    path = tmp_path / "no" / "out.txt"
    assert message(write_text, path, "x") == f"{path}: cannot be written: there is no folder '{tmp_path / 'no'}'"
    assert "cannot be written: is a directory" in message(write_text, tmp_path, "x")


def test_a_link_keeps_pointing_where_it_points(tmp_path):
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink() and target.read_text() == "new"


def test_a_new_file_has_the_permissions_of_any_other(tmp_path):
    write_text(tmp_path / "ours.txt", "x")
    (tmp_path / "theirs.txt").write_text("x")
    assert (tmp_path / "ours.txt").stat().st_mode == (tmp_path / "theirs.txt").stat().st_mode
