"""`treadle exec`: one turn as a program, seen from outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.testing import AppServerHarness, Usage

DEADLINE = 60


def run(arguments: list[str], cwd: Path, home: Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TREADLE_HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-m", "treadle", "exec", *arguments],
        cwd=cwd,
        env=environment,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "hello.py").write_text('print("hello")\n')
    return folder


def test_the_offline_model_shows_the_whole_machine(project: Path, tmp_path: Path) -> None:
    done = run(["--sandbox", "workspace-write", "look around"], project, tmp_path / "home")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    shown = done.stdout
    steps = ["model    offline", "plan", "$ ls", "  | hello.py", "  exit 0", "added ", "  +", "$ cat"]
    order = [*steps, "I am Treadle's offline model", "tokens in"]
    places = [shown.find(text) for text in order]
    assert -1 not in places, shown
    assert places == sorted(places), shown
    assert (project / "treadle-offline-1.md").exists()
    assert "\x1b" not in shown  # no terminal, no colours


def test_what_the_sandbox_forbids_is_refused_and_said(project: Path, tmp_path: Path) -> None:
    done = run(["look around"], project, tmp_path / "home")  # read-only
    assert done.returncode == 0
    assert "failed: add" in done.stdout
    assert not (project / "treadle-offline-1.md").exists()


def test_a_configured_model_answers_and_usage_is_told(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_function_call("exec_command", {"cmd": "echo out; echo err >&2; exit 3"})
        harness.model.enqueue_assistant_message("It failed.", usage=Usage(input_tokens=7, output_tokens=5))
        done = run(["what now?"], harness.workspace, harness.home)
        assert done.returncode == 0, done.stderr
        assert re.search(r"\$ echo out.*?\| out.*?exit 3.*?It failed\.", done.stdout, re.DOTALL)
        assert "6 out" in done.stdout
        assert harness.model.requests()[0].last_user_text == "what now?"


def test_a_failed_turn_ends_with_1_and_says_why(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_error(401, "no such key")
        done = run(["hello"], harness.workspace, harness.home)
        assert done.returncode == 1
        assert "failed: unexpected status 401" in done.stdout


def test_the_prompt_may_come_from_standard_input(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_assistant_message("Read.")
        done = run(["-"], harness.workspace, harness.home, stdin="from a pipe\n")
        assert done.returncode == 0, done.stderr
        assert harness.model.single_request().last_user_text == "from a pipe\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["  "], "there is nothing to do"), (["--cd", "no/such/place", "x"], "is no directory")],
)
def test_what_cannot_be_done_is_told_in_one_line(
    arguments: list[str], said: str, project: Path, tmp_path: Path
) -> None:
    done = run(arguments, project, tmp_path / "home")
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_reader_that_goes_away_ends_it(project: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "TREADLE_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "treadle", "exec", "--sandbox", "workspace-write", "look around"]
    with subprocess.Popen(
        command, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline()
        child.stdout.close()
        assert child.wait(DEADLINE) == 1
        assert child.stderr.read() == b""
