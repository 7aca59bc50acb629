"""`fuzzyFileSearch/session*`: what is typed is looked for, the last query only, and no session outlives its client."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kit.async_app_client import AsyncAppClient, InProcess
from treadle.errors import INTERNAL_ERROR, INVALID_REQUEST, OVERLOADED, ExecError
from treadle.server.methods import fuzzy_file_search

pytestmark = pytest.mark.anyio

START, UPDATE, STOP = (f"fuzzyFileSearch/session{verb}" for verb in ("Start", "Update", "Stop"))
UPDATED, COMPLETED = "fuzzyFileSearch/sessionUpdated", "fuzzyFileSearch/sessionCompleted"


@pytest.fixture
def workspace(workspace: Path) -> Path:
    (workspace / "src").mkdir()
    for name in ("alpha.py", "beta.py", "src/alphabet.txt"):
        (workspace / name).write_text("x")
    return workspace


async def begun(client: AsyncAppClient, workspace: Path, session: str = "s") -> None:
    """A session; that it has found nothing for no query yet is told."""
    known = len(client.params_of(COMPLETED))
    assert await client.request(START, {"sessionId": session, "roots": [str(workspace)]}) == {}
    await client.until(lambda: len(client.params_of(COMPLETED)) > known)
    assert client.params_of(UPDATED)[-1] == {"sessionId": session, "query": "", "files": []}


async def look_for(client: AsyncAppClient, query: str) -> list[Any]:
    assert await client.request(UPDATE, {"sessionId": "s", "query": query}) == {}
    await client.until(lambda: client.params_of(UPDATED)[-1]["query"] == query)
    return [file["path"] for file in client.params_of(UPDATED)[-1]["files"]]


async def test_each_query_is_answered_by_a_notification(client: AsyncAppClient, workspace: Path) -> None:
    await begun(client, workspace)
    assert await look_for(client, "al") == ["alpha.py", "src/alphabet.txt"]
    assert await look_for(client, "bet") == ["beta.py", "src/alphabet.txt"]
    assert await look_for(client, "") == []
    await client.until(lambda: len(client.params_of(COMPLETED)) == 4)
    assert await client.request(STOP, {"sessionId": "s"}) == {}
    assert await client.request(STOP, {"sessionId": "s"}) == {}
    gone = await client.refusal(UPDATE, {"sessionId": "s", "query": "x"})
    assert (gone.code, gone.message) == (INVALID_REQUEST, "fuzzy file search session not found: s")


async def test_only_the_last_of_many_keystrokes_is_looked_for(
    local: InProcess, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = {query: asyncio.Event() for query in ("a", "never")}
    ended = {query: asyncio.Event() for query in looking}

    async def slow(environment: object, query: str, roots: Sequence[tuple[str, str]]) -> list[Any]:
        if query not in looking:
            return []
        looking[query].set()
        try:
            return await asyncio.Future[list[Any]]()
        finally:
            ended[query].set()

    monkeypatch.setattr(fuzzy_file_search, "search", slow)
    await begun(local, workspace)
    await local.request(UPDATE, {"sessionId": "s", "query": "a"})
    await looking["a"].wait()
    for query in ("al", "alp"):
        await local.request(UPDATE, {"sessionId": "s", "query": query})
    await local.until(lambda: local.params_of(UPDATED)[-1]["query"] == "alp")
    await ended["a"].wait()
    await local.request(UPDATE, {"sessionId": "s", "query": "never"})
    await looking["never"].wait()
    local.client.close()
    await ended["never"].wait()
    assert [params["query"] for params in local.params_of(UPDATED)] in (["", "alp"], ["", "al", "alp"])


async def test_a_session_that_begins_again_has_other_roots(local: InProcess, workspace: Path) -> None:
    await begun(local, workspace)
    await begun(local, workspace / "src")
    assert await look_for(local, "al") == ["alphabet.txt"]


async def test_a_search_that_fails_completes_without_news(
    local: InProcess, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> list[Any]:
        raise ExecError("the file search ended with status 1")

    await begun(local, workspace)
    monkeypatch.setattr(fuzzy_file_search, "search", fail)
    await local.request(UPDATE, {"sessionId": "s", "query": "a"})
    await local.until(lambda: len(local.params_of(COMPLETED)) == 2)
    assert len(local.params_of(UPDATED)) == 1


async def test_what_cannot_begin_is_refused(local: InProcess, workspace: Path) -> None:
    roots = [str(workspace)]
    assert (await local.refusal(START, {"sessionId": "", "roots": roots})).code == INVALID_REQUEST
    assert (await local.refusal(START, {"sessionId": "s", "roots": []})).code == INTERNAL_ERROR
    for number in range(8):
        await local.request(START, {"sessionId": str(number), "roots": roots})
    assert (await local.refusal(START, {"sessionId": "s", "roots": roots})).code == OVERLOADED
    await local.request(START, {"sessionId": "7", "roots": roots})  # which takes the place of one
    await local.request(STOP, {"sessionId": "0"})
    await local.request(START, {"sessionId": "s", "roots": roots})
