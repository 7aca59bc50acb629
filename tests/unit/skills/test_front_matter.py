"""Front matter: what people write there, what is broken, and what nobody should have written."""

from __future__ import annotations

import contextlib
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.skills import Value, YamlError, front_matter, read_yaml, split_document
from treadle.skills.skill_yaml import MAX_DEPTH


def head(text: str) -> dict[str, Value]:
    return front_matter(f"---\n{text}\n---\nbody: no\n")


@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("description: plain # note", "plain"),
        ("description: C# and http://x: this", "C# and http://x: this"),
        ("description: **when: asked**", "**when: asked**"),
        ('description: "with \\"quotes\\": and colon" # note', 'with "quotes": and colon'),
        ('description: "caf\\u00e9 \\ud83d\\ude00 \\ud83d"', "café 😀 \ufffd"),
        ("description: 'it''s'", "it's"),
        ("'description' : \"two\n  lines\"", "two lines"),
        ("description: >\n  two\n  lines", "two lines"),
        ("description: >-\n  two\n  lines\n\n  more", "two lines\n\nmore"),
        ("description: |\n  two\n    lines\n\n# note", "two\n  lines"),
        ("description: goes\n  on: here # note\n  too", "goes on: here too"),
        ("description:\n# note\n", ""),
        ("description: ~", ""),
    ],
)
def test_texts_are_read_as_people_write_them(text: str, description: str) -> None:
    assert head(f"name: x\n{text}") == {"name": "x", "description": description}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: [x, 'y, z', [1]]  # note", ["x", "y, z", ["1"]]),
        ("a: [\n  x, # note\n  y\n]", ["x", "y"]),
        ("a: {b: c, 'd: e': {f: g}}", {"b": "c", "d: e": {"f": "g"}}),
        ("a: []", []),
        ("a:\n- x\n-\n  y: z\n- b: c\n  d:\n    - e", ["x", {"y": "z"}, {"b": "c", "d": ["e"]}]),
        ("a:\n  b:\n    c: d\n  e: f", {"b": {"c": "d"}, "e": "f"}),
        ("a:\n  - - x\n  -\n    - y", ["- x", ["y"]]),
    ],
)
def test_tables_and_lists(text: str, found: Value) -> None:
    assert head(text)["a"] == found


@pytest.mark.parametrize("text", ["", "name: x", "---\nname: x\n", "--- \nname: x\n--"])
def test_there_are_two_lines_around_it(text: str) -> None:
    with pytest.raises(ValueError, match="frontmatter"):
        front_matter(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [unclosed", "line 2 opens `[`"),
        ("b: c\na: {b: [c}", "line 3 lacks"),
        ('a: "unclosed\nb: c', 'line 2 opens a text with "'),
        ("a: 'x' y", "line 2 has text behind the closing quote"),
        ("a: [b] c", "line 2 has text behind the closing bracket"),
        ("a: {b: [c}]", "line 2 lacks"),
        ("a: {b}", "line 2 is not `{key: value}`"),
        ("a: {b: c, b: d}", "line 2 has `b` for the second time"),
        ("a: b\na: c", "line 3 has `a` for the second time"),
        ("just text", "line 2 is not `key: value`"),
        ("a:\n  b: c\n d: e", "line 4 is not `key: value`"),
        ("  a: b\nc: d", "line 3 is indented less"),
        ("a:\n\tb: c", "line 3 is indented with a tab"),
        ("\n".join(" " * depth + "a:" for depth in range(MAX_DEPTH + 2)), "is nested too deeply"),
        ("a: " + "[" * 50 + "]" * 50, "line 2 is nested too deeply"),
    ],
)
def test_what_is_broken_is_said_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(YamlError) as error:
        head(text)
    assert problem in str(error.value)


NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True)
# Lines end with these for others too.
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=30)
VALUES = st.recursive(TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3))


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_what_is_written_as_json_is_read_as_it_was(fields: dict[str, Value]) -> None:
    """Which is YAML too."""
    text = "\n".join(f"{key}: {json.dumps(value)}" for key, value in fields.items())
    assert read_yaml(text) == fields


def blocks(value: Value, indent: int) -> str:
    margin = " " * indent
    if isinstance(value, dict) and value:
        return "".join(f"\n{margin}{key}:{blocks(each, indent + 2)}" for key, each in value.items())
    if isinstance(value, list) and value:
        return "".join(f"\n{margin}-{blocks(each, indent + 2)}" for each in value)
    return f" {json.dumps(value, ensure_ascii=False)}"


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=4))
def test_what_is_written_on_lines_is_read_as_it_was(fields: dict[str, Value]) -> None:
    assert read_yaml(blocks(fields, 0)) == fields


PIECES = st.sampled_from(
    [*"abc:#-[]{}\"'|>&*!%@`\\,? \n\t~", "\n  ", ": ", "- ", "\n- ", "---\n", '\\"', "''", "é", "\0"]
)


@given(st.lists(PIECES, max_size=60).map("".join))
def test_anything_is_read_or_refused(text: str) -> None:
    for read in (lambda: front_matter(f"---\n{text}\n---\n"), lambda: read_yaml(text), lambda: split_document(text)):
        with contextlib.suppress(YamlError):
            read()


@pytest.mark.parametrize(
    "text",
    [
        "a" + " " * 60_000 + "b",
        "a: " + "[" * 60_000,
        "a: " + '"\\' * 30_000,
        "a: " + "'" * 60_001,
        "a: " + " #" * 30_000,
        "\n".join(f"k{number}: [a" for number in range(8_000)),
        "\n".join(f'k{number}: "a' for number in range(8_000)),
        "- " * 30_000,
        "a: |\n" + "\n" * 60_000,
        "\n".join(f"k{number}:" for number in range(9_000)),
    ],
    ids=range(10),
)
def test_the_time_grows_with_the_length_only(text: str) -> None:
    begun = time.process_time()
    with contextlib.suppress(YamlError):
        head(text)
    assert time.process_time() - begun < 2, "some hundredths are usual"
