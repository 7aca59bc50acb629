"""`treadle run`: one run of an engine as a program, seen from outside. The engines are tiny scripts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kit.warm_python import run_python
from system.runners.fake_engine import SESSION, fake
from treadle import __version__

DEADLINE = 60


class Stage:
    """A folder with a home, a project and programs."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.programs = folder / "bin"
        self.project.mkdir()
        self.programs.mkdir()
        inherited = {name: value for name, value in os.environ.items() if name not in ("CODEX_HOME", "TREADLE_ENGINE")}
        self.env = {
            **inherited,
            "HOME": str(folder),
            "TREADLE_HOME": str(self.home),
            "PATH": f"{self.programs}:/usr/bin:/bin",
        }

    def engine(self, script: str, name: str = "codex") -> None:
        fake(self.programs, script, name)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "treadle", *arguments]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        return run_python(["-m", "treadle", *arguments], cwd=self.project, env={**self.env, **more}, stdin=stdin)

    def marked(self, name: str) -> str:
        return (self.programs / name).read_text()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


LS = """
start()
say(type="item.started", item=dict(id="a", type="command_execution", command="ls", status="in_progress"))
say(type="item.completed", item=dict(id="a", type="command_execution", command="ls", status="completed", exit_code=0))
mark("prompt", sys.stdin.read())
mark("argv", json.dumps(sys.argv[1:]))
mark("cwd", os.getcwd())
answer("It is empty.")
done(input_tokens=1200, output_tokens=3)
"""


def test_the_answer_alone_goes_to_standard_output(stage: Stage) -> None:
    stage.engine(LS)
    done = stage.run("run", "--engine", "codex", "look around")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "It is empty.\n"
    first, *lines, end, resume = done.stderr.splitlines()
    assert first == "codex"
    assert lines[0] == "▸ ls"
    assert lines[1].startswith("✓ ls")
    assert end.startswith("codex · done in ")
    assert end.endswith("s · 1,200 tokens in, 3 out")
    assert resume == f"codex resume {SESSION}"
    assert stage.marked("prompt") == "look around"


def test_what_is_printed_last_is_what_resumes_it(stage: Stage) -> None:
    stage.engine(LS)
    line = stage.run("run", "/codex look around").stderr.splitlines()[-1]
    done = stage.run("run", f"and now?\n{line}")
    assert done.returncode == 0, done.stderr
    assert json.loads(stage.marked("argv"))[-3:] == ["resume", SESSION, "-"]
    assert stage.marked("prompt") == "and now?"


def test_events_as_json_and_nothing_else(stage: Stage) -> None:
    stage.engine(LS)
    done = stage.run("run", "--json", "--engine", "codex", "look around")
    assert done.returncode == 0
    assert all(line.startswith('{"type":"') for line in done.stdout.splitlines())
    events: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["type"] for event in events] == ["run", "started", "action", "action", "action", "completed"]
    assert events[0] == {"type": "run", "version": 1, "treadle": __version__}
    assert events[-1]["answer"] == "It is empty."
    assert events[-1]["resume"] == {"engine": "codex", "value": SESSION}
    assert done.stderr == ""


def test_options_and_further_words_reach_the_engine(stage: Stage) -> None:
    stage.engine(LS)
    (stage.project / "sub").mkdir()
    done = stage.run(
        *("run", "-e", "codex", "-m", "gpt-x", "--effort", "high", "-c", "a=1", "-C", "sub"),
        *("--resume", SESSION, "go on", "--", "--search", "-p", "x"),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(stage.marked("argv")) == [
        *("-c", "a=1", "--search", "-p", "x", "--model", "gpt-x", "-c", "model_reasoning_effort=high"),
        *("exec", "--json", "--skip-git-repo-check", "--color=never", "resume", SESSION, "-"),
    ]
    assert stage.marked("cwd") == str(stage.project / "sub")


def test_the_answer_is_written_to_a_file_and_has_the_form_that_was_asked_for(stage: Stage) -> None:
    stage.engine(LS)
    (stage.project / "schema.json").write_text('{"type": "object"}')
    (stage.project / "a b.png").write_bytes(b"")
    options = ("-o", "answer.txt", "--output-schema", "schema.json", "--image", "a b.png")
    done = stage.run("run", "-e", "codex", *options, "look")
    assert done.returncode == 0, done.stderr
    assert (stage.project / "answer.txt").read_text() == "It is empty."
    schema, image = f"--output-schema={stage.project}/schema.json", f"--image={stage.project}/a b.png"
    assert json.loads(stage.marked("argv"))[-3:] == [schema, image, "-"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-e", "codex", "--image", "gone.png"), "the image gone.png cannot be read"),
        (("-e", "codex", "--output-schema", "gone.json"), "the schema gone.json cannot be read"),
        (("-e", "codex", "-o", "gone/answer"), "gone/answer cannot be written"),
        (("-e", "pi", "--output-schema", "schema.json"), "pi cannot be held to a JSON Schema"),
    ],
)
def test_what_the_engine_cannot_be_given_is_refused(stage: Stage, options: tuple[str, ...], said: str) -> None:
    (stage.project / "schema.json").write_text("{}")
    stage.engine(LS)
    stage.engine(LS, "pi")
    done = stage.run("run", *options, "look")
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "failed" not in done.stderr
    assert not (stage.programs / "prompt").exists()


def test_standard_input_is_the_prompt_or_is_added_to_it(stage: Stage) -> None:
    stage.engine(LS)
    assert stage.run("run", "-e", "codex", stdin="what now?").returncode == 0
    assert stage.marked("prompt") == "what now?"
    assert stage.run("run", "-e", "codex", "sum it up", stdin=f"codex resume {SESSION}\n").returncode == 0
    assert stage.marked("prompt") == f"sum it up\n\n<stdin>\ncodex resume {SESSION}\n</stdin>"
    assert "resume" not in json.loads(stage.marked("argv"))
    empty = stage.run("run", "-e", "codex", stdin="")
    assert (empty.returncode, empty.stdout) == (2, "")
    assert 'treadle run "' in empty.stderr


BROKEN = r"""
sys.stdin.read()
sys.stderr.write("one\n\x1b[31mkey " + os.environ["MY_API_KEY"] + "\x1b]0;evil\x07\n")
sys.exit(1)
"""


def test_a_failure_shows_why_and_what_to_type_and_no_secrets(stage: Stage) -> None:
    stage.engine(BROKEN)
    done = stage.run("run", "-e", "codex", "hello", MY_API_KEY="hunter2-hunter2")
    assert (done.returncode, done.stdout) == (1, "")
    assert "✗ codex failed: codex exec failed (rc=1)." in done.stderr
    assert "  | one\n  | key [redacted]\\x1b]0;evil\\x07\n" in done.stderr
    assert "treadle doctor codex" in done.stderr
    assert "hunter2" not in done.stderr
    assert "\x1b" not in done.stderr


def test_the_last_failure_is_remembered_until_it_works_again(stage: Stage) -> None:
    stage.engine('start(); say(type="turn.failed", error=dict(message="401: key hunter2-hunter2")); sys.exit(1)')
    failed = stage.run("run", "-e", "codex", "hello", MY_API_KEY="hunter2-hunter2")
    assert "codex login" in failed.stderr
    [codex] = [row for row in json.loads(stage.run("engines", "--json").stdout) if row["name"] == "codex"]
    assert codex["last_error"]["error"] == "401: key [redacted]"
    stage.engine(LS)
    assert stage.run("run", "-e", "codex", "hello").returncode == 0
    [codex] = [row for row in json.loads(stage.run("engines", "--json").stdout) if row["name"] == "codex"]
    assert codex["last_error"] is None


def test_what_is_not_installed_is_refused_with_how_to_get_it(stage: Stage) -> None:
    stage.env["PATH"] = str(stage.programs)
    done = stage.run("run", "-e", "codex", "hello")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("treadle run: codex is not installed")
    assert "npm install -g @openai/codex" in done.stderr
    as_json = stage.run("run", "-e", "codex", "--json", "hello")
    assert as_json.returncode == 2
    _, completed = [json.loads(line) for line in as_json.stdout.splitlines()]
    assert (completed["type"], completed["ok"]) == ("completed", False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-e", "nix", "hi"], "there is no engine 'nix'"),
        (["-r", "--last", "hi"], "-r needs a value"),
        (["-r", SESSION, "hi"], "--engine codex|claude"),
        (["-e", "codex", "-C", "nowhere", "hi"], "nowhere is no directory"),
        (["-P", "nowhere", "hi"], "there is no project `nowhere`"),
        (["-e", "codex", "hi", "--", "--json"], "--json cannot be added"),
        (["--timeout", "0", "hi"], "'0' is no number of seconds"),
        (["/codex /claude hi"], "there can be one engine"),
    ],
)
def test_wrong_usage_runs_nothing(stage: Stage, arguments: list[str], said: str) -> None:
    stage.engine(LS)
    done = stage.run("run", *arguments)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert said in done.stderr
    assert not (stage.programs / "argv").exists()


def test_deadlines_can_be_given(stage: Stage) -> None:
    stage.engine("start(); hang()")
    idle = stage.run("run", "-e", "codex", "--idle-timeout", "0.3", "hi")
    assert idle.returncode == 124
    assert "gave no sign of life for 0.3 s" in idle.stderr
    assert "--idle-timeout" in idle.stderr
    total = stage.run("run", "-e", "codex", "--timeout", "0.3", "hi")
    assert total.returncode == 124
    assert "did not end within 0.3 s" in total.stderr
    assert stage.run("run", "-e", "codex", "--json", "--timeout", "0.3", "hi").returncode == 124


WAITS = """
signal.signal(signal.SIGTERM, lambda *_: (mark("terminated"), sys.exit(1)))
mark("pid", str(os.getpid()))
start()
say(type="item.started", item=dict(id="a", type="command_execution", command="sleep 99", status="in_progress"))
while True: time.sleep(0.01)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_engine_in_order(stage: Stage, number: signal.Signals, code: int) -> None:
    stage.engine(WAITS)
    with stage.start("run", "-e", "codex", "hi") as program:
        assert program.stderr is not None
        while "sleep 99" not in program.stderr.readline():
            pass
        program.send_signal(number)
        _, shown = program.communicate(timeout=DEADLINE)
        assert program.returncode == code, shown
    assert "stopping codex… press Ctrl-C again" in shown
    assert f"codex resume {SESSION}" in shown
    assert (stage.programs / "terminated").exists()


def test_with_json_the_end_is_told_after_a_signal(stage: Stage) -> None:
    stage.engine(WAITS)
    with stage.start("run", "-e", "codex", "--json", "hi") as program:
        assert program.stdout is not None
        while "sleep 99" not in program.stdout.readline():
            pass
        program.send_signal(signal.SIGINT)
        rest, _ = program.communicate(timeout=DEADLINE)
    assert program.returncode == 130
    last = json.loads(rest.splitlines()[-1])
    assert (last["type"], last["ok"], last["error"]) == ("completed", False, "cancelled")


def test_the_second_signal_leaves_at_once_and_nothing_stays(stage: Stage) -> None:
    stage.engine(WAITS.replace('mark("terminated"), sys.exit(1)', 'mark("terminated")'))
    with stage.start("run", "-e", "codex", "hi") as program:
        assert program.stderr is not None
        while "sleep 99" not in program.stderr.readline():
            pass
        program.send_signal(signal.SIGINT)
        while "stopping" not in program.stderr.readline():
            pass
        program.send_signal(signal.SIGINT)
        assert program.wait(timeout=DEADLINE) == 130
        # The end of standard error is when its last holder is gone, which is what the engine inherited it from.
        program.stderr.read()
    _wait_until_gone(int(stage.marked("pid")))


def _wait_until_gone(pid: int) -> None:
    import select

    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], DEADLINE)[0], "the engine is still there"
    finally:
        os.close(handle)


def test_a_reader_that_leaves_ends_the_run(stage: Stage) -> None:
    stage.engine(
        """
        mark("pid", str(os.getpid()))
        start()
        while True:
            say(type="item.completed", item=dict(id="a", type="command_execution", command="x" * 500, exit_code=0))
        """
    )
    with stage.start("run", "-e", "codex", "--json", "hi") as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.readline()
        program.stdout.close()
        assert program.wait(timeout=DEADLINE) == 141
        assert program.stderr.read() == ""
    _wait_until_gone(int(stage.marked("pid")))


def test_a_project_and_its_branch(stage: Stage) -> None:
    stage.engine(LS)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(stage.project)]
    subprocess.run([*git, "init", "-q", "-b", "main"], env=stage.env, check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], env=stage.env, check=True)
    stage.home.mkdir()
    (stage.home / "projects.toml").write_text(f'[projects.web]\npath = "{stage.project}"\nengine = "codex"\n')
    done = stage.run("run", "--project", "web", "--branch", "fix", "hi")
    assert done.returncode == 0, done.stderr
    assert stage.marked("cwd") == str(stage.project / ".worktrees" / "fix")
    assert stage.run("run", "/web hi").returncode == 0
    assert stage.marked("cwd") == str(stage.project)


def test_our_own_engine_answers_without_any_setup(stage: Stage) -> None:
    done = stage.run("run", "look around")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("I am Treadle's offline model")
    assert "✓ ls -1" in done.stderr
