"""YAML: plain data, positions, and a message for everything that is broken."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmodel.errors import ScenarioError
from qmodel.files import parse_value, read_yaml, read_yaml_text

PLAIN = (dict, list, str, int, float, bool, type(None))


def problems_of(text: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        read_yaml_text(text, "x.yaml")
    return [str(problem) for problem in caught.value.problems]


def types_in(value: object) -> set[type]:
    found = {type(value)}
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inner:
        found |= types_in(item)
    return found


def test_words_that_yaml_1_1_turns_into_booleans_and_dates_stay_text():
    text = "on: no\nday: 2026-01-31\nsexagesimal: 12:30\ncount: 1_000\nyes: off"
    assert read_yaml_text(text, "x").data == {
        "on": "no",
        "day": "2026-01-31",
        "sexagesimal": "12:30",
        "count": "1_000",
        "yes": "off",
    }


def test_core_schema_scalars_have_their_types():
    text = "a: [12, -3, 0x1F, 0o17, 1.5, 1e-3, .5, true, False, ~, null, '12', \"1.5\"]\nb:\nc: 7.1e-5"
    data = read_yaml_text(text, "x").data
    assert data["a"] == [12, -3, 31, 15, 1.5, 0.001, 0.5, True, False, None, None, "12", "1.5"]
    assert data["b"] is None and data["c"] == 7.1e-5
    assert [type(item) for item in data["a"][:6]] == [int, int, int, int, float, float]


def test_no_type_of_the_reader_leaks():
    text = "a: &x {b: [1, 2.5, 'q', \"d\", e]}\n"
    data = read_yaml_text(text + "c: *x\nd: |\n  block\ne: !!str 12\nf: !!float 3\n8: x", "x").data
    assert types_in(data) <= set(PLAIN)
    assert data["d"] == "block\n" and data["e"] == "12" and data["f"] == 3.0 and data["8"] == "x"
    assert all(type(key) is str for key in data)


def test_positions_are_those_of_the_keys_and_list_items():
    document = read_yaml_text("a:\n  b: [10, {c: 1}]\n'd.e':\n  - x\n  - y: 2\n", "x.yaml")
    assert document.positions == {
        "": (1, 1),
        "a": (1, 1),
        "a.b": (2, 3),
        "a.b[0]": (2, 7),
        "a.b[1]": (2, 11),
        "a.b[1].c": (2, 12),
        '"d.e"': (3, 1),
        '"d.e"[0]': (4, 5),
        '"d.e"[1]': (5, 5),
        '"d.e"[1].y': (5, 5),
    }
    assert document.position("a.b[1].missing.deep") == (2, 11)
    assert document.problem("a.zz", "is wrong", "mend it").line == 1


def test_all_repeated_keys_and_bad_numbers_are_told_at_once():
    assert problems_of("a: 1\na: 2\nb: {c: .nan, c: -.inf}\nd: 1e999\ne: " + "9" * 50) == [
        "x.yaml:2:1: key 'a' is given twice (first on line 1); keep one of the two",
        "x.yaml:3:8: b.c: must be a finite number (got .nan)",
        "x.yaml:3:14: b: key 'c' is given twice (first on line 3); keep one of the two",
        "x.yaml:3:17: b.c: must be a finite number (got -.inf)",
        "x.yaml:4:4: d: must be a finite number (got 1e999)",
        f"x.yaml:5:4: e: number is too large (got {'9' * 40}...)",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "x.yaml: is empty"),
        ("# only a comment\n", "x.yaml:1:1: has no content"),
        ("12", "x.yaml:1:1: must be a mapping of keys at the top level (got 12)"),
        ("- a\n- b", "x.yaml:1:1: must be a mapping of keys at the top level (got a list)"),
        ("a:\n\tb: 1", "x.yaml:2:1: is not valid YAML: found character '\\t' that cannot start any token; "
                       "indent with spaces, not tabs"),
        ("a: b: c", "x.yaml:1:5: is not valid YAML: mapping values are not allowed here; "
                    "a space, quote or line break may be missing before this ':'"),
        ("a: [1,\nb: 2", "x.yaml:2:5: is not valid YAML: expected ',' or ']', but got the end of the file "),
        ("a: 'x", "x.yaml:1:6: is not valid YAML: found unexpected end of stream; a quote or bracket is not closed"),
        ("a: *x", "x.yaml:1:4: alias '*x' names no '&x' above it; quote text that begins with '*'"),
        ("a: &x [*x]", "x.yaml:1:8: alias '*x' stands inside what it names"),
        ("a: !py/object 1", "x.yaml:1:4: a: tag '!py/object' is not allowed here"),
        ("? [1]\n: 2", "x.yaml:1:3: a key must be text; quote a key that begins with a bracket, '*' or '&'"),
        ("a: 1\n---\nb: 1", "x.yaml:2:1: has a second document ('---'); one file holds one document"),
        ("a: @x", "x.yaml:1:4: is not valid YAML: found character '@' that cannot start any token; quote the text"),
        ("a: " + "[" * 200, "x.yaml:1:104: is nested more than 100 levels deep"),
        ("a: !!int x", "x.yaml:1:4: a: 'x' is not of type '!!int'"),
    ],
)  # fmt: skip
def test_broken_yaml_is_told_with_its_position(text, expected):
    found = problems_of(text)
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_aliases_are_copies_and_have_the_alias_s_position():
    document = read_yaml_text("a: &x {b: [1]}\nc: *x\n", "x.yaml")
    document.data["a"]["b"].append(2)
    assert document.data["c"] == {"b": [1]}
    assert document.position("c.b[0]") == (2, 1)


def test_merge_keys_give_way_to_stated_keys():
    text = "a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc:\n  <<: [*a, *b]\n  x: 9\n"
    document = read_yaml_text(text, "x.yaml")
    assert document.data["c"] == {"x": 9, "y": 2, "z": 4}
    assert document.position("c.y") == (4, 3)
    assert problems_of("a:\n  <<: 3") == ["x.yaml:2:3: a: '<<' must name a mapping or a list of them"]


def test_a_billion_laughs_are_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 10):
        lines.append(f"a{level}: &a{level} [" + ", ".join([f"*a{level - 1}"] * 10) + "]")
    assert problems_of("\n".join(lines))[0].endswith("aliases expand to more than 500000 values")


def test_carriage_returns_and_byte_order_marks_are_harmless(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb:\r\n  c: 2\r\n")
    document = read_yaml(path)
    assert document.data == {"a": 1, "b": {"c": 2}}
    assert document.position("b.c") == (3, 3)


def test_a_value_may_be_a_scalar_a_list_or_a_mapping():
    assert parse_value("40", "x") == 40
    assert parse_value("[1, 2]", "x") == [1, 2]
    assert parse_value("{mean: 300}", "x") == {"mean": 300}
    assert parse_value("~", "x") is None
    assert parse_value("", "x") is None


@given(st.text(alphabet="ab:{}[],&*!|>'\"%@`#-?~\t\n \\\x00\x85 U9<.0", max_size=60))
def test_any_text_gives_plain_data_or_problems(text):
    try:
        data = read_yaml_text(text, "x").data
    except ScenarioError as error:
        assert error.problems
    else:
        assert types_in(data) <= set(PLAIN)


_KEYS = st.text(alphabet="abz.-_ 0", min_size=1, max_size=5)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet="ab0.~'\"\n: é", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(_KEYS, _VALUES, min_size=1, max_size=4))
def test_json_is_yaml_and_reads_back_the_same(tree):
    import json

    data = read_yaml_text(json.dumps(tree), "x").data
    assert data == tree
    assert not any(isinstance(value, float) and not math.isfinite(value) for value in data.values())
