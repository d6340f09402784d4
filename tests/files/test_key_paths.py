"""Dotted key paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmodel.files import join_key, parent_key, split_key


def test_segments_with_dots_are_quoted():
    assert join_key("models", "llama-3.3-70b") == 'models."llama-3.3-70b"'
    assert split_key('models."llama-3.3-70b".quality') == ("models", "llama-3.3-70b", "quality")
    assert split_key("models.'llama-3.3-70b'[2].x") == ("models", "llama-3.3-70b", 2, "x")


@pytest.mark.parametrize("key", ["", ".", "a.", ".a", "a..b", "a[", "a[x]", 'a."b', "a b", 'a"b"', "a[1]b"])
def test_malformed_paths_are_refused(key):
    with pytest.raises(ValueError, match="not a key path"):
        split_key(key)


@given(
    st.lists(st.text(max_size=6) | st.integers(0, 99), min_size=1, max_size=5).filter(lambda s: isinstance(s[0], str))
)
def test_any_segments_survive_joining_and_splitting(segments):
    key = ""
    for segment in segments:
        key = join_key(key, segment)
    assert list(split_key(key)) == segments
    above = ""
    for segment in segments[:-1]:
        above = join_key(above, segment)
    assert parent_key(key) == above
