"""`treadle chat` on a real terminal: typed at, looked at, left, and cut off."""

from __future__ import annotations

import re
import shlex
import signal
import stat
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from interop.tui.tui import Tui
from kit.processes import processes_left, wait_for_process
from system.test_cli_run_terminal import Terminal
from treadle.cli import SLASH_COMMANDS, file_address
from treadle.cli.chat.chat_command import command as chat
from treadle.testing import AppServerHarness

DEADLINE = 30.0
ESCALATED = {"cmd": "touch made", "sandbox_permissions": "require_escalated", "justification": "because I say so"}
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"
PAGE = Path(__file__).parents[2] / "docs" / "chat.md"
SETTINGS = {"approval_policy": "on-request", "sandbox_mode": "read-only"}


class Stage:
    def __init__(self, tmp_path: Path, harness: AppServerHarness) -> None:
        self.model = harness.model
        self.workspace = harness.workspace
        self.home = harness.home
        (tmp_path / "user").mkdir()
        self.env = {
            **harness.environ(),
            "HOME": str(tmp_path / "user"),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
        }
        self.env.pop("NO_COLOR", None)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "treadle", "chat", *words]

    @contextmanager
    def chat(self, *words: str, columns: int = 100, rows: int = 40) -> Iterator[Tui]:
        with Tui(self.command(*words), self.workspace, self.env, columns=columns, rows=rows) as tui:
            tui.wait_for("›", "mock-model")
            yield tui


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with AppServerHarness(tmp_path, settings=SETTINGS) as harness:
        yield Stage(tmp_path, harness)


def thread_of(text: str) -> str:
    found = re.findall(r"treadle chat resume ([0-9a-f-]{36})", text)
    assert found, text
    return str(found[-1])


def test_a_whole_session(stage: Stage) -> None:
    with stage.chat() as tui:
        # An answer comes piece by piece, and something is added meanwhile.
        gate = threading.Event()
        pieces = ["The answer ", "is **42**."]
        stage.model.enqueue_assistant_message("".join(pieces), deltas=pieces, gate=gate, gate_after=3)
        stage.model.enqueue_assistant_message("Then 43.")
        tui.say("what is the answer?")
        tui.wait_for("The answer", "writing", "Esc to interrupt")
        tui.say("and after that?")
        tui.wait_for("added to the running turn")
        gate.set()
        tui.wait_for_sequence("The answer is 42.", "Then 43.", "tokens in")
        assert stage.model.requests()[1].last_user_text == "and after that?"

        # Something needs a yes.
        stage.model.enqueue_function_call("exec_command", ESCALATED, call_id="c1")
        stage.model.enqueue_assistant_message("It is made.")
        tui.say("make it")
        tui.wait_for("Run this command?", "touch made", "because I say so", "y  yes")
        assert not (stage.workspace / "made").exists()
        tui.press("y")
        tui.wait_for_sequence("It is made.", "tokens in")
        assert (stage.workspace / "made").exists()

        tui.say("/status")
        tui.wait_for("sandbox    read-only", "approvals  on-request", "tokens")

        tui.say("/fork")
        tui.wait_for("this is a copy now")
        tui.say("/resume")
        tui.wait_for("Go on with which thread?", "❯ what is the answer?", "› make it")
        tui.press("enter")
        tui.wait_for_sequence("this is a copy now", "── turn 2", "$ touch made", "It is made.", "· thread ")

        # A turn that takes too long.
        forever = threading.Event()
        stage.model.enqueue_assistant_message("never said", gate=forever)
        tui.say("take your time")
        tui.wait_for("waiting for the model")
        tui.say("/new")
        tui.wait_for("the agent is working; Esc interrupts it")
        tui.press("ctrl-c")
        tui.wait_for("✗ interrupted")
        forever.set()

        tui.press("ctrl-d")
        assert tui.wait_for_end() == 0
        thread = thread_of(tui.history)
        assert f"treadle exec resume {thread}" in tui.history
        assert "mock-model · read-only" not in tui.text  # what was only for typing is gone
    with stage.chat("resume", thread) as tui:
        tui.wait_for("It is made.", "take your time")


def test_a_prompt_opens_a_session_and_a_fork_goes_on_in_a_copy(stage: Stage) -> None:
    def treadle(*words: str) -> Tui:
        command = [sys.executable, "-m", "treadle", *words]
        return Tui(command, stage.workspace, stage.env, columns=100, rows=40)

    stage.model.enqueue_assistant_message("It is 42.")
    with treadle("what is the answer?") as tui:
        tui.wait_for("It is 42.", "tokens in")
        tui.press("ctrl-d")
        assert tui.wait_for_end() == 0
        first = thread_of(tui.history)
    stage.model.enqueue_assistant_message("Still 42.")
    with treadle("fork", first[-8:], "and now?") as tui:
        tui.wait_for("It is 42.", "Still 42.")
        tui.press("ctrl-d")
        assert tui.wait_for_end() == 0
        assert thread_of(tui.history) != first


def test_options_of_codex_stand_before_the_prompt(stage: Stage) -> None:
    with (stage.home / "config.toml").open("a") as file:
        file.write('[profiles.quick]\nmodel_reasoning_effort = "low"\n')
    stage.model.enqueue_assistant_message("It is 42.")
    command = [*stage.command()[:-1], "-p", "quick", "--yolo", "what is the answer?"]
    with Tui(command, stage.workspace, stage.env, columns=100, rows=40) as tui:
        tui.wait_for("danger-full-access · approvals never", "It is 42.", "tokens in")
        tui.say("/status")
        tui.wait_for("effort low", "approvals  never")


def test_a_thread_is_chosen_from_a_list_on_a_narrow_terminal(stage: Stage) -> None:
    for words in ("where does wool come from?", "what is a loom?"):
        stage.model.enqueue_assistant_message(f"You asked: {words}")
        subprocess.run(
            [*stage.command()[:-1], "exec", words],
            cwd=stage.workspace,
            env=stage.env,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    with Tui(stage.command("resume"), stage.workspace, stage.env, columns=40, rows=20) as tui:
        tui.wait_for("Go on with which thread?  2", "❯ what is a loom?", "  where does wool")
        tui.type("WOOL")
        tui.wait_for("1 of 2", "❯ where does wool", "  You asked: where does wool come from?")
        tui.press("enter")
        tui.wait_for("You asked: where does wool come from?", "read-only")
        tui.say("!echo $((40 + 2)) threads")
        tui.wait_for("✓ echo $((40 + 2)) threads", "│ 42 threads")
        stage.model.enqueue_custom_call("apply_patch", PATCH)
        stage.model.enqueue_assistant_message("It is written.")
        tui.say("/sandbox workspace-write")
        tui.say("write it")
        tui.wait_for("It is written.", "tokens in")
        tui.say("/undo")
        tui.wait_for("▸ remove new.txt", "Undo the last turn?", "y  take back")
        tui.press("y")
        tui.wait_for("the last turn is taken back; 1 file", "› write it")
        assert not (stage.workspace / "new.txt").exists()
    with Tui(stage.command("resume"), stage.workspace, stage.env) as tui:
        tui.wait_for("Go on with which thread?  2")
        tui.press("escape")
        assert tui.wait_for_end() == 0


def test_it_calls_whoever_is_away_and_files_can_be_clicked(stage: Stage) -> None:
    with (stage.home / "config.toml").open("a") as file:
        file.write('[tui]\nnotification_method = "osc9"\nnotification_condition = "always"\n')
    link = file_address(str(stage.workspace / "new.txt"))
    with stage.chat("--sandbox", "workspace-write") as tui:
        assert "\x1b[?1004h" in tui.sent
        stage.model.enqueue_function_call("exec_command", ESCALATED, call_id="c1")
        stage.model.enqueue_custom_call("apply_patch", PATCH)
        stage.model.enqueue_assistant_message("It is written.")
        tui.say("write it")
        tui.wait_for("Run this command?", "y  yes")
        assert "\x1b]9;treadle: a question waits for your answer\x07" in tui.sent
        tui.press("y")
        tui.wait_for("It is written.", "tokens in")
        assert "\x1b]9;treadle: the turn has ended: completed\x07" in tui.sent
        seen = tui.sent.count(link)
        assert seen > 0
        tui.say("/undo")
        tui.wait_for("▸ remove new.txt", "y  take back")
        assert tui.sent.count(link) > seen
        tui.press("n")
        tui.say("/export thread.md")
        tui.wait_for("· written:", "/thread.md")  # with its folder: the name alone was typed
        assert file_address(str(stage.workspace / "thread.md")) in tui.sent
        tui.press("ctrl-d")
        assert tui.wait_for_end() == 0
        assert tui.sent.index("\x1b[?1004l") > 0
    with stage.chat("resume", "--last") as tui:
        tui.wait_for("It is written.")
        assert link in tui.sent


def test_a_plan_that_is_proposed_is_asked_about(stage: Stage) -> None:
    with stage.chat() as tui:
        stage.model.enqueue_assistant_message("<proposed_plan>\n- first this\n</proposed_plan>")
        stage.model.enqueue_assistant_message("It is done.")
        tui.say("/plan make one")
        tui.wait_for("first this", "Implement this plan?", "y  yes, implement it")
        tui.press("y")
        tui.wait_for("› Implement the plan.", "It is done.")


def test_no_means_no_and_says_what_to_do_instead(stage: Stage) -> None:
    with stage.chat("write it") as tui:
        stage.model.enqueue_custom_call("apply_patch", PATCH)
        stage.model.enqueue_assistant_message("I did not.")
        stage.model.enqueue_assistant_message("Then not.")
        tui.wait_for("Change these files?", "+hello", "n  no")
        tui.press("n")
        tui.wait_for("instead:")
        tui.type("nothing at all", prompt="instead:")
        tui.press("enter")
        tui.wait_for("declined", "you said no", "› nothing at all")
        tui.wait_for("tokens in")
        assert "nothing at all" in [text for asked in stage.model.requests() for text in asked.input_texts("user")]
        assert not (stage.workspace / "new.txt").exists()


def test_a_key_that_is_wanted_for_a_message_is_no_yes(stage: Stage) -> None:
    with stage.chat() as tui:
        gate = threading.Event()
        stage.model.enqueue_function_call("exec_command", ESCALATED, call_id="c1", gate=gate)
        tui.say("make it")
        tui.wait_for("waiting for the model")
        tui.type("y")
        gate.set()
        tui.wait_for("Run this command?", "send or clear your message first")
        tui.press("y", "y")
        tui.wait_for("› yyy")
        assert not (stage.workspace / "made").exists()
        tui.press("ctrl-u")
        tui.wait_for("q  no, and stop the turn")
        tui.press("q")
        tui.wait_for("✗ interrupted")
        assert not (stage.workspace / "made").exists()


def test_an_error_of_the_provider_is_a_message_and_the_session_goes_on(stage: Stage) -> None:
    with stage.chat() as tui:
        stage.model.enqueue_error(401, {"error": {"message": "that key is wrong"}})
        stage.model.enqueue_assistant_message("Better.")
        tui.say("hello")
        tui.wait_for("failed: ", "that key is wrong", "try: treadle login")
        tui.say("again")
        tui.wait_for("Better.")
        tui.say("/resume nobody")
        tui.wait_for("there is no thread nobody")
        tui.say("/modle")
        tui.wait_for("did you mean /model?")


def test_files_are_completed_and_history_is_kept(stage: Stage) -> None:
    (stage.workspace / "some folder").mkdir()
    (stage.workspace / "some folder" / "needle.txt").touch()
    with stage.chat() as tui:
        stage.model.enqueue_assistant_message("Seen.")
        tui.type("read @nee")
        tui.wait_for("some folder/needle.txt")
        tui.press("tab")
        tui.wait_for('› read @"some folder/needle.txt"')
        tui.press("enter")
        tui.wait_for("Seen.")
        assert stage.model.requests()[0].last_user_text == 'read "some folder/needle.txt"'
        tui.press("ctrl-d")
        assert tui.wait_for_end() == 0
    assert stat.S_IMODE((stage.home / "chat_history.jsonl").stat().st_mode) == 0o600
    with stage.chat() as tui:
        tui.press("\x1b[A")
        tui.wait_for('› read @"some folder/needle.txt"')


def test_a_narrow_terminal_and_one_that_changes(stage: Stage) -> None:
    with stage.chat(columns=40, rows=20) as tui:
        words = "Every word of this sentence has to be there, and none may be cut in two."
        stage.model.enqueue_assistant_message(words)
        stage.model.enqueue_assistant_message(words)
        tui.say("hello")
        shown = tui.wait_for("tokens in")
        assert words in " ".join(line.strip() for line in shown.splitlines())
        tui.resize(120, 30)
        tui.say("again")
        tui.wait_for(words, "context left")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_who_ends_it_ends_all_of_it(stage: Stage, number: int, code: int) -> None:
    with stage.chat() as tui:
        watched = stage.workspace / "watched"
        watched.touch()
        stage.model.enqueue_function_call("exec_command", {"cmd": f"tail -f {watched}"}, call_id="c1")
        tui.say("wait")
        tui.wait_for("tail -f", "working")
        wait_for_process(str(watched))
        tui.process.send_signal(number)
        assert tui.wait_for_end() == code
        thread_of(tui.history)
        assert processes_left(str(watched)) == []


def test_a_terminal_that_is_closed_ends_it(stage: Stage) -> None:
    terminal = Terminal()
    with subprocess.Popen(
        ["setsid", "-c", *stage.command()],
        cwd=stage.workspace,
        env=stage.env,
        stdin=terminal.slave,
        stdout=terminal.slave,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        terminal.wait_for("›")
        terminal.close()
        assert program.wait(timeout=DEADLINE) == 129
        assert program.stderr is not None
        assert program.stderr.read() == ""


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize(("end", "code"), [(b"\x04", 0), (signal.SIGTERM, 143)])
def test_the_terminal_is_left_as_it_was(stage: Stage, end: bytes | int, code: int, early: bool) -> None:
    terminal = Terminal()
    before = termios.tcgetattr(terminal.slave)
    with subprocess.Popen(
        ["setsid", "-c", *stage.command()],
        cwd=stage.workspace,
        env=stage.env,
        stdin=terminal.slave,
        stdout=terminal.slave,
        stderr=terminal.slave,
    ) as program:
        try:
            if early:
                while termios.tcgetattr(terminal.slave) == before:  # nothing is drawn yet
                    assert program.poll() is None
                terminal.drain()
                assert terminal.text == ""
            else:
                terminal.wait_for("›")
            terminal.type(end) if isinstance(end, bytes) else program.send_signal(end)
            assert program.wait(timeout=DEADLINE) == code
            assert termios.tcgetattr(terminal.slave) == before
        finally:
            program.kill()
            terminal.close()


def test_it_logs_to_a_file_and_never_on_the_screen(stage: Stage) -> None:
    log = stage.home / "chat.log"
    stage.env["TREADLE_LOG"] = "info"
    for file in (str(log), ""):
        stage.env["TREADLE_LOG_FILE"] = file
        stage.model.enqueue_assistant_message("The answer.")
        with stage.chat() as tui:
            tui.say("a question")
            tui.wait_for("The answer.", "tokens in")
            tui.press("ctrl-d")
            assert tui.wait_for_end() == 0
            assert "turn ended" not in tui.history
    assert log.read_text().count("turn ended") == 1


def test_it_can_be_put_in_the_background(stage: Stage) -> None:
    env = {**stage.env, "PS1": "shell> ", "CHAT": shlex.join(stage.command())}
    with Tui(["bash", "--norc", "--noprofile", "-i"], stage.workspace, env, columns=100, rows=40) as tui:
        tui.wait_for("shell>")
        tui.type('eval "$CHAT"', prompt="shell>")
        tui.press("enter")
        tui.wait_for("›", "mock-model")
        tui.press("ctrl-z")
        tui.wait_for("Stopped")
        tui.type("fg", prompt="shell>")
        tui.press("enter")
        tui.wait_for_sequence("shell> fg", "›")
        stage.model.enqueue_assistant_message("Here again.")
        tui.say("hello")
        tui.wait_for("Here again.")
        tui.press("ctrl-d")
        tui.wait_for("treadle chat resume")
        tui.type("exit", prompt="shell>")
        tui.press("enter")
        assert tui.wait_for_end() == 0


def test_the_commands_of_the_page_work(stage: Stage) -> None:
    (block,) = re.findall(r"```sh[^\n]*\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for line in block.splitlines():
        program, name, *words = shlex.split(line)
        assert (program, name) == ("treadle", "chat")
        stage.model.enqueue_assistant_message("The answer.")
        with stage.chat(*words) as tui:
            if '"' not in line:
                tui.say("a question")
            tui.wait_for("The answer.", "tokens in")
            tui.press("ctrl-d")
            assert tui.wait_for_end() == 0


def test_the_page_has_every_command_and_option() -> None:
    page = PAGE.read_text()
    assert [command.name for command in SLASH_COMMANDS if f"| `/{command.name}" not in page] == []
    options = [name for option in chat.params if isinstance(option, click.Option) for name in option.opts]
    unsaid = {"--debug", "--config", "--ask-for-approval"}  # every command has the first two; the third is of codex
    assert [name for name in options if name not in unsaid and f"`{name}" not in page and f" {name}`" not in page] == []


def _refused(stage: Stage, *words: str, **streams: int) -> str:
    done = subprocess.run(
        stage.command(*words),
        cwd=stage.workspace,
        env=stage.env,
        stdin=streams.get("stdin", subprocess.DEVNULL),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    return done.stderr


def test_without_a_terminal_it_names_exec(stage: Stage) -> None:
    what, why, do = _refused(stage, "hello").splitlines()
    assert what == "treadle chat: a session needs a terminal"
    assert why == "  why: standard input is no terminal"
    assert "treadle exec" in do
    assert stage.model.requests() == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--last"], "--last goes with resume"),
        (["resume"], "a session needs a terminal"),
        (["two", "words"], "the prompt is one argument"),
        (["--cd", "nowhere"], "nowhere is no directory"),
        (["--image", "nothing.png"], "the picture nothing.png cannot be read"),
        (["--sandbox", "none"], "'none' is not one of"),
    ],
)
def test_wrong_words_are_refused_with_what_to_type(stage: Stage, words: list[str], said: str) -> None:
    lines = _refused(stage, *words).splitlines()
    assert any(said in line for line in lines[:-1])
    assert lines[-1].startswith("  try: ")


def test_a_thread_that_is_not_there_is_told_before_anything_is_drawn(stage: Stage) -> None:
    with Tui(stage.command("resume", "nobody"), stage.workspace, stage.env) as tui:
        assert tui.wait_for_end() == 1
        assert "treadle chat: there is no thread 'nobody'" in tui.history
        assert "try: treadle chat resume, for a list" in tui.history
