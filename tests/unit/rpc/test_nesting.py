"""How deep JSON is: nothing but real nesting counts, and a hostile text costs no more than its length."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.rpc import MAX_DEPTH, is_too_deep, message


def arrays(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize(
    ("data", "deep"),
    [
        (b"{}", False),
        (b"", False),
        (arrays(MAX_DEPTH), False),
        (arrays(MAX_DEPTH + 1), True),
        (b'{"a":' * MAX_DEPTH + b"1" + b"}" * MAX_DEPTH, False),
        (b'{"a":' * 900 + b"1" + b"}" * 900, True),
        (arrays(100_000), True),
        (b"[" + b",".join([b"[]"] * 10_000) + b"]", False),
        (b'["' + b"[" * 1_000 + b'"]', False),
        (b'["\\"' + b"[" * 1_000 + b'"]', False),
        (b'["\\\\",' + arrays(MAX_DEPTH) + b"]", True),
        (b'["\\u005b\\n' + b"{" * 1_000 + b'"]', False),
        (b"[" * 1_000, True),
        (b"]" * 10 + b"[" * 1_000, True),
    ],
)
def test_what_is_too_deep(data: bytes, deep: bool) -> None:
    assert is_too_deep(data) is deep


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


JSON = st.recursive(
    st.text(alphabet='ab[]{}"\\\n\x00é') | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='[{"\\'), inner, max_size=3),
    max_leaves=12,
)


@given(JSON, st.booleans())
def test_it_agrees_with_a_parser(value: Any, ascii_only: bool) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    for limit in range(6):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(message, "MAX_DEPTH", limit)
            assert is_too_deep(data) is (depth_of(value) > limit)


@pytest.mark.parametrize(
    "data",
    [b"[" * 4_000_000, arrays(2_000_000), b"[]" * 2_000_000, b'"\\' * 2_000_000, (arrays(MAX_DEPTH) + b",") * 15_000],
    ids=["open", "deep", "flat", "quotes", "many"],
)
def test_a_hostile_text_costs_no_more_than_its_length(data: bytes) -> None:
    began = time.process_time()
    is_too_deep(data)
    assert time.process_time() - began < 5  # a quadratic one takes minutes
