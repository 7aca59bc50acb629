"""`fuzzyFileSearch/session*`: what is typed is looked for, the last query only, and no session outlives its client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kit.app_client import AppClient
from kit.in_process import ServerHere
from kit.processes import DEADLINE_S
from treadle.errors import INTERNAL_ERROR, INVALID_REQUEST, OVERLOADED, ExecError
from treadle.server.methods import search_files

START, UPDATE, STOP = (f"fuzzyFileSearch/session{verb}" for verb in ("Start", "Update", "Stop"))
UPDATED, COMPLETED = "fuzzyFileSearch/sessionUpdated", "fuzzyFileSearch/sessionCompleted"


@pytest.fixture
def workspace(workspace: Path) -> Path:
    (workspace / "src").mkdir()
    for name in ("alpha.py", "beta.py", "src/alphabet.txt"):
        (workspace / name).write_text("x")
    return workspace


def begun(client: AppClient, workspace: Path, session: str = "s") -> None:
    """A session; that it has found nothing for no query yet is told."""
    known = len(client.params_of(COMPLETED))
    assert client.call(START, {"sessionId": session, "roots": [str(workspace)]}) == {}
    client.until(lambda: len(client.params_of(COMPLETED)) > known)
    assert client.params_of(UPDATED)[-1] == {"sessionId": session, "query": "", "files": []}


def look_for(client: AppClient, query: str) -> list[Any]:
    assert client.call(UPDATE, {"sessionId": "s", "query": query}) == {}
    client.until(lambda: client.params_of(UPDATED)[-1]["query"] == query)
    return [file["path"] for file in client.params_of(UPDATED)[-1]["files"]]


def test_each_query_is_answered_by_a_notification(client: AppClient, workspace: Path) -> None:
    begun(client, workspace)
    assert look_for(client, "al") == ["alpha.py", "src/alphabet.txt"]
    assert look_for(client, "bet") == ["beta.py", "src/alphabet.txt"]
    assert look_for(client, "") == []
    client.until(lambda: len(client.params_of(COMPLETED)) == 4)
    assert client.call(STOP, {"sessionId": "s"}) == {}
    assert client.call(STOP, {"sessionId": "s"}) == {}
    gone = client.failure(UPDATE, {"sessionId": "s", "query": "x"})
    assert (gone["code"], gone["message"]) == (INVALID_REQUEST, "fuzzy file search session not found: s")


def test_only_the_last_of_many_keystrokes_is_looked_for(
    here: ServerHere, local: AppClient, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = {query: threading.Event() for query in ("a", "never")}
    ended = {query: threading.Event() for query in looking}

    async def slow(environment: object, query: str, roots: Sequence[tuple[str, str]]) -> list[Any]:
        if query not in looking:
            return []
        looking[query].set()
        try:
            return await asyncio.Future[list[Any]]()
        finally:
            ended[query].set()

    monkeypatch.setattr(search_files, "search", slow)
    begun(local, workspace)
    local.call(UPDATE, {"sessionId": "s", "query": "a"})
    assert looking["a"].wait(DEADLINE_S)
    for query in ("al", "alp"):
        local.call(UPDATE, {"sessionId": "s", "query": query})
    local.until(lambda: local.params_of(UPDATED)[-1]["query"] == "alp")
    assert ended["a"].wait(DEADLINE_S)
    local.call(UPDATE, {"sessionId": "s", "query": "never"})
    assert looking["never"].wait(DEADLINE_S)
    here.hang_up(local)
    assert ended["never"].wait(DEADLINE_S)
    assert [params["query"] for params in local.params_of(UPDATED)] in (["", "alp"], ["", "al", "alp"])


def test_a_session_that_begins_again_has_other_roots(local: AppClient, workspace: Path) -> None:
    begun(local, workspace)
    begun(local, workspace / "src")
    assert look_for(local, "al") == ["alphabet.txt"]


def test_a_search_that_fails_completes_without_news(
    local: AppClient, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> list[Any]:
        raise ExecError("the file search ended with status 1")

    begun(local, workspace)
    monkeypatch.setattr(search_files, "search", fail)
    local.call(UPDATE, {"sessionId": "s", "query": "a"})
    local.until(lambda: len(local.params_of(COMPLETED)) == 2)
    assert len(local.params_of(UPDATED)) == 1


def test_what_cannot_begin_is_refused(local: AppClient, workspace: Path) -> None:
    roots = [str(workspace)]
    assert local.failure(START, {"sessionId": "", "roots": roots})["code"] == INVALID_REQUEST
    assert local.failure(START, {"sessionId": "s", "roots": []})["code"] == INTERNAL_ERROR
    for number in range(8):
        local.call(START, {"sessionId": str(number), "roots": roots})
    assert local.failure(START, {"sessionId": "s", "roots": roots})["code"] == OVERLOADED
    local.call(START, {"sessionId": "7", "roots": roots})  # which takes the place of one
    local.call(STOP, {"sessionId": "0"})
    local.call(START, {"sessionId": "s", "roots": roots})
