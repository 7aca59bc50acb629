"""Nobody waits any more: cancelled, too late, Ctrl-C. The turn ends on the server, and the next one works."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kit.exec_program import server_environment
from system.client.faces import DEADLINE_S, Face, Fake, Looping
from treadle.client import RequestTimeout
from treadle.types import TurnStatus

MakeFake = Callable[..., Fake]


def check_next_works(face: Face, codex: Any, thread_id: str = "thread") -> None:
    result = face.do(lambda: face.thread(codex, thread_id).run("finish"))
    assert result.status is TurnStatus.completed
    assert result.final_response is not None


# --- deadlines ---


def test_a_run_that_takes_too_long_is_interrupted(face: Face, fake: MakeFake) -> None:
    server = fake("exit")
    codex = face.open(server.config)
    error = face.go(lambda: face.thread(codex).run("go on", timeout=0.3)).exception(DEADLINE_S)
    assert isinstance(error, RequestTimeout)
    assert isinstance(error, TimeoutError)
    assert server.heard("turn/interrupt")["params"] == {"threadId": "thread", "turnId": "turn-1"}
    check_next_works(face, codex)


def test_a_stream_that_takes_too_long_is_interrupted(face: Face, fake: MakeFake) -> None:
    server = fake("exit")
    codex = face.open(server.config)
    reading = face.read(face.do(lambda: face.thread(codex).turn("go on")), timeout=0.3)
    error = reading.done.exception(DEADLINE_S)
    assert isinstance(error, RequestTimeout)
    assert "turn-1" in str(error)
    server.heard("turn/interrupt")
    check_next_works(face, codex)


def test_a_request_that_takes_too_long_is_given_up_alone(face: Face, fake: MakeFake) -> None:
    codex = face.open(fake("exit").config)
    error = face.go(lambda: face.thread(codex).read(timeout=0.1)).exception(DEADLINE_S)
    assert isinstance(error, RequestTimeout)
    assert "thread/read" in str(error)
    check_next_works(face, codex)


def test_the_default_deadline_comes_from_the_config(face: Face, fake: MakeFake) -> None:
    config = fake("exit").config
    codex = face.open(config)
    config.request_timeout = 0.25  # after the handshake, which takes as long as it takes
    error = face.go(face.thread(codex).read).exception(DEADLINE_S)
    assert isinstance(error, RequestTimeout)
    assert "within 0.25 s" in str(error)


def test_a_start_that_takes_too_long_is_undone_when_it_is_answered(face: Face, fake: MakeFake) -> None:
    server = fake("hold_start")
    codex = face.open(server.config)
    error = face.go(lambda: face.thread(codex).run("go on", timeout=0.2)).exception(DEADLINE_S)
    assert isinstance(error, RequestTimeout)
    assert "turn/start" in str(error)
    face.notify(codex, "test/release")
    assert server.heard("turn/interrupt")["params"]["turnId"] == "turn-1"
    check_next_works(face, codex)


def test_the_next_turn_waits_until_a_late_one_has_ended(face: Face, fake: MakeFake) -> None:
    """The late one was answered and interrupted, but nothing more was said about it yet."""
    server = fake("hold_completion")
    codex = face.open(server.config)
    assert isinstance(
        face.go(lambda: face.thread(codex).run("go on", timeout=0.2)).exception(DEADLINE_S), RequestTimeout
    )
    face.notify(codex, "test/release")
    server.heard("turn/interrupt")
    following = face.go(lambda: face.thread(codex).run("finish"))
    face.notify(codex, "test/release", completion=True)
    assert following.result(DEADLINE_S).status is TurnStatus.completed


def test_a_late_answer_that_is_nonsense_does_no_harm(face: Face, fake: MakeFake) -> None:
    server = fake("hold_start")
    codex = face.open(server.config)
    assert isinstance(
        face.go(lambda: face.thread(codex).run("go on", timeout=0.2)).exception(DEADLINE_S), RequestTimeout
    )
    face.notify(codex, "test/release", result=5)
    assert face.do(lambda: face.request(codex, "test/echo", n=1)).value == {"n": 1}
    check_next_works(face, codex)


# --- cancellation ---


def test_a_cancelled_run_is_interrupted(looping: Looping, fake: MakeFake) -> None:
    server = fake("exit")
    codex = looping.open(server.config)
    running = looping.go(lambda: looping.thread(codex).run("go on"))
    server.heard("turn/start")
    looping.do(lambda: looping.request(codex, "test/echo"))  # then the start was answered, too
    looping.cancel(running)
    assert server.heard("turn/interrupt")["params"]["turnId"] == "turn-1"
    check_next_works(looping, codex)


def test_a_cancelled_start_is_interrupted_when_it_is_answered(looping: Looping, fake: MakeFake) -> None:
    server = fake("hold_start")
    codex = looping.open(server.config)
    running = looping.go(lambda: looping.thread(codex).run("go on"))
    server.heard("turn/start")
    looping.cancel(running)
    looping.notify(codex, "test/release")
    assert server.heard("turn/interrupt")["params"]["turnId"] == "turn-1"
    check_next_works(looping, codex)


def test_a_run_after_a_cancelled_start_waits_for_its_end(looping: Looping, fake: MakeFake) -> None:
    """A server takes a turn that is started meanwhile for more input to the one that runs: it must not be sent yet."""
    server = fake("hold_start")
    codex = looping.open(server.config)
    running = looping.go(lambda: looping.thread(codex).run("go on"))
    server.heard("turn/start")
    looping.cancel(running)
    following = looping.go(lambda: looping.thread(codex).run("finish"))
    looping.do(lambda: looping.request(codex, "test/echo"))
    looping.notify(codex, "test/release")
    seen = [server.heard_any()["method"] for _ in range(4)]
    assert seen == ["test/echo", "test/release", "turn/interrupt", "turn/start"]
    assert following.result(DEADLINE_S).status is TurnStatus.completed


def test_a_cancelled_start_that_is_answered_with_the_end_of_the_turn_is_over(
    looping: Looping, fake: MakeFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both come in one piece: there is nothing to interrupt, and nothing that the next turn could wait for."""
    monkeypatch.setattr("treadle.client.async_client.ABANDONED_S", 10 * DEADLINE_S)
    server = fake("hold_start")
    codex = looping.open(server.config)
    running = looping.go(lambda: looping.thread(codex).run("go on"))
    server.heard("turn/start")
    looping.cancel(running)
    following = looping.go(lambda: looping.thread(codex).run("finish"))
    looping.do(lambda: looping.request(codex, "test/echo"))
    looping.notify(codex, "test/release", whole=True)
    seen = [server.heard_any()["method"] for _ in range(3)]
    assert seen == ["test/echo", "test/release", "turn/start"]
    assert following.result(DEADLINE_S).status is TurnStatus.completed


def test_a_cancelled_stream_is_interrupted(looping: Looping, fake: MakeFake) -> None:
    server = fake("exit")
    codex = looping.open(server.config)
    reading = looping.read(looping.do(lambda: looping.thread(codex).turn("go on")))
    reading.next()
    looping.cancel(reading.done)
    server.heard("turn/interrupt")
    check_next_works(looping, codex)


def test_a_cancelled_request_is_forgotten(looping: Looping, fake: MakeFake) -> None:
    server = fake("exit")
    codex = looping.open(server.config)
    waiting = looping.go(looping.thread(codex).read)
    server.heard("thread/read")
    looping.cancel(waiting)
    check_next_works(looping, codex)


def test_a_cancelled_opening_leaves_nothing(looping: Looping, fake: MakeFake) -> None:
    from kit.processes import processes_left
    from treadle.client import AsyncCodex

    server = fake("mute")
    codex = looping.do(lambda: AsyncCodex(server.config))
    opening = looping.go(codex._ensure_initialized)
    server.heard("initialize")
    looping.cancel(opening)
    assert processes_left(server.marker) == []
    looping.close(codex)


def test_cancelled_runs_of_many_threads_are_all_interrupted(looping: Looping, fake: MakeFake) -> None:
    server = fake("exit")
    codex = looping.open(server.config)
    threads = [looping.thread(codex, f"t{number}") for number in range(10)]
    runs = [looping.go(partial(thread.run, "go on")) for thread in threads]
    for _ in runs:
        server.heard("turn/start")
    for run in runs:
        looping.cancel(run)
    ended = {server.heard("turn/interrupt")["params"]["threadId"] for _ in runs}
    assert ended == {f"t{number}" for number in range(10)}
    for number in range(10):
        check_next_works(looping, codex, f"t{number}")


# --- Ctrl-C ---

INTERRUPTED = """
import os, signal, sys, threading
from treadle.client import Codex, CodexConfig, Thread

how, command = sys.argv[1], tuple(sys.argv[2:])
codex = Codex(CodexConfig(launch_args_override=command))
thread = Thread(codex._client, "thread")
main = threading.main_thread()

def waits_in(function):
    frame = sys._current_frames()[main.ident]
    if frame.f_code.co_name != "wait":
        return False
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame is not None

interrupted = threading.Event()

def press(function):
    while not interrupted.is_set():
        if waits_in(function):
            signal.pthread_kill(main.ident, signal.SIGINT)
            # A signal that comes just before a thread goes to sleep does not wake it: then it is pressed again.
            interrupted.wait(2.0)
        else:
            os.sched_yield()

press_later = threading.Thread(target=press, args=("turn_start" if how == "start" else "stream",))
press_later.start()
try:
    if how == "stream":
        for event in thread.turn("go on").stream():
            pass
    else:
        thread.run("go on")
except KeyboardInterrupt:
    interrupted.set()
    print("interrupted", flush=True)
press_later.join()
if how == "start":
    codex._client.notify("test/release")
print(thread.run("finish").status.value, flush=True)
codex.close()
codex.close()
print([left.name for left in threading.enumerate()], flush=True)
"""


@pytest.mark.parametrize(("how", "deed"), [("run", "exit"), ("stream", "exit"), ("start", "hold_start")])
def test_ctrl_c_interrupts_the_turn(fake: MakeFake, how: str, deed: str) -> None:
    """In a program of its own: its main thread gets the signal while it waits, for events or for the start."""
    server = fake(deed)
    command = server.config.launch_args_override
    assert command is not None
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", INTERRUPTED, how, *command],
        env=server_environment(server.config.env),
        capture_output=True,
        timeout=4 * DEADLINE_S,
        check=False,
    )
    assert done.stderr == b""
    assert done.stdout == b"interrupted\ncompleted\n['MainThread']\n"
    assert server.heard("turn/interrupt")["params"]["turnId"] == "turn-1"


def test_ctrl_c_between_the_start_and_the_stream_interrupts_a_run(
    fake: MakeFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may well come while nothing is waited for."""
    from treadle.client import Codex, Thread, read_result

    def read(method: str, *rest: Any) -> Any:
        if method == "turn/start":
            patch.undo()
            raise KeyboardInterrupt
        return read_result(method, *rest)

    server = fake("exit")
    with Codex(server.config) as codex, monkeypatch.context() as patch:
        patch.setattr("treadle.client.client.read_result", read)
        with pytest.raises(KeyboardInterrupt):
            Thread(codex._client, "thread").run("go on")
        assert server.heard("turn/interrupt")["params"]["turnId"] == "turn-1"
        assert Thread(codex._client, "thread").run("finish").final_response == "said in turn-2"


def test_ctrl_c_between_two_events_interrupts_a_run(fake: MakeFake, monkeypatch: pytest.MonkeyPatch) -> None:
    from treadle.client import Codex, Collector, Notification, Thread

    def add(collector: Collector, event: Notification) -> None:
        raise KeyboardInterrupt

    server = fake("exit")
    with Codex(server.config) as codex:
        with monkeypatch.context() as patch:
            patch.setattr(Collector, "add", add)
            with pytest.raises(KeyboardInterrupt):
                Thread(codex._client, "thread").run("go on")
        assert server.heard("turn/interrupt")["params"]["turnId"] == "turn-1"
        assert Thread(codex._client, "thread").run("finish").final_response == "said in turn-2"


# --- leaving a loop is no cancellation ---


def test_a_stream_that_is_left_can_be_taken_up_again(face: Face, fake: MakeFake) -> None:
    server = fake("exit")
    codex = face.open(server.config)
    turn = face.do(lambda: face.thread(codex).turn("go on"))

    def leave() -> None:
        with_events = turn.stream()
        assert next(with_events).method == "turn/started"
        with_events.close()

    async def leave_async() -> None:
        with_events = turn.stream()
        assert (await anext(with_events)).method == "turn/started"
        await with_events.aclose()

    face.do(leave_async if face.name == "async" else leave)
    rest = face.read(turn)
    face.do(turn.interrupt)
    assert [rest.next().method for _ in range(2)] == ["item/completed", "turn/completed"]
    rest.done.result(DEADLINE_S)


def test_a_turn_that_is_over_cannot_be_interrupted_by_mistake(face: Face, fake: MakeFake) -> None:
    server = fake("exit")
    codex = face.open(server.config)
    face.do(lambda: face.thread(codex).run("finish"))
    face.do(lambda: codex._client.abandon_turn("thread", "turn-1"))
    face.do(lambda: face.request(codex, "test/echo"))
    seen: list[str] = []
    while not seen or seen[-1] != "test/echo":
        seen.append(server.heard_any()["method"])
    assert "turn/interrupt" not in seen
