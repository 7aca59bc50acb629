"""The editor of TOML texts: it says what it should, and leaves the rest alone."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.config import (
    TomlError,
    locate,
    lookup,
    parse,
    remove_empty,
    remove_value,
    same,
    scan,
    section_lines,
    set_value,
    string_text,
    value_text,
)

KEYS = st.sampled_from(["a", "b", "c", "d.e", "f g", ""])
TEXTS = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    ["#", "[x]", "=", '"', "'", '"""', "'''", "\n", "\\", "[", "}"]
)
SCALARS = st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | TEXTS
INLINE: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=4
)
PATHS = st.lists(KEYS, min_size=1, max_size=3).map(tuple)
COMMENTS = st.sampled_from(["", "", "\n", "# a comment\n", '  # [x] = """ {\n', "\t\n"])


def _written(value: Any, draw: st.DrawFn) -> str:
    """A value in one of the ways of writing it."""
    if isinstance(value, str):
        ways = [string_text(value)]
        if "'" not in value and all(character.isprintable() or character == "\t" for character in value):
            ways.append(f"'{value}'")
            ways.append(f"'''\n{value}'''")
        ways.append(
            '"""\\\n  ' + string_text(value)[1:-1] + '"""' if not value.startswith((" ", "\t", "\n")) else ways[0]
        )
        return draw(st.sampled_from(ways))
    if isinstance(value, list) and value:
        return "[ # ]\n  " + ",\n  ".join(_written(member, draw) for member in value) + ",\n]"
    return value_text(value)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A TOML text made of keys, dotted keys, tables, lists of tables, comments and odd white space."""
    text = ""
    sections = draw(st.lists(st.tuples(st.booleans(), PATHS), max_size=3))
    for is_list, header in [(False, ()), *sections]:
        start = text
        if header:
            name = " . ".join(value_text(part) if not part.isalpha() else part for part in header)
            start += f"[[ {name} ]]\n" if is_list else f"[{name}] # table\n"
        lines = [start]
        for path in draw(st.lists(PATHS, max_size=3)):
            key = ".".join(value_text(part) if not part.isalpha() else part for part in path)
            spaces = draw(st.sampled_from(["", " ", "\t"]))
            comment = draw(st.sampled_from(["", " # why"]))
            lines.append(f"{draw(COMMENTS)}{spaces}{key}{spaces}={spaces}{_written(draw(INLINE), draw)}{comment}\n")
        # Only what is valid so far is kept, so that every text is.
        for line in lines:
            candidate = line if line is start else text + line
            try:
                tomllib.loads(candidate)
            except tomllib.TOMLDecodeError:
                continue
            text = candidate
    return text + draw(COMMENTS)


def _expected(table: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any] | None:
    if len(path) == 1:
        return {**table, path[0]: value}
    below = table.get(path[0], {})
    inner = _expected(below, path[1:], value) if isinstance(below, dict) else None
    return None if inner is None else {**table, path[0]: inner}


@given(documents(), PATHS, INLINE)
def test_an_edit_says_what_it_should(text: str, path: tuple[str, ...], value: Any) -> None:
    wanted = _expected(parse(text), path, value)
    if wanted is None:
        with pytest.raises(ValueError, match="is no table"):
            set_value(text, path, value)
    else:
        assert same(parse(set_value(text, path, value)), wanted)


@given(documents(), PATHS, INLINE)
def test_lines_of_other_top_level_keys_stay_as_they_are(text: str, path: tuple[str, ...], value: Any) -> None:
    if _expected(parse(text), path, value) is None:
        return
    edited = set_value(text, path, value)
    for statement in scan(text):
        if statement.path[0] != path[0]:
            assert text[statement.start : statement.end].rstrip("\n") in edited
    for line in text.splitlines():
        if line.startswith("# a comment"):
            assert line in edited.splitlines()


@given(documents(), st.data())
def test_a_value_is_replaced_on_the_spot(text: str, data: st.DataObject) -> None:
    """A plain key: all bytes but those of its value stay."""
    keys = [s for s in scan(text) if s.value is not None and not s.in_list]
    if not keys:
        return
    statement = data.draw(st.sampled_from(keys))
    assert statement.value is not None
    start, end = statement.value
    edited = set_value(text, statement.path, 12345)
    assert edited == text[:start] + "12345" + text[end:]


@given(documents(), PATHS)
def test_a_removed_key_is_gone_and_the_others_are_not(text: str, path: tuple[str, ...]) -> None:
    before = parse(text)
    edited = remove_value(text, path)
    after = parse(edited)
    if lookup(before, path) is None:
        assert edited == text
        return
    assert lookup(after, path) is None
    for key in before.keys() - {path[0]}:
        assert same(before[key], after[key])
    assert remove_value(edited, path) == edited


@given(documents())
def test_an_edit_without_a_change_changes_nothing_it_says(text: str) -> None:
    before = parse(text)
    for key, value in before.items():
        assert same(parse(set_value(text, (key,), value)), before)


@given(documents(), PATHS, INLINE)
def test_line_ends_of_the_file_are_kept(text: str, path: tuple[str, ...], value: Any) -> None:
    text = text.replace("\n", "\r\n") if "\n" in text else "x = 1\r\n"
    try:
        before = parse(text)
    except TomlError:
        return
    if _expected(before, path, value) is not None:
        edited = set_value(text, path, value)
        assert edited.count("\n") == edited.count("\r\n")


FILE = """\
# my settings
model = "old" # the good one
sandbox_mode = 'read-only'

# where models are
[model_providers.mine]
name = "Mine"
http_headers = { X-A = "1", b = "2" }

[tools]
web.search = true
roots = [
  "/a", # first
  "/b",
]

[[hooks]]
name = "one"
[[hooks]]
name = "two"
"""


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        (("model",), "zz", '"old" #', '"zz" #'),
        (("approval_policy",), "never", "'read-only'\n", "'read-only'\napproval_policy = \"never\"\n"),
        (("model_providers", "mine", "base_url"), "u", 'b = "2" }\n', 'b = "2" }\nbase_url = "u"\n'),
        (("model_providers", "mine", "http_headers", "b"), "3", 'b = "2"', 'b = "3"'),
        (("tools", "web", "search"), False, "true", "false"),
        (("tools", "web", "x"), 1, "search = true\n", "search = true\nweb.x = 1\n"),
        (("tools", "roots"), ["/c"], '[\n  "/a", # first\n  "/b",\n]', '["/c"]'),
        (("no", "such", "key"), 1, 'name = "two"\n', 'name = "two"\n\n[no.such]\nkey = 1\n'),
        (("tools",), {"web": {"search": False}}, 'true\nroots = [\n  "/a", # first\n  "/b",\n]\n', "false\n"),
    ],
)
def test_edits_by_hand(path: tuple[str, ...], value: Any, old: str, new: str) -> None:
    edited = set_value(FILE, path, value)
    assert same(parse(edited), _expected(parse(FILE), path, value))
    assert edited == FILE.replace(old, new)


def test_a_list_of_tables_is_replaced_as_a_whole() -> None:
    edited = set_value(FILE, ("hooks",), [{"name": "three"}])
    head, tail = FILE.split("\n# where")
    assert edited == f'{head}hooks = [{{ name = "three" }}]\n\n# where{tail.split("[[hooks]]")[0]}'
    with pytest.raises(ValueError, match="`hooks` is no table"):
        set_value(FILE, ("hooks", "name"), "x")


def test_a_new_table_comes_last() -> None:
    edited = set_value(FILE, ("features", "x"), {"on": True, "sub": {"n": 1}})
    assert edited == FILE + "\n[features.x]\non = true\n\n[features.x.sub]\nn = 1\n"


def test_the_first_key_comes_before_the_first_table_and_its_comment() -> None:
    text = "# top\n\n# about t\n[t]\nx = 1\n"
    assert set_value(text, ("model",), "m") == '# top\n\nmodel = "m"\n\n# about t\n[t]\nx = 1\n'
    assert set_value("", ("model",), "m") == 'model = "m"\n'
    assert set_value("# only", ("model",), "m") == '# only\n\nmodel = "m"\n'


@pytest.mark.parametrize("value", [None, [None], {"a": [None]}, "\ud800", {"\ud800": 1}, object()])
def test_what_toml_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):
        set_value(FILE, ("x",), value)


def test_a_value_that_is_nested_too_deeply_is_refused() -> None:
    value: Any = 1
    for _ in range(200):
        value = {"a": value}
    with pytest.raises(ValueError, match="nested deeper"):
        set_value("", ("x",), value)


def test_a_broken_text_is_not_edited() -> None:
    with pytest.raises(TomlError) as caught:
        set_value("a = 1\nb = [", ("a",), 2)
    assert (caught.value.line, caught.value.column) == (2, 6)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (("model",), (2, 1)),
        (("model_providers", "mine"), (6, 1)),
        (("model_providers", "mine", "http_headers", "b"), (8, 1)),
        (("model_providers", "mine", "none"), (6, 1)),
        (("nothing",), None),
    ],
)
def test_keys_are_located(path: tuple[str, ...], place: tuple[int, int] | None) -> None:
    assert locate(FILE, path) == place


@given(documents())
def test_every_key_of_a_text_is_found(text: str) -> None:
    statements = scan(text)
    for statement in statements:
        if statement.value is not None and not statement.in_list:
            start, end = statement.value
            assert same(parse(f"x = {text[start:end]}\n")["x"], lookup(parse(text), statement.path))
    assert {statement.path[0] for statement in statements} == parse(text).keys()


@given(st.dictionaries(KEYS, INLINE, max_size=3))
def test_a_section_says_its_table(table: dict[str, Any]) -> None:
    assert same(parse("\n".join(section_lines(("t",), table)))["t"], table)


@pytest.mark.parametrize(
    ("text", "path", "left"),
    [
        ("[a]\nb = 1\n", ("a", "b"), ""),
        ("x = 1\n\n[a.b.c]\nd = 1\n", ("a", "b", "c", "d"), "x = 1\n\n"),
        ("[a]\nx = 1\n[a.b]\nc = 1\n", ("a", "b", "c"), "[a]\nx = 1\n"),
        ("a = { b = 1 }\n", ("a", "b"), ""),
        ("a.b.c = 1\n", ("a", "b", "c"), ""),
        ("[a]\n# why\nb = 1\n", ("a", "b"), "# why\n"),
        ("[a]\nb = 1\nc = 1\n", ("a", "b"), "[a]\nc = 1\n"),
        ("[kept.b]\nc = 1\n", ("kept", "b", "c"), "[kept.b]\n"),
    ],
)
def test_tables_that_get_empty_go_too(text: str, path: tuple[str, ...], left: str) -> None:
    assert remove_empty(remove_value(text, path), path, keep=("kept", "b")) == left
