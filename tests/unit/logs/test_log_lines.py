"""Lines of the log: what is in them, and what must not be."""

from __future__ import annotations

import json
import logging
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from treadle import secrets
from treadle.cli import listener_token
from treadle.logs import IDS, JsonLine, TextLine
from treadle.transport import Address

SECRET = "plain-words-nobody-would-call-a-key"


def record(message: str, *args: object, error: BaseException | None = None) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord("treadle.test", logging.INFO, "here.py", 7, message, args, info)


def as_json(*given: Any, hidden: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    line = JsonLine(hidden).format(record(*given, **more))
    assert "\n" not in line
    parsed = json.loads(line)
    assert isinstance(parsed, dict)
    return parsed


def failure(message: str) -> ValueError:
    try:
        raise ValueError(message)
    except ValueError as error:
        return error


def test_json_has_time_level_logger_message_and_fields() -> None:
    line = as_json("turn ended", {"status": "completed", "duration_ms": 12, "reason": None})
    assert line.pop("ts").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "treadle.test",
        "message": "turn ended",
        "status": "completed",
        "duration_ms": 12,
    }


def test_json_has_the_ids_of_the_request() -> None:
    before = IDS.set({"trace": "t", "request": "1:2"})
    try:
        line = as_json("turn ended", {"turn": "x"})
    finally:
        IDS.reset(before)
    assert (line["trace"], line["request"], line["turn"]) == ("t", "1:2", "x")


def test_a_field_cannot_take_the_place_of_what_every_line_has() -> None:
    assert as_json("said", {"level": "error", "ts": "never"})["level"] == "info"


def test_an_error_is_a_member_of_its_own() -> None:
    error = as_json("failed", error=failure("no such thing"))["error"]
    assert (error["type"], error["message"]) == ("ValueError", "no such thing")
    assert error["traceback"].startswith("Traceback")
    assert "def failure" not in error["message"]


def test_text_is_one_line_whatever_was_said() -> None:
    line = TextLine().format(record("%s came", "a\nb\x1b[2Jc", error=None))
    assert line.endswith(r"INFO treadle.test: a\nb\x1b[2Jc came")


def test_text_shows_fields_and_quotes_what_has_spaces() -> None:
    line = TextLine().format(record("left", {"client": 3, "reason": 'it said "bye"\n', "none": None}))
    assert line.endswith(r'left client=3 reason="it said \"bye\"\n"')


def test_text_has_the_traceback_below() -> None:
    line = TextLine().format(record("failed", error=failure("bad \x1b[31m")))
    first, *rest = line.split("\n")
    assert first.endswith("failed")
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1] == r"ValueError: bad \x1b[31m"


@pytest.mark.parametrize("kind", [JsonLine, TextLine])
def test_no_secret_is_in_any_part_of_a_line(kind: type[JsonLine | TextLine]) -> None:
    hidden = kind([SECRET])
    for given in (
        record(f"with {SECRET}"),
        record("with %s", SECRET),
        record("with", {"reason": f"it was {SECRET}"}),
        record("with", {"reason": OSError(SECRET)}),
        record("with", error=failure(SECRET)),
        record("with sk-abcdefghijklmnop and Bearer abcdefghijkl"),
    ):
        line = hidden.format(given)
        assert "[redacted]" in line
        assert not any(word in line for word in (SECRET, "abcdefgh"))


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    values: set[str] = set()
    monkeypatch.setattr(secrets, "KNOWN", values)
    return values


def test_a_key_that_became_known_later_is_hidden(known: set[str]) -> None:
    line = JsonLine()
    assert SECRET in line.format(record(SECRET))
    secrets.learn([SECRET])
    assert SECRET not in line.format(record(SECRET))


@pytest.mark.parametrize("in_file", [False, True])
def test_the_token_of_a_listener_is_hidden(known: set[str], tmp_path: Path, in_file: bool) -> None:
    (tmp_path / "token").write_text(SECRET)
    (tmp_path / "token").chmod(0o600)
    arguments = Namespace(token_file=str(tmp_path / "token") if in_file else None, no_token=False)
    token = listener_token(Address.parse("ws://127.0.0.1:0"), arguments)
    assert known == {token.value}
    assert token.file == arguments.token_file


def test_known_keys_are_bounded(known: set[str]) -> None:
    for number in range(5000):
        secrets.learn([f"secret-{number}"])
    assert len(known) <= 1024
    assert "secret-4999" in known


def test_half_a_character_is_no_reason_to_say_nothing() -> None:
    assert as_json("file", {"path": "a\udce9"})["path"] == "a\udce9"
    TextLine().format(record("file", {"path": "a \udce9"}))


def test_no_exception_is_not_an_error() -> None:
    given = record("nothing is wrong")
    given.exc_info = sys.exc_info()
    assert "error" not in json.loads(JsonLine().format(given))
