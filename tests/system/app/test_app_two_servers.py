"""Two server processes on one home: each sees what the other wrote, and neither spoils it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kit.app_client import AppClient
from kit.app_program import Program, stdio_server
from kit.wire_client import Json
from treadle.testing import AppServerHarness
from unit.store.pause import stopped


@contextmanager
def two(harness: AppServerHarness) -> Iterator[tuple[AppClient, AppClient]]:
    with stdio_server(harness, log="first") as first, stdio_server(harness, log="second") as second:
        for program in (first, second):
            program.client.initialize()
        yield first.client, second.client
        for program in (first, second):
            _end(program)


def _end(program: Program) -> None:
    program.hang_up()
    program.client.read_to_end()
    assert program.wait() == 0
    assert "Traceback" not in program.stderr, program.stderr


def held(harness: AppServerHarness) -> threading.Event:
    gate = threading.Event()
    harness.model.enqueue_assistant_message("Held.", deltas=["He", "ld."], gate=gate, gate_after=3)
    return gate


def test_turns_on_different_threads_at_the_same_time(harness: AppServerHarness) -> None:
    harness.model._on_empty = lambda request: f"About {request.last_user_text}."
    with two(harness) as (one, other):
        threads = {client: [client.start_thread() for _ in range(3)] for client in (one, other)}
        for round_number in range(3):
            begun = [
                (client, client.begin(thread, f"{thread} {round_number}"))
                for number in range(3)
                for client in (one, other)
                for thread in (threads[client][number],)
            ]
            for client, turn in begun:
                assert client.turn_end(turn)["status"] == "completed"
        every = {thread for mine in threads.values() for thread in mine}
        for client in (one, other):
            assert {thread["id"] for thread in client.call("thread/list")["data"]} == every
            for thread in every:
                texts = [turn["items"][-1]["text"] for turn in client.turns(thread)]
                assert texts == [f"About {thread} {number}." for number in range(3)]


def test_one_thread_is_worked_on_by_one_server_at_a_time(harness: AppServerHarness) -> None:
    gate = held(harness)
    with two(harness) as (one, other):
        thread = one.start_thread()
        turn = one.begin(thread, "mine")
        one.wait_for("item/agentMessage/delta")
        (seen,) = other.call("thread/resume", {"threadId": thread})["thread"]["turns"]
        assert seen["status"] == "inProgress"
        given = {"threadId": thread, "input": [{"type": "text", "text": "mine, too"}]}
        error = other.failure("turn/start", given)
        assert error["code"] == -32603
        assert error["data"] == {"kind": "claimed"}
        assert "another server (process" in error["message"]
        gate.set()
        assert one.turn_end(turn)["status"] == "completed"
        # Now they take turns; each goes on from what the other has done.
        for number, client in enumerate((other, one, other, one)):
            harness.model.enqueue_assistant_message(f"Answer {number}.")
            assert client.run(thread, f"question {number}")["status"] == "completed"
            said = [item for item in harness.model.requests()[-1].input if item.get("role") == "user"]
            assert len(said) == number + 2
        for client in (one, other):
            turns = client.turns(thread)
            assert [turn["status"] for turn in turns] == ["completed"] * 5
            assert [turn["items"][-1]["text"] for turn in turns] == ["Held.", *(f"Answer {n}." for n in range(4))]
            page = client.call("thread/events/list", {"threadId": thread, "limit": 1000})
            assert [event["seq"] for event in page["data"]] == list(range(1, page["lastSeq"] + 1))


def test_what_the_other_has_changed(harness: AppServerHarness) -> None:
    with two(harness) as (one, other):
        harness.model.enqueue_assistant_message("Hello.")
        thread = one.start_thread()
        one.run(thread)
        other.call("thread/name/set", {"threadId": thread, "name": "named by the other"})
        harness.model.enqueue_assistant_message("Again.")
        one.run(thread, "again")
        for client in (one, other):
            assert client.call("thread/read", {"threadId": thread})["thread"]["name"] == "named by the other"
        other.call("thread/metadata/update", {"threadId": thread, "gitInfo": {"branch": "topic"}})
        harness.model.enqueue_assistant_message("Once more.")
        one.run(thread, "once more")
        for client in (one, other):
            assert client.call("thread/read", {"threadId": thread})["thread"]["gitInfo"]["branch"] == "topic"
        other.call("thread/archive", {"threadId": thread})
        assert one.call("thread/list")["data"] == []
        assert [each["id"] for each in one.call("thread/list", {"archived": True})["data"]] == [thread]
        one.call("thread/unarchive", {"threadId": thread})
        assert [each["id"] for each in other.call("thread/list")["data"]] == [thread]
        other.call("thread/delete", {"threadId": thread})
        assert one.call("thread/list")["data"] == []


def test_a_thread_under_work_is_not_changed_behind_its_back(harness: AppServerHarness) -> None:
    gate = held(harness)
    with two(harness) as (one, other):
        thread = one.start_thread()
        turn = one.begin(thread)
        one.wait_for("item/agentMessage/delta")
        for method, params in (
            ("thread/name/set", {"name": "no"}),
            ("thread/metadata/update", {"gitInfo": {"branch": "no"}}),
            ("thread/archive", {}),
            ("thread/delete", {}),
            ("thread/resume", {"model": "another-model"}),
        ):
            error = other.failure(method, {"threadId": thread, **params})
            assert error["data"] == {"kind": "claimed"}, method
            assert "another server" in error["message"]
        # Looking is always possible, also while the other writes.
        assert other.call("thread/read", {"threadId": thread})["thread"]["id"] == thread
        assert other.turns(thread)[0]["status"] == "inProgress"
        fork = other.call("thread/fork", {"threadId": thread})["thread"]
        assert [each["status"] for each in fork["turns"]] == ["interrupted"]
        gate.set()
        assert one.turn_end(turn)["status"] == "completed"
        other.call("thread/name/set", {"threadId": thread, "name": "yes"})
        assert other.call("thread/read", {"threadId": thread})["thread"]["name"] == "yes"


def test_a_server_that_was_killed_does_not_keep_its_threads(harness: AppServerHarness) -> None:
    held(harness)
    with stdio_server(harness, log="first") as first, stdio_server(harness, log="second") as second:
        for program in (first, second):
            program.client.initialize()
        thread = first.client.start_thread()
        first.client.begin(thread)
        first.client.wait_for("item/agentMessage/delta")
        first.kill()
        other = second.client
        assert [turn["status"] for turn in other.turns(thread)] == ["interrupted"]
        other.call("thread/resume", {"threadId": thread})
        harness.model.enqueue_assistant_message("Taken over.")
        assert other.run(thread)["status"] == "completed"
        assert [turn["status"] for turn in other.turns(thread)] == ["interrupted", "completed"]


def everything(client: AppClient, thread: str) -> tuple[list[Json], Json]:
    return client.turns(thread), client.call("thread/events/list", {"threadId": thread, "limit": 1000})


@pytest.mark.own_file
def test_a_server_that_was_stopped_past_its_claim_spoils_nothing(harness: AppServerHarness) -> None:
    gate = held(harness)
    with stdio_server(harness, log="first") as first, stdio_server(harness, log="second") as second:
        one, other = first.client, second.client
        for program in (first, second):
            program.client.initialize()
        thread = one.start_thread()
        turn = one.begin(thread, "mine")
        one.wait_for("item/agentMessage/delta")
        with stopped(first.pid, harness.home / "run") as pause:
            pause.pass_lease()
            other.call("thread/resume", {"threadId": thread})
            harness.model.enqueue_assistant_message("Taken over.")
            assert other.run(thread, "theirs")["status"] == "completed"
            written = everything(other, thread)
        gate.set()
        failed = one.turn_end(turn)
        assert failed["status"] == "failed"
        assert f"another server (process {second.pid}) has taken over thread {thread}" in failed["error"]["message"]
        assert one.of("error")[-1]["params"]["error"] == failed["error"]
        assert one.of("thread/status/changed")[-1]["params"]["status"]["type"] == "systemError"
        # Nothing that the second wrote is lost or changed, and the first says so when it is asked.
        assert everything(other, thread) == everything(one, thread) == written
        resumed = one.call("thread/resume", {"threadId": thread})
        assert [each["status"] for each in resumed["thread"]["turns"]] == ["interrupted", "completed"]
        assert resumed["seq"] == written[1]["lastSeq"]
        fork = one.call("thread/fork", {"threadId": thread})["thread"]
        assert [each["items"][-1].get("text") for each in fork["turns"]][1:] == ["Taken over."]
        # It is as good as ever, for this thread and for others.
        harness.model.enqueue_assistant_message("Mine again.")
        assert one.run(thread, "again")["status"] == "completed"
        said = [item["content"][0]["text"] for item in harness.model.requests()[-1].input if item.get("role") == "user"]
        assert said[-3:] == ["mine", "theirs", "again"]
        assert [each["status"] for each in other.turns(thread)] == ["interrupted", "completed", "completed"]
        for program in (first, second):
            _end(program)
