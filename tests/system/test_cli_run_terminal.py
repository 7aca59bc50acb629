"""`treadle run` and its sisters on a terminal: drawn, ticking, and put back as it was."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from system.runners.fake_engine import SESSION
from system.test_cli_run import DEADLINE, LS, WAITS, Stage

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
HIDE, SHOW = b"\x1b[?25l", b"\x1b[?25h"


class Terminal:
    """The side of a terminal that a person sits at."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.master, self.slave = os.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.seen = b""

    @property
    def text(self) -> str:
        """What was shown, without what moves the cursor and paints."""
        return _CONTROL.sub("", self.seen.decode("utf-8", "replace"))

    def wait_for(self, words: str) -> None:
        deadline = time.monotonic() + DEADLINE
        while words not in self.text:
            assert time.monotonic() < deadline, f"{words!r} was not shown: {self.text[-500:]!r}"
            self._read(1.0)

    def read_to_end(self) -> bytes:
        """All that is left when everybody has left."""
        os.close(self.slave)
        self.slave = -1
        while self._read(float(DEADLINE)):
            pass
        return self.seen

    def drain(self) -> None:
        """What was shown so far is read."""
        while self._read(0.0):
            pass

    def type(self, data: bytes) -> None:
        os.write(self.master, data)

    def close(self) -> None:
        for descriptor in (self.master, self.slave):
            if descriptor >= 0:
                os.close(descriptor)
        self.master = self.slave = -1

    def _read(self, timeout: float) -> bool:
        if not select.select([self.master], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:  # nobody has the other side any more
            return False
        self.seen += data
        return bool(data)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.close()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    stage.env |= {"TERM": "xterm-256color"}
    stage.env.pop("NO_COLOR", None)
    return stage


@contextmanager
def start(
    stage: Stage, terminal: Terminal, *arguments: str, stdout: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """In a session whose terminal it is, so that Ctrl-C reaches it as it does from a keyboard."""
    with subprocess.Popen(
        ["setsid", "-c", *stage.command(*arguments)],
        cwd=stage.project,
        env=stage.env,
        stdin=terminal.slave,
        stdout=terminal.slave if stdout is None else stdout,
        stderr=terminal.slave,
    ) as program:
        try:
            yield program
        finally:
            program.kill()


def test_what_is_done_stays_and_the_answer_is_plain(stage: Stage, terminal: Terminal) -> None:
    stage.engine(LS)
    with start(stage, terminal, "run", "-e", "codex", "look") as program:
        shown = terminal.read_to_end()
        assert program.wait(timeout=DEADLINE) == 0
    assert HIDE in shown
    assert shown.index(SHOW) < shown.index(b"It is empty.")
    lines = [line for line in terminal.text.replace("\r", "\n").split("\n") if line.strip()]
    assert lines[-3] == "It is empty."
    assert lines[-1] == f"codex resume {SESSION}"
    assert any(line.startswith("✓ ls") for line in lines)
    assert b"\x1b[32m" in shown


def test_the_answer_can_go_elsewhere_while_the_terminal_shows_the_run(stage: Stage, terminal: Terminal) -> None:
    stage.engine(LS)
    with start(stage, terminal, "run", "-e", "codex", "look", stdout=subprocess.PIPE) as program:
        shown = terminal.read_to_end()
        assert program.stdout is not None
        assert program.stdout.read() == b"It is empty.\n"
        assert program.wait(timeout=DEADLINE) == 0
    assert HIDE in shown
    assert b"It is empty." not in shown


# Asks in the words of `claude`.
ASKS = """
assert json.loads(sys.stdin.readline())["request"]["subtype"] == "initialize"
sys.stdin.readline()
say(type="system", subtype="init", session_id=SESSION, model="m", cwd=HERE)
request = dict(subtype="can_use_tool", tool_name="Bash", input={"command": "rm notes.txt", "description": "tidy up"})
say(type="control_request", request_id="q1", request=request)
said = json.loads(sys.stdin.readline())["response"]["response"]
mark("said", json.dumps(said))
say(type="result", subtype="success", is_error=False, result=said["behavior"])
"""


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ((b"y",), {"behavior": "allow", "updatedInput": {"command": "rm notes.txt", "description": "tidy up"}}),
        ((b"n", b"move it\n"), {"behavior": "deny", "message": "move it"}),
        ((b"\x04",), {"behavior": "deny", "message": "The user does not allow Bash here."}),
    ],
)
def test_an_engine_that_asks_is_answered_at_the_terminal(
    stage: Stage, terminal: Terminal, keys: tuple[bytes, ...], said: dict[str, Any]
) -> None:
    stage.engine(ASKS, "claude")
    with start(stage, terminal, "run", "-e", "claude", "tidy up") as program:
        terminal.wait_for("> ")
        assert "Run this command?" in terminal.text
        assert "rm notes.txt" in terminal.text
        assert "why: tidy up" in terminal.text
        for key in keys:
            terminal.type(key)
            if key == b"n":
                terminal.wait_for("what instead?")
        terminal.read_to_end()
        assert program.wait(timeout=DEADLINE) == 0
    assert json.loads(stage.marked("said")) == said


def test_no_and_stop_ends_the_run(stage: Stage, terminal: Terminal) -> None:
    stage.engine(ASKS.replace('mark("said"', 'hang(); mark("said"'), "claude")
    with start(stage, terminal, "run", "-e", "claude", "tidy up") as program:
        terminal.wait_for("> ")
        terminal.type(b"q")
        terminal.read_to_end()
        assert program.wait(timeout=DEADLINE) == 1
    assert not (stage.programs / "said").exists()


def test_time_ticks_and_ctrl_c_stops_the_engine(stage: Stage, terminal: Terminal) -> None:
    stage.engine(WAITS)
    with start(stage, terminal, "run", "-e", "codex", "look") as program:
        terminal.wait_for("▸ sleep 99")
        terminal.wait_for("codex · 1s")
        terminal.wait_for("codex · 2s")  # nothing happened in between
        terminal.type(b"\x03")
        shown = terminal.read_to_end()
        assert program.wait(timeout=DEADLINE) == 130
    assert "stopping codex…" in terminal.text
    assert "– sleep 99" in terminal.text
    assert shown.count(HIDE) == shown.count(SHOW) == 1
    assert (stage.programs / "terminated").exists()


def test_a_second_ctrl_c_leaves_at_once_with_the_cursor_back(stage: Stage, terminal: Terminal) -> None:
    stage.engine(WAITS.replace('mark("terminated"), sys.exit(1)', 'mark("terminated")'))
    with start(stage, terminal, "run", "-e", "codex", "look") as program:
        terminal.wait_for("▸ sleep 99")
        terminal.type(b"\x03")
        terminal.wait_for("stopping codex…")
        terminal.type(b"\x03")
        assert program.wait(timeout=DEADLINE) == 130
        assert SHOW in terminal.read_to_end()


def test_without_colours_when_nobody_wants_them(stage: Stage, terminal: Terminal) -> None:
    stage.engine(LS)
    stage.env["NO_COLOR"] = "1"
    with start(stage, terminal, "run", "-e", "codex", "look"):
        shown = terminal.read_to_end()
    assert HIDE in shown
    assert not re.search(rb"\x1b\[[0-9;]*3[0-9]", shown)


def test_a_dumb_terminal_gets_lines(stage: Stage, terminal: Terminal) -> None:
    stage.engine(LS)
    stage.env["TERM"] = "dumb"
    with start(stage, terminal, "run", "-e", "codex", "look"):
        shown = terminal.read_to_end()
    assert b"\x1b" not in shown
    assert "▸ ls\r\n✓ ls".encode() in shown


def test_a_terminal_that_goes_away_does_not_end_the_run(stage: Stage, tmp_path: Path) -> None:
    stage.engine("start()\nwait_for('go')\n" + LS.replace("start()", ""))
    terminal = Terminal()
    # Not its session's terminal: when that goes, the whole session is told to end.
    with subprocess.Popen(
        stage.command("run", "-e", "codex", "look"),
        cwd=stage.project,
        env=stage.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=terminal.slave,
    ) as program:
        terminal.wait_for("codex")
        terminal.close()
        (stage.programs / "go").touch()
        assert program.stdout is not None
        assert program.stdout.read() == b"It is empty.\n"
        assert program.wait(timeout=DEADLINE) == 0


def test_engines_and_doctor_are_drawn_too(stage: Stage, terminal: Terminal) -> None:
    stage.engine('print("codex-cli 0.163.0")')
    with start(stage, terminal, "engines") as program:
        terminal.wait_for("asking for versions")
        terminal.wait_for("offline model")
        assert program.wait(timeout=DEADLINE) == 0
    with start(stage, terminal, "doctor", "treadle") as program:
        terminal.wait_for("treadle · 0s")
        terminal.wait_for("✓ answers through a mock model")
        assert program.wait(timeout=DEADLINE) == 0
    shown = terminal.read_to_end()
    assert shown.count(HIDE) == shown.count(SHOW) == 2
