"""What the doctor finds in a home that is not as it should be, and what it says to type."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from treadle.cli import Check, check_database, check_home, check_python, check_sandbox
from treadle.cli.checkup import checks, trials
from treadle.store.sqlite import schema


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home"


def database(home: Path) -> Path:
    schema.open_database(str(home / "threads.db")).close()
    return home / "threads.db"


def verdicts(checks: list[Check]) -> list[str]:
    return [check.verdict for check in checks]


def test_a_good_home(home: Path) -> None:
    assert verdicts(list(check_home())) == ["ok", "ok"]
    database(home)
    found = check_database(home)
    assert (found.verdict, "0 threads" in found.what, "whole" in found.what) == ("ok", True, True)


def test_files_that_others_can_read_are_told_with_what_closes_them(home: Path) -> None:
    (home / "keys.json").write_text("{}")
    (home / "keys.json").chmod(0o644)
    assert verdicts(list(check_home())) == ["ok", "ok"], "nobody gets into the home"
    home.chmod(0o755)
    told = list(check_home())[1]
    assert (told.verdict, told.what.split(" in ")[0]) == ("warning", "other users of this machine can read keys.json")
    assert told.advice is not None
    subprocess.run(["/bin/sh", "-c", told.advice], check=True)
    assert verdicts(list(check_home())) == ["ok", "ok"]


@pytest.mark.parametrize(("free", "verdict"), [(1 << 20, "failed"), (200 << 20, "warning"), (2 << 30, "ok")])
def test_room(home: Path, monkeypatch: pytest.MonkeyPatch, free: int, verdict: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    assert list(check_home())[-1].verdict == verdict


def test_a_home_that_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "file"))
    [told] = check_home()
    assert (told.verdict, told.advice) == ("failed", "export TREADLE_HOME=~/.treadle")


def test_a_python_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_python().verdict == "ok"
    monkeypatch.setattr(checks, "OLDEST", (4, 0))
    assert (check_python().verdict, check_python().advice) == ("failed", "install Python 4.0 or newer")


def _random(path: Path) -> None:
    path.write_bytes(os.urandom(8192))


def _of_others(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE other (x)")
    connection.close()


def _newer(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 1000")
    connection.close()


def _damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [_random, _of_others, _newer, _damaged])
def test_a_database_that_cannot_be_used(home: Path, harm: Callable[[Path], None]) -> None:
    harm(database(home))
    told = check_database(home)
    assert told.verdict == "failed", told
    assert told.advice


def test_who_holds_the_database_is_named(home: Path) -> None:
    path = database(home)
    hold = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute('BEGIN IMMEDIATE'); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        told = check_database(home)
    assert (told.verdict, told.what) == ("failed", f"{path} is locked by another process")
    assert told.detail[0].startswith(f"process {other.pid}: ")
    assert check_database(home).verdict == "ok"


def test_the_sandbox_is_tried_out_and_a_leak_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_sandbox().verdict in ("ok", "warning")
    monkeypatch.setattr(trials, "_run", lambda *_: b'{"allowed": true, "forbidden": true, "network": true}')
    told = check_sandbox()
    assert told.verdict == "failed"
    assert told.detail == [
        "a command could write where it may not",
        "a command could use the network though it may not",
    ]
    assert told.advice


def test_what_a_command_that_is_not_confined_does_is_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    def unconfined(policy: object, *, argv: list[str], **_: object) -> SimpleNamespace:
        return SimpleNamespace(argv=argv, handed=0, leaves_descendants=True, release=lambda: None)

    monkeypatch.setattr(trials, "confine", unconfined)
    assert len(check_sandbox().detail) == 2
