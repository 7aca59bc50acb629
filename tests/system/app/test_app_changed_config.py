"""Settings that change while a server runs: what starts next has them, and one that cannot be used is refused."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.app_client import joined
from kit.app_program import Program, listening_server, stdio_server
from kit.processes import DEADLINE_S
from kit.warm_python import run_python
from treadle.testing import AppServerHarness, MockModel

SECRET = "sk-a-key-that-nobody-logs"


def config_set(harness: AppServerHarness, key: str, value: str) -> None:
    """By the real command."""
    words = ["-m", "treadle", "config", "set", key, value]
    run_python(words, cwd=harness.workspace, env=harness.environ()).check_returncode()


def config_file(harness: AppServerHarness) -> Path:
    return harness.home / "config.toml"


def test_a_new_thread_has_what_config_set_has_set(harness: AppServerHarness) -> None:
    with listening_server(harness) as program, joined(program.url) as client:
        before = client.call("thread/start")
        assert before["sandbox"]["type"] == "dangerFullAccess"
        config_set(harness, "sandbox_mode", "read-only")
        assert client.call("thread/start")["sandbox"]["type"] == "readOnly"
        # A thread has settings of its own; they stay.
        again = client.call("thread/resume", {"threadId": before["thread"]["id"]})
        assert again["sandbox"]["type"] == "dangerFullAccess"
        program.wait_for_log("the settings have changed: sandbox_mode")
        program.check_well()


def test_a_turn_of_a_running_thread_goes_to_the_new_address(harness: AppServerHarness) -> None:
    harness.model.enqueue_assistant_message("from the first")
    with MockModel() as second, listening_server(harness) as program, joined(program.url) as client:
        second.enqueue_assistant_message("from the second")
        second.enqueue_assistant_message("again")
        thread, own = client.start_thread(), client.start_thread(config={"model_reasoning_summary": "concise"})
        assert client.run(thread)["status"] == "completed"
        config_set(harness, "model_providers.mock_provider.base_url", second.base_url)
        path = config_file(harness)
        path.write_text(f'{path.read_text()}\nexperimental_bearer_token = "{SECRET}"\n')
        # Also that of a thread with settings on top of those of the file.
        assert [client.run(thread)["status"], client.run(own)["status"]] == ["completed", "completed"]
        assert len(second.requests()) == 2
        assert second.requests()[0].headers["authorization"] == f"Bearer {SECRET}"
        program.wait_for_log("model_providers.mock_provider.experimental_bearer_token")
        assert SECRET not in program.stderr
        program.check_well()


def test_the_command_line_stays_on_top(harness: AppServerHarness) -> None:
    arguments = ("--listen", "ws://127.0.0.1:0", "-c", "sandbox_mode=read-only")
    with listening_server(harness, *arguments) as program, joined(program.url) as client:
        config_set(harness, "sandbox_mode", "workspace-write")
        config_set(harness, "approval_policy", "untrusted")
        started = client.call("thread/start")
        assert (started["sandbox"]["type"], started["approvalPolicy"]) == ("readOnly", "untrusted")
        assert "sandbox_mode" not in program.stderr  # nothing has changed about it
        program.check_well()


def _rename(path: Path, text: str) -> None:
    other = path.with_name("new.toml")
    other.write_text(text)
    os.rename(other, path)


def _link(path: Path, text: str) -> None:
    _rename(path.with_name("elsewhere.toml"), text)
    if not path.is_symlink():
        path.unlink()
        path.symlink_to("elsewhere.toml")


@pytest.mark.parametrize("replace", [Path.write_text, _rename, _link])
def test_however_the_file_is_replaced(harness: AppServerHarness, replace: Callable[[Path, str], object]) -> None:
    path = config_file(harness)
    text = path.read_text().replace("danger-full-access", "{mode}")
    with stdio_server(harness) as program:
        program.client.initialize()
        # Faster than the clock of a file system, and two of them of the same length.
        for mode, kind in (("read-only", "readOnly"), ("workspace-write", "workspaceWrite"), ("read-only", "readOnly")):
            replace(path, text.format(mode=mode))
            assert program.client.call("thread/start")["sandbox"]["type"] == kind
            for policy in ("untrusted", "on-request", "never"):
                replace(path, text.format(mode=mode).replace('"never"', f'"{policy}"'.ljust(20)))
                assert program.client.call("thread/start")["approvalPolicy"] == policy
        path.unlink()
        assert program.client.call("thread/start")["modelProvider"] == "offline"


def test_a_file_that_breaks_is_refused_with_its_place_and_running_threads_go_on(harness: AppServerHarness) -> None:
    path = config_file(harness)
    good = path.read_text()
    for _ in range(3):
        harness.model.enqueue_assistant_message("still here")
    with listening_server(harness) as program, joined(program.url) as client:
        thread = client.start_thread()
        path.write_text("\n  sandbox_mode = 5\n")
        assert client.run(thread)["status"] == "completed"
        problem = f"{path}:2:3: sandbox_mode: found 5, allowed is one of"
        assert client.wait_for("configWarning")["params"]["details"].startswith(problem)
        assert problem in client.failure("thread/start")["message"]
        assert problem in client.failure("thread/fork", {"threadId": thread})["message"]
        assert client.run(thread)["status"] == "completed"
        assert len(client.of("configWarning")) == 1
        assert program.stderr.count("the settings cannot be used") == 1
        path.unlink()
        path.mkdir()
        assert "it cannot be read" in client.failure("thread/start")["message"]
        path.rmdir()
        path.symlink_to("nowhere")
        assert "a symbolic link to nothing" in client.failure("thread/start")["message"]
        path.unlink()
        path.write_text(good)
        assert client.run(thread)["status"] == "completed"
        assert client.start_thread()
        assert program.stderr.count("the settings can be used again") == 1
        assert "the settings have changed" not in program.stderr
        program.check_well()


def test_a_thread_whose_provider_is_gone_says_so_and_works_again_with_it(harness: AppServerHarness) -> None:
    path = config_file(harness)
    good = path.read_text()
    harness.model.enqueue_assistant_message("back")
    with listening_server(harness) as program, joined(program.url) as client:
        plain, own = client.start_thread(), client.start_thread(config={"model_provider": "mock_provider"})
        path.write_text('model_provider = "offline"\n')
        for thread in (plain, own):
            turn = client.run(thread)
            assert turn["status"] == "failed"
            assert "mock_provider" in turn["error"]["message"]
        path.write_text(good)
        assert client.run(own)["status"] == "completed"
        program.check_well()


def test_a_login_counts_for_the_next_thread(harness: AppServerHarness) -> None:
    config_file(harness).write_text("")
    env = {"OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": ""}
    with listening_server(harness, env=env) as program, joined(program.url) as client:
        assert client.call("thread/start")["modelProvider"] == "offline"
        subprocess.run(
            [sys.executable, "-m", "treadle", "login", "openai", "--with-key", "--no-check"],
            env={**harness.environ(), **env},
            input=SECRET.encode(),
            capture_output=True,
            check=True,
            timeout=DEADLINE_S,
        )
        assert client.call("thread/start")["modelProvider"] == "openai"
        program.check_well()


# --- SIGHUP ----------------------------------------------------------------------------------------------------------


def test_a_hangup_reads_the_file_at_once(harness: AppServerHarness) -> None:
    path = config_file(harness)
    with listening_server(harness) as program, joined(program.url) as client:
        path.write_text(path.read_text().replace("danger-full-access", "read-only"))
        program.send_signal(signal.SIGHUP)
        program.wait_for_log("the settings have changed: sandbox_mode")
        path.write_text("= 5")
        program.send_signal(signal.SIGHUP)
        program.wait_for_log(f"the settings cannot be used, no thread can be started: {path}:1:1: it is no TOML")
        assert client.wait_for("configWarning")
        program.check_well()


def test_a_hangup_does_not_end_a_server_on_pipes(harness: AppServerHarness) -> None:
    path = config_file(harness)
    with stdio_server(harness) as program:
        program.client.initialize()
        assert program.client.start_thread()
        path.write_text("= 5")
        program.send_signal(signal.SIGHUP)
        assert program.client.wait_for("configWarning")
        program.hang_up()
        assert program.wait() == 0


def test_a_server_ends_with_its_terminal(harness: AppServerHarness) -> None:
    ours, theirs = pty.openpty()
    log = harness.workspace.parent / "server.stderr"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            # The server is the leader of a session that has the terminal.
            ["setsid", "--ctty", *harness.command("--listen", "ws://127.0.0.1:0")],
            cwd=harness.workspace,
            env=harness.environ(),
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    os.close(theirs)
    try:
        program = Program(process, log)
        assert program.read_line().startswith("ws://")
        os.close(ours)
        assert program.wait() == 0
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        assert process.stdout is not None
        process.stdout.close()
