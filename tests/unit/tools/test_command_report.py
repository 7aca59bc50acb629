"""The text about a command that the model gets."""

from __future__ import annotations

import re

from treadle.tools import CommandReport, Taken, new_chunk_id, report_text


def test_a_command_that_ended() -> None:
    report = CommandReport(chunk_id="0a1b2c", wall_time_s=0.12345, taken=Taken("hi\n", 1), exit_code=3)
    assert report_text(report) == (
        "Chunk ID: 0a1b2c\nWall time: 0.1235 seconds\nProcess exited with code 3\nOriginal token count: 1\n"
        "Output:\nhi\n"
    )


def test_a_command_that_runs() -> None:
    report = CommandReport(chunk_id="ffffff", wall_time_s=10, taken=Taken("", 0), session_id=12345)
    assert report_text(report) == (
        "Chunk ID: ffffff\nWall time: 10.0000 seconds\nProcess running with session ID 12345\nOriginal token count: 0\n"
        "Output:\n"
    )


def test_chunk_ids_are_six_hexadecimal_digits() -> None:
    assert all(re.fullmatch(r"[0-9a-f]{6}", new_chunk_id()) for _ in range(100))
