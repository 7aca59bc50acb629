"""What the doctor finds, in blocks."""

from __future__ import annotations

import io

from rich.console import Console

from treadle.cli import Check, PlainReport, check_lines, styled_check


def test_blocks_come_in_order_and_whole() -> None:
    written: list[str] = []
    with PlainReport(["codex", "claude", "pi"], written.append) as report:
        report.found("claude", Check("version 2"))
        report.ended("claude")
        assert written == []  # codex is before it
        report.found("codex", Check("version 1"))
        report.ended("codex")
        assert written == ["codex\n  ✓ version 1\n", "claude\n  ✓ version 2\n"]
        report.found("pi", Check("not installed", "skipped", "to get it: npm"))
        report.ended("pi")
        report.summary("all that is installed works", 12.3)
    assert "".join(written[2:]) == "pi\n  – not installed\n      to get it: npm\nall that is installed works · 12s\n"


def test_a_failure_has_its_time_what_was_said_and_what_to_do() -> None:
    check = Check("does not answer\x07", "failed", "install it anew", ["line 1", "line 2\x1b[2J"], seconds=1.25)
    assert check_lines(check) == [
        "  ✗ does not answer\\x07 · 1.2s",
        "      | line 1",
        "      | line 2\\x1b[2J",
        "      install it anew",
    ]


def test_what_is_wrapped_on_a_terminal_keeps_its_indent() -> None:
    check = Check(
        "one two three four five six seven", "failed", "eight nine ten eleven twelve", ["thirteen fourteen 15"]
    )
    shown = Console(file=io.StringIO(), width=24)
    shown.print(*styled_check(check), sep="\n")
    assert isinstance(shown.file, io.StringIO)
    assert [line.rstrip() for line in shown.file.getvalue().splitlines()] == [
        "  ✗ one two three four",
        "    five six seven",
        "      | thirteen",
        "      fourteen 15",
        "      eight nine ten",
        "      eleven twelve",
    ]
