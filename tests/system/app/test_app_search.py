"""`thread/search` and `thread/searchOccurrences`: who said what, and where."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.errors import RpcError
from treadle.testing import AppServerHarness, HarnessClient

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

NOBODY = "01a1dcbc-6c44-7ea1-8238-647d4750d13d"


async def talked(harness: AppServerHarness, client: HarnessClient, *turns: tuple[str, str]) -> str:
    thread: str = (await client.request("thread/start", {}))["thread"]["id"]
    for question, answer in turns:
        harness.model.enqueue_assistant_message(answer)
        await client.run_turn(thread, question)
    return thread


async def refusal(client: HarnessClient, method: str, params: Json) -> str:
    with pytest.raises(RpcError) as refused:
        await client.request(method, params)
    assert refused.value.code == -32600
    return refused.value.message


async def test_threads_are_found_by_what_was_said(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        loom = await talked(harness, client, ("Where is the old Loom?", "In the barn."), ("And\nnow?", "Still there."))
        wool = await talked(harness, client, ("Is there wool?", "In the barn, by the loom."))
        ids = {loom: "loom", wool: "wool"}

        async def found(term: str, **more: Any) -> list[tuple[str, str]]:
            answer = await client.request("thread/search", {"searchTerm": term, **more})
            return [(ids[each["thread"]["id"]], each["snippet"]) for each in answer["data"]]

        both = [("wool", "In the barn, by the loom."), ("loom", "In the barn.")]
        assert await found("in the bar") == both
        assert await found("in the bar", sortKey="recency_at", sortDirection="asc") == both[::-1]
        assert await found("LOOM") == [("wool", "In the barn, by the loom."), ("loom", "Where is the old Loom?")]
        assert await found("and now") == [("loom", "And now?")]
        assert await found("barn loom") == []
        assert await found("barn", sourceKinds=["exec"]) == []
        assert await found("barn", sourceKinds=[]) == both
        page = await client.request("thread/search", {"searchTerm": "barn", "limit": 1})
        assert page["data"][0]["thread"]["status"] == {"type": "idle"}
        assert await found("barn", limit=1, cursor=page["nextCursor"]) == both[1:]
        await client.request("thread/archive", {"threadId": wool})
        assert await found("barn") == both[1:]
        assert await found("barn", archived=True) == both[:1]
        for bad in ("", " \n"):
            assert "non-empty searchTerm" in await refusal(client, "thread/search", {"searchTerm": bad})
        assert "1000 characters" in await refusal(client, "thread/search", {"searchTerm": "x" * 1001})
        assert await refusal(client, "thread/search", {"searchTerm": "x", "cursor": "x"}) == "invalid cursor: x"


async def test_places_in_a_thread(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        thread = await talked(
            harness, client, ("A banana? 🍌 Bananas!", "No."), ("Why not?", "Because of the BANANA."), ("Oh.", "Yes.")
        )
        other = await talked(harness, client, ("banana", "banana"))
        turns = (await client.request("thread/read", {"threadId": thread, "includeTurns": True}))["thread"]["turns"]

        async def page(**more: Any) -> Json:
            given = {"threadId": thread, "searchTerm": "banana", **more}
            return await client.request("thread/searchOccurrences", given)

        answer = await page()
        ranges = [(each["snippetMatchRange"]["start"], each["snippetMatchRange"]["end"]) for each in answer["data"]]
        assert ranges == [(2, 8), (13, 19), (15, 21)]
        assert [each["turnId"] for each in answer["data"]] == [turns[0]["id"], turns[0]["id"], turns[1]["id"]]
        assert answer["data"][2]["itemId"] == turns[1]["items"][-1]["id"]
        assert answer["nextCursor"] is None
        for place, turn in ((answer["data"][0], turns[0]), (answer["data"][2], turns[1])):
            for direction in ("asc", "desc"):  # the page begins with the turn itself
                given = {"threadId": thread, "cursor": place["turnCursor"], "limit": 1, "sortDirection": direction}
                assert [each["id"] for each in (await client.request("thread/turns/list", given))["data"]] == [
                    turn["id"]
                ]
        pages, cursor = [], None
        while True:
            part = await page(limit=1, cursor=cursor)
            pages += part["data"]
            cursor = part["nextCursor"]
            if cursor is None:
                break
            taken = cursor
        assert pages == answer["data"]
        method = "thread/searchOccurrences"
        for more in ({"searchTerm": "bananas"}, {"threadId": other}, {"cursor": "{}"}, {"cursor": "é"}):
            given = {"threadId": thread, "searchTerm": "banana", "cursor": taken, **more}
            assert (await refusal(client, method, given)).startswith("invalid cursor: ")
        assert "non-empty" in await refusal(client, method, {"threadId": thread, "searchTerm": " "})
        assert await refusal(client, method, {"threadId": NOBODY, "searchTerm": "x"}) == f"thread not loaded: {NOBODY}"
