"""The cursor: numbers without gaps, what was missed told again, and clients that come back in the middle of an item."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from treadle.agent.thread import thread as thread_module
from treadle.errors import RpcError
from treadle.server import AppServer
from treadle.store import PruneEvents
from treadle.testing import AppServerHarness, HarnessClient, MockModel, ToolCall, commit, replies

pytestmark = pytest.mark.anyio

Json = dict[str, Any]


async def started(client: HarnessClient, **params: Any) -> str:
    thread_id: str = (await client.request("thread/start", params))["thread"]["id"]
    return thread_id


async def begin(client: HarnessClient, thread: str, text: str = "go") -> str:
    given = {"threadId": thread, "input": [{"type": "text", "text": text}]}
    turn_id: str = (await client.request("turn/start", given))["turn"]["id"]
    return turn_id


def is_delta(message: Json) -> bool:
    return str(message["method"]).endswith(("Delta", "/delta", "summaryPartAdded"))


def of_thread(messages: Sequence[Json], thread: str) -> list[Json]:
    return [
        each
        for each in messages
        if each["params"].get("threadId", each["params"].get("thread", {}).get("id")) == thread
    ]


async def replayed(client: HarnessClient, thread: str, after: int = 0, limit: int = 200) -> list[Json]:
    """All events after a number, page by page."""
    found: list[Json] = []
    while True:
        page = await client.request("thread/events/list", {"threadId": thread, "afterSeq": after, "limit": limit})
        found += page["data"]
        assert len(page["data"]) <= limit
        if not page["hasMore"]:
            return found
        after = page["data"][-1]["seq"]


async def busy_thread(harness: AppServerHarness, client: HarnessClient) -> str:
    """Three turns with messages, commands and a name."""
    thread = await started(client)
    for number in range(3):
        harness.model.enqueue_function_call("exec_command", {"cmd": f"echo {number}", "login": False})
        harness.model.enqueue_assistant_message(f"Answer {number}.", deltas=list(f"Answer {number}."))
        await client.run_turn(thread, f"question {number}")
    await client.request("thread/name/set", {"threadId": thread, "name": "busy"})
    await client.wait_for("thread/name/updated")
    return thread


# --- numbers ---


async def test_numbers_have_no_gaps_and_deltas_follow(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        thread = await busy_thread(harness, client)
        messages = of_thread(client.messages, thread)
        numbered = [message["seq"] for message in messages if not is_delta(message)]
        assert numbered == list(range(1, len(numbered) + 1))
        last = 0
        for message in messages:
            if is_delta(message):
                assert message["seq"] == last
            last = message["seq"]


async def test_the_replay_is_what_was_told(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        thread = await busy_thread(harness, client)
        told = [message for message in of_thread(client.messages, thread) if not is_delta(message)]
        assert await replayed(client, thread) == told
        for limit in (1, 7, len(told), 1_000):
            assert await replayed(client, thread, limit=limit) == told
        for after in (1, 5, len(told) - 1, len(told)):
            assert await replayed(client, thread, after) == told[after:]


async def test_a_cursor_that_is_ahead_is_refused(harness: AppServerHarness) -> None:
    """An empty page would let the client wait at a number that a later event takes."""
    async with harness.connect() as client:
        thread = await busy_thread(harness, client)
        last = client.messages[-1]["seq"]
        for after in (last + 1, last + 100):
            with pytest.raises(RpcError, match=f"beyond the last event of this thread \\({last}\\)") as refusal:
                await client.request("thread/events/list", {"threadId": thread, "afterSeq": after})
            assert refusal.value.data == {"kind": "cursorAhead", "lastSeq": last}
    async with harness.connect() as client:  # the same for one that is not in memory
        with pytest.raises(RpcError, match="go on from the seq"):
            await client.request("thread/events/list", {"threadId": thread, "afterSeq": last + 1})


async def test_only_what_is_kept_carries_a_number(harness: AppServerHarness) -> None:
    """Archived, closed, not loaded, what a client is told when it comes in: heard once, and in no replay."""
    async with harness.server() as server, harness.connect(server=server) as client:
        thread = await busy_thread(harness, client)
        other = await started(client)
        for method in ("thread/archive", "thread/unarchive", "thread/resume"):
            await client.request(method, {"threadId": thread})
        await client.request("thread/unsubscribe", {"threadId": other})
        await server.threads.unload_idle(2**62)
        await client.wait_for("thread/closed")
        await client.request("thread/name/set", {"threadId": other, "name": "not loaded"})
        await client.request("thread/delete", {"threadId": other})
        for each in (thread, other):
            numbers = [told["seq"] for told in of_thread(client.messages, each) if "seq" in told and not is_delta(told)]
            assert numbers == list(range(1, len(numbers) + 1))
        unkept = {told["method"] for told in client.messages if "seq" not in told}
        assert unkept >= {"thread/archived", "thread/unarchived", "thread/closed", "thread/deleted"}
        kept = await replayed(client, thread)
        assert kept == [told for told in of_thread(client.messages, thread) if "seq" in told and not is_delta(told)]


async def test_numbers_go_on_after_a_restart_and_a_resume(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        thread = await busy_thread(harness, client)
        last = client.messages[-1]["seq"]
    async with harness.connect() as client:
        events = await client.request("thread/events/list", {"threadId": thread, "afterSeq": last - 1})
        assert [event["seq"] for event in events["data"]] == [last]
        assert events["openItems"] == []
        resumed = await client.request("thread/resume", {"threadId": thread})
        assert resumed["seq"] == last
        harness.model.enqueue_assistant_message("More.")
        await client.run_turn(thread, "more")
        numbered = [
            each["seq"]
            for each in of_thread(client.messages, thread)
            if each.get("seq", 0) > last and not is_delta(each)
        ]
        assert numbered == list(range(last + 1, last + 1 + len(numbered)))


async def test_threads_have_numbers_of_their_own(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        first, second = await started(client), await started(client)
        for thread in (first, second):
            assert [event["seq"] for event in await replayed(client, thread)] == [1]


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"threadId": "nope"}, "invalid thread id"),
        ({"threadId": "01a1dcbc-6c44-7ea1-8238-647d4750d13d"}, "thread not loaded"),
        ({"threadId": None, "afterSeq": -1}, "Invalid request"),
        ({"threadId": None, "limit": 0}, "Invalid request"),
        ({"threadId": None, "limit": 1_001}, "Invalid request"),
        ({"threadId": None, "afterSeq": "1"}, "Invalid request"),
    ],
)
async def test_bad_questions(harness: AppServerHarness, params: Json, says: str) -> None:
    async with harness.connect() as client:
        thread = await started(client)
        with pytest.raises(RpcError, match=says):
            await client.request("thread/events/list", {**params, "threadId": params["threadId"] or thread})


# --- pruning ---


async def test_what_is_gone_is_said(harness: AppServerHarness) -> None:
    async with harness.server() as server, harness.connect(server=server) as client:
        thread = await busy_thread(harness, client)
        total = client.messages[-1]["seq"]
        await commit(await server.store(), PruneEvents(thread, 10))
        page = await client.request("thread/events/list", {"threadId": thread})
        assert (page["firstSeq"], page["lastSeq"]) == (11, total)
        assert page["data"][0]["seq"] == 11
        # From here on nothing is missing, and the client can tell.
        page = await client.request("thread/events/list", {"threadId": thread, "afterSeq": 10})
        assert page["firstSeq"] <= 10 + 1
        await commit(await server.store(), PruneEvents(thread, total))
        page = await client.request("thread/events/list", {"threadId": thread, "afterSeq": 3})
        epoch = page.pop("epoch")
        assert page == {"data": [], "firstSeq": total + 1, "lastSeq": total, "hasMore": False, "openItems": []}
        resumed = await client.request("thread/resume", {"threadId": thread})
        assert (resumed["epoch"], resumed["seq"]) == (epoch, total)
        given = {"threadId": thread, "afterSeq": total}
        assert (await client.request("thread/events/list", {**given, "epoch": epoch}))["data"] == []
        with pytest.raises(RpcError, match="thread/resume") as refused:
            await client.request("thread/events/list", {**given, "epoch": "another"})
        assert refused.value.data == {"kind": "otherEpoch", "given": "another", "epoch": epoch}
        harness.model.enqueue_assistant_message("More.")
        await client.run_turn(thread, "more")
        assert (await replayed(client, thread))[0]["seq"] == total + 1


async def test_old_events_are_pruned_by_themselves(harness: AppServerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_module, "KEPT_EVENTS", 20)
    monkeypatch.setattr(thread_module, "PRUNE_EVERY", 1)
    async with harness.connect() as client:
        thread = await busy_thread(harness, client)
        page = await client.request("thread/events/list", {"threadId": thread})
        assert page["firstSeq"] > 1
        seqs = [event["seq"] for event in page["data"]]
        assert seqs == list(range(page["firstSeq"], page["lastSeq"] + 1))
        assert len(seqs) < 25
        (*_, last) = (await client.request("thread/read", {"threadId": thread, "includeTurns": True}))["thread"][
            "turns"
        ]
        assert last["items"][-1]["text"] == "Answer 2."


# --- coming back in the middle ---


class Reader:
    """Puts a thread together from what it hears, and from what it is given when it comes back."""

    def __init__(self, thread: str) -> None:
        self.thread = thread
        self.seq = 0
        self.items: dict[str, Json] = {}
        self.done: set[str] = set()
        self.ended = False

    def hear(self, message: Json) -> None:
        params = message["params"]
        if is_delta(message):
            assert message["seq"] == self.seq, "a delta that follows something else"
            assert params["itemId"] not in self.done
            self.items[params["itemId"]]["text"] += params["delta"]
            return
        if "seq" not in message:
            return  # news for one client alone are not kept
        assert message["seq"] == self.seq + 1, "a gap"
        self.seq = message["seq"]
        if message["method"] in ("item/started", "item/completed"):
            item = params["item"]
            if message["method"] == "item/completed":
                if item["type"] == "agentMessage" and item["id"] in self.items:
                    assert self.items[item["id"]]["text"] == item["text"], "the deltas are not the text"
                self.done.add(item["id"])
            self.items[item["id"]] = dict(item)
        self.ended = self.ended or message["method"] == "turn/completed"

    def take_snapshot(self, resumed: Json) -> None:
        """From `thread/resume`."""
        self.seq = resumed["seq"]
        for turn in resumed["thread"]["turns"]:
            self.ended = turn["status"] != "inProgress"
            for item in turn["items"]:
                self.items[item["id"]] = dict(item)

    def take_page(self, page: Json) -> None:
        """From `thread/events/list`: what was missed, then the items that are under way."""
        assert page["firstSeq"] <= self.seq + 1
        for message in page["data"]:
            if message["method"] == "item/completed":  # its deltas were missed
                self.items.pop(message["params"]["item"]["id"], None)
            self.hear(message)
        if not page["hasMore"]:
            for item in page["openItems"]:
                self.items[item["id"]] = dict(item)

    @property
    def texts(self) -> list[str]:
        return [item["text"] for item in self.items.values() if item["type"] == "agentMessage"]


def many_pieces(rng: random.Random, gates: list[threading.Event]) -> tuple[MockModel, list[str]]:
    """A model that says some messages in random pieces, each with a pause until its gate is opened; the texts."""
    model = MockModel()
    texts = []
    for number in range(3):
        pieces = [f"{number}:{index} " + "é" * rng.randrange(4) for index in range(rng.randrange(1, 60))]
        texts.append("".join(pieces))
        gates.append(threading.Event())
        message = replies.message_item(f"msg_{number}", texts[-1], None)
        body = [*replies.message_events(message, pieces)]
        if number < 2:  # and goes on
            call_id = f"plan_{number}"
            plan = ToolCall("update_plan", {"plan": [{"step": "s", "status": "pending"}]}, call_id)
            body += replies.item_events(plan.item(call_id), 1)
        events = replies.stream(f"resp_{number}", body, [message], None)
        model.enqueue_sse(events, gate=gates[-1], gate_after=rng.randrange(1, len(events)))
    return model, texts


async def hear(client: HarnessClient, reader: Reader, number: int, since: int, gates: list[threading.Event]) -> None:
    """Hear at most so many messages from one place on, or all up to the end of the turn. Opens gates while it waits."""
    for _ in range(number):
        while since >= len(client.messages) and not reader.ended:
            if gates:
                gates.pop(0).set()
            client._news.clear()
            await client._news.wait()
        if reader.ended:
            return
        if of_thread([client.messages[since]], reader.thread):
            reader.hear(client.messages[since])
        since += 1


@pytest.mark.parametrize("way", ["resume", "page"])
async def test_a_client_that_is_cut_off_again_and_again_reads_everything_once(
    tmp_path_factory: pytest.TempPathFactory, way: str
) -> None:
    for seed in range(12):
        rng = random.Random(f"{way}{seed}")
        cuts = [rng.randrange(60) for _ in range(rng.randrange(6))]
        gates: list[threading.Event] = []
        model, texts = many_pieces(rng, gates)
        folder = tmp_path_factory.mktemp("cursor")
        with model, AppServerHarness(folder, model=model) as harness:
            async with asyncio.timeout(30), harness.server() as server, harness.connect(server=server) as owner:
                thread = await started(owner)
                reader = Reader(thread)
                await begin(owner, thread)
                for cut in [*cuts, 1_000_000]:
                    if not reader.ended:
                        await _visit(harness, server, reader, cut, way, gates)
                assert reader.ended, seed
                assert reader.texts == texts, seed
                read = await owner.request("thread/read", {"threadId": thread, "includeTurns": True})
                kept = [item["text"] for item in read["thread"]["turns"][0]["items"] if item["type"] == "agentMessage"]
                assert kept == texts, seed


async def _visit(
    harness: AppServerHarness, server: AppServer, reader: Reader, cut: int, way: str, gates: list[threading.Event]
) -> None:
    """Come, catch up, hear `cut` messages, and go without a word."""
    async with harness.connect(server=server) as client:
        place = _place_of_replies(client)
        if way == "resume":
            reader.take_snapshot(await client.request("thread/resume", {"threadId": reader.thread}))
        else:
            await client.request("thread/resume", {"threadId": reader.thread, "excludeTurns": True})
            more = True
            while more:
                params = {"threadId": reader.thread, "afterSeq": reader.seq, "limit": 5}
                page = await client.request("thread/events/list", params)
                reader.take_page(page)
                more = page["hasMore"]
        await hear(client, reader, cut, place[-1], gates)


def _place_of_replies(client: HarnessClient) -> list[int]:
    """How many messages had come when each reply did."""
    places: list[int] = []
    replied = client._replied

    def reply(message: Json) -> None:
        places.append(len(client.messages))
        replied(message)

    client._replied = reply  # type: ignore[method-assign]
    return places
