"""No room left: a clear error, nothing that was there is lost, and all is well when there is room again."""

from __future__ import annotations

import resource

from system.app.app_program import Program, stdio_server
from treadle.testing import AppServerHarness

LITTLE = 4096  # no file may grow beyond it


def fill(program: Program) -> None:
    """From now on the server cannot write more than a page to any file, as on a full disk."""
    _, hard = resource.prlimit(program.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(program.pid, resource.RLIMIT_FSIZE, (LITTLE, hard))


def make_room(program: Program) -> None:
    _, hard = resource.prlimit(program.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(program.pid, resource.RLIMIT_FSIZE, (hard, hard))


def test_a_disk_that_is_full_before_a_turn(harness: AppServerHarness) -> None:
    harness.model.enqueue_assistant_message("Before.")
    with stdio_server(harness) as program:
        client = program.client
        client.initialize()
        thread = client.start_thread()
        client.run(thread, "before")
        kept = client.turns(thread)
        fill(program)
        for method, params in (
            ("turn/start", {"threadId": thread, "input": [{"type": "text", "text": "now"}]}),
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
    import threading

    gate = threading.Event()
    harness.model.enqueue_assistant_message("Half of it.", deltas=["Half ", "of it."], gate=gate, gate_after=3)
    with stdio_server(harness) as program:
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
    with stdio_server(harness) as program:
        client = program.client
        client.initialize()
        assert [each["status"] for each in client.turns(thread)] == [first["status"], "completed"]


def test_a_home_on_a_disk_that_is_full_from_the_start(harness: AppServerHarness) -> None:
    with stdio_server(harness) as program:
        fill(program)
        client = program.client
        client.initialize()
        error = client.failure("thread/start")
        assert error["data"] == {"kind": "full"}
        make_room(program)
        assert client.start_thread()
