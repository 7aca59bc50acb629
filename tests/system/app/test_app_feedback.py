"""`feedback/save`: a file for the user to look through, without secrets; and `thread/items/read`."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from treadle.errors import INTERNAL_ERROR, INVALID_REQUEST, RpcError
from treadle.testing import AppServerHarness, HarnessClient

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

NOBODY = "01a1dcbc-6c44-7ea1-8238-647d4750d13d"  # a thread id that is in no home
SECRETS = ("from-the-environment", "sk-abcdefghijklmnop", 'with "quotes" in it', "from-the-configuration")


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


async def refusal(client: HarnessClient, method: str, params: Json) -> RpcError:
    with pytest.raises(RpcError) as refused:
        await client.request(method, params)
    return refused.value


async def test_what_is_saved_has_the_thread_and_the_files_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", SECRETS[0])
    monkeypatch.setenv("OTHER_PASSWORD", SECRETS[2])
    extra = f'[model_providers.other]\nname = "other"\nhttp_headers = {{ "X-Thing" = "{SECRETS[3]}" }}\n'
    log = tmp_path / "extra.log"
    log.write_bytes(b"\xff line of a log with " + " ".join(SECRETS).encode())
    harness = AppServerHarness(tmp_path, extra_toml=extra)
    with harness:
        async with harness.connect() as client:
            thread = (await client.request("thread/start", {}))["thread"]["id"]
            harness.model.enqueue_assistant_message("I know " + ", ".join(SECRETS))
            said = [{"type": "text", "text": "go"}]
            turn = (await client.request("turn/start", {"threadId": thread, "input": said}))["turn"]["id"]
            await client.turn_end(turn)
            path = tmp_path / "saved.zip"
            params = {
                "classification": "bug",
                "reason": f"it said {SECRETS[0]}",
                "tags": {"a": "b"},
                "threadId": thread,
                "includeLogs": True,
                "extraLogFiles": [str(log)],
                "savePath": str(path),
            }
            saved = await client.request("feedback/save", params)
    assert saved == {"savedPath": str(path), "threadId": thread, "promptHash": None}
    assert path.stat().st_mode & 0o777 == 0o600
    found = members(path)
    entries = ["attachments/0000/turns.json", "attachments/0001/extra.log"]
    assert list(found) == ["report.json", *entries, "manifest.json"]
    assert [entry["entry"] for entry in json.loads(found["manifest.json"])] == entries
    report = json.loads(found["report.json"])
    assert (report["classification"], report["reason"], report["tags"]) == ("bug", "it said [redacted]", {"a": "b"})
    (kept,) = json.loads(found[entries[0]])
    assert [item["type"] for item in kept["items"]] == ["userMessage", "agentMessage"]
    assert kept["items"][1]["text"] == "I know " + ", ".join(["[redacted]"] * 4)
    assert found[entries[1]] == b"\xff line of a log with " + b" ".join([b"[redacted]"] * 4)


async def test_without_a_thread_there_is_a_report(harness: AppServerHarness, tmp_path: Path) -> None:
    async with harness.connect() as client:
        for number, more in enumerate(({}, {"threadId": NOBODY, "includeLogs": True})):
            path = tmp_path / f"{number}.zip"
            saved = await client.request("feedback/save", {"classification": "x", "savePath": str(path), **more})
            assert saved["threadId"].startswith(more.get("threadId", "no-active-thread-"))
            assert json.loads(members(path)["report.json"])["threadId"] == more.get("threadId")


async def test_nothing_that_is_there_is_written_over(harness: AppServerHarness, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    os.symlink(tmp_path / "elsewhere", tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    async with harness.connect() as client:
        for name in ("there", "link", "pipe", "no/folder"):
            params = {"classification": "x", "savePath": str(tmp_path / name)}
            assert (await refusal(client, "feedback/save", params)).code == INTERNAL_ERROR
        for path in ("", "relative.zip"):
            error = await refusal(client, "feedback/save", {"classification": "x", "savePath": path})
            assert error.code == INVALID_REQUEST
        for file in ("pipe", "missing", "."):
            named: Json = {"extraLogFiles": [str(tmp_path / file)], "savePath": str(tmp_path / "new")}
            assert "no regular" in (await refusal(client, "feedback/save", {"classification": "x", **named})).message
    assert (tmp_path / "there").read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()
    assert not (tmp_path / "new").exists()


async def test_nothing_is_ever_uploaded(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        error = await refusal(client, "feedback/upload", {"classification": "bug", "includeLogs": False})
    assert "unknown variant `feedback/upload`" in error.message


async def test_items_are_read_by_their_ids(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        thread = (await client.request("thread/start", {}))["thread"]["id"]
        turns = []
        for number in range(2):
            harness.model.enqueue_assistant_message(f"Answer {number}.")
            said = [{"type": "text", "text": f"Question {number}?"}]
            turns.append((await client.request("turn/start", {"threadId": thread, "input": said}))["turn"]["id"])
            await client.turn_end(turns[-1])
        listed = (await client.request("thread/items/list", {"threadId": thread}))["data"]
        first, second = ([entry for entry in listed if entry["turnId"] == turn] for turn in turns)

        async def read(turn: str, *ids: str) -> list[Json]:
            params = {"threadId": thread, "turnId": turn, "itemIds": ids}
            data: list[Json] = (await client.request("thread/items/read", params))["data"]
            return data

        ids = [entry["item"]["id"] for entry in first]
        assert await read(turns[0], *ids[::-1], "nobody's", ids[0]) == first
        assert await read(turns[0], ids[1]) == first[1:]
        assert await read(turns[1], *ids) == []
        assert await read(turns[1], second[0]["item"]["id"]) == second[:1]
        assert await read(NOBODY, *ids) == []
        for wrong in ([], ["x"] * 101):
            params = {"threadId": thread, "turnId": turns[0], "itemIds": wrong}
            assert "1 to 100" in (await refusal(client, "thread/items/read", params)).message
        params = {"threadId": NOBODY, "turnId": turns[0], "itemIds": ids}
        assert (await refusal(client, "thread/items/read", params)).code == INVALID_REQUEST
