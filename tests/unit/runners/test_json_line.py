"""A line of an engine is read, also when its text is broken."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.runners import read_object

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), lambda inner: st.lists(inner, max_size=3)
)


@given(st.dictionaries(st.text(), VALUES))
def test_an_object_is_read_as_it_is(value: dict[str, Any]) -> None:
    assert read_object(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (rb'{"a":"x\ud83d"}', {"a": "x?"}),
        (rb'{"a":"\ude00x"}', {"a": "?x"}),
        (rb'{"a":"\ud83d\ude00"}', {"a": "\U0001f600"}),
        (b'{"a":"\xed\xa0\xbd"}', {"a": "\ufffd\ufffd\ufffd"}),
        (rb'{"a\udfff":[{"b":"\ud800"}]}', {"a?": [{"b": "?"}]}),
    ],
)
def test_halves_of_characters_are_replaced(line: bytes, value: dict[str, Any]) -> None:
    found = read_object(line)
    assert found == value
    msgspec.json.encode(found)  # what is made of it can be sent on


@pytest.mark.parametrize("line", [b"", b"text", b"[1]", b'"a"', b"7", b'{"a":', b'{"a":NaN}', b"[" * 100_000, b"\xff"])
def test_what_is_no_object_is_nothing(line: bytes) -> None:
    assert read_object(line) is None
