"""The audit log as a file: what a line has, what is taken out, and what happens when it cannot be written."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle import secrets
from treadle.logs import IDS, AuditFailed, AuditLog, RotatedFile, audit, fingerprint, set_up_audit


@pytest.fixture(autouse=True)
def _none(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(audit, "log", None)
    yield
    if audit.log is not None:
        audit.log.close()


def test_a_line_has_the_event_the_ids_and_the_fields_without_secrets(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    set_up_audit({"TREADLE_AUDIT_FILE": str(path), "SOME_API_KEY": "correct horse battery"})
    assert audit.log is not None
    secrets.learn(["a-token-of-a-listener"])
    before = IDS.set({"trace": "t", "thread": "x"})
    try:
        audit.log.record(
            "command", {"command": "curl -H 'correct horse battery' a-token-of-a-listener\n\ud800", "n": 3}
        )
        audit.log.record("command", {"command": "x" * 100_000, "cwd": None})
    finally:
        IDS.reset(before)
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert first.pop("ts").endswith("+00:00")
    assert first == {
        "event": "command",
        "pid": os.getpid(),
        "trace": "t",
        "thread": "x",
        "command": "curl -H '[redacted]' [redacted]\n?",
        "n": 3,
    }
    assert (len(second["command"]), "cwd" in second) == (audit.MAX_TEXT, False)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_without_the_variable_there_is_none(tmp_path: Path) -> None:
    set_up_audit({})
    assert audit.log is None


def full(fd: int, data: bytes) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_one_that_is_required_refuses_what_it_cannot_write_and_goes_on_when_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog(str(tmp_path / "audit"), required=True)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        for _ in range(2):
            with pytest.raises(AuditFailed, match="No space left"):
                log.record("request", {})
        patched.setattr(os, "write", lambda fd, data: len(data) - 1)  # only a part of it
        with pytest.raises(AuditFailed, match="No space left"):
            log.record("request", {})
    log.record("request", {"method": "turn/start"})
    log.close()
    assert "turn/start" in (tmp_path / "audit").read_text()


def test_one_that_is_not_required_says_once_that_lines_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(str(tmp_path / "audit"), required=False)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        for _ in range(5):
            log.record("request", {})
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "lines are lost" in caplog.text
    log.close()


def test_a_file_that_cannot_be_opened_is_no_reason_to_go_on_without(tmp_path: Path) -> None:
    for environ in (
        {"TREADLE_AUDIT_FILE": str(tmp_path / "none" / "audit")},
        {"TREADLE_AUDIT_FILE": str(tmp_path / "audit"), "TREADLE_AUDIT_FILES": "none"},
    ):
        with pytest.raises(AuditFailed):
            set_up_audit(environ)
    assert audit.log is None


def test_a_token_is_known_by_its_fingerprint() -> None:
    assert fingerprint(None) is None
    assert fingerprint("a token") == fingerprint("a token") != fingerprint("another")
    assert "token" not in str(fingerprint("a token"))


# --- files that are rotated ---


def test_so_many_full_files_stay(tmp_path: Path) -> None:
    file = RotatedFile(str(tmp_path / "log"), max_bytes=10, files=3)
    for number in range(7):
        file.write(b"line %d..\n" % number)
    file.close()
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"log": "line 6..\n", "log.1": "line 5..\n", "log.2": "line 4..\n", "log.3": "line 3..\n"}


def test_several_writers_lose_no_line_and_move_each_file_once(tmp_path: Path) -> None:
    writers = [RotatedFile(str(tmp_path / "log"), max_bytes=100, files=50) for _ in range(4)]
    for number in range(200):
        writers[number % 4].write(b"line %03d\n" % number)
    for writer in writers:
        writer.close()
    assert not [path for path in tmp_path.iterdir() if path.stat().st_size > 100]
    lines = [line for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert sorted(lines) == [f"line {number:03d}" for number in range(200)]


def test_a_line_of_which_a_part_was_written_does_not_spoil_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, write = RotatedFile(str(tmp_path / "log")), os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda fd, data: write(fd, data[:4]))
        with pytest.raises(OSError, match="No space left"):
            file.write(b"line 1\n")
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            file.write(b"line 2\n")
    file.write(b"line 3\n")
    file.write(b"line 4\n")
    file.close()
    assert (tmp_path / "log").read_text().splitlines() == ["line", "line 3", "line 4"]
