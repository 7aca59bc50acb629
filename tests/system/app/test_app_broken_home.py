"""Homes that cannot be used: every one is a clear error, and none is a traceback or a loss."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kit.app_client import AppClient
from kit.app_program import refused, stdio_server
from treadle.testing import AppServerHarness

pytestmark = pytest.mark.own_file

# Root without the right to pass by the modes of files.
UNPRIVILEGED = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--")


@contextmanager
def served(harness: AppServerHarness, **env: str) -> Iterator[AppClient]:
    with stdio_server(harness, env=env) as program:
        yield program.client
        program.hang_up()
        program.client.read_to_end()
        assert program.wait() == 0
        assert "Traceback" not in program.stderr, program.stderr


def test_a_config_with_unknown_keys_is_used(harness: AppServerHarness) -> None:
    path = harness.home / "config.toml"
    path.write_text("no_such_key = 1\n" + path.read_text())
    with served(harness) as client:
        client.initialize()
        assert "no_such_key" in client.wait_for("configWarning")["params"]["summary"]
        assert client.call("thread/start")["model"] == "mock-model"


def test_a_config_that_is_a_folder(harness: AppServerHarness) -> None:
    (harness.home / "config.toml").unlink()
    (harness.home / "config.toml").mkdir()
    with served(harness) as client:
        client.initialize()
        assert "config.toml" in str(client.wait_for("configWarning")["params"])


def test_a_home_that_is_a_file(harness: AppServerHarness) -> None:
    path = harness.workspace / "a-file"
    path.write_text("mine")
    for listen in ("stdio://", "ws://127.0.0.1:0", "unix://"):
        env = {"TREADLE_HOME": str(path), "CODEX_HOME": str(path)}
        text = refused(harness, "--listen", listen, env=env, code=2)
        assert f"`{path}` is not a directory" in text
        assert "set TREADLE_HOME to a directory" in text
    assert path.read_text() == "mine"


def test_a_database_that_is_none(harness: AppServerHarness) -> None:
    path = harness.home / "threads.db"
    path.write_bytes(b"this is no database, but somebody may need it" * 200)
    before = path.read_bytes()
    with served(harness) as client:
        client.initialize()
        error = client.failure("thread/start")
        assert error["code"] == -32603
        assert f"{path} is no database" in error["message"]
        assert "move it away" in error["message"]
        assert path.read_bytes() == before
        # The next request tries again.
        path.rename(path.with_suffix(".old"))
        assert client.start_thread()


def test_a_database_of_a_newer_version(harness: AppServerHarness) -> None:
    import sqlite3

    with served(harness) as client:
        client.initialize()
        client.start_thread()
    connection = sqlite3.connect(harness.home / "threads.db")
    connection.execute("PRAGMA user_version = 9999")
    connection.close()
    with served(harness) as client:
        client.initialize()
        message = client.failure("thread/start")["message"]
        assert "newer" in message


@pytest.mark.parametrize("mode", [0o555, 0o000])
def test_a_home_that_is_locked(harness: AppServerHarness, mode: int) -> None:
    harness.home.chmod(mode)
    try:
        with stdio_server(harness, wrapper=UNPRIVILEGED if os.getuid() == 0 else ()) as program:
            client = program.client
            client.initialize()
            error = client.failure("thread/start")
            # Without the right to look into it not even the settings are known.
            assert error["code"] == (-32600 if mode == 0 else -32603)
            assert str(harness.home) in error["message"]
            program.hang_up()
            assert program.wait() == 0
            assert "Traceback" not in program.stderr, program.stderr
    finally:
        harness.home.chmod(0o755)
    assert [path.name for path in harness.home.iterdir()] == ["config.toml"]


def test_no_socket_in_a_home_that_is_locked(harness: AppServerHarness) -> None:
    harness.home.chmod(0o555)
    try:
        text = refused(harness, "--listen", "unix://", wrapper=UNPRIVILEGED if os.getuid() == 0 else ())
    finally:
        harness.home.chmod(0o755)
    assert "app-server-control" in text
    assert "Permission denied" in text


def test_a_home_that_is_not_there_yet_is_made(harness: AppServerHarness) -> None:
    home = harness.workspace / "new" / "home"
    with served(harness, TREADLE_HOME=str(home), CODEX_HOME="") as client:
        assert client.initialize()["codexHome"] == str(home)
        client.start_thread()
    assert (home / "threads.db").exists()
