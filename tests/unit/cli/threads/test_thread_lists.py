"""Threads in a table and what a search has found."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from thread_samples import BEGUN, THREAD_ID, frames, rich_thread, thread
from treadle.cli import Hit, Row, as_json, hits_in_lines, plain_snippet, tab_lines, table
from treadle.pages import ThreadExtras, ago, at_home, count, duration, money, when

NOW = BEGUN + 4000 + 180.0


def row(**members: object) -> Row:
    facts = ThreadExtras()
    facts.take(frames(rich_thread().turns))
    return Row(thread(**{"name": "Flaky retry test", **members}), facts)


def drawn(rows: list[Row], width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(table(rows, width, NOW, "/home/ada"), end="")
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_wide_table_tells_all() -> None:
    head, line = drawn([row()], 120)
    assert head.split() == ["id", "thread", "where", "model", "when", "tokens", "cost"]
    assert line.split("  ")[0] == THREAD_ID[-8:]
    for part in ("Flaky retry test", "~/loom", "gpt-5.5", "3 min ago", "61.8k", "$0.0738"):
        assert part in line


@pytest.mark.parametrize("width", [40, 50, 64, 72, 80, 96, 120])
def test_a_narrow_table_keeps_what_matters(width: int) -> None:
    deep = "/home/ada/" + "deep/" * 30 + "end"
    for line in drawn([row(name="A name that is much longer than any terminal is wide " * 3, cwd=deep)], width)[1:]:
        assert len(line) <= width
        assert line.startswith(THREAD_ID[-8:])
        assert "A name" in line
        assert ("…" in line and line.index("…") < line.index("/end")) if width >= 80 else "deep" not in line
        assert ("3 min ago" in line) == (width >= 50)


def test_columns_stand_under_each_other() -> None:
    lines = drawn([row(name="织机", cwd="/x"), row(name="b" * 90), row(name="c")], 120)
    assert len({len(line) + (2 if "织" in line else 0) for line in lines}) == 1


def test_names_cannot_act_on_the_terminal_nor_break_lines() -> None:
    rows = [row(name="a\x1b[2J\nb\tc\u202e")]
    assert "\x1b" not in drawn(rows, 120)[1]
    (line,) = tab_lines(rows).splitlines()
    assert line.count("\t") == 6
    assert "\u202e" not in line


def test_lines_for_programs() -> None:
    (line,) = tab_lines([row()]).splitlines()
    assert line.split("\t") == [
        *(THREAD_ID, "2026-02-19T12:26:40Z", "Flaky retry test", "/home/ada/loom", "gpt-5.5", "61800", "0.073800")
    ]


def test_json_has_the_threads_of_the_protocol() -> None:
    (one,) = json.loads(as_json([row()]))
    assert one["id"] == THREAD_ID
    assert one["name"] == "Flaky retry test"
    assert one["usage"]["totalTokens"] == 61_800


def test_the_home_directory_is_short() -> None:
    assert at_home("/home/ada/x", "/home/ada") == "~/x"
    assert at_home("/home/ada2/x", "/home/ada") == "/home/ada2/x"
    assert at_home("/x", "/") == "/x"


# --- search ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("snippet", "term", "text", "words"),
    [
        ("…of the [flaky] [test] here", "Flaky test", "…of the flaky test here", ["flaky", "test"]),
        ("a [[flaky]] one, see [1]", "flaky", "a [flaky] one, see [1]", ["flaky"]),
        ("[Café]\nau lait", "cafe", "Café au lait", ["Café"]),
        ("no [marks] of ours", "flaky", "no [marks] of ours", []),
        ("\x1b[2J[flaky]\u202e", "flaky", "\\x1b[2Jflaky\\u202e", ["flaky"]),
    ],
)
def test_words_are_marked(snippet: str, term: str, text: str, words: list[str]) -> None:
    shown, spans = plain_snippet(Hit(thread(), "i", snippet, marked=True), term)
    assert shown == text
    assert [shown[start:end] for start, end in spans] == words


def test_found_in_lines() -> None:
    lines = hits_in_lines([Hit(thread(name="N\tame"), "i", "a [b]\nc\td", marked=True)], "b")
    assert lines == f"{THREAD_ID}\tN ame\ta b c d\n"


# --- figures ---------------------------------------------------------------------------------------------------------


def test_figures() -> None:
    assert [ago(seconds) for seconds in (3, 60, 3599, 7200, 90_000)] == [
        *("just now", "1 min ago", "59 min ago", "2 h ago", "1 d ago")
    ]
    assert when(0, 60 * 86_400) == "1970-01-01"
    assert [duration(ms) for ms in (0, 99, 100, 9_900, 59_400, 60_000, 61_000, 7_260_000)] == [
        *("0 ms", "99 ms", "0.1 s", "9.9 s", "59 s", "1 min", "1 min 1 s", "2 h 1 min")
    ]
    assert [count(n) for n in (0, 999, 1_000, 12_345, 999_600, 1_500_000)] == ["0", "999", "1k", "12.3k", "1M", "1.5M"]
    assert [money(n) for n in (0.00012, 0.5, 1.239)] == ["$0.0001", "$0.5000", "$1.24"]
