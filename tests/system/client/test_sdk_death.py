"""The server dies, or goes mad: everybody who waits is told once, at once, with its exit code and its last words."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from system.client.faces import DEADLINE_S, Face, Fake, Looping
from treadle.client import CodexError, TransportClosedError
from treadle.transport import LineFramer

MakeFake = Callable[..., Fake]

# What the server does, the exit code that is told, and a word of the message.
ENDS = [
    pytest.param("exit", 7, "exit code 7", id="exits"),
    pytest.param("kill", -9, "SIGKILL", id="is killed"),
    pytest.param("half_line", 7, "exit code 7", id="dies in the middle of a line"),
    pytest.param("close", None, "runs on", id="closes its output"),
]
MADNESS = [
    pytest.param("garbage", id="garbage"),
    pytest.param("not_utf8", id="no UTF-8"),
    pytest.param("deep", id="too deep"),
    pytest.param("array", id="no object"),
    pytest.param("long_line", id="a line over the limit"),
]


@pytest.fixture(autouse=True)
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LineFramer.__init__.__kwdefaults__ is not None
    monkeypatch.setitem(LineFramer.__init__.__kwdefaults__, "max_line", 1 << 19)


def failure_of(future: Future[Any]) -> TransportClosedError:
    error = future.exception(DEADLINE_S)
    assert isinstance(error, TransportClosedError), repr(error)
    return error


def check_words(error: TransportClosedError, exit_code: int | None, word: str) -> None:
    assert error.exit_code == exit_code
    assert error.stderr_tail == "these are my last words"
    assert word in str(error)
    assert "these are my last words" in str(error)


def check_closes(face: Face, codex: Any) -> None:
    """It can be closed, twice, and a new one is not impressed by the fate of the last."""
    face.close(codex)
    face.close(codex)


@pytest.mark.parametrize(("deed", "exit_code", "word"), ENDS)
def test_all_who_wait_are_told(face: Face, fake: MakeFake, deed: str, exit_code: int | None, word: str) -> None:
    server = fake(deed)
    codex = face.open(server.config)
    turn = face.do(lambda: face.thread(codex).turn("go on"))
    stream = face.read(turn)
    assert stream.next().method == "turn/started"
    other = face.go(lambda: face.thread(codex, "other").run("go on"))
    requests = [face.go(face.thread(codex, f"thread {number}").read) for number in range(6)]
    for _ in requests:
        server.heard("thread/read")
    asked = face.go(lambda: face.request(codex, "test/deed"))
    for future in [asked, stream.done, other, *requests]:
        check_words(failure_of(future), exit_code, word)
    later = failure_of(face.go(face.thread(codex).read))
    check_words(later, exit_code, word)
    check_closes(face, codex)
    again = face.open(fake("exit").config)
    assert face.do(lambda: face.request(again, "test/echo", word="hello")).value == {"word": "hello"}


@pytest.mark.parametrize(("deed", "exit_code", "word"), ENDS)
def test_who_comes_later_is_told_too(face: Face, fake: MakeFake, deed: str, exit_code: int | None, word: str) -> None:
    codex = face.open(fake(deed).config)
    face.notify(codex, "test/deed")
    check_words(failure_of(face.go(codex._client.next_notification)), exit_code, word)
    check_words(failure_of(face.go(face.thread(codex).read)), exit_code, word)
    check_words(failure_of(face.go(lambda: face.thread(codex).run("hello"))), exit_code, word)
    check_closes(face, codex)


@pytest.mark.parametrize(("deed", "exit_code", "word"), ENDS)
def test_a_handler_that_runs_meanwhile_does_no_harm(
    face: Face, fake: MakeFake, deed: str, exit_code: int | None, word: str
) -> None:
    running, release = threading.Event(), threading.Event()

    def approve(_: object) -> bool:
        running.set()
        assert release.wait(DEADLINE_S)
        return True

    codex = face.open(fake(deed).config, approval_handler=approve)
    face.notify(codex, "test/ask", count=1)
    assert running.wait(DEADLINE_S)
    check_words(failure_of(face.go(lambda: face.request(codex, "test/deed"))), exit_code, word)
    release.set()
    check_closes(face, codex)


def test_many_handlers_that_block_do_not_keep_the_news_away(face: Face, fake: MakeFake) -> None:
    """More than a pool of threads holds: people may take long to approve."""
    release = threading.Event()
    codex = face.open(fake("exit").config, approval_handler=lambda _: release.wait(2 * DEADLINE_S))
    try:
        face.notify(codex, "test/ask", count=60)
        check_words(failure_of(face.go(lambda: face.request(codex, "test/deed"))), 7, "exit code 7")
        check_closes(face, codex)
    finally:
        release.set()


@pytest.mark.parametrize("deed", MADNESS)
def test_what_is_no_message_ends_the_conversation(face: Face, fake: MakeFake, deed: str) -> None:
    server = fake(deed)
    codex = face.open(server.config)
    stream = face.read(face.do(lambda: face.thread(codex).turn("go on")))
    assert stream.next().method == "turn/started"
    waiting = face.go(face.thread(codex).read)
    server.heard("thread/read")
    asked = face.go(lambda: face.request(codex, "test/deed"))
    for future in (asked, stream.done, waiting):
        assert failure_of(future).exit_code is None
    failure_of(face.go(face.thread(codex).read))
    check_closes(face, codex)


def test_a_line_over_the_limit_is_named(face: Face, fake: MakeFake) -> None:
    codex = face.open(fake("long_line").config)
    error = failure_of(face.go(lambda: face.request(codex, "test/deed")))
    assert "over the limit" in str(error)


def test_an_answer_that_came_before_garbage_counts(face: Face, fake: MakeFake) -> None:
    """Both may well come out of the pipe at once."""
    codex = face.open(fake("answer_and_garbage").config)
    asked = face.go(lambda: face.request(codex, "test/deed"))
    assert asked.result(DEADLINE_S).value == {}
    failure_of(face.go(codex._client.next_notification))


def test_a_result_that_is_no_object_fails_that_request_alone(face: Face, fake: MakeFake) -> None:
    codex = face.open(fake("number").config)
    error = face.go(lambda: face.request(codex, "test/deed")).exception(DEADLINE_S)
    assert isinstance(error, CodexError)
    assert not isinstance(error, TransportClosedError)
    assert "test/deed" in str(error)
    assert face.do(lambda: face.request(codex, "test/echo", n=1)).value == {"n": 1}


def test_a_child_of_a_dead_server_that_holds_its_output_keeps_nobody_waiting(face: Face, fake: MakeFake) -> None:
    codex = face.open(fake("heir").config)
    error = failure_of(face.go(lambda: face.request(codex, "test/deed")))
    assert error.exit_code == 7
    check_closes(face, codex)


def test_a_child_of_a_dead_server_that_goes_on_talking_is_cut_off(
    face: Face, fake: MakeFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.client.server_child.HEIRS_S", 0.3)
    codex = face.open(fake("talker").config)
    error = failure_of(face.go(lambda: face.request(codex, "test/deed")))
    assert error.exit_code == 7
    check_closes(face, codex)


def test_who_comes_before_the_news_is_told_the_same(face: Face, fake: MakeFake) -> None:
    """The server is dead and takes nothing, but its last words have not all been read."""
    codex = face.open(fake("mourner").config)
    server = os.pidfd_open(codex._client._connection.pid)
    try:
        face.notify(codex, "test/deed")
        assert select.select([server], [], [], DEADLINE_S)[0]
        check_words(failure_of(face.go(face.thread(codex).read)), 7, "exit code 7")
    finally:
        os.close(server)


def test_the_news_does_not_grow_with_every_request(face: Face, fake: MakeFake) -> None:
    """A program that tries again and again must not collect tracebacks."""
    codex = face.open(fake("exit").config)
    failure_of(face.go(lambda: face.request(codex, "test/deed")))
    lengths = set()
    for _ in range(50):
        error = failure_of(face.go(face.thread(codex).read))
        length, traceback = 0, error.__traceback__
        while traceback is not None:
            length, traceback = length + 1, traceback.tb_next
        lengths.add(length)
    assert len(lengths) == 1


def test_an_async_codex_whose_server_died_can_be_opened_again(looping: Looping, fake: MakeFake) -> None:
    codex = looping.open(fake("exit").config)
    failure_of(looping.go(lambda: looping.request(codex, "test/deed")))
    looping.close(codex)
    assert looping.do(lambda: looping.thread(codex).run("finish")).final_response == "said in turn-1"
