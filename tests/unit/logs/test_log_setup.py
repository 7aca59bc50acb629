"""What the environment asks of the log: levels, format, file."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from treadle.logs import LogFile, set_up_logging

SetUp = Callable[..., logging.Handler]
logger = logging.getLogger("treadle.test_log_setup")


@pytest.fixture
def set_up() -> Iterator[SetUp]:
    """Sets logging up as in a program of its own, and the root logger back to what it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    named = [logging.getLogger(name) for name in ("treadle.llm", "treadle.server")]

    made: list[logging.Handler] = []

    def do(environ: dict[str, str], default: str = "warning", given: str | None = None) -> logging.Handler:
        root.handlers = made  # without those of pytest
        set_up_logging(environ, default, given)
        (added,) = made
        return added

    yield do
    for handler in made:
        handler.close()
    root.handlers = handlers
    root.setLevel(level)
    for one in named:
        one.setLevel(logging.NOTSET)


def test_a_program_that_logs_already_is_left_alone(set_up: SetUp) -> None:
    first = set_up({"TREADLE_LOG": "info"})
    assert set_up({"TREADLE_LOG": "debug"}) is first
    assert logging.getLogger().level == logging.INFO


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.mark.parametrize(
    ("variable", "given", "level"),
    [
        ("", None, "WARNING"),
        ("debug", None, "DEBUG"),
        (" INFO ", None, "INFO"),
        ("error", "info", "INFO"),
        ("treadle.llm=debug", None, "WARNING"),
        ("info,treadle.llm=debug", None, "INFO"),
    ],
)
def test_the_command_line_comes_before_the_variable_before_the_default(
    set_up: SetUp, variable: str, given: str | None, level: str
) -> None:
    set_up({"TREADLE_LOG": variable}, given=given)
    assert logging.getLevelName(logging.getLogger().level) == level
    wants_detail = "treadle.llm" in variable
    assert logging.getLogger("treadle.llm.provider_client").isEnabledFor(logging.DEBUG) is (
        wants_detail or level == "DEBUG"
    )


@pytest.mark.parametrize("bad", ["loud", "treadle.llm=loud", "=debug", "debug;info"])
def test_what_is_no_level_is_told_and_the_rest_holds(set_up: SetUp, tmp_path: Path, bad: str) -> None:
    path = tmp_path / "log"
    set_up({"TREADLE_LOG": f"{bad},treadle.server=info", "TREADLE_LOG_FILE": str(path)}, default="critical")
    (line,) = lines(path)
    assert "TREADLE_LOG" in line
    assert repr(bad) in line
    assert "debug, info, warning and error" in line
    assert logging.getLogger("treadle.server").level == logging.INFO


def test_a_format_that_there_is_not_is_told(set_up: SetUp, tmp_path: Path) -> None:
    set_up({"TREADLE_LOG_FORMAT": "xml", "TREADLE_LOG_FILE": str(tmp_path / "log")})
    assert lines(tmp_path / "log")[0].endswith("TREADLE_LOG_FORMAT is 'xml'; use json or text")


@pytest.mark.parametrize("path", ["no/such/folder/log", "."])
def test_a_file_that_cannot_be_opened_leaves_standard_error(
    set_up: SetUp, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    set_up({"TREADLE_LOG_FILE": path})
    logger.warning("still here")
    told, said = capsys.readouterr().err.splitlines()
    assert f"TREADLE_LOG_FILE '{path}' cannot be opened" in told
    assert said.endswith("still here")


def test_secrets_of_the_environment_are_hidden(set_up: SetUp, tmp_path: Path) -> None:
    path = tmp_path / "log"
    set_up({"TREADLE_LOG_FILE": str(path), "TREADLE_LOG_FORMAT": "json", "MY_API_KEY": "correct horse"})
    logger.warning("it was %s", "correct horse")
    assert json.loads(lines(path)[0])["message"] == "it was [redacted]"


def test_the_file_is_for_the_user_alone(set_up: SetUp, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        set_up({"TREADLE_LOG_FILE": str(tmp_path / "log")})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600


def written(handler: logging.Handler, count: int) -> None:
    for number in range(count):
        handler.handle(logging.LogRecord("treadle", logging.INFO, "", 0, "line %d", (number,), None))


def test_the_file_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "log"
    handler = LogFile(str(path), max_bytes=200)
    written(handler, 100)
    handler.close()
    assert sorted(os.listdir(tmp_path)) == ["log", "log.1"]
    assert path.stat().st_size <= 200
    assert (lines(tmp_path / "log.1") + lines(path))[-1] == "line 99"
    assert stat.S_IMODE((tmp_path / "log.1").stat().st_mode) == 0o600


def test_two_writers_move_a_full_file_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    first, second = LogFile(str(path), max_bytes=200), LogFile(str(path), max_bytes=200)
    for _ in range(8):
        written(first, 1)
        written(second, 1)
    written(first, 20)
    written(second, 1)  # its file has been moved, and is full
    assert [len(lines(tmp_path / name)) for name in ("log.1", "log")] == [28, 9]
    first.close()
    second.close()


def test_a_file_that_cannot_be_written_loses_lines_until_it_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log"
    path.symlink_to("/dev/full")
    handler = LogFile(str(path))
    for _ in range(2):
        written(handler, 3)
        assert capsys.readouterr().err == (
            f"treadle: lines are lost, {path} cannot be written: No space left on device\n"
        )
        path.unlink()
        written(handler, 2)
        assert len(lines(path)) == 2
        path.unlink()
        path.symlink_to("/dev/full")
        handler.close()
    assert capsys.readouterr().err == ""
