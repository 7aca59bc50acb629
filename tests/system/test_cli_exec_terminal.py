"""`treadle exec` on a terminal: drawn as it happens, asking before it acts, and put back as it was."""

from __future__ import annotations

import os
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyte
import pytest

from system.test_cli_run import DEADLINE
from system.test_cli_run_terminal import HIDE, SHOW, Terminal
from treadle.testing import AppServerHarness, ToolCall, Usage

GO_ON = "go on    treadle exec resume "
# Until the file is there; it is seen from inside of any sandbox.
WAITS = "echo begun; while [ ! -e {go} ]; do sleep 0.02; done; echo ended"


class Stage(AppServerHarness):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, settings={"approval_policy": "on-request", "sandbox_mode": "read-only"})
        self.terminal = Terminal()
        self.go = self.workspace / "go"

    def resize(self, columns: int, rows: int) -> None:
        self.terminal.close()
        self.terminal = Terminal(columns, rows)

    def close(self) -> None:
        self.terminal.close()
        super().close()

    @contextmanager
    def exec(self, *arguments: str, stdout: int | None = None, **env: str) -> Iterator[subprocess.Popen[bytes]]:
        """In a session whose terminal it is, so that Ctrl-C reaches it as it does from a keyboard."""
        environ = {**self.environ(), "TERM": "xterm-256color", **env}
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            environ.pop(name, None)
        with subprocess.Popen(
            ["setsid", "-c", sys.executable, "-m", "treadle", "exec", *arguments],
            cwd=self.workspace,
            env=environ,
            stdin=self.terminal.slave,
            stdout=self.terminal.slave if stdout is None else stdout,
            stderr=self.terminal.slave,
        ) as program:
            try:
                yield program
            finally:
                program.kill()

    def escalate(self, command: str, why: str = "May I?") -> None:
        """The model wants something outside of the sandbox."""
        given = {"cmd": command, "sandbox_permissions": "require_escalated", "justification": why}
        self.model.enqueue_function_call("exec_command", given)

    def screen(self, columns: int = 80, rows: int = 200) -> list[str]:
        """What is on the screen when all is done: as if the terminal were so high that nothing scrolls away."""
        screen = pyte.Screen(columns, rows)
        pyte.ByteStream(screen).feed(self.terminal.read_to_end())
        return [line.rstrip() for line in screen.display]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as stage:
        yield stage


def test_a_turn_is_drawn_as_it_happens(stage: Stage) -> None:
    said = threading.Event()
    command = WAITS.format(go=stage.go)
    stage.model.enqueue_function_call("exec_command", {"cmd": command}, gate=said)
    stage.model.enqueue_assistant_message("It **works**.\n\n- yes\n", usage=Usage(input_tokens=70, output_tokens=5))
    with stage.exec("look") as program:
        stage.terminal.wait_for("waiting for the model · 1s")  # before the first word
        said.set()
        stage.terminal.wait_for("▸ echo begun")
        stage.terminal.wait_for("│ begun")
        stage.terminal.wait_for("working · ")
        stage.go.touch()
        shown = stage.screen()
        assert program.wait(timeout=DEADLINE) == 0
    begin = next(number for number, line in enumerate(shown) if line.startswith("✓ echo begun"))
    assert any(line == "  │ ended" for line in shown[begin:])
    assert "It works." in shown
    assert " • yes" in shown
    end = shown.index("It works.")
    assert [line for line in shown[end:] if "tokens in, " in line]
    assert [line for line in shown[end:] if line.startswith(GO_ON)]
    assert f"stored   {stage.home}/threads.db" in "".join(shown)
    assert not any("Ctrl-C" in line for line in shown)
    assert stage.terminal.seen.count(HIDE) == stage.terminal.seen.count(SHOW) == 1


def test_commands_side_by_side_and_words_at_40_columns(stage: Stage) -> None:
    stage.resize(40, 24)
    words = "several words that are wrapped where they end"
    command = f"echo {words}; {WAITS.format(go='go')}"
    stage.model.enqueue_calls(*(ToolCall("exec_command", {"cmd": f": {name}; {command}"}) for name in "abc"))
    stage.model.enqueue_assistant_message(f"{words} " * 3)
    with stage.exec("look") as program:
        for name in "abc":
            stage.terminal.wait_for(f"▸ : {name}; echo several")
        stage.go.touch()
        shown = stage.screen(40)
        assert program.wait(timeout=DEADLINE) == 0
    for name in "abc":
        assert sum(line.startswith(f"✓ : {name}; echo several words") for line in shown) == 1
    assert sum(line == "  │ several words that are wrapped where" for line in shown) == 3
    assert "several words that are wrapped where" in shown
    assert max(map(len, shown)) <= 40
    thread = next(line for line in shown if line.startswith("thread")).removeprefix("thread   ")
    thread += shown[shown.index(f"thread   {thread}") + 1].strip()
    assert f'{GO_ON}{thread} "…"' in "".join(shown)  # broken by the terminal alone, so that it can be copied


def test_yes_lets_it_be_done(stage: Stage) -> None:
    stage.escalate("touch made", "May I make a file?")
    stage.model.enqueue_assistant_message("Made.")
    with stage.exec("make it") as program:
        stage.terminal.wait_for("  > ")
        assert "Run this command?" in stage.terminal.text
        assert "why: May I make a file?" in stage.terminal.text
        assert not (stage.workspace / "made").exists()
        stage.terminal.type(b"y")
        shown = stage.screen()
        assert program.wait(timeout=DEADLINE) == 0
    assert (stage.workspace / "made").exists()
    assert any(line.startswith("✓ touch made") for line in shown)
    assert "Made." in shown


def test_no_and_what_to_do_instead(stage: Stage) -> None:
    stage.escalate("touch made")
    stage.model.enqueue_assistant_message("Then not.")
    with stage.exec("make it") as program:
        stage.terminal.wait_for("  > ")
        stage.terminal.type(b"n")
        stage.terminal.wait_for("what instead?")
        stage.terminal.type("lieber nicht, grün\n".encode())
        shown = stage.screen()
        assert program.wait(timeout=DEADLINE) == 0
    assert not (stage.workspace / "made").exists()
    assert any(line.startswith("✗ touch made · declined, and not run: you said no") for line in shown)
    assert stage.model.requests()[-1].last_user_text == "lieber nicht, grün"


def test_what_was_typed_before_the_question_is_no_answer(stage: Stage) -> None:
    asked = threading.Event()
    given = {"cmd": "touch made", "sandbox_permissions": "require_escalated"}
    stage.model.enqueue_function_call("exec_command", given, gate=asked)
    stage.model.enqueue_assistant_message("Fine.")
    with stage.exec("make it") as program:
        stage.terminal.wait_for("waiting for the model")
        stage.terminal.type(b"y\n")
        asked.set()
        stage.terminal.wait_for("  > ")
        stage.terminal.type(b"q")
        stage.screen()
        assert program.wait(timeout=DEADLINE) == 1
    assert not (stage.workspace / "made").exists()


def modes(terminal: Terminal) -> int:
    flags: int = termios.tcgetattr(terminal.slave)[3]
    return flags & (termios.ECHO | termios.ICANON)


def test_ctrl_c_at_a_question_interrupts_the_turn(stage: Stage) -> None:
    before = modes(stage.terminal)
    stage.escalate("touch made")
    with stage.exec("make it") as program:
        stage.terminal.wait_for("  > ")
        assert modes(stage.terminal) == 0
        stage.terminal.type(b"\x03")
        assert program.wait(timeout=DEADLINE) == 130
        assert modes(stage.terminal) == before
        shown = stage.screen()
    assert not (stage.workspace / "made").exists()
    assert "✗ interrupted" in shown
    assert any(line.startswith(GO_ON) for line in shown)


@pytest.mark.parametrize("stubborn", [False, True])
def test_ctrl_c_once_interrupts_and_twice_leaves(stage: Stage, stubborn: bool) -> None:
    before = modes(stage.terminal)
    stage.model.enqueue_function_call("exec_command", {"cmd": ("trap '' TERM; " if stubborn else "") + WAITS})
    with stage.exec("look") as program:
        stage.terminal.wait_for("│ begun")
        stage.terminal.type(b"\x03")
        if stubborn:
            stage.terminal.wait_for("interrupting; press Ctrl-C again to leave at once")
            stage.terminal.type(b"\x03")
        assert program.wait(timeout=DEADLINE) == 130
        assert modes(stage.terminal) == before
        shown = stage.screen()
    assert stage.terminal.seen.count(HIDE) == stage.terminal.seen.count(SHOW)
    if not stubborn:
        assert "✗ interrupted" in shown
        assert any(line.startswith(GO_ON) for line in shown)


def test_ctrl_c_before_the_first_word(stage: Stage) -> None:
    """Whether the turn has begun by then or not."""
    stage.model.enqueue_assistant_message("Never.", gate=threading.Event())
    with stage.exec("look") as program:
        stage.terminal.wait_for("waiting for the model")
        stage.terminal.type(b"\x03")
        shown = stage.screen()
        assert program.wait(timeout=DEADLINE) == 130
    assert "✗ interrupted" in shown


def test_a_terminal_that_goes_away_ends_it(stage: Stage) -> None:
    """Everything is shown there, and nothing else happens that would tell."""
    stage.model.enqueue_function_call("exec_command", {"cmd": WAITS.format(go=stage.go)})
    with subprocess.Popen(
        [sys.executable, "-m", "treadle", "exec", "look"],
        cwd=stage.workspace,
        env={**stage.environ(), "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=stage.terminal.slave,
        stderr=subprocess.PIPE,
    ) as program:
        stage.terminal.wait_for("│ begun")
        stage.terminal.close()
        assert program.wait(timeout=DEADLINE) == 1
        assert program.stderr is not None
        assert b"the terminal is gone" in program.stderr.read()


def test_the_answer_can_go_elsewhere_while_the_turn_is_drawn(stage: Stage) -> None:
    stage.escalate("touch made")
    stage.model.enqueue_assistant_message("It **works**.")
    with stage.exec("look", stdout=subprocess.PIPE) as program:
        stage.terminal.wait_for("  > ")
        stage.terminal.type(b"y")
        shown = stage.screen()
        assert program.stdout is not None
        assert program.stdout.read() == b"It **works**.\n"
        assert program.wait(timeout=DEADLINE) == 0
    assert any(line.startswith("✓ touch made") for line in shown)
    assert not any(line.startswith("It") for line in shown)


def test_what_a_closed_terminal_cannot_take_does_not_change_the_exit_code() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    script = "import sys; from treadle.cli.streams import finish; sys.stderr.write('half a line'); sys.exit(finish(3))"
    with os.fdopen(writer, "wb") as stderr:
        # -E: with PYTHONUNBUFFERED there would be nothing left to flush.
        ended = subprocess.run([sys.executable, "-E", "-c", script], stderr=stderr, timeout=DEADLINE, check=False)
    assert ended.returncode == 3


def test_an_answer_that_goes_elsewhere_does_not_need_the_terminal(stage: Stage) -> None:
    stage.model.enqueue_function_call("exec_command", {"cmd": WAITS.format(go=stage.go)})
    stage.model.enqueue_assistant_message("Done.")
    # Not its session's terminal: when that goes, the whole session is told to end.
    with subprocess.Popen(
        [sys.executable, "-m", "treadle", "exec", "look"],
        cwd=stage.workspace,
        env={**stage.environ(), "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stage.terminal.slave,
    ) as program:
        stage.terminal.wait_for("│ begun")
        stage.terminal.close()
        stage.go.touch()
        assert program.stdout is not None
        assert program.stdout.read() == b"Done.\n"
        assert program.wait(timeout=DEADLINE) == 0


@pytest.mark.parametrize(("flags", "refused"), [(("--approval", "never"), True), (("-a", "on-request"), False)])
def test_the_policy_can_be_chosen(stage: Stage, flags: tuple[str, ...], refused: bool) -> None:
    stage.escalate("touch made")
    stage.model.enqueue_assistant_message("Done.")
    with stage.exec("make it", *flags) as program:
        if not refused:
            stage.terminal.wait_for("  > ")
            stage.terminal.type(b"n")
            stage.terminal.wait_for("what instead?")
            stage.terminal.type(b"\n")
        shown = stage.screen()
        assert program.wait(timeout=DEADLINE) == 0
    assert any("nobody is asked" in line for line in shown) is refused
    assert not (stage.workspace / "made").exists()


def test_quiet_shows_the_answer_alone(stage: Stage) -> None:
    stage.escalate("touch made")
    stage.model.enqueue_assistant_message("It **works**.")
    with stage.exec("--quiet", "look") as program:
        shown = stage.screen()
        assert program.wait(timeout=DEADLINE) == 0
    assert [line for line in shown if line] == ["It works."]
    assert not (stage.workspace / "made").exists()


def test_a_dumb_terminal_gets_lines(stage: Stage) -> None:
    stage.model.enqueue_assistant_message("It **works**.")
    with stage.exec("look", TERM="dumb") as program:
        shown = stage.terminal.read_to_end()
        assert program.wait(timeout=DEADLINE) == 0
    assert b"\x1b" not in shown
    assert b"It **works**.\r\n" in shown


def test_without_a_terminal_nobody_is_asked_and_that_is_said(stage: Stage) -> None:
    stage.escalate("touch made")
    stage.model.enqueue_assistant_message("Done.")
    done = subprocess.run(
        [sys.executable, "-m", "treadle", "exec", "--approval", "on-request", "make it"],
        cwd=stage.workspace,
        env=stage.environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
    assert "declined: nobody can be asked here; run it on a terminal, or allow more with --sandbox" in done.stderr
    assert not (stage.workspace / "made").exists()
    assert "\x1b" not in done.stderr
    assert os.path.exists(stage.home / "threads.db")
