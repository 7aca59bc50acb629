"""A client or an environment that is used where it cannot work: it says so, and the one it belongs to is not harmed."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from treadle import AsyncCodex, CodexConfig, CodexError, Environment, ExecError
from treadle.execution import ExecParams
from treadle.testing import AppServerHarness

DEADLINE_S = 60


def _child(harness: AppServerHarness) -> CodexConfig:
    return harness.codex_config(launch_args_override=tuple(harness.command()))


CONFIGS: dict[str, Callable[[AppServerHarness], CodexConfig]] = {
    "in process": lambda harness: harness.codex_config(),
    "child": _child,
}


@pytest.fixture(params=CONFIGS)
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CodexConfig]:
    with AppServerHarness(tmp_path) as harness:
        yield CONFIGS[request.param](harness)


def _in_another_loop(work: Callable[[], Awaitable[Any]]) -> BaseException | None:
    """What it raises on a loop of its own, on another thread."""
    raised: list[BaseException | None] = []

    async def called() -> None:
        await work()

    def run() -> None:
        try:
            asyncio.run(called())
            raised.append(None)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(DEADLINE_S)
    assert raised, "it hangs"
    return raised[0]


def _without_a_loop(work: Coroutine[Any, Any, Any]) -> None:
    """Step by step, as trio would."""
    try:
        work.send(None)
    except StopIteration:
        raise AssertionError("it works without a loop") from None
    finally:
        work.close()


# --- another event loop ---


def test_an_async_client_on_another_loop(config: CodexConfig) -> None:
    async def main() -> None:
        async with AsyncCodex(config) as codex:
            thread = await codex.thread_start()
            turn = await thread.turn("hi")
            for work in (codex.models, thread.read, turn.run, codex.close, lambda: thread.run("x")):
                error = await asyncio.to_thread(_in_another_loop, work)
                assert isinstance(error, CodexError), work
                assert "opened on another event loop" in str(error)
            assert (await codex.models()).data is not None

    asyncio.run(main())


def test_an_async_client_whose_loop_has_ended(config: CodexConfig) -> None:
    codex = AsyncCodex(config)

    async def later() -> None:
        with pytest.raises(CodexError, match="opened on another event loop"):
            await codex.models()
        await codex.close()
        assert (await codex.models()).data is not None  # it was opened anew, here
        await codex.close()

    asyncio.run(codex.__aenter__())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the loop has left its transports open
        asyncio.run(later())
        gc.collect()


def test_an_environment_on_another_loop(tmp_path: Path) -> None:
    async def main() -> None:
        async with await Environment.connect() as env:
            params = ExecParams(process_id="p", argv=["cat"], cwd=tmp_path, env={"PATH": os.defpath}, pipe_stdin=True)
            process = await env.start(params)
            for work in (
                lambda: env.run(["true"]),
                env.processes,
                env.close,
                process.wait,
                process.changed,
                lambda: process.read(wait_ms=10_000),
                lambda: process.write("x"),
                lambda: anext(process.events()),
            ):
                error = await asyncio.to_thread(_in_another_loop, work)
                assert isinstance(error, ExecError)
                assert "opened on another event loop" in str(error)
            await process.close_stdin()
            assert await process.wait() == 0

    asyncio.run(main())


# --- no asyncio ---


def test_without_asyncio(config: CodexConfig) -> None:
    with pytest.raises(CodexError, match="needs asyncio, and no asyncio event loop runs here"):
        _without_a_loop(AsyncCodex(config).models())
    with pytest.raises(ExecError, match="needs asyncio, and no asyncio event loop runs here"):
        _without_a_loop(Environment.connect())


# --- a fork ---

FORK = """
import os, sys, threading
from treadle import Codex, CodexConfig, CodexError
from treadle.testing import AppServerHarness

harness = AppServerHarness(sys.argv[1])
override = {"launch_args_override": tuple(harness.command())} if sys.argv[2] == "child" else {}
with Codex(harness.codex_config(**override)) as codex:
    thread = codex.thread_start()
    pid = os.fork()
    if pid == 0:
        try:
            for call in (codex.models, thread.read, lambda: thread.run("x"), codex._client.start):
                try:
                    call()
                    os._exit(10)
                except CodexError as error:
                    assert f"cannot be used in process {os.getpid()}, which was forked" in str(error), error
            codex.close()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(11)
        sys.exit(0)  # with everything that happens at an exit
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
    harness.model.enqueue_assistant_message("still here")
    print(thread.run("hi", timeout=50).final_response)
harness.close()
"""


@pytest.mark.parametrize("way", CONFIGS)
def test_a_fork(way: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path), way],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "still here\n"), done.stderr
