"""`treadle exec`: one turn as a program, seen from outside."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Literal

import pytest

from kit.warm_python import run_python
from treadle.testing import AppServerHarness, Usage

DEADLINE = 60


def run(arguments: list[str], cwd: Path, home: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TREADLE_HOME": str(home)}
    return run_python(["-m", "treadle", "exec", *arguments], cwd=cwd, env=environment, stdin=stdin)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "hello.py").write_text('print("hello")\n')
    return folder


def test_the_offline_model_shows_the_whole_machine(project: Path, tmp_path: Path) -> None:
    done = run(["--sandbox", "workspace-write", "look around"], project, tmp_path / "home")
    assert done.returncode == 0, done.stderr
    shown = done.stderr
    order = ["model    offline", "plan", "$ ls", "  | hello.py", "  exit 0", "added ", "  +", "$ cat", "tokens in"]
    places = [shown.find(text) for text in order]
    assert -1 not in places, shown
    assert places == sorted(places), shown
    assert (project / "treadle-offline-1.md").exists()
    assert "\x1b" not in shown  # no terminal, no colours
    assert done.stdout.startswith("I am Treadle's offline model")  # the answer alone
    assert "tokens in" not in done.stdout


def test_what_the_sandbox_forbids_is_refused_and_said(project: Path, tmp_path: Path) -> None:
    done = run(["look around"], project, tmp_path / "home")  # read-only
    assert done.returncode == 0
    assert "failed: add" in done.stderr
    assert not (project / "treadle-offline-1.md").exists()


def test_a_commit_is_made_when_the_repository_is_named(tmp_path: Path) -> None:
    """What is proposed where it is not named: see `test_turn_story`."""
    with AppServerHarness(tmp_path) as harness:
        identity = ("-c", "user.name=n", "-c", "user.email=e@x")
        (harness.workspace / "file").write_text("x")
        for words in (("init", "-q"), ("add", "file")):
            subprocess.run(["git", *words], cwd=harness.workspace, check=True)
        harness.model.enqueue_function_call("exec_command", {"cmd": f"git {' '.join(identity)} commit -m first"})
        harness.model.enqueue_assistant_message("Done.")
        options = ("--sandbox", "workspace-write", "--add-dir", ".git")
        done = run([*options, "commit"], harness.workspace, harness.home)
        assert done.returncode == 0, done.stderr
        log = subprocess.run(["git", "log", "--format=%s"], cwd=harness.workspace, capture_output=True, check=True)
        assert log.stdout == b"first\n", done.stderr


def test_a_configured_model_answers_and_usage_is_told(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_function_call("exec_command", {"cmd": "echo out; echo err >&2; exit 3"})
        harness.model.enqueue_assistant_message("It failed.", usage=Usage(input_tokens=7, output_tokens=5))
        done = run(["what now?"], harness.workspace, harness.home)
        assert done.returncode == 0, done.stderr
        assert re.search(r"\$ echo out.*?\| out.*?exit 3", done.stderr, re.DOTALL)
        assert done.stdout == "It failed.\n"
        assert "6 out" in done.stderr
        assert harness.model.requests()[0].last_user_text == "what now?"


def test_a_wait_for_the_provider_is_said(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path, provider={"request_max_retries": 1}) as harness:
        harness.model.enqueue_error(429, {"error": {"message": "slow down"}}, {"Retry-After": "0.8"})
        harness.model.enqueue_assistant_message("Now.")
        done = run(["hello"], harness.workspace, harness.home)
        assert (done.returncode, done.stdout) == (0, "Now.\n")
        assert re.search(
            r"^Waiting for provider `mock_provider`: .*HTTP 429.* \(1 waiting\)$", done.stderr, re.MULTILINE
        )


def test_a_failed_turn_ends_with_1_and_says_why(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_error(401, "no such key")
        done = run(["hello"], harness.workspace, harness.home)
        assert done.returncode == 1
        assert re.search(r"failed: .*\b401\b.*no such key", done.stderr)
        assert done.stdout == ""


def test_a_copy_of_a_thread_goes_on_without_it(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        for answer in ("First.", "In the copy.", "In the first."):
            harness.model.enqueue_assistant_message(answer)
        assert run(["one"], harness.workspace, harness.home).returncode == 0
        done = run(["fork", "--last", "--ephemeral", "two"], harness.workspace, harness.home)
        assert (done.returncode, done.stdout) == (0, "In the copy.\n"), done.stderr
        assert run(["resume", "--last", "three"], harness.workspace, harness.home).stdout == "In the first.\n"
        said = [request.body.decode() for request in harness.model.requests()]
        assert "First." in said[1]
        assert "First." in said[2]
        assert "In the copy." not in said[2]


def test_a_review_has_its_report_as_the_answer(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_assistant_message("Nothing to complain about.")
        done = run(["review", "--base", "main", "-o", "report.md"], harness.workspace, harness.home)
        assert (done.returncode, done.stdout) == (0, "Nothing to complain about.\n"), done.stderr
        assert (harness.workspace / "report.md").read_text() == "Nothing to complain about."
        assert "merged into the branch 'main'" in (harness.model.single_request().last_user_text or "")


def test_a_turn_whose_time_is_up_is_interrupted(tmp_path: Path) -> None:
    forever = threading.Event()
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_assistant_message("never said", gate=forever)
        done = run(["--quiet", "--timeout", "2", "what now?"], harness.workspace, harness.home)
        forever.set()
        assert (done.returncode, done.stdout) == (124, "")
        assert "stopped: the 2 s of --timeout were up" in done.stderr


def test_a_message_that_waits_is_sent_when_the_thread_goes_on(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        for answer in ("First.", "Second.", "Third."):
            harness.model.enqueue_assistant_message(answer)
        assert run(["one"], harness.workspace, harness.home).returncode == 0
        environment = {**os.environ, "TREADLE_HOME": str(harness.home)}

        def queue(*words: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "treadle", "queue", *words]
            return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

        thread = json.loads(
            subprocess.run(
                [sys.executable, "-m", "treadle", "threads", "list", "--json"],
                env=environment,
                capture_output=True,
                timeout=60,
                check=True,
            ).stdout
        )[0]["id"]
        waits = queue("--thread", thread[-8:], "--message", "run the\ntests")
        assert waits.stdout == f"It waits for {thread[-8:]}  one\nTo send it now: treadle resume {thread}\n", (
            waits.stderr
        )
        assert queue("--thread", thread).stdout == "1  run the\\ntests\n"
        assert run(["resume", thread, "go on"], harness.workspace, harness.home).returncode == 0
        assert queue("--thread", thread).stdout == f"Nothing waits for {thread[-8:]}  one\n"
        assert "run the\\ntests" in harness.model.requests()[1].body.decode()
        nobody = queue("--thread", "nobody", "--message", "hello")
        assert (nobody.returncode, nobody.stderr.splitlines()[0]) == (1, "treadle queue: there is no thread 'nobody'")


def test_the_prompt_may_come_from_standard_input(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_assistant_message("Read.")
        done = run(["-"], harness.workspace, harness.home, stdin="from a pipe\n")
        assert done.returncode == 0, done.stderr
        assert harness.model.single_request().last_user_text == "from a pipe\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["  "], "there is nothing to do"),
        (["--cd", "no/such/place", "x"], "is no directory"),
        (["-o", "no/such/place", "x"], "no/such/place cannot be written"),
        (["-o", ".", "x"], ". cannot be written"),
    ],
)
def test_what_cannot_be_done_is_told_in_three_lines(
    arguments: list[str], said: str, project: Path, tmp_path: Path
) -> None:
    done = run(arguments, project, tmp_path / "home")
    assert done.returncode == 2
    assert said in done.stderr
    assert [line[:7] for line in done.stderr.splitlines()] == ["treadle", "  why: ", "  try: "]


def test_a_folder_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    for arguments, cwd in ((["hi"], folder), (["--cd", str(folder), "hi"], tmp_path)):
        done = run(arguments, cwd, tmp_path / "home")
        assert done.returncode == 2
        assert "cwd is no text in UTF-8" in done.stderr
        assert "internal error" not in done.stderr
        assert "Traceback" not in done.stderr


def test_what_is_piped_in_is_appended_to_the_prompt(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_assistant_message("Read.")
        done = run(["explain this"], harness.workspace, harness.home, stdin="a line\n")
        assert done.returncode == 0, done.stderr
        assert harness.model.single_request().last_user_text == "explain this\n\n<stdin>\na line\n</stdin>"


def test_the_answer_is_written_to_a_file_too(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_assistant_message("I look.\n")
        harness.model.enqueue_error(401, "no such key")
        target = tmp_path / "answer.txt"
        assert run(["-o", str(target), "hi"], harness.workspace, harness.home).returncode == 0
        assert target.read_text() == "I look.\n"
        assert run(["-o", str(target), "hi"], harness.workspace, harness.home).returncode == 1
        assert target.read_text() == "I look.\n"  # a turn that fails has no answer


def test_the_answer_for_a_script_is_as_the_model_gave_it(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_assistant_message("\x1b[1mbold\x1b[0m ä")
        assert run(["hi"], harness.workspace, harness.home).stdout == "\x1b[1mbold\x1b[0m ä\n"


def shell(line: str, cwd: Path, home: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    """As a user types it."""
    environment = {**os.environ, "TREADLE_HOME": str(home), **env}
    words = ["sh", "-c", line.replace("treadle", f"'{sys.executable}' -m treadle")]
    return subprocess.run(
        words, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE, check=False
    )


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("treadle exec hi >/dev/full", 1, b"standard output cannot be written: No space left on device"),
        ("treadle exec hi >&-", 2, b"standard output is closed"),
        ("treadle --help >/dev/full", 1, b"No space left on device"),
        ("treadle --version >/dev/full", 1, b"No space left on device"),
        ("treadle exec --help >/dev/full", 1, b"No space left on device"),
        ("treadle exec-server >/dev/full", 1, b"No space left on device"),
        ("treadle app-server --listen ws://127.0.0.1:0 >/dev/full", 1, b"No space left on device"),
    ],
)
def test_an_output_that_does_not_work_is_told(line: str, code: int, said: bytes, project: Path, tmp_path: Path) -> None:
    done = shell(line, project, tmp_path / "home")
    assert done.returncode == code, done.stderr
    assert said in b" ".join(done.stderr.splitlines()[-3:])
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


@pytest.mark.parametrize("line", ["treadle exec hi 2>/dev/full", "treadle exec hi 2>&-", "treadle exec hi <&-"])
def test_an_answer_needs_neither_an_audience_nor_an_input(line: str, project: Path, tmp_path: Path) -> None:
    done = shell(line, project, tmp_path / "home")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"I am Treadle's offline model")


def test_letters_that_cannot_be_written_are_replaced(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_assistant_message("gr\u00fcn")
        done = shell("treadle exec hi", harness.workspace, harness.home, PYTHONIOENCODING="ascii")
        assert done.returncode == 0, done.stderr
        assert done.stdout == b"gr\\xfcn\n"


def test_a_reader_that_goes_away_ends_it(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_assistant_message("x" * 100_000)
        done = shell("treadle exec hi | true", harness.workspace, harness.home)
        assert b"closed" not in done.stderr
        assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        # What prints: the table of commands, click, argparse, a table, lines of JSON, a turn, a server's address.
        *(
            "--help",
            "exec --help",
            "app-server --help",
            "config check",
            "models --json",
            "exec --json hi",
            "exec-server",
        ),
    ],
)
def test_a_reader_that_has_seen_enough_is_no_error(words: str, project: Path, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "HOME": str(tmp_path), "TREADLE_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-m", "treadle", *words.split()],
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=DEADLINE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_terminal_that_goes_away_ends_it(tmp_path: Path) -> None:
    """Everything is shown there, so the turn is interrupted, and nothing is left behind."""
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_function_call("exec_command", {"cmd": "echo begun; sleep 1000"})
        ours, theirs = os.openpty()
        child = spawn(["hi"], harness, stdout=theirs, stderr=subprocess.DEVNULL)
        os.close(theirs)
        read_until(ours, b"begun")
        os.close(ours)
        with child:
            assert child.wait(DEADLINE) == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_interrupts_the_turn(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_function_call("exec_command", {"cmd": "echo begun; sleep 1000"})
        child = spawn(["hi"], harness, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        with child:
            assert child.stderr is not None
            read_until(child.stderr.fileno(), b"| begun")
            child.send_signal(number)
            assert child.wait(DEADLINE) == code
            assert b"interrupted" in child.stderr.read()


def spawn(arguments: list[str], harness: AppServerHarness, *, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "TREADLE_HOME": str(harness.home)}
    command = [sys.executable, "-m", "treadle", "exec", *arguments]
    return subprocess.Popen(
        command, cwd=harness.workspace, env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
    )


def read_until(descriptor: int, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        piece = os.read(descriptor, 4096)
        assert piece, seen
        seen += piece
    return seen


def test_on_a_terminal_everything_is_shown_there(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_function_call("exec_command", {"cmd": "printf '\\033[2Jout'"})
        harness.model.enqueue_assistant_message("\x1b]0;title\x07Done.")
        ours, theirs = os.openpty()
        child = spawn(["hi"], harness, stdout=theirs, stderr=subprocess.PIPE)
        os.close(theirs)
        seen = read_until(ours, b"tokens in")
        with child:
            assert child.wait(DEADLINE) == 0
        os.close(ours)
        assert b"\\x1b[2Jout" in seen
        assert b"\\x1b]0;title\\x07Done." in seen
        assert b"\x1b[2J" not in seen
        assert b"\x1b]0" not in seen


@pytest.mark.parametrize("json", [False, True])
@pytest.mark.parametrize(
    ("wire", "setting", "is_shown"),
    [
        ("responses", "hide_agent_reasoning=false", True),
        ("responses", "hide_agent_reasoning=true", False),
        ("chat", "show_raw_agent_reasoning=false", False),  # where thoughts have no summaries
        ("chat", "show_raw_agent_reasoning=true", True),
    ],
)
def test_thoughts_are_shown_as_the_settings_say(
    tmp_path: Path, wire: Literal["responses", "chat"], setting: str, is_shown: bool, json: bool
) -> None:
    with AppServerHarness(tmp_path, wire_api=wire) as harness:
        harness.model.enqueue_assistant_message("the answer", reasoning="a deep thought")
        words = ["-c", setting, *(["--json"] if json else []), "go"]
        done = run(words, harness.workspace, harness.home)
        assert done.returncode == 0, done.stderr
        assert "the answer" in done.stdout
        assert ("a deep thought" in done.stdout + done.stderr) is is_shown
