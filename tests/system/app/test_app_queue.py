"""`thread/queue/*`: what waits, when it is sent, and what is refused."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from treadle.agent import MAX_QUEUED, PendingInput
from treadle.errors import RpcError
from treadle.testing import AppServerHarness, HarnessClient

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

NOBODY = "01a1dcbc-6c44-7ea1-8238-647d4750d13d"  # a thread id that is in no home


def text(words: str) -> list[Json]:
    return [{"type": "text", "text": words}]


class Queue:
    """The queue of one thread, as a client sees it."""

    def __init__(self, harness: AppServerHarness, client: HarnessClient, thread: str = "") -> None:
        self.harness = harness
        self.client = client
        self.thread = thread
        self.gate = threading.Event()

    async def ask(self, verb: str, **params: Any) -> Json:
        return await self.client.request(f"thread/queue/{verb}", {"threadId": self.thread, **params})

    async def refusal(self, verb: str, **params: Any) -> str:
        with pytest.raises(RpcError) as refused:
            await self.ask(verb, **params)
        assert refused.value.code == -32600
        return refused.value.message

    async def add(self, words: str) -> str:
        answer = await self.ask("add", input=text(words), clientUserMessageId=f"id of {words}")
        queued_id: str = answer["queuedSubmission"]["id"]
        return queued_id

    async def waiting(self, **params: Any) -> list[str]:
        return [each["input"][0]["text"] for each in (await self.ask("list", **params))["data"]]

    async def begin_held(self) -> str:
        """A turn that has asked the model, and goes on until `gate` is set."""
        asked = len(self.harness.model.requests())
        self.gate.clear()
        self.harness.model.enqueue_assistant_message("Held.", gate=self.gate)
        turn = await self.client.request("turn/start", {"threadId": self.thread, "input": text("held")})
        await self.harness.model.arrived(asked + 1)
        turn_id: str = turn["turn"]["id"]
        return turn_id

    async def interrupt(self, turn: str) -> None:
        await self.client.request("turn/interrupt", {"threadId": self.thread, "turnId": turn})
        assert (await self.client.turn_end(turn))["turn"]["status"] == "interrupted"
        self.gate.set()

    async def ended(self, count: int) -> None:
        """Until that many turns have ended, over the life of the client."""
        await self.client.wait_for("turn/completed", lambda _: len(self.client.told("turn/completed")) >= count)

    @property
    def heard(self) -> list[str | None]:
        """What the model was asked last in each request."""
        return [request.last_user_text for request in self.harness.model.requests()]


async def fresh(harness: AppServerHarness, client: HarnessClient, **params: Any) -> Queue:
    return Queue(harness, client, (await client.request("thread/start", params))["thread"]["id"])


def answers(harness: AppServerHarness, count: int) -> None:
    for number in range(count):
        harness.model.enqueue_assistant_message(f"Answer {number}.")


async def test_what_is_added_to_an_idle_thread_is_sent_at_once(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        queue = await fresh(harness, client)
        answers(harness, 1)
        before = len(client.messages)
        await queue.add("hello")
        await queue.ended(1)
        methods = [message["method"] for message in client.messages[before:]]
        assert methods[:4] == [*["thread/queue/changed"] * 2, "thread/status/changed", "turn/started"]
        (item,) = [each["params"]["item"] for each in client.told("item/completed")][:1]
        assert (item["content"][0]["text"], item["clientId"]) == ("hello", "id of hello")
        assert await queue.waiting() == []


async def test_messages_are_sent_one_after_the_other_as_they_are_then(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        queue = await fresh(harness, client)
        await queue.begin_held()
        ids = {words: await queue.add(words) for words in ("one", "two", "three", "four")}
        answer = await queue.ask("update", queuedSubmissionId=ids["two"], input=text("two, but better"))
        assert answer["queuedSubmission"]["clientUserMessageId"] == "id of two"
        assert await queue.ask("delete", queuedSubmissionId=ids["three"]) == {"deleted": True}
        assert await queue.ask("delete", queuedSubmissionId=ids["three"]) == {"deleted": False}
        order = [ids[words] for words in ("four", "one", "two")]
        assert await queue.ask("reorder", queuedSubmissionIds=order) == {}
        assert await queue.waiting() == ["four", "one", "two, but better"]
        assert len(client.told("thread/queue/changed")) == 7
        answers(harness, 3)
        queue.gate.set()
        await queue.ended(4)
        assert queue.heard == ["held", "four", "one", "two, but better"]
        assert await queue.waiting() == []


async def test_by_pages(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        queue = await fresh(harness, client)
        await queue.interrupt(await queue.begin_held())
        for number in range(5):
            await queue.add(f"{number}")
        page = await queue.ask("list", limit=2)
        assert ([each["input"][0]["text"] for each in page["data"]], page["nextCursor"]) == (["0", "1"], "2")
        page = await queue.ask("list", limit=3, cursor=page["nextCursor"])
        assert ([each["input"][0]["text"] for each in page["data"]], page["nextCursor"]) == (["2", "3", "4"], None)
        assert await queue.waiting(limit=0) == ["0"]
        assert await queue.waiting(cursor="77") == []
        assert await queue.refusal("list", cursor="x") == "invalid queue pagination cursor: x"


# --- when it is sent ---


async def test_an_interrupt_makes_the_queue_wait_until_somebody_goes_on(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        queue = await fresh(harness, client)
        turn = await queue.begin_held()
        await queue.add("one")
        await queue.interrupt(turn)
        await queue.add("two")
        assert await queue.waiting() == ["one", "two"]
        answers(harness, 3)
        await client.run_turn(queue.thread, "go on")
        await queue.ended(4)
        assert queue.heard == ["held", "go on", "one", "two"]


async def test_a_queue_that_waits_can_be_started(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        queue = await fresh(harness, client)
        await queue.interrupt(await queue.begin_held())
        for words in ("one", "two", "three"):
            await queue.add(words)
        second = (await queue.ask("list"))["data"][1]["id"]
        answers(harness, 3)
        turn = (await queue.ask("start", queuedSubmissionId=second))["turn"]
        assert (turn["status"], turn["items"]) == ("inProgress", [])
        await queue.ended(4)
        assert queue.heard == ["held", "two", "one", "three"]
        assert client.told("turn/completed")[1]["params"]["turn"]["id"] == turn["id"]


async def test_a_turn_that_fails_does_not_stop_the_queue(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        queue = await fresh(harness, client)
        await queue.begin_held()
        await queue.add("bad")
        await queue.add("good")
        harness.model.enqueue_error(400, {"error": {"message": "no"}})
        answers(harness, 1)
        queue.gate.set()
        await queue.ended(3)
        statuses = [each["params"]["turn"]["status"] for each in client.told("turn/completed")]
        assert statuses == ["completed", "failed", "completed"]
        assert queue.heard == ["held", "bad", "good"]


async def test_what_the_user_says_comes_before_the_goal(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        queue = await fresh(harness, client)
        await queue.begin_held()
        await queue.add("first this")
        await client.request("thread/goal/set", {"threadId": queue.thread, "objective": "weave"})
        answers(harness, 1)
        harness.model.enqueue_function_call("update_goal", {"status": "complete"})
        answers(harness, 1)
        queue.gate.set()
        await queue.ended(3)
        assert queue.heard[:2] == ["held", "first this"]
        assert len(queue.heard) == 4


async def test_a_thread_that_is_not_in_memory_keeps_its_queue(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        queue = await fresh(harness, client)
        answers(harness, 1)
        await client.run_turn(queue.thread, "hi")
    async with harness.connect() as client:
        queue = Queue(harness, client, queue.thread)
        await queue.add("one")
        await queue.add("two")
        assert await queue.waiting() == ["one", "two"]
        assert await queue.refusal("start") == "resume the thread before starting a queued message"
        assert client.messages == []
    async with harness.connect() as client:
        queue = Queue(harness, client, queue.thread)
        assert await queue.waiting() == ["one", "two"]
        answers(harness, 2)
        await client.request("thread/resume", {"threadId": queue.thread})
        await queue.ended(2)
        assert queue.heard == ["hi", "one", "two"]


async def test_a_queue_that_waits_after_an_interrupt_does_so_in_the_next_server(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        queue = await fresh(harness, client)
        turn = await queue.begin_held()
        await queue.add("one")
        await queue.interrupt(turn)
    async with harness.connect() as client:
        queue = Queue(harness, client, queue.thread)
        await client.request("thread/resume", {"threadId": queue.thread})
        answers(harness, 2)
        await client.run_turn(queue.thread, "go on")
        await queue.ended(2)
        assert queue.heard == ["held", "go on", "one"]


async def test_a_server_that_ends_sends_no_more(harness: AppServerHarness) -> None:
    async with harness.server() as server, harness.connect(server=server) as client:
        queue = await fresh(harness, client)
        turn = await queue.begin_held()
        await queue.add("for the next server")
        drained = asyncio.ensure_future(server.drain())
        await asyncio.sleep(0)
        queue.gate.set()
        await drained
        assert (await client.turn_end(turn))["turn"]["status"] == "completed"
    async with harness.connect() as client:
        queue = Queue(harness, client, queue.thread)
        assert await queue.waiting() == ["for the next server"]
        answers(harness, 1)
        await client.request("thread/resume", {"threadId": queue.thread})
        await queue.ended(1)
        assert queue.heard == ["held", "for the next server"]


async def test_a_message_on_its_way_waits_no_longer(harness: AppServerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its turn has begun and has not shown it yet: it can be neither changed nor sent a second time."""
    shown = asyncio.Event()
    take = PendingInput.take

    async def later(pending: PendingInput, **more: Any) -> bool:
        await shown.wait()
        return await take(pending, **more)

    async with harness.connect() as client:
        queue = await fresh(harness, client)
        monkeypatch.setattr(PendingInput, "take", later)
        answers(harness, 1)
        sent = await queue.add("on its way")
        await client.wait_for("turn/started")
        assert await queue.waiting() == []
        assert await queue.ask("delete", queuedSubmissionId=sent) == {"deleted": False}
        assert "not found" in await queue.refusal("update", queuedSubmissionId=sent, input=text("x"))
        assert await queue.refusal("start") == "queue is empty"
        shown.set()
        await queue.ended(1)
        assert queue.heard == ["on its way"]


# --- what is refused ---


async def test_a_queue_is_bounded(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        queue = await fresh(harness, client)
        await queue.interrupt(await queue.begin_held())
        for number in range(MAX_QUEUED):
            await queue.add(f"{number}")
        refused = await queue.refusal("add", input=text("one too many"), clientUserMessageId="x")
        assert refused.startswith(f"queue cannot contain more than {MAX_QUEUED} submissions")
        assert len(await queue.waiting(limit=1000)) == MAX_QUEUED


async def test_refusals(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        queue = await fresh(harness, client)
        assert await queue.refusal("start") == "queue is empty"
        nothing = "only user input can be added to the user-message queue"
        assert await queue.refusal("add", input=[], clientUserMessageId="x") == nothing
        turn = await queue.begin_held()
        one, two = await queue.add("one"), await queue.add("two")
        assert await queue.refusal("update", queuedSubmissionId=one, input=[]) == nothing
        for ids in ([one], [one, one], [one, two, two], [one, "x"], []):
            refused = await queue.refusal("reorder", queuedSubmissionIds=ids)
            assert refused == "queue reorder must include every queued submission exactly once"
        missing = "queued submission not found: x"
        assert await queue.refusal("update", queuedSubmissionId="x", input=text("x")) == missing
        assert await queue.refusal("start", queuedSubmissionId="x") == missing
        for which in ({}, {"queuedSubmissionId": two}):
            assert await queue.refusal("start", **which) == "thread already has an active or pending turn"
        assert await queue.waiting() == ["one", "two"]
        await queue.interrupt(turn)


@pytest.mark.parametrize(
    ("verb", "params"),
    [
        ("add", {"input": text("x"), "clientUserMessageId": "x"}),
        ("list", {}),
        ("update", {"queuedSubmissionId": "x", "input": text("x")}),
        ("delete", {"queuedSubmissionId": "x"}),
        ("reorder", {"queuedSubmissionIds": []}),
        ("start", {}),
    ],
)
async def test_threads_without_a_queue(harness: AppServerHarness, verb: str, params: Json) -> None:
    async with harness.connect() as client:
        ephemeral = await fresh(harness, client, ephemeral=True)
        assert await ephemeral.refusal(verb, **params) == (
            f"ephemeral thread does not support queued submissions: {ephemeral.thread}"
        )
        nobody = Queue(harness, client, NOBODY)
        assert await nobody.refusal(verb, **params) == f"no rollout found for thread id {NOBODY}"
        archived = await fresh(harness, client)
        answers(harness, 1)
        await client.run_turn(archived.thread, "hi")
        await client.request("thread/archive", {"threadId": archived.thread})
        if verb != "start":
            assert "is archived" in await archived.refusal(verb, **params)
