"""Several clients of one server: who hears what, who is asked, and what happens when one leaves or does not read."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from treadle.errors import RpcError
from treadle.server import AppServer
from treadle.testing import AppServerHarness, HarnessClient

pytestmark = pytest.mark.anyio

BROADCAST = {
    "thread/started",
    "thread/status/changed",
    "thread/archived",
    "thread/unarchived",
    "thread/deleted",
    "thread/name/updated",
    "thread/closed",
}


@asynccontextmanager
async def two(harness: AppServerHarness) -> AsyncIterator[tuple[AppServer, HarnessClient, HarnessClient]]:
    async with (
        asyncio.timeout(30),
        harness.server() as server,
        harness.connect("one", server=server) as one,
        harness.connect("two", server=server) as other,
    ):
        yield server, one, other


async def started(client: HarnessClient, **params: Any) -> str:
    thread_id: str = (await client.request("thread/start", params))["thread"]["id"]
    return thread_id


def said(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


async def begin(client: HarnessClient, thread: str, text: str = "go") -> str:
    turn = (await client.request("turn/start", {"threadId": thread, "input": said(text)}))["turn"]
    turn_id: str = turn["id"]
    return turn_id


def heard(client: HarnessClient) -> set[str]:
    return {message["method"] for message in client.messages}


# --- subscriptions ---


async def test_only_subscribers_hear_of_turns(harness: AppServerHarness) -> None:
    harness.model.enqueue_assistant_message("Hello.")
    async with two(harness) as (_, one, other):
        thread = await started(one)
        await one.run_turn(thread, "hi")
        assert {"turn/started", "item/started", "item/agentMessage/delta", "turn/completed"} <= heard(one)
        assert heard(other) == {"thread/started", "thread/status/changed"}


async def test_what_everybody_hears(harness: AppServerHarness) -> None:
    async with two(harness) as (server, one, other):
        thread = await started(one)
        await one.request("thread/name/set", {"threadId": thread, "name": "named"})
        await one.request("thread/archive", {"threadId": thread})
        await one.request("thread/unarchive", {"threadId": thread})
        await one.request("thread/resume", {"threadId": thread})
        await one.request("thread/unsubscribe", {"threadId": thread})
        await server.threads.unload_idle(2**62)
        await one.request("thread/delete", {"threadId": thread})
        assert heard(other) == BROADCAST
        assert [message["method"] for message in other.messages] == [
            message["method"] for message in one.messages if message["method"] in BROADCAST
        ]


async def test_a_second_subscriber_and_unsubscribing(harness: AppServerHarness) -> None:
    gate = threading.Event()
    harness.model.enqueue_assistant_message("first", gate=gate)
    harness.model.enqueue_assistant_message("second")
    async with two(harness) as (_, one, other):
        thread = await started(one)
        turn = await begin(one, thread)
        await harness.model.arrived(1)
        await other.request("thread/resume", {"threadId": thread})
        assert await one.request("thread/unsubscribe", {"threadId": thread}) == {"status": "unsubscribed"}
        assert await one.request("thread/unsubscribe", {"threadId": thread}) == {"status": "notSubscribed"}
        gate.set()
        await other.turn_end(turn)
        assert "turn/completed" not in heard(one)
        # Who is not subscribed may still act, and hears nothing of it.
        await begin(one, thread, "again")
        await other.wait_for("item/completed", lambda params: params["item"].get("text") == "second")
        assert "item/agentMessage/delta" not in heard(one)


async def test_opting_out_is_per_connection(harness: AppServerHarness) -> None:
    harness.model.enqueue_assistant_message("Hello.")
    async with harness.server() as server, harness.connect(server=server) as plain:
        picky = HarnessClient(server)
        capabilities = {"optOutNotificationMethods": ["item/agentMessage/delta", "thread/status/changed"]}
        await picky.request(
            "initialize", {"clientInfo": {"name": "picky", "version": "1"}, "capabilities": capabilities}
        )
        thread = await started(picky)
        await plain.request("thread/resume", {"threadId": thread})
        await picky.run_turn(thread, "hi")
        await plain.wait_for("turn/completed")
        assert not {"item/agentMessage/delta", "thread/status/changed"} & heard(picky)
        assert {"item/agentMessage/delta", "thread/status/changed"} <= heard(plain)
        picky.close()


async def test_nothing_is_told_before_initialize(harness: AppServerHarness) -> None:
    async with harness.server() as server, harness.connect(server=server) as client:
        mute = HarnessClient(server)
        await started(client)
        await client.wait_for("thread/started")
        assert mute.messages == []
        with pytest.raises(RpcError, match="Not initialized"):
            await mute.request("thread/list", {})
        mute.close()


async def test_everyone_gets_the_same_bytes(harness: AppServerHarness) -> None:
    harness.model.enqueue_assistant_message("Hello.", deltas=list("Hello."))
    async with two(harness) as (_, one, other):
        thread = await started(one)
        await other.request("thread/resume", {"threadId": thread})
        since = len(one.messages), len(other.messages)
        await one.run_turn(thread, "hi")
        await other.wait_for("turn/completed")
        assert one.messages[since[0] :] == other.messages[since[1] :]


# --- leaving ---


async def test_a_turn_goes_on_without_its_client(harness: AppServerHarness) -> None:
    gate = threading.Event()
    harness.model.enqueue_assistant_message(
        "Nobody hears this.", deltas=["Nobody ", "hears this."], gate=gate, gate_after=3
    )
    async with two(harness) as (server, one, other):
        thread = await started(one)
        turn = await begin(one, thread)
        await one.wait_for("item/agentMessage/delta")
        one.close()
        with pytest.raises(RpcError, match="closed"):
            await one.request("thread/list", {})
        running = server.threads.find(thread)._thread.turn
        assert running is not None
        gate.set()
        await running.wait()
        read = await other.request("thread/read", {"threadId": thread, "includeTurns": True})
        (kept,) = read["thread"]["turns"]
        assert (kept["id"], kept["status"]) == (turn, "completed")
        assert kept["items"][-1]["text"] == "Nobody hears this."
        events = await other.request("thread/events/list", {"threadId": thread})
        assert events["data"][-1]["method"] == "turn/completed"


# --- asking ---


def asks(harness: AppServerHarness, cmd: str = "touch asked") -> None:
    harness.model.enqueue_function_call(
        "exec_command",
        {"cmd": cmd, "login": False, "sandbox_permissions": "require_escalated", "justification": "needed"},
    )


async def test_all_subscribers_are_asked_and_the_first_answer_counts(harness: AppServerHarness) -> None:
    asks(harness)
    harness.model.enqueue_assistant_message("Done.")
    async with two(harness) as (_, one, other):
        thread = await started(one, approvalPolicy="on-request", sandbox="workspace-write", cwd=str(harness.workspace))
        await other.request("thread/resume", {"threadId": thread})
        turn = await begin(one, thread)
        method = "item/commandExecution/requestApproval"
        first, second = await one.wait_for(method), await other.wait_for(method)
        assert first == second
        other.reply(second, {"decision": "decline"})
        one.reply(first, {"decision": "accept"})
        await one.turn_end(turn)
        await other.wait_for("serverRequest/resolved", lambda params: params["requestId"] == first["id"])
        assert not (harness.workspace / "asked").exists()


async def test_who_was_not_asked_cannot_answer(harness: AppServerHarness) -> None:
    asks(harness)
    harness.model.enqueue_assistant_message("Done.")
    async with two(harness) as (_, one, other):
        thread = await started(one, approvalPolicy="on-request", sandbox="workspace-write", cwd=str(harness.workspace))
        turn = await begin(one, thread)
        asked = await one.wait_for("item/commandExecution/requestApproval")
        other.reply(asked, {"decision": "accept"})
        one.reply(asked, {"decision": "decline"})
        await one.turn_end(turn)
        assert not (harness.workspace / "asked").exists()


async def test_an_open_question_is_put_to_who_comes_later(harness: AppServerHarness) -> None:
    asks(harness)
    harness.model.enqueue_assistant_message("Done.")
    async with two(harness) as (_, one, other):
        thread = await started(
            one, approvalPolicy="on-request", sandbox="danger-full-access", cwd=str(harness.workspace)
        )
        await one.request("thread/settings/update", {"threadId": thread, "approvalPolicy": "untrusted"})
        turn = await begin(one, thread)
        asked = await one.wait_for("item/commandExecution/requestApproval")
        one.close()
        resumed = await other.request("thread/resume", {"threadId": thread})
        assert resumed["thread"]["status"] == {"type": "active", "activeFlags": ["waitingOnApproval"]}
        assert await other.wait_for("item/commandExecution/requestApproval") == asked
        other.reply(asked, {"decision": "accept"})
        done = await other.turn_end(turn)
        assert done["turn"]["status"] == "completed"
        assert (harness.workspace / "asked").exists()


async def test_a_client_that_resumes_twice_is_not_told_twice(harness: AppServerHarness) -> None:
    harness.model.enqueue_assistant_message("Hello.")
    async with two(harness) as (_, one, other):
        thread = await started(one)
        for _ in range(3):
            await other.request("thread/resume", {"threadId": thread})
        await one.run_turn(thread, "hi")
        await other.wait_for("turn/completed")
        assert len(other.told("turn/completed")) == 1


async def test_ids_of_questions_are_unique_beyond_a_server(harness: AppServerHarness) -> None:
    """A client of several servers, and a server that answers for another, can tell them apart."""
    ids: list[int] = []
    for _ in range(2):
        asks(harness)
        asks(harness)
        harness.model.enqueue_assistant_message("Done.")
        async with harness.connect() as client:
            client.answer = lambda _: {"decision": "decline"}
            thread = await started(client, approvalPolicy="on-request", sandbox="workspace-write")
            await client.run_turn(thread, "go")
            ids += [message["id"] for message in client.told("item/commandExecution/requestApproval")]
    assert len(set(ids)) == 4
    assert all(0 <= number < 2**53 for number in ids), "every JSON reader can hold it"


# --- in process ---


async def test_too_many_requests_at_once_in_process(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        thread = await started(client)
        calls = [client.request("thread/read", {"threadId": thread, "includeTurns": True}) for _ in range(3_000)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, RpcError)]
        assert len(refused) == 3_000 - 1_024
        assert {(error.code, json.dumps(error.data)) for error in refused} == {
            (-32001, '{"codexErrorInfo": "server_overloaded"}')
        }
        assert (await client.request("thread/read", {"threadId": thread}))["thread"]["id"] == thread


async def test_requests_that_wait_when_the_client_leaves(harness: AppServerHarness) -> None:
    gate = threading.Event()
    harness.model.enqueue_assistant_message("slow", gate=gate)
    async with harness.server() as server:
        async with harness.connect(server=server) as client:
            thread = await started(client)
            turn = await begin(client, thread)
            await harness.model.arrived(1)
            waiting = asyncio.ensure_future(client.request("turn/interrupt", {"threadId": thread, "turnId": turn}))
            await asyncio.sleep(0)
            client.close()
            with pytest.raises(RpcError, match="closed"):
                await waiting
        gate.set()
