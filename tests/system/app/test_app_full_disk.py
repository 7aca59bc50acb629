"""No room left: a clear error, nothing that was there is lost, and all is well when there is room again."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from kit.app_program import Program, stdio_server
from treadle.testing import AppServerHarness

pytestmark = pytest.mark.own_file

Json = dict[str, Any]
LITTLE = 4096  # no file may grow beyond it


def fill(program: Program) -> None:
    """From now on the server cannot write more than a page to any file, as on a full disk."""
    _, hard = resource.prlimit(program.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(program.pid, resource.RLIMIT_FSIZE, (LITTLE, hard))


@contextmanager
def server_on_small_disk(harness: AppServerHarness) -> Iterator[Program]:
    """It writes no byte code (`-B`): a file that the limit cuts short would break every later start of ours."""
    command = harness.command()
    with stdio_server(harness, command=[command[0], "-B", *command[1:]]) as program:
        yield program


def make_room(program: Program) -> None:
    _, hard = resource.prlimit(program.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(program.pid, resource.RLIMIT_FSIZE, (hard, hard))


def test_a_disk_that_is_full_before_a_turn(harness: AppServerHarness) -> None:
    harness.model.enqueue_assistant_message("Before.")
    with server_on_small_disk(harness) as program:
        client = program.client
        client.initialize()
        thread = client.start_thread()
        client.run(thread, "before")
        kept = client.turns(thread)
        fill(program)
        for method, params in (
            ("turn/start", start_params(thread)),
            ("thread/start", {}),
            ("thread/name/set", {"threadId": thread, "name": "x"}),
            ("thread/fork", {"threadId": thread}),
        ):
            error = client.failure(method, params)
            assert error["code"] == -32603, method
            assert error["data"] == {"kind": "full"}, method
            assert "no space left" in error["message"]
            assert "make room" in error["message"]
        # What is there can be read.
        assert client.turns(thread) == kept
        assert [each["id"] for each in client.call("thread/list")["data"]] == [thread]
        make_room(program)
        harness.model.enqueue_assistant_message("After.")
        assert client.run(thread, "after")["status"] == "completed"
        assert client.turns(thread)[:1] == kept
        assert [turn["items"][-1]["text"] for turn in client.turns(thread)] == ["Before.", "After."]
        page = client.call("thread/events/list", {"threadId": thread})
        assert [event["seq"] for event in page["data"]] == list(range(1, page["lastSeq"] + 1))
        assert "Traceback" not in program.stderr


def test_a_disk_that_fills_up_in_the_middle_of_a_turn(harness: AppServerHarness) -> None:
    gate = threading.Event()
    harness.model.enqueue_assistant_message("Half of it.", deltas=["Half ", "of it."], gate=gate, gate_after=3)
    with server_on_small_disk(harness) as program:
        client = program.client
        client.initialize()
        thread = client.start_thread()
        turn = client.begin(thread, "said before")
        client.wait_for("item/agentMessage/delta")
        fill(program)
        gate.set()
        ended = client.turn_end(turn)
        assert ended["status"] == "failed"
        assert "no space left" in ended["error"]["message"]
        assert client.of("error")[-1]["params"]["willRetry"] is False
        assert client.call("thread/read", {"threadId": thread})["thread"]["status"] == {"type": "systemError"}
        make_room(program)
        harness.model.enqueue_assistant_message("Whole.")
        assert client.run(thread, "again")["status"] == "completed"
        first, second = client.turns(thread)
        assert first["id"] == turn
        assert first["status"] in ("interrupted", "failed")
        assert first["items"][0]["content"][0]["text"] == "said before"
        assert second["items"][-1]["text"] == "Whole."
    with server_on_small_disk(harness) as program:
        client = program.client
        client.initialize()
        assert [each["status"] for each in client.turns(thread)] == [first["status"], "completed"]


def test_a_turn_whose_model_is_silent_ends_when_the_disk_is_full(harness: AppServerHarness) -> None:
    """It does not wait for its next event: whatever the model still says could not be stored."""
    never = threading.Event()
    harness.model.enqueue_assistant_message("Half of it.", deltas=["Half ", "of it."], gate=never, gate_after=3)
    with server_on_small_disk(harness) as program:
        client = program.client
        client.initialize()
        thread = client.start_thread()
        turn = client.begin(thread, "said before")
        client.wait_for("item/agentMessage/delta")
        fill(program)
        assert client.failure("thread/name/set", {"threadId": thread, "name": "x"})["data"] == {"kind": "full"}
        # The refusal comes when the turn is over: whoever looks after it sees no turn that runs.
        assert client.call("thread/read", {"threadId": thread})["thread"]["status"] == {"type": "systemError"}
        ended = client.turn_end(turn)
        assert ended["status"] == "failed"
        assert "no space left" in ended["error"]["message"]
        make_room(program)
        harness.model.enqueue_assistant_message("Whole.")
        assert client.run(thread, "again")["status"] == "completed"
        assert [each["status"] for each in client.turns(thread)] == ["interrupted", "completed"]
    never.set()


def test_a_client_that_follows_the_numbers_through_a_full_disk_misses_nothing(harness: AppServerHarness) -> None:
    """What cannot be kept is told without a number, so the cursor stays at the last event that is."""
    with server_on_small_disk(harness) as program:
        client = program.client
        client.initialize()
        thread = client.start_thread()
        cursor, replayed = 0, []
        for _ in range(2):
            gate = threading.Event()
            harness.model.enqueue_function_call("exec_command", {"cmd": "echo kept", "login": False})
            harness.model.enqueue_assistant_message("Half of it.", deltas=["Half ", "of it."], gate=gate, gate_after=3)
            heard = len(client.told)
            turn = client.begin(thread, "until it is full")
            client.wait_for("item/agentMessage/delta", of_turn(turn))
            fill(program)
            gate.set()
            assert client.turn_end(turn)["status"] == "failed"
            unkept = [each["method"] for each in client.told[heard:] if "seq" not in each]
            assert unkept == ["thread/status/changed", "error", "turn/completed"]
            cursor = max(each["seq"] for each in client.told if "seq" in each)
            # Where it stands is told alike by everything that tells it.
            page = client.call("thread/events/list", {"threadId": thread, "afterSeq": cursor})
            assert (page["data"], page["lastSeq"], page["hasMore"]) == ([], cursor, False)
            assert client.call("thread/resume", {"threadId": thread})["seq"] == cursor
            assert client.failure("turn/start", start_params(thread))["data"] == {"kind": "full"}  # a claim that fails
            assert client.failure("thread/events/list", {"threadId": thread, "afterSeq": cursor + 5})
            make_room(program)
            harness.model.enqueue_assistant_message("Whole.")
            assert client.run(thread, "again")["status"] == "completed"
            replayed += numbered(client.call("thread/events/list", {"threadId": thread, "afterSeq": cursor})["data"])
            assert replayed[-1][1] == "turn/completed"
        told = numbered(client.told)
        assert [seq for seq, _ in told] == list(range(1, len(told) + 1)), "none twice, none missing"
        page = client.call("thread/events/list", {"threadId": thread, "limit": 1000})
        assert numbered(page["data"]) == told
        assert set(replayed) <= set(told)


def of_turn(turn: str) -> Callable[[Json], bool]:
    return lambda params: bool(params["turnId"] == turn)


def numbered(messages: Sequence[Json]) -> list[tuple[int, str]]:
    """The events that are kept, in the order in which they came."""
    return [(each["seq"], each["method"]) for each in messages if "seq" in each and "delta" not in each["params"]]


def start_params(thread: str) -> Json:
    return {"threadId": thread, "input": [{"type": "text", "text": "now"}]}


def test_a_home_on_a_disk_that_is_full_from_the_start(harness: AppServerHarness) -> None:
    with server_on_small_disk(harness) as program:
        fill(program)
        client = program.client
        client.initialize()
        error = client.failure("thread/start")
        assert error["data"] == {"kind": "full"}
        make_room(program)
        assert client.start_thread()
