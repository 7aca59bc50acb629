"""The recorded streams are whole: every run has its file and what is known about it, and nothing else is there."""

from __future__ import annotations

import json

import pytest

import engine_streams
from interop.engines.cases import CASES

ENGINES = ("codex", "claude", "opencode", "pi")


def test_every_run_is_recorded_and_every_file_belongs_to_a_run() -> None:
    wanted = {f"{case.engine}_{case.name}" for case in CASES} | {"claude_control_allow", "claude_control_deny"}
    assert {file.stem for file in engine_streams.FOLDER.glob("*.jsonl")} == wanted
    assert {str(stream) for engine in ENGINES for stream in engine_streams.cases(engine)} == wanted


@pytest.mark.parametrize("engine", ENGINES)
def test_a_stream_is_lines_of_json(engine: str) -> None:
    for stream in engine_streams.cases(engine):
        assert stream.meta.keys() == {"argv", "stdin", "rc", "answer"}
        assert stream.meta["argv"][0] == engine
        assert all(isinstance(json.loads(line)["type"], str) and line.endswith(b"\n") for line in stream.lines)


def test_one_by_name() -> None:
    stream = engine_streams.case("codex", "text")
    assert json.loads(stream.lines[0])["type"] == "thread.started"
    assert (stream.rc, stream.meta["answer"]) == (0, "pong: hello there")
