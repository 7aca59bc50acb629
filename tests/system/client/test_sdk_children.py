"""The server as a child: how it fails to start, what it says on standard error, how it ends, and what it leaves."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kit.processes import processes_left, processes_with
from system.client.faces import DEADLINE_S, Face, Fake, Looping
from treadle.client import (
    AppServerClient,
    AsyncAppServerClient,
    AsyncCodex,
    AsyncThread,
    CodexConfig,
    MissingMetadata,
    RequestTimeout,
    TransportClosedError,
)

MakeFake = Callable[..., Fake]


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def open_error(face: Face, config: CodexConfig) -> BaseException | None:
    return face.go(lambda: face._open(config, {})).exception(DEADLINE_S)


def run_together(face: Face, codex: Any, count: int) -> list[Future[Any]]:
    """A turn on each of several threads."""
    threads = [face.thread(codex, f"thread {number}") for number in range(count)]
    return [face.go(partial(thread.run, "finish")) for thread in threads]


# --- it does not come up ---


@pytest.mark.parametrize("program", ["/nowhere/codex", "a-program-that-is-not-there"])
def test_a_missing_program_is_named(face: Face, program: str) -> None:
    error = open_error(face, CodexConfig(codex_bin=program))
    assert isinstance(error, FileNotFoundError)
    assert program in str(error)


def test_a_program_that_cannot_be_executed_is_named(face: Face, tmp_path: Path) -> None:
    program = tmp_path / "codex"
    program.write_text("#!/nowhere/shell\n")
    program.chmod(0o755)
    error = open_error(face, CodexConfig(codex_bin=str(program)))
    assert isinstance(error, FileNotFoundError | TransportClosedError)
    assert str(program) in str(error)


def test_a_program_that_ends_at_once_is_reported_with_its_words(face: Face) -> None:
    error = open_error(face, CodexConfig(launch_args_override=("/bin/sh", "-c", "echo no such option >&2; exit 64")))
    assert isinstance(error, TransportClosedError)
    assert (error.exit_code, error.stderr_tail) == (64, "no such option")


def test_a_server_without_metadata_is_closed(face: Face, fake: MakeFake) -> None:
    server = fake("anonymous")
    error = open_error(face, server.config)
    assert isinstance(error, MissingMetadata)
    assert isinstance(error, RuntimeError)
    assert "missing required metadata" in str(error)
    assert processes_left(server.marker) == []


def test_a_server_that_never_answers_is_given_up(face: Face, fake: MakeFake) -> None:
    server = fake("mute", request_timeout=0.2)
    error = open_error(face, server.config)
    assert isinstance(error, RequestTimeout)
    assert "initialize" in str(error)
    assert processes_left(server.marker) == []


def test_an_async_codex_that_failed_to_open_can_be_tried_again(looping: Looping, fake: MakeFake) -> None:
    face = looping
    good, bad = fake("exit"), fake("anonymous")
    codex = face.do(lambda: AsyncCodex(bad.config))
    for _ in range(2):
        assert isinstance(face.go(codex._ensure_initialized).exception(DEADLINE_S), MissingMetadata)
    with pytest.raises(RuntimeError, match="not connected"):
        _ = codex.metadata
    codex._client.config = good.config
    assert face.do(lambda: face.thread(codex).run("finish")).final_response == "said in turn-1"
    face.close(codex)


def test_many_tasks_open_an_async_codex_once(looping: Looping, fake: MakeFake) -> None:
    face = looping
    server = fake("exit")
    codex = face.do(lambda: AsyncCodex(server.config))
    turns = run_together(face, codex, 8)
    assert len({turn.result(DEADLINE_S).id for turn in turns}) == 8
    methods = [server.heard("initialize")["method"], server.heard("initialized")["method"]]
    assert methods == ["initialize", "initialized"]
    assert len(processes_with(server.marker)) == 1
    face.close(codex)


def test_an_async_codex_serves_one_event_loop_after_another(fake: MakeFake) -> None:
    """As a program does that calls `asyncio.run` twice."""
    codex = AsyncCodex(fake("exit").config)

    async def run() -> set[str]:
        async with asyncio.timeout(DEADLINE_S):
            threads = [AsyncThread(codex, f"thread {number}") for number in range(4)]
            turns = await asyncio.gather(*(thread.run("finish") for thread in threads))
            await codex.close()
            return {turn.id for turn in turns}

    for _ in range(2):
        assert len(asyncio.run(run())) == 4


def test_an_async_codex_may_be_closed_while_it_opens(looping: Looping, fake: MakeFake) -> None:
    server = fake("mute")
    codex = looping.do(lambda: AsyncCodex(server.config))
    opening = looping.go(codex._ensure_initialized)
    server.heard("initialize")
    looping.close(codex)
    assert isinstance(opening.exception(DEADLINE_S), TransportClosedError)
    assert processes_left(server.marker) == []


def test_a_client_that_is_started_by_many_starts_one_server(face: Face, fake: MakeFake) -> None:
    server = fake("exit")
    client = AsyncAppServerClient(server.config) if face.name == "async" else AppServerClient(server.config)
    for started in [face.go(client.start) for _ in range(8)]:
        started.result(DEADLINE_S)
    face.do(client.initialize)
    assert len(processes_with(server.marker)) == 1
    face.do(client.close)
    assert processes_left(server.marker) == []


# --- what it says ---


def test_secrets_on_standard_error_are_not_shown(face: Face, fake: MakeFake) -> None:
    secrets = {"FAKE_API_KEY": "value-of-the-key", "FAKE_PASSWORD": "a pass phrase with blanks"}
    codex = face.open(fake("secrets", env=secrets).config)
    error = face.go(lambda: face.request(codex, "test/deed")).exception(DEADLINE_S)
    assert isinstance(error, TransportClosedError)
    assert "the plain end" in error.stderr_tail
    for secret in ["value-of-the-key", "a pass phrase", "with blanks", "sk-proj-abcdefgh12345678", "abc.def-ghi_jkl"]:
        for text in (str(error), repr(error), error.stderr_tail):
            assert secret not in text


def test_a_live_client_shows_nothing_and_cannot_be_pickled(face: Face, fake: MakeFake) -> None:
    codex = face.open(fake("exit", env={"FAKE_API_KEY": "value-of-the-key"}).config)
    turn = face.do(lambda: face.thread(codex).turn("go on"))
    for thing in (codex, codex._client, face.thread(codex), turn):
        assert "value-of-the-key" not in repr(thing)
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(thing)


def test_much_on_standard_error_does_not_block_the_server(face: Face, fake: MakeFake) -> None:
    codex = face.open(fake("noisy").config)
    assert face.do(lambda: face.request(codex, "test/deed")).value == {}


# --- it does not listen ---


def test_a_server_that_reads_nothing_is_given_up(face: Face, fake: MakeFake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that fits no pipe must not hang for ever, and neither must those that come after it."""
    monkeypatch.setattr("treadle.client.connection.WRITE_S", 0.3)
    server = fake("blind")
    codex = face.open(server.config)
    waiting = face.go(lambda: face.request(codex, "test/echo", text="x" * (4 << 20)))
    assert isinstance(waiting.exception(DEADLINE_S), TransportClosedError)
    # Half a message is in the pipe: nothing that is sent now could be read.
    assert isinstance(face.go(face.thread(codex).read).exception(DEADLINE_S), TransportClosedError)
    face.close(codex)
    assert processes_left(server.marker) == []


def test_close_does_not_wait_for_a_write_that_is_stuck(face: Face, fake: MakeFake) -> None:
    server = fake("blind")
    codex = face.open(server.config)
    waiting = face.go(lambda: face.request(codex, "test/echo", text="x" * (4 << 20)))
    face.close(codex)
    assert isinstance(waiting.exception(DEADLINE_S), TransportClosedError)
    assert processes_left(server.marker) == []


# --- what it leaves ---


@pytest.mark.parametrize("deed", ["family", "deaf"])
def test_close_leaves_nothing_of_a_family(face: Face, fake: MakeFake, deed: str) -> None:
    """Children, sessions of their own, daemons; a server that is deaf to the end of its input and to SIGTERM."""
    server = fake(deed)
    codex = face.open(server.config)
    face.do(lambda: face.request(codex, "test/deed"))
    while len(processes_with(server.marker)) < 4:
        os.sched_yield()
    face.close(codex)
    assert processes_left(server.marker) == []
    face.close(codex)


def test_close_leaves_nothing_of_the_family_of_a_dead_server(face: Face, fake: MakeFake) -> None:
    server = fake("family")
    codex = face.open(server.config)
    face.do(lambda: face.request(codex, "test/deed"))
    pid = codex._client._connection.pid
    waiting = face.go(face.thread(codex).read)
    server.heard("thread/read")
    os.kill(pid, 9)
    assert isinstance(waiting.exception(DEADLINE_S), TransportClosedError)
    face.close(codex)
    assert processes_left(server.marker) == []


def test_close_reaps_the_server(face: Face, fake: MakeFake) -> None:
    codex = face.open(fake("exit").config)
    pid = codex._client._connection.pid
    assert not gone(pid)
    face.close(codex)
    assert gone(pid)


def test_threads_that_close_at_the_same_time(face: Face, fake: MakeFake) -> None:
    codex = face.open(fake("exit").config)
    waiting = face.go(face.thread(codex).read)
    for closing in [face.go(codex.close) for _ in range(8)]:
        closing.result(DEADLINE_S)
    error = waiting.exception(DEADLINE_S)
    assert isinstance(error, TransportClosedError)
    assert "closed" in str(error)


def test_a_handler_may_close_the_client(face: Face, fake: MakeFake) -> None:
    """Whoever is asked may have had enough."""
    server = fake("deaf")
    closed = threading.Event()  # the handler's own call comes back when everything has ended, which takes a moment

    async def close_async(_: object) -> bool:
        await codex.close()
        closed.set()
        return False

    def close_sync(_: object) -> bool:
        codex.close()
        closed.set()
        return False

    codex = face.open(server.config, approval_handler=close_async if face.name == "async" else close_sync)
    waiting = face.go(face.thread(codex).read)
    face.notify(codex, "test/ask", count=1)
    assert isinstance(waiting.exception(DEADLINE_S), TransportClosedError)
    assert processes_left(server.marker) == []
    assert closed.wait(DEADLINE_S)
    face.close(codex)


def test_an_answer_that_cannot_be_sent_is_a_refusal(face: Face, fake: MakeFake) -> None:
    """The server must not wait for an answer that never comes."""
    server = fake("exit")
    codex = face.open(server.config)
    codex._client.handlers.raw = lambda method, params: {"decision": object()}
    face.notify(codex, "test/ask", count=1)
    assert "error" in server.heard_answer()
