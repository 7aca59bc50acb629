"""The terminal interface of the real codex on our app-server: it takes no path and sends the secret as bearer token."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interop.programs import ROOT, START_SECONDS, STOP_SECONDS

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

# What it asks of the terminal before it draws, and what one would answer.
_ANSWERS = {
    b"\x1b[6n": b"\x1b[1;1R",
    b"\x1b[c": b"\x1b[?62;c",
    b"]10;?": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    b"]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
}


@pytest.fixture
def app_server(tmp_path: Path) -> Iterator[str]:
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "treadle", "app-server", "--listen", "ws://127.0.0.1:0"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=env, cwd=tmp_path)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().decode().strip()
    finally:
        server.terminate()
        server.wait(STOP_SECONDS)
        server.stdout.close()


@contextmanager
def terminal(command: list[str], home: Path, **env: str) -> Iterator[int]:
    """A program with a terminal of its own; the descriptor of the other end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 40, 120, 0, 0))
    base = {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    program = subprocess.Popen(
        ["setsid", "-c", "-w", *command], stdin=theirs, stdout=theirs, stderr=theirs, env={**base, **env}, cwd=home
    )
    os.close(theirs)
    try:
        yield ours
    finally:
        os.close(ours)  # which ends it, as when a window is closed
        try:
            program.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()


def seen(screen: int, *signs: bytes) -> bytes:
    """All that is written until one of the signs is there, or the end."""
    said = b""
    end = time.monotonic() + START_SECONDS
    while not any(sign in said for sign in signs) and time.monotonic() < end:
        ready, _, _ = select.select([screen], [], [], max(0.0, end - time.monotonic()))
        try:
            data = os.read(screen, 65536) if ready else b""
        except OSError:  # how a terminal ends
            break
        for question, answer in _ANSWERS.items():
            if question in data:
                os.write(screen, answer)
        said += data
    return said


@pytest.mark.parametrize(("sent", "sign"), [(True, b"Offline"), (False, b"401 Unauthorized")], ids=["sent", "not sent"])
def test_the_terminal_interface_sends_the_secret(
    codex_bin: Path, app_server: str, tmp_path: Path, sent: bool, sign: bytes
) -> None:
    home = tmp_path / "codex"
    (home / ".codex").mkdir(parents=True)
    settings = f'check_for_update_on_startup = false\n[projects."{home}"]\ntrust_level = "trusted"\n'
    (home / ".codex" / "config.toml").write_text(settings)
    bare, _, secret = app_server.rpartition("/")
    options = ["--remote-auth-token-env", "THE_SECRET"] if sent else []
    with terminal([str(codex_bin), "--remote", bare, *options], home, THE_SECRET=secret) as screen:
        said = seen(screen, b"Offline", b"401 Unauthorized")
    assert sign in said, said[-2000:]
