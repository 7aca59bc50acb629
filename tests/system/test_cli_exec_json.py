"""`treadle exec --json` as programs that drive `codex exec` use it: arguments, lines, exit codes, signals."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kit.warm_python import run_python
from treadle.testing import AppServerHarness, Usage

DEADLINE = 60
# A black dot.
PIXEL = base64.b64decode(
    b"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
JSON = ("exec", "--json", "--skip-git-repo-check", "--color=never")


class Stage(AppServerHarness):
    def environ(self) -> dict[str, str]:
        """With streams as Python usually has them."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("OPENAI", "CODEX", "PYTHONUN"))
        }
        return {**kept, "TREADLE_HOME": str(self.home)}

    def run(self, *words: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        return run_python(["-m", "treadle", *words], cwd=self.workspace, env={**self.environ(), **environ}, stdin=stdin)

    def events(self, *words: str, stdin: str = "", **environ: Any) -> list[Any]:
        done = self.run(*words, stdin=stdin, **environ)
        assert (done.returncode, done.stderr) == (0, ""), done
        return [json.loads(line) for line in done.stdout.splitlines()]

    def spawn(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "treadle", *JSON, *words],
            cwd=self.workspace,
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )


@pytest.fixture
def stage(tmp_path: Path) -> Any:
    with Stage(tmp_path, settings={"sandbox_mode": "read-only"}) as stage:
        yield stage


def types(events: list[Any]) -> list[str]:
    return [event["type"] for event in events]


TURN = ["thread.started", "turn.started", "item.completed", "turn.completed"]


def test_a_run_as_the_typescript_sdk_makes_it(stage: Stage) -> None:
    stage.model.enqueue_assistant_message('{"title": "x"}', usage=Usage(input_tokens=11, output_tokens=7))
    more, schema = stage.home / "more", stage.home / "schema.json"
    more.mkdir()
    wanted = {"type": "object", "properties": {}, "additionalProperties": False}
    schema.write_text(json.dumps(wanted))
    (stage.workspace / "px.png").write_bytes(PIXEL)
    events = stage.events(
        *("exec", "--experimental-json", "--config", 'model_reasoning_summary="auto"', "--model", "gpt-5.5"),
        *("--thread-source", "mine", "--sandbox", "workspace-write", "--cd", str(stage.workspace), "--add-dir"),
        *(str(more), "--skip-git-repo-check", "--output-schema", str(schema), "--cyber-access-program", "standard"),
        *("--config", 'model_reasoning_effort="high"', "--config", "sandbox_workspace_write.network_access=true"),
        *("--config", 'approval_policy="on-request"', "--image", str(stage.workspace / "px.png")),
        stdin="a title, please",
    )
    assert types(events) == TURN
    assert events[2]["item"] == {"id": "item_0", "type": "agent_message", "text": '{"title": "x"}'}
    counts = {"input_tokens": 11, "cached_input_tokens": 0, "cache_write_input_tokens": 0}
    assert events[3]["usage"] == {**counts, "output_tokens": 7, "reasoning_output_tokens": 0}
    request = stage.model.single_request()
    assert (request.json["model"], request.reasoning_effort) == ("gpt-5.5", "high")
    assert request.output_schema == wanted
    kinds = [part["type"] for part in request.input[-1]["content"]]
    assert kinds == ["input_text", "input_image", "input_text", "input_text"]
    assert request.last_user_text == "a title, please"
    assert asyncio.run(source_of(stage, events[0]["thread_id"])) == "mine"


async def source_of(stage: Stage, thread_id: str) -> Any:
    async with stage.connect() as client:
        return (await client.request("thread/read", {"threadId": thread_id}))["thread"]["threadSource"]


def test_folders_that_are_added_can_be_written(stage: Stage, tmp_path: Path) -> None:
    """Beside those that are configured."""
    folders = [tmp_path / name for name in ("configured", "added", "neither")]
    for folder in folders:
        folder.mkdir()
    touch = "; ".join(f"touch {folder}/x && echo wrote {folder.name}" for folder in folders)
    stage.model.enqueue_function_call("exec_command", {"cmd": touch})
    stage.model.enqueue_assistant_message("ok")
    table = "sandbox_workspace_write"
    settings = [f'{table}.writable_roots=["{folders[0]}"]', f"{table}.exclude_slash_tmp=true"]
    settings.append(f"{table}.exclude_tmpdir_env_var=true")
    given = [word for setting in settings for word in ("-c", setting)]
    events = stage.events(*JSON, "-s", "workspace-write", *given, "--add-dir", str(folders[1]), stdin="go")
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    output = next(item["aggregated_output"] for item in items if item["type"] == "command_execution")
    assert [f"wrote {folder.name}" in output for folder in folders] == [True, True, False]


def test_nothing_comes_after_the_turn_also_when_a_command_went_on(stage: Stage) -> None:
    call = {"cmd": "echo begun; exec sleep 3600", "login": False, "yield_time_ms": 250}
    stage.model.enqueue_function_call("exec_command", call)
    stage.model.enqueue_assistant_message("it runs")
    events = stage.events(*JSON, "-", stdin="go")
    kinds = [(event["type"], event.get("item", {}).get("type")) for event in events]
    assert kinds[2:] == [
        ("item.started", "command_execution"),
        ("item.completed", "agent_message"),
        ("turn.completed", None),
    ]


def test_options_before_the_command(stage: Stage) -> None:
    stage.model.enqueue_assistant_message("ok")
    events = stage.events("-c", 'model_reasoning_effort="low"', "-m", "gpt-5.5", *JSON, "-", stdin="hi")
    assert types(events) == TURN
    request = stage.model.single_request()
    assert (request.json["model"], request.reasoning_effort) == ("gpt-5.5", "low")


def test_options_before_another_command_are_refused(stage: Stage) -> None:
    done = stage.run("-m", "gpt-5.5", "exec-server")
    assert done.returncode == 2
    assert "unrecognized arguments: -m gpt-5.5" in done.stderr


def test_a_resumed_run_has_the_same_thread_and_the_usage_of_both(stage: Stage) -> None:
    usage = Usage(input_tokens=10, cached_input_tokens=3, output_tokens=5)
    stage.model.enqueue_assistant_message("one", usage=usage)
    stage.model.enqueue_assistant_message("two", usage=usage)
    (stage.workspace / "px.png").write_bytes(PIXEL)
    thread = stage.events(*JSON, "-", stdin="first")[0]["thread_id"]
    words = ("-s", "read-only", "resume", thread, "--image", str(stage.workspace / "px.png"))
    events = stage.events(*JSON, *words, stdin="second")
    assert types(events) == TURN
    assert events[0]["thread_id"] == thread
    assert events[2]["item"]["id"] == "item_0"
    assert [events[3]["usage"][name] for name in ("input_tokens", "cached_input_tokens", "output_tokens")] == [
        20,
        6,
        10,
    ]
    last = stage.model.requests()[-1]
    assert "first" in last.input_texts("user")
    assert [part["type"] for part in last.input[-1]["content"]].count("input_image") == 1


def test_a_resumed_run_goes_by_what_holds_now(stage: Stage) -> None:
    """And not by the permissions that the thread once had."""
    for _ in range(2):
        stage.model.enqueue_function_call("exec_command", {"cmd": "touch written"})
        stage.model.enqueue_assistant_message("ok")
    thread = stage.events(*JSON, "--yolo", "-", stdin="go")[0]["thread_id"]
    written = stage.workspace / "written"
    written.unlink()
    stage.events(*JSON, "-c", 'model_reasoning_effort="high"', "resume", thread, "-", stdin="go")
    assert not written.exists()
    assert stage.model.requests()[-1].reasoning_effort == "high"


def test_a_run_goes_by_the_permission_profile_of_the_settings(stage: Stage) -> None:
    for _ in range(3):
        stage.model.enqueue_function_call("exec_command", {"cmd": "touch written"})
        stage.model.enqueue_assistant_message("ok")
    profile = f'permissions.p.filesystem={{":root" = "read", "{stage.workspace}" = "write"}}'
    chosen = ("-c", profile, "-c", "default_permissions=p")
    written = stage.workspace / "written"
    thread = stage.events(*JSON, "-", stdin="go")[0]["thread_id"]
    assert not written.exists()
    stage.events(*JSON, *chosen, "resume", thread, "-", stdin="go")
    written.unlink()
    stage.events(*JSON, *chosen, "-", stdin="go")
    assert written.exists()


def test_the_most_recent_thread_of_the_directory(stage: Stage, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for _ in range(5):
        stage.model.enqueue_assistant_message("ok")
    first = stage.events(*JSON, "a")[0]["thread_id"]
    second = stage.events(*JSON, "b")[0]["thread_id"]
    other = stage.events(*JSON, "-C", str(elsewhere), "c")[0]["thread_id"]
    assert stage.events(*JSON, "resume", "--last", "d", stdin="not read")[0]["thread_id"] == second
    assert stage.model.requests()[-1].last_user_text == "d"
    assert stage.events(*JSON, "resume", first, "e")[0]["thread_id"] == first
    stage.model.enqueue_assistant_message("ok")
    assert stage.events(*JSON, "resume", "--last", "f")[0]["thread_id"] == first
    assert other not in (first, second)


def test_without_a_thread_the_last_one_is_a_new_one(stage: Stage) -> None:
    stage.model.enqueue_assistant_message("ok")
    assert types(stage.events(*JSON, "resume", "--last", "hi")) == TURN


@pytest.mark.parametrize("name", ["00000000-0000-7000-8000-000000000000", "nobody"])
def test_an_unknown_thread_fails_on_standard_error_alone(stage: Stage, name: str) -> None:
    done = stage.run(*JSON, "resume", name, "-", stdin="hi")
    assert (done.returncode, done.stdout) == (1, "")
    assert name in done.stderr
    assert [line[:7] for line in done.stderr.splitlines()] == ["treadle", "  why: ", "  try: "]
    assert stage.model.requests() == []


def test_a_failed_turn_ends_with_1_and_says_the_same_twice(stage: Stage, tmp_path: Path) -> None:
    stage.model.enqueue_error(400, {"error": {"message": "bad thing"}})
    answer = tmp_path / "answer.txt"
    done = stage.run(*JSON, "-o", str(answer), "hi")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (1, "")
    assert types(events) == ["thread.started", "turn.started", "error", "turn.failed"]
    assert events[2]["message"] == events[3]["error"]["message"]
    assert "bad thing" in events[2]["message"]
    assert not answer.exists()


def test_the_answer_goes_to_a_file_too(stage: Stage, tmp_path: Path) -> None:
    stage.model.enqueue_assistant_message("done")
    events = stage.events(*JSON, "-o", str(tmp_path / "answer.txt"), "hi")
    assert types(events) == TURN
    assert (tmp_path / "answer.txt").read_text() == "done"


def test_a_reconnect_is_told_with_its_reason(tmp_path: Path) -> None:
    with Stage(tmp_path, provider={"stream_max_retries": 2}) as stage:
        stage.model.enqueue_drop()
        stage.model.enqueue_assistant_message("ok")
        events = stage.events(*JSON, "hi")
    assert types(events) == ["thread.started", "turn.started", "error", "item.completed", "turn.completed"]
    assert events[2]["message"].startswith("Reconnecting... 1/2 (")


def test_a_wait_for_the_provider_is_told(tmp_path: Path) -> None:
    with Stage(tmp_path, provider={"request_max_retries": 1}) as stage:
        stage.model.enqueue_error(429, {"error": {"message": "slow down"}}, {"Retry-After": "0.8"})
        stage.model.enqueue_assistant_message("ok")
        events = stage.events(*JSON, "hi")
    assert types(events) == ["thread.started", "turn.started", "error", "item.completed", "turn.completed"]
    assert events[2]["message"].startswith("Waiting for provider `mock_provider`: ")
    assert events[2]["message"].endswith(" s (1 waiting)")


def test_the_key_of_the_run_is_used_and_not_inherited(tmp_path: Path) -> None:
    key = "sk-of-this-run"
    with Stage(tmp_path, provider={"requires_openai_auth": True}) as stage:
        (stage.home / "auth.json").write_text('{"OPENAI_API_KEY": "sk-of-the-login", "auth_mode": "apikey"}')
        os.chmod(stage.home / "auth.json", 0o600)
        stage.model.enqueue_function_call("exec_command", {"cmd": "env; echo end"})
        stage.model.enqueue_assistant_message("ok")
        events = stage.events(
            *JSON, "-c", "shell_environment_policy.ignore_default_excludes=true", "hi", CODEX_API_KEY=key
        )
        header, value = ("x-api-key", key) if stage.wire_api == "anthropic" else ("authorization", f"Bearer {key}")
        assert {request.header(header) for request in stage.model.requests()} == {value}
    output = next(event["item"]["aggregated_output"] for event in events if event["type"] == "item.completed")
    assert output.endswith("end\n")
    assert key not in json.dumps(events)


def read_until(child: subprocess.Popen[bytes], wanted: bytes) -> bytes:
    assert child.stdout is not None
    seen = b""
    while wanted not in seen:
        piece = child.stdout.read(4096)
        assert piece, seen
        seen += piece
    return seen


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 1), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_ends_it_as_it_ends_codex(stage: Stage, number: signal.Signals, code: int) -> None:
    """Nothing more is said, the command is dead, and the turn is kept as interrupted."""
    pid_file = stage.workspace / "pid"
    stage.model.enqueue_function_call("update_plan", {"plan": [{"step": "wait", "status": "in_progress"}]})
    stage.model.enqueue_function_call("exec_command", {"cmd": f"echo $$ > {pid_file}; exec sleep 1000"})
    with stage.spawn("hi", "--yolo") as child:
        assert child.stdout is not None
        assert child.stderr is not None
        seen = read_until(child, b"command_execution")
        while not pid_file.exists() or not pid_file.read_text().strip():
            assert child.poll() is None
        child.send_signal(number)
        assert child.stdout.read() == b""
        assert child.wait(DEADLINE) == code
        assert child.stderr.read() == b""
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
    thread = json.loads(seen.splitlines()[0])["thread_id"]
    stage.model.enqueue_assistant_message("ok")
    assert types(stage.events(*JSON, "resume", thread, "go on")) == TURN


def test_a_reader_that_does_not_read_does_not_keep_it_from_ending(stage: Stage) -> None:
    stage.model.enqueue_assistant_message("x" * 1_000_000)
    with stage.spawn("hi") as child:
        assert child.stdout is not None
        read_until(child, b"agent_message")  # the rest is more than the pipe takes
        child.send_signal(signal.SIGTERM)
        assert child.wait(DEADLINE) == -signal.SIGTERM


def test_a_slow_reader_gets_it_all(stage: Stage) -> None:
    stage.model.enqueue_assistant_message("ü" * 300_000)
    done = stage.run(*JSON, "hi")
    assert json.loads(done.stdout.splitlines()[2])["item"]["text"] == "ü" * 300_000


@pytest.mark.parametrize(
    ("where", "code", "said"),
    [
        (">/dev/full", 1, b"standard output cannot be written: No space left on device"),
        ("| true", 0, b""),
        (">&-", 2, b"standard output is closed"),
        ("<&- | cat", 0, b""),
    ],
)
def test_streams_that_do_not_work(stage: Stage, where: str, code: int, said: bytes) -> None:
    stage.model.enqueue_assistant_message("x" * 100_000)
    line = f"'{sys.executable}' -m treadle exec --json hi {where}"
    done = subprocess.run(
        ["sh", "-c", line], cwd=stage.workspace, env=stage.environ(), capture_output=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert done.stderr.count(b"\ntreadle") == 0
    assert b"Traceback" not in done.stderr
    assert bool(done.stderr) == bool(said)


def test_settings_that_have_no_effect_can_be_refused(stage: Stage) -> None:
    done = stage.run(*JSON, "--strict-config", "-c", "no_such_key=1", "hi")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no_such_key" in done.stderr
