"""Dotted keys, values of the command line, and the merge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.config import (
    ConfigError,
    expand,
    join_key,
    lookup,
    merge,
    nest,
    parse_override,
    parse_overrides,
    same,
    split_key,
    value_text,
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
SCALARS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | TEXTS
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=6
)
TABLES: st.SearchStrategy[dict[str, Any]] = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("model", ("model",)),
        ("a.b.c", ("a", "b", "c")),
        (" a . b ", ("a", "b")),
        ('projects."/x.y".trust_level', ("projects", "/x.y", "trust_level")),
        ("projects.'/x.y'", ("projects", "/x.y")),
        ('a."q\\"\\u00e9"', ("a", 'q"é')),
        ("a.b c/d", ("a", "b c/d")),
        ('""', ("",)),
    ],
)
def test_keys_are_split_at_dots_outside_of_quotes(text: str, parts: tuple[str, ...]) -> None:
    assert split_key(text) == parts


@pytest.mark.parametrize("text", ["", " ", ".", "a.", ".a", "a..b", 'a"b', '"a', "'a", '"a"b', '"\\x"', "a\nb"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        split_key(text)


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_every_key_path_can_be_written(parts: list[str]) -> None:
    assert split_key(join_key(parts)) == tuple(parts)


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("model=gpt", {"model": "gpt"}),
        ('model="gpt"', {"model": "gpt"}),
        ("model = 'gpt' ", {"model": "gpt"}),
        ("n=3", {"n": 3}),
        ("n=3.5", {"n": 3.5}),
        ("b=true", {"b": True}),
        ("b=True", {"b": "True"}),
        ('l=["a", 1]', {"l": ["a", 1]}),
        ("t={a=1}", {"t": {"a": 1}}),
        ("a.b=1", {"a": {"b": 1}}),
        ("url=http://h/?a=b", {"url": "http://h/?a=b"}),
        ("empty=", {"empty": ""}),
        ('open="half', {"open": '"half'}),
        ("two=1\nthree=3", {"two": "1\nthree=3"}),
        ('"a=b".c=1', {"a=b": {"c": 1}}),
    ],
)
def test_a_value_is_toml_or_else_text(text: str, table: dict[str, Any]) -> None:
    assert parse_override(text) == table


@pytest.mark.parametrize("text", ["model", "", "=1", "a..b=1", ".=1"])
def test_a_bad_override_names_the_flag(text: str) -> None:
    with pytest.raises(ConfigError, match="write -c key=value") as caught:
        parse_override(text)
    assert caught.value.source == "-c"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("deep=" + "[" * 129 + "]" * 129, "nested more than 128 levels deep"),
        ("deep=" + "[" * 5000, "nested more than 128 levels deep"),
        (".".join("a" * 129) + "=1", "more than 128 parts"),
    ],
)
def test_what_is_too_deep_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        parse_override(text)
    assert caught.value.source == "-c"


@pytest.mark.parametrize("text", ["a\udcff=1", "model=a\udcff", 'profile="\udcff"', "model=a\0"])
def test_what_is_no_text_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"has half a character|has a NUL character") as caught:
        parse_override(text)
    assert caught.value.source == "-c"


@given(st.lists(TEXTS, min_size=1, max_size=3), VALUES)
def test_every_value_can_be_given(parts: list[str], value: Any) -> None:
    parsed = parse_override(f"{join_key(parts)}={value_text(value)}")
    assert same(parsed, nest(tuple(parts), value))


def test_later_overrides_win() -> None:
    assert parse_overrides(["a.b=1", "a.c=2", "a.b=3"]) == ({"a": {"b": 3, "c": 2}}, [])
    assert parse_overrides(["a=1", "a.b=2"]) == ({"a": {"b": 2}}, [])
    assert parse_overrides([]) == ({}, [])


def test_what_cannot_be_read_does_not_hide_the_rest() -> None:
    table, errors = parse_overrides(["novalue", "a=1", "b..c=2"])
    assert table == {"a": 1}
    assert [error.source for error in errors] == ["-c", "-c"]


def test_keys_of_a_thread_may_be_dotted_or_nested() -> None:
    overrides = {"a.b": 1, "a": {"c": 2, "d.e": 3, "gone": None}, "model": None}
    assert expand(overrides) == {"a": {"b": 1, "c": 2, "d.e": 3}}
    with pytest.raises(ConfigError) as caught:
        expand({"a..b": 1})
    assert caught.value.key == "a..b"


def leaves(table: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key), value


@given(TABLES, TABLES)
def test_all_that_is_laid_over_counts_and_nothing_is_changed(base: dict[str, Any], over: dict[str, Any]) -> None:
    texts = [value_text(table) for table in (base, over)]
    merged = merge(base, over)
    for path, value in leaves(over):
        assert same(lookup(merged, path), value)
    assert [value_text(table) for table in (base, over)] == texts


@given(TABLES, TABLES)
def test_merge_keeps_what_is_only_on_one_side(base: dict[str, Any], over: dict[str, Any]) -> None:
    merged = merge(base, over)
    assert merged.keys() == base.keys() | over.keys()
    for key in merged:
        if key not in over:
            assert same(merged[key], base[key])
        elif key not in base or not (isinstance(base[key], dict) and isinstance(over[key], dict)):
            assert same(merged[key], over[key])
    assert same(merge(merged, over), merged)


@given(TABLES)
def test_nothing_is_neutral(table: dict[str, Any]) -> None:
    assert same(merge(table, {}), table)
    assert same(merge({}, table), table)


def test_lookup() -> None:
    assert lookup({"a": {"b": 1}}, ("a", "b")) == 1
    assert lookup({"a": {"b": 1}}, ("a", "b", "c")) is None
    assert lookup({}, ("a",)) is None
