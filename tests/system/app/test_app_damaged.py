"""Damage in the file of threads: the thread that it hit says so, and everything else goes on."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from treadle.errors import RpcError
from treadle.testing import AppServerHarness, HarnessClient

pytestmark = [pytest.mark.anyio, pytest.mark.own_file]


async def talked(harness: AppServerHarness, client: HarnessClient) -> str:
    thread: str = (await client.request("thread/start", {}))["thread"]["id"]
    harness.model.enqueue_assistant_message("Hello.")
    await client.run_turn(thread, "hi")
    return thread


def damage(harness: AppServerHarness, change: str, thread: str) -> None:
    connection = sqlite3.connect(harness.home / "threads.db")
    with connection:
        connection.execute(f"UPDATE {change} = ?", (thread,))
    connection.close()


def damaged_events(harness: AppServerHarness, thread: str) -> int:
    """The events that were kept first, and together: the number of the last of them."""
    connection = sqlite3.connect(harness.home / "threads.db")
    (last,) = connection.execute("SELECT min(last_seq) FROM events WHERE thread_id = ?", (thread,)).fetchone()
    connection.close()
    damage(harness, f"events SET frames = x'7b' WHERE last_seq = {last} AND thread_id", thread)
    assert isinstance(last, int)
    return last


async def two_threads(harness: AppServerHarness) -> tuple[str, str]:
    async with harness.connect() as client:
        return await talked(harness, client), await talked(harness, client)


async def refusal(client: HarnessClient, method: str, **params: Any) -> RpcError:
    with pytest.raises(RpcError) as refused:
        await client.request(method, params)
    assert refused.value.data == {"kind": "damaged"}
    assert "threads.db" in refused.value.message
    assert "Error" not in refused.value.message
    return refused.value


async def test_a_damaged_history_fails_the_turn_and_nothing_else(harness: AppServerHarness) -> None:
    hit, other = await two_threads(harness)
    damage(harness, "history SET data = x'ff' WHERE thread_id", hit)
    async with harness.connect() as client:
        for thread in (hit, other):
            await client.request("thread/resume", {"threadId": thread})
        turn = (await client.run_turn(hit, "again"))["turn"]
        assert turn["status"] == "failed"
        assert turn["error"]["message"].startswith("the thread cannot be read: ")
        assert "the model's history" in turn["error"]["message"]
        harness.model.enqueue_assistant_message("Sound.")
        assert (await client.run_turn(other, "again"))["turn"]["status"] == "completed"
        # That it failed is kept, and numbered, like the end of any turn.
        page = await client.request("thread/events/list", {"threadId": hit})
        assert page["data"][-1]["method"] == "turn/completed"
        assert page["data"][-1]["params"]["turn"] == turn
    async with harness.connect() as client:
        read = await client.request("thread/read", {"threadId": hit, "includeTurns": True})
        assert [each["status"] for each in read["thread"]["turns"]] == ["completed", "failed"]


async def test_a_damaged_item_or_event_is_refused_and_does_not_break_the_message(harness: AppServerHarness) -> None:
    hit, other = await two_threads(harness)
    damage(harness, "items SET data = x'7b' WHERE thread_id", hit)
    last = damaged_events(harness, hit)
    async with harness.connect() as client:
        await refusal(client, "thread/read", threadId=hit, includeTurns=True)
        await refusal(client, "thread/items/list", threadId=hit)
        await refusal(client, "thread/resume", threadId=hit)
        await refusal(client, "thread/events/list", threadId=hit)
        rest = await client.request("thread/events/list", {"threadId": hit, "afterSeq": last})
        assert rest["data"][0]["seq"] == last + 1
        resumed = await client.request("thread/resume", {"threadId": hit, "excludeTurns": True})
        assert resumed["seq"] == rest["lastSeq"]
        harness.model.enqueue_assistant_message("It goes on.")
        assert (await client.run_turn(hit, "again"))["turn"]["status"] == "completed"
        read = await client.request("thread/read", {"threadId": other, "includeTurns": True})
        assert len(read["thread"]["turns"]) == 1


@pytest.mark.parametrize("state", ["x'ff'", "x'7b7d'"], ids=["no JSON", "not ours"])
async def test_a_thread_with_damaged_settings_does_not_hide_the_others(harness: AppServerHarness, state: str) -> None:
    hit, other = await two_threads(harness)
    damage(harness, f"threads SET state = {state} WHERE id", hit)
    async with harness.connect() as client:
        assert [each["id"] for each in (await client.request("thread/list", {}))["data"]] == [other]
        await refusal(client, "thread/read", threadId=hit)
        await refusal(client, "thread/resume", threadId=hit)
        await refusal(client, "thread/fork", threadId=hit)
        await client.request("thread/resume", {"threadId": other})
