"""Threads, models, accounts, and the life of a client, over every way and in both faces."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from contract import client_stage
from contract.client_stage import FACES, Face, Listening, Stage, everywhere, only
from treadle import AsyncCodex, Codex, CodexConfig, InvalidRequestError, TransportClosedError
from treadle.testing import AppServerHarness
from treadle.types import TurnStatus

pytestmark = pytest.mark.anyio
stage = client_stage.stage


@everywhere
async def test_a_thread_from_start_to_archive(stage: Stage) -> None:
    stage.answer = lambda request: f"answer to {request.last_user_text}"
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        await stage.call(thread.run, "one")
        await stage.call(thread.set_name, "a name")
        read = (await stage.call(thread.read, include_turns=True)).thread
        assert (read.id, read.name, len(read.turns)) == (thread.id, "a name", 1)
        assert not (await stage.call(thread.read)).thread.turns
        assert await _listed(stage, codex) == [thread.id]
        await stage.call(codex.thread_archive, thread.id)
        assert await _listed(stage, codex) == []
        assert await _listed(stage, codex, archived=True) == [thread.id]
        back = await stage.call(codex.thread_unarchive, thread.id)
        assert back.id == thread.id
        assert await _listed(stage, codex) == [thread.id]
        resumed = await stage.call(codex.thread_resume, thread.id)
        assert (await stage.call(resumed.run, "two")).final_response == "answer to two"
    assert stage.model.requests()[-1].input_texts("user") == ["one", "two"]


async def _listed(stage: Stage, codex: Any, **options: Any) -> list[str]:
    return [thread.id for thread in (await stage.call(codex.thread_list, **options)).data]


@only("in process")
async def test_pages_of_threads(stage: Stage) -> None:
    stage.answer = lambda request: "ok"
    async with stage.codex() as codex:
        made = []
        for _ in range(3):
            thread = await stage.call(codex.thread_start)
            await stage.call(thread.run, "hello")
            made.append(thread.id)
        first = await stage.call(codex.thread_list, limit=2)
        second = await stage.call(codex.thread_list, limit=2, cursor=first.next_cursor)
    assert len(first.data) == 2
    assert sorted(thread.id for page in (first, second) for thread in page.data) == sorted(made)
    assert second.next_cursor is None


async def test_a_fork_has_the_history_and_goes_its_own_way(stage: Stage) -> None:
    stage.answer = lambda request: "ok"
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        await stage.call(thread.run, "one")
        fork = await stage.call(codex.thread_fork, thread.id)
        assert fork.id != thread.id
        await stage.call(fork.run, "two")
        counts = [len((await stage.call(each.read, include_turns=True)).thread.turns) for each in (thread, fork)]
    assert counts == [1, 2]
    assert stage.model.requests()[-1].input_texts("user") == ["one", "two"]


@everywhere
async def test_a_thread_outlives_its_client(stage: Stage) -> None:
    stage.answer = lambda request: "ok"
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        await stage.call(thread.run, "one")
    async with stage.codex() as codex:
        resumed = await stage.call(codex.thread_resume, thread.id)
        assert (await stage.call(resumed.run, "two")).status is TurnStatus.completed
    assert stage.model.requests()[-1].input_texts("user") == ["one", "two"]


@only("in process")
async def test_an_ephemeral_thread_is_not_listed(stage: Stage) -> None:
    stage.answer = lambda request: "ok"
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start, ephemeral=True)
        assert (await stage.call(thread.run, "one")).final_response == "ok"
        assert await _listed(stage, codex) == []


async def test_compacting(stage: Stage) -> None:
    stage.answer = lambda request: "ok"
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        await stage.call(thread.run, "one")
        while (await stage.call(codex._client.next_notification)).method != "turn/completed":
            pass
        stage.model.enqueue_assistant_message("SUMMARY")
        await stage.call(thread.compact)
        seen: list[Any] = []
        while not seen or seen[-1].method != "turn/completed":
            seen.append(await stage.call(codex._client.next_notification))
        await stage.call(thread.run, "two")
    compacted = [event.payload.item.type for event in seen if event.method == "item/completed"]
    assert "contextCompaction" in compacted
    assert stage.model.requests()[-1].input_texts("assistant") == ["SUMMARY"]


@only("in process")
async def test_models(stage: Stage) -> None:
    async with stage.codex() as codex:
        shown = [model.id for model in (await stage.call(codex.models)).data]
        everything = [model.id for model in (await stage.call(codex.models, include_hidden=True)).data]
    assert shown
    assert set(shown) <= set(everything)


async def test_login_with_a_key(stage: Stage) -> None:
    stage.configure(provider={"requires_openai_auth": True})
    async with stage.codex() as codex:
        await stage.call(codex.login_api_key, "sk-a-key")
        account = (await stage.call(codex.account)).account
        assert account.type == "apiKey"
        await stage.call(codex.logout)
        assert (await stage.call(codex.account)).account is None
    assert "sk-a-key" not in repr(codex)


@only("in process")
async def test_metadata(stage: Stage) -> None:
    async with stage.codex() as codex:
        metadata = codex.metadata
    assert metadata.serverInfo.name
    assert metadata.serverInfo.version
    assert "treadle" in metadata.userAgent
    assert (metadata.platformFamily, metadata.platformOs) == ("unix", "linux")


async def test_a_refusal_has_the_words_of_the_server(stage: Stage) -> None:
    async with stage.codex() as codex:
        with pytest.raises(InvalidRequestError, match="nowhere") as caught:
            await stage.call(codex.thread_resume, "nowhere")
        assert (await stage.call(codex.models)).data
    assert caught.value.code == -32600


@everywhere
async def test_closing_twice_and_using_it_after_that(stage: Stage) -> None:
    client = stage.client()
    await stage.call(client.start)
    await stage.call(client.initialize)
    await stage.call(client.close)
    await stage.call(client.close)
    with pytest.raises(TransportClosedError):
        await stage.call(client.model_list)
    await stage.call(client.start)
    await stage.call(client.initialize)
    assert (await stage.call(client.model_list)).data
    await stage.call(client.close)


@only("in process", "child")
async def test_a_client_that_was_never_connected(stage: Stage) -> None:
    client = stage.client()
    with pytest.raises(TransportClosedError, match=r"call start\(\) first"):
        await stage.call(client.model_list)
    await stage.call(client.close)


@everywhere
async def test_closing_wakes_whoever_waits(stage: Stage) -> None:
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        stage.model.enqueue_assistant_message("never", delay_s=60)
        turn = await stage.call(thread.turn, "go")
        await stage.model.arrived(1)
        running = asyncio.create_task(stage.call(turn.run))
        while codex._client._router.readers == 0:
            await asyncio.sleep(0)
        await stage.call(codex.close)
        with pytest.raises(TransportClosedError):
            await running


@everywhere
async def test_the_context_manager_closes(stage: Stage) -> None:
    if stage.face == "sync":

        def use() -> Codex:
            with Codex(stage.config()) as codex:
                assert codex.models().data
            return codex

        codex: Any = await asyncio.to_thread(use)
        with pytest.raises(TransportClosedError):
            await stage.call(codex.models)
    else:
        async with AsyncCodex(stage.config()) as codex:
            assert (await codex.models()).data
        with pytest.raises(RuntimeError, match="not connected"):
            _ = codex.metadata
    assert "not connected" in repr(codex)


@only("in process", "child")
async def test_closing_ends_what_the_server_started(stage: Stage) -> None:
    os.mkfifo(stage.workspace / "pipe")
    command = {"cmd": "echo $$; read line < pipe", "yield_time_ms": 30_000}
    stage.model.enqueue_function_call("exec_command", command)
    async with stage.codex() as codex:
        thread = await stage.call(codex.thread_start)
        reading = stage.read((await stage.call(thread.turn, "go")).stream())
        pids = [int((await reading.until("item/commandExecution/outputDelta")).payload.delta)]
        if stage.way == "child":
            pids.append(codex._client._connection.pid)
        await reading.close()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize("face", FACES)
async def test_a_server_that_wants_a_token(face: Face, tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        server = Listening(harness, "ws://127.0.0.1:0", token="the-right-one")
        try:
            for token, welcome in (("the-right-one", True), ("a-wrong-one", False), (None, False)):
                if welcome:
                    assert await _models(face, CodexConfig(url=server.url, token=token))
                    continue
                with pytest.raises(TransportClosedError, match="401") as caught:
                    await _models(face, CodexConfig(url=server.url, token=token))
                assert "a-wrong-one" not in str(caught.value)
        finally:
            server.close()


async def _models(face: Face, config: CodexConfig) -> bool:
    if face == "async":
        async with AsyncCodex(config) as codex:
            return bool((await codex.models()).data)

    def use() -> bool:
        with Codex(config) as codex:
            return bool(codex.models().data)

    return await asyncio.to_thread(use)
