"""Finding threads: pages, order, filters, search."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from treadle.errors import RpcError
from treadle.server import AppServer
from treadle.store import ThreadRecord
from treadle.testing import AppServerHarness, HarnessClient

pytestmark = pytest.mark.anyio

Json = dict[str, Any]


async def started(client: HarnessClient, **params: Any) -> str:
    thread_id: str = (await client.request("thread/start", params))["thread"]["id"]
    return thread_id


async def named(client: HarnessClient, name: str, **params: Any) -> str:
    thread = await started(client, **params)
    await client.request("thread/name/set", {"threadId": thread, "name": name})
    return thread


async def walk(client: HarnessClient, limit: int, **params: Any) -> list[str]:
    """The ids of all pages, forwards."""
    found: list[str] = []
    cursor = None
    while True:
        page = await client.request("thread/list", {"limit": limit, "cursor": cursor, **params})
        assert len(page["data"]) <= limit
        found += [thread["id"] for thread in page["data"]]
        cursor = page["nextCursor"]
        if cursor is None:
            return found


async def ids(client: HarnessClient, **params: Any) -> set[str]:
    return set(await walk(client, 100, **params))


async def change(server: AppServer, thread_id: str, **changes: Any) -> None:
    """The record, as time would have it."""
    store = await server.store()
    loaded = await store.load(thread_id)
    assert loaded is not None
    record: ThreadRecord = structs.replace(loaded.record, **changes)
    await store.commit(thread_id, loaded.fence, [record])


async def test_sixty_threads_by_pages_with_ties_of_time(harness: AppServerHarness) -> None:
    async with harness.server() as server, harness.connect(server=server) as client:
        threads = [await named(client, f"thread {number}") for number in range(60)]
        for number, thread in enumerate(threads):  # seven of each time; the other times go the other way
            moment = 1_700_000_000_000 + number // 7
            await change(server, thread, created_at=moment, updated_at=-moment + 2**42, recency_at=1_700_000_000_000)
        for key in ("created_at", "updated_at", "recency_at"):
            walks: dict[str, list[str]] = {}
            for direction in ("asc", "desc"):
                for limit in (1, 7, 10, 60, 100):
                    walked = await walk(client, limit, sortKey=key, sortDirection=direction)
                    assert sorted(walked) == sorted(threads)
                    walks[direction] = walks.get(direction, walked)
                    assert walked == walks[direction]
            assert walks["asc"] == walks["desc"][::-1]
        newest_first = await walk(client, 10)
        assert newest_first == await walk(client, 10, sortKey="created_at", sortDirection="desc")
        assert set(newest_first[:4]) == set(threads[56:])
        assert set((await walk(client, 10, sortKey="updated_at"))[:7]) == set(threads[:7])


async def test_the_usual_page(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        for number in range(30):
            await named(client, f"thread {number}")
        page = await client.request("thread/list", {})
        assert len(page["data"]) == 25
        assert page["nextCursor"] is not None
        assert len((await client.request("thread/list", {"limit": 10_000}))["data"]) == 30
        last = await client.request("thread/list", {"cursor": page["nextCursor"]})
        assert (len(last["data"]), last["nextCursor"]) == (5, None)
        empty = await client.request("thread/list", {"searchTerm": "nothing like it"})
        assert empty == {"data": [], "nextCursor": None, "backwardsCursor": None}


async def test_new_threads_do_not_disturb_a_walk(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        threads = [await named(client, f"thread {number}") for number in range(9)]
        page = await client.request("thread/list", {"limit": 4})
        await named(client, "newer")
        rest = await walk(client, 4, sortKey="created_at")
        assert len(rest) == 10
        second = await client.request("thread/list", {"limit": 4, "cursor": page["nextCursor"]})
        third = await client.request("thread/list", {"limit": 4, "cursor": second["nextCursor"]})
        found = [thread["id"] for part in (page, second, third) for thread in part["data"]]
        assert found == threads[::-1]


@pytest.mark.parametrize("cursor", ["", "x", "2024-13-01T00:00:00Z", "|", "5"])
async def test_bad_cursors(harness: AppServerHarness, cursor: str) -> None:
    async with harness.connect() as client:
        with pytest.raises(RpcError, match="invalid cursor"):
            await client.request("thread/list", {"cursor": cursor})


@pytest.mark.parametrize("params", [{"sortKey": "name"}, {"sortDirection": "up"}, {"limit": "5"}, {"cwd": 5}])
async def test_bad_filters(harness: AppServerHarness, params: Json) -> None:
    async with harness.connect() as client:
        with pytest.raises(RpcError, match="Invalid request"):
            await client.request("thread/list", params)


async def test_filters(harness: AppServerHarness) -> None:
    async with harness.server() as server, harness.connect("editor", server=server) as client:
        here = await named(client, "here", cwd="/tmp")
        there = await named(client, "there", cwd="/usr")
        offline = await named(client, "offline", cwd="/tmp", modelProvider="offline")
        gone = await named(client, "gone", cwd="/tmp")
        await client.request("thread/archive", {"threadId": gone})
        script = await named(client, "script", cwd="/tmp")
        await change(server, script, source="exec")
        assert await ids(client) == {here, there, offline}
        assert await ids(client, cwd="/tmp") == {here, offline}
        assert await ids(client, cwd=["/tmp", "/usr"]) == {here, there, offline}
        assert await ids(client, cwd="/tm") == set()
        assert await ids(client, modelProviders=["offline"]) == {offline}
        assert await ids(client, modelProviders=[]) == {here, there, offline}
        assert await ids(client, archived=True) == {gone}
        assert await ids(client, sourceKinds=["exec"]) == {script}
        assert await ids(client, sourceKinds=[]) == {here, there, offline}
        assert await ids(client, cwd="/tmp", modelProviders=["mock_provider"], searchTerm="her") == {here}
        assert await ids(client, originators=["editor"]) == {here, there, offline}
        assert await ids(client, originators=["somebody else"]) == set()


async def test_search_by_name_and_preview(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        plan = await named(client, "Plan for 100% of it_")
        talk = await started(client)
        harness.model.enqueue_assistant_message("A fox.")
        await client.run_turn(talk, "What is a quick brown animal?")
        assert await ids(client, searchTerm="Plan") == {plan}
        assert await ids(client, searchTerm="plan") == set()
        assert await ids(client, searchTerm="quick brown") == {talk}
        assert await ids(client, searchTerm="100%") == {plan}
        for wild in ("%", "_"):  # as they are written, not as wild cards
            assert await ids(client, searchTerm=wild) == {plan}
        assert await ids(client, searchTerm="") == {plan, talk}


async def test_status_in_lists(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        loaded = await named(client, "loaded")
        away = await named(client, "away")
        await client.request("thread/archive", {"threadId": away})
        await client.request("thread/unarchive", {"threadId": away})
        statuses = {each["id"]: each["status"]["type"] for each in (await client.request("thread/list", {}))["data"]}
        assert statuses == {loaded: "idle", away: "notLoaded"}


async def test_search_in_messages(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        thread = await started(client)
        harness.model.enqueue_assistant_message("The heron stands in shallow water.")
        await client.run_turn(thread, "Which bird fishes?")
        other = await started(client)
        harness.model.enqueue_assistant_message("Water boils at a hundred degrees.")
        await client.run_turn(other, "When does it boil?")

        async def found(term: str, **more: Any) -> list[Json]:
            hits: list[Json] = (await client.request("thread/messages/search", {"searchTerm": term, **more}))["data"]
            return hits

        (hit,) = await found("heron")
        assert hit["threadId"] == thread
        assert "[heron]" in hit["snippet"]
        assert {hit["threadId"] for hit in await found("water")} == {thread, other}
        assert len(await found("water", limit=1)) == 1
        assert [hit["threadId"] for hit in await found("bird fishes")] == [thread]
        assert await found("no such word") == []
        for odd in ('"', "AND", "a OR", "(", "*", "-x", "ü"):
            await found(odd)
        await client.request("thread/archive", {"threadId": thread})
        assert await found("heron") == []
        await client.request("thread/unarchive", {"threadId": thread})
        assert len(await found("heron")) == 1
        await client.request("thread/delete", {"threadId": thread})
        assert await found("heron") == []
        for bad in ({"searchTerm": ""}, {}, {"searchTerm": "x", "limit": 0}, {"searchTerm": "x", "limit": 101}):
            with pytest.raises(RpcError, match="Invalid request"):
                await client.request("thread/messages/search", bad)
