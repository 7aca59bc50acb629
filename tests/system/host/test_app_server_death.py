"""An app-server that is killed, stopped or missing: the fault says what happened, at once, and nothing is left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from host_stage import KEY, WAIT_S, HostStage, alive, begin, descendants, pid_of, run, stop
from treadle.client import CodexConfig
from treadle.host import AppServerRuntime, ItemStarted, Opening, RuntimeFault

pytestmark = pytest.mark.anyio

LAUNCHER = """\
import subprocess, sys
child = subprocess.Popen(sys.argv[1:])
open({pid_file!r}, "w").write(str(child.pid))
sys.exit(child.wait())
"""


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostStage]:
    made = HostStage(tmp_path, "child")
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    yield made
    await made.close()


async def _gone(pids: set[int]) -> None:
    """They end by a signal that was sent; the table of processes may lag a moment behind."""
    async with asyncio.timeout(WAIT_S):
        while any(map(alive, pids)):
            await asyncio.sleep(0.01)


async def _in_a_command(stage: HostStage, runtime: AppServerRuntime | None = None) -> tuple[AppServerRuntime, Any]:
    call = {"cmd": "touch begun; exec sleep 600", "yield_time_ms": 30_000}
    stage.model.enqueue_function_call("exec_command", call, call_id="c1")
    made, _ = await stage.opened(runtime=runtime)
    turn = await begin(made, "wait")
    await turn.until(lambda event: isinstance(event, ItemStarted) and event.item.type == "commandExecution")
    async with asyncio.timeout(WAIT_S):
        while not (stage.workspace / "begun").exists():
            await asyncio.sleep(0.01)
    return made, turn


async def test_killed_in_the_middle_of_a_command(stage: HostStage) -> None:
    runtime, turn = await _in_a_command(stage)
    server = pid_of(runtime)
    family = {server, *descendants(server)}
    os.kill(server, signal.SIGKILL)
    begun = time.monotonic()
    with pytest.raises(RuntimeFault) as raised:
        await turn.end()
    assert time.monotonic() - begun < 10
    fault = raised.value.fault
    assert (fault.kind, fault.exit_code, fault.retire) == ("dead", -9, True)
    assert "SIGKILL" in fault.message
    assert "half done" in fault.advice
    await _gone(family)  # before anybody closes it
    await runtime.interrupt()  # there is nothing to interrupt any more
    for call in (runtime.probe(), runtime.start_turn("more", {}), runtime.next_event()):
        with pytest.raises(RuntimeFault) as again:
            await call
        assert again.value.fault == fault
    await runtime.close()


async def test_killed_before_a_turn(stage: HostStage) -> None:
    runtime, _ = await stage.opened()
    os.kill(pid_of(runtime), signal.SIGKILL)
    with pytest.raises(RuntimeFault) as raised:
        await begin(runtime, "hi")
    assert raised.value.fault.kind == "dead"
    assert raised.value.fault.exit_code == -9


async def test_stopped_it_answers_no_probe_and_close_does_not_wait_for_it(stage: HostStage) -> None:
    runtime, _ = await stage.opened()
    server = pid_of(runtime)
    family = {server, *descendants(server)}
    await runtime.probe()
    await asyncio.to_thread(stop, server)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(runtime.probe(), 0.5)
    begun = time.monotonic()
    await runtime.close()
    assert time.monotonic() - begun < 10
    await _gone(family)


async def test_close_leaves_nothing_and_can_be_called_again(stage: HostStage) -> None:
    runtime, _ = await _in_a_command(stage)
    server = pid_of(runtime)
    family = {server, *descendants(server)}
    assert len(family) > 1
    await runtime.close()
    await runtime.close()
    await _gone(family)


async def test_a_launcher_that_is_killed_takes_the_server_with_it(stage: HostStage, tmp_path: Path) -> None:
    pid_file = tmp_path / "native.pid"
    launcher = tmp_path / "launcher.py"
    launcher.write_text(LAUNCHER.format(pid_file=str(pid_file)))
    program = [str(stage.way)] if isinstance(stage.way, Path) else [sys.executable, "-m", "treadle"]
    command = (sys.executable, str(launcher), *program, "app-server", "--listen", "stdio://")
    _keep_settings(stage)
    config = CodexConfig(launch_args_override=command, env=stage.env, cwd=str(stage.workspace))
    runtime, turn = await _in_a_command(stage, AppServerRuntime(config))
    native = int(pid_file.read_text())
    family = {native, *descendants(native)}
    os.kill(pid_of(runtime), signal.SIGKILL)
    with pytest.raises(RuntimeFault) as raised:
        await turn.end()
    assert raised.value.fault.kind == "dead"
    await _gone(family)
    await runtime.close()


def _keep_settings(stage: HostStage) -> None:
    """All in the file, for a server whose command line is not ours; without a key, which it does not ask for."""
    table = f'name = "mock"\nbase_url = "{stage.model.base_url}"\nrequest_max_retries = 0\nstream_max_retries = 0\n'
    (stage.home / "config.toml").write_text(
        f'model = "gpt-5.5"\nmodel_provider = "mock"\n[model_providers.mock]\n{table}[analytics]\nenabled = false\n'
    )


async def test_a_new_server_goes_on_with_the_thread_of_one_that_was_killed(stage: HostStage) -> None:
    runtime, opened = await stage.opened()
    stage.model.enqueue_assistant_message("first")
    await run(runtime, "one")
    os.kill(pid_of(runtime), signal.SIGKILL)
    again, resumed = await stage.opened(resume=opened.thread_id)
    assert resumed.thread_id == opened.thread_id
    stage.model.enqueue_assistant_message("second")
    assert (await run(again, "two")).text() == "second"
    assert "one" in stage.model.requests()[-1].input_texts("user")


async def test_interrupted_while_it_starts(stage: HostStage) -> None:
    runtime = stage.runtime()
    opening = asyncio.create_task(stage.opened(runtime=runtime))
    while runtime._client._connection is None:
        await asyncio.sleep(0)
    server = pid_of(runtime)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await runtime.close()
    await _gone({server})


@pytest.mark.parametrize("how", ["codex_bin", "launch_args_override"])
async def test_a_program_that_is_not_there(tmp_path: Path, how: str) -> None:
    nowhere = str(tmp_path / "no-codex")
    given: dict[str, Any] = {how: nowhere if how == "codex_bin" else (nowhere,)}
    runtime = AppServerRuntime(CodexConfig(**given))
    with pytest.raises(RuntimeFault) as raised:
        await runtime.open(Opening(), _nobody)
    fault = raised.value.fault
    assert (fault.kind, fault.retire) == ("missing", True)
    assert "npm i -g @openai/codex" in fault.advice
    await runtime.close()


async def test_a_program_that_ends_at_once_tells_its_last_words_without_colours_and_secrets(tmp_path: Path) -> None:
    code = f"import sys; sys.stderr.write('\\x1b[31mERROR\\x1b[0m no such setting {KEY}\\n'); sys.exit(3)"
    config = CodexConfig(launch_args_override=(sys.executable, "-c", code), env={"SOME_API_KEY": KEY})
    runtime = AppServerRuntime(config)
    with pytest.raises(RuntimeFault) as raised:
        await runtime.open(Opening(), _nobody)
    fault = raised.value.fault
    assert (fault.kind, fault.exit_code, fault.retire) == ("startup", 3, True)
    assert fault.stderr_tail == "ERROR no such setting [redacted]"
    await runtime.close()


CHATTY_HEIR = """\
import os, time
if os.fork() == 0:
    os.close(2)
    while True:
        os.write(1, b'{"method":"still/here","params":{}}\\n')
        time.sleep(0.02)
os._exit(7)
"""


async def test_an_heir_that_goes_on_talking_is_not_the_server() -> None:
    runtime = AppServerRuntime(CodexConfig(launch_args_override=(sys.executable, "-c", CHATTY_HEIR)))
    with pytest.raises(RuntimeFault) as raised:
        async with asyncio.timeout(WAIT_S / 2):
            await runtime.open(Opening(), _nobody)
    assert (raised.value.fault.kind, raised.value.fault.exit_code) == ("startup", 7)
    await runtime.close()


async def _nobody(_: Any) -> Any:
    raise AssertionError("nobody is asked")
