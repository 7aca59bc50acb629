"""Methods about one thread: made, loaded, copied, renamed, cut, put away; with every refusal."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from treadle.agent import History
from treadle.errors import RpcError
from treadle.server import AppServer, loaded_threads
from treadle.testing import AppServerHarness, HarnessClient

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

NOBODY = "01a1dcbc-6c44-7ea1-8238-647d4750d13d"  # a thread id that is in no home


async def started(client: HarnessClient, **params: Any) -> str:
    thread_id: str = (await client.request("thread/start", params))["thread"]["id"]
    return thread_id


async def refusal(client: HarnessClient, method: str, params: Json) -> str:
    with pytest.raises(RpcError) as refused:
        await client.request(method, params)
    assert refused.value.code == -32600
    return refused.value.message


async def talked(harness: AppServerHarness, client: HarnessClient, turns: int = 1, **params: Any) -> str:
    """A thread with some turns."""
    thread = await started(client, **params)
    for number in range(turns):
        harness.model.enqueue_assistant_message(f"Answer {number}.")
        await client.run_turn(thread, f"question {number}")
    return thread


async def texts(client: HarnessClient, thread: str) -> list[str]:
    read = await client.request("thread/read", {"threadId": thread, "includeTurns": True})
    return [turn["items"][-1]["text"] for turn in read["thread"]["turns"]]


# --- refusals ---


@pytest.mark.parametrize(
    ("method", "more", "unknown"),
    [
        ("thread/resume", {}, "no rollout found for thread id {id}"),
        ("thread/fork", {}, "no rollout found for thread id {id}"),
        ("thread/read", {}, "thread not loaded: {id}"),
        ("thread/read", {"includeTurns": True}, "thread not loaded: {id}"),
        ("thread/archive", {}, "no rollout found for thread id {id}"),
        ("thread/unarchive", {}, "no archived rollout found for thread id {id}"),
        ("thread/delete", {}, "no rollout found for thread id {id}"),
        ("thread/name/set", {"name": "x"}, "no rollout found for thread id {id}"),
        ("thread/metadata/update", {"gitInfo": {"branch": "x"}}, "no rollout found for thread id {id}"),
        ("thread/settings/update", {"model": "x"}, "thread not found: {id}"),
        ("thread/compact/start", {}, "thread not found: {id}"),
        ("thread/shellCommand", {"command": "true"}, "thread not found: {id}"),
        ("thread/inject_items", {"items": []}, "thread not found: {id}"),
        ("thread/revert", {"beforeTurnId": NOBODY}, "thread not found: {id}"),
        ("thread/rollback", {"numTurns": 1}, "thread not found: {id}"),
        ("thread/turns/list", {}, "thread not loaded: {id}"),
        ("thread/items/list", {}, "thread not loaded: {id}"),
        ("thread/items/read", {"turnId": "x", "itemIds": ["x"]}, "thread not loaded: {id}"),
        ("thread/backgroundTerminals/list", {}, "thread not found: {id}"),
        ("thread/backgroundTerminals/clean", {}, "thread not found: {id}"),
        ("thread/backgroundTerminals/terminate", {"processId": "1"}, "thread not found: {id}"),
        ("thread/events/list", {}, "thread not loaded: {id}"),
        ("thread/goal/set", {"objective": "x"}, "thread not found: {id}"),
        ("thread/goal/clear", {}, "thread not found: {id}"),
        ("turn/start", {"input": []}, "thread not found: {id}"),
        ("turn/steer", {"input": [], "expectedTurnId": "x"}, "thread not found: {id}"),
        ("turn/interrupt", {"turnId": "x"}, "thread not found: {id}"),
    ],
)
async def test_unknown_and_bad_ids(harness: AppServerHarness, method: str, more: Json, unknown: str) -> None:
    async with harness.connect() as client:
        assert await refusal(client, method, {"threadId": NOBODY, **more}) == unknown.format(id=NOBODY)
        assert "id: expected a UUID" in await refusal(client, method, {"threadId": "nope", **more})
        assert "threadId" in await refusal(client, method, more)
        assert (await client.request("thread/unsubscribe", {"threadId": NOBODY})) == {"status": "notLoaded"}


@pytest.mark.parametrize(
    ("method", "more", "says"),
    [
        ("thread/name/set", {"name": "   "}, "thread name must not be empty"),
        ("thread/metadata/update", {"gitInfo": {}}, "gitInfo must include at least one field"),
        ("thread/metadata/update", {}, "gitInfo must include at least one field"),
        ("thread/rollback", {"numTurns": 0}, "numTurns must be >= 1"),
        ("thread/revert", {"beforeTurnId": NOBODY}, f"turn not found: {NOBODY}"),
        ("thread/fork", {"lastTurnId": NOBODY}, f"turn not found: {NOBODY}"),
        ("thread/shellCommand", {"command": " "}, "command must not be empty"),
        ("thread/inject_items", {"items": [5]}, "items must be objects of the Responses API, each with a `type`"),
        ("thread/inject_items", {"items": [{}]}, "items must be objects of the Responses API, each with a `type`"),
        ("thread/turns/list", {"cursor": "x"}, "invalid cursor: x"),
        ("thread/items/list", {"cursor": "{}"}, "invalid cursor: {}"),
        ("thread/items/list", {"turnId": NOBODY}, f"turn not found: {NOBODY}"),
        ("turn/steer", {"input": [], "expectedTurnId": "x"}, "input must not be empty"),
        ("turn/steer", {"input": [{"type": "text", "text": "x"}], "expectedTurnId": "x"}, "no active turn to steer"),
        ("turn/interrupt", {"turnId": "x"}, "no active turn to interrupt"),
    ],
)
async def test_what_cannot_be_done_with_a_thread(harness: AppServerHarness, method: str, more: Json, says: str) -> None:
    async with harness.connect() as client:
        thread = await talked(harness, client)
        assert await refusal(client, method, {"threadId": thread, **more}) == says
        assert await texts(client, thread) == ["Answer 0."]


async def test_an_interrupt_without_an_id_is_about_whatever_runs(harness: AppServerHarness) -> None:
    gate = threading.Event()
    async with harness.connect() as client:
        thread = await talked(harness, client)
        nothing = {"threadId": thread, "turnId": ""}
        assert await client.request("turn/interrupt", nothing) == {}
        harness.model.enqueue_assistant_message("Held.", gate=gate)
        given = {"threadId": thread, "input": [{"type": "text", "text": "hi"}]}
        turn = (await client.request("turn/start", given))["turn"]["id"]
        assert await client.request("turn/interrupt", nothing) == {}
        assert (await client.turn_end(turn))["turn"]["status"] == "interrupted"
        gate.set()
        assert await refusal(client, "turn/interrupt", {**nothing, "threadId": NOBODY}) == f"thread not found: {NOBODY}"


async def test_a_provider_that_is_not_configured(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        assert "`nowhere` not found" in await refusal(client, "thread/start", {"modelProvider": "nowhere"})


async def test_ids_in_other_spellings(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        thread = await talked(harness, client)
        read = await client.request("thread/read", {"threadId": thread.upper()})
        assert read["thread"]["id"] == thread


# --- start, resume, fork ---


@pytest.mark.own_file
async def test_a_new_thread(harness: AppServerHarness) -> None:
    async with harness.connect("editor") as client:
        answer = await client.request("thread/start", {"cwd": "sub", "developerInstructions": "be brief"})
        thread = answer["thread"]
        assert thread["cwd"] == answer["cwd"] == str(harness.workspace / "sub")
        assert (thread["preview"], thread["ephemeral"], thread["source"], thread["turns"]) == ("", False, "vscode", [])
        assert thread["id"] == thread["sessionId"]
        assert thread["path"] == str(harness.home / "threads.db" / thread["id"])  # of its own: clients compare them
        assert thread["originator"] == "editor"
        assert thread["status"] == {"type": "idle"}
        assert (answer["model"], answer["modelProvider"]) == ("mock-model", "mock_provider")
        assert (answer["approvalPolicy"], answer["sandbox"]) == ("never", {"type": "dangerFullAccess"})
        told = await client.wait_for("thread/started")
        assert told["params"]["thread"] == thread


SETTINGS: Json = {
    "model": "other-model",
    "approvalPolicy": "untrusted",
    "sandbox": "read-only",
    "developerInstructions": "be brief",
}


async def test_settings_are_kept_over_resume_and_fork(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        folder = harness.workspace / "sub"
        folder.mkdir()
        thread = await talked(harness, client, cwd=str(folder), **SETTINGS)
        first = await client.request("thread/resume", {"threadId": thread})
    shown = ("model", "modelProvider", "approvalPolicy", "sandbox", "cwd", "approvalsReviewer")
    async with harness.connect() as client:
        cold = await client.request("thread/resume", {"threadId": thread})
        warm = await client.request("thread/resume", {"threadId": thread})
        fork = await client.request("thread/fork", {"threadId": thread})
        for answer in (cold, warm, fork):
            assert {name: answer[name] for name in shown} == {name: first[name] for name in shown}
        assert cold["model"] == "other-model"
        assert cold["sandbox"]["type"] == "readOnly"
        harness.model.enqueue_assistant_message("Brief.")
        await client.run_turn(fork["thread"]["id"], "go on")
        request = harness.model.requests()[-1]
        assert request.json["model"] == "other-model"
        assert "be brief" in str(request.input)


async def test_settings_that_are_given_instead(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        thread = await talked(harness, client, **SETTINGS)
    async with harness.connect() as client:
        changed = {"model": "third-model", "approvalPolicy": "never", "sandbox": "workspace-write"}
        fork = await client.request("thread/fork", {"threadId": thread, **changed})
        cold = await client.request("thread/resume", {"threadId": thread, **changed})
        for answer in (fork, cold):
            assert (answer["model"], answer["approvalPolicy"]) == ("third-model", "never")
            assert answer["sandbox"]["type"] == "workspaceWrite"
    async with harness.connect() as client:  # and they stay
        assert (await client.request("thread/resume", {"threadId": thread}))["model"] == "third-model"


async def test_settings_of_a_turn_stay(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        thread = await started(client)
        harness.model.enqueue_assistant_message("Hello.")
        await client.run_turn(thread, "hi", model="for-good", effort="high", approvalPolicy="on-request")
        told = await client.wait_for("thread/settings/updated")
        assert told["params"]["threadSettings"]["model"] == "for-good"
    async with harness.connect() as client:
        answer = await client.request("thread/resume", {"threadId": thread})
        assert (answer["model"], answer["reasoningEffort"], answer["approvalPolicy"]) == (
            "for-good",
            "high",
            "on-request",
        )


async def test_a_fork_up_to_a_turn(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        thread = await talked(harness, client, 4)
        turns = (await client.request("thread/read", {"threadId": thread, "includeTurns": True}))["thread"]["turns"]
        fork = await client.request("thread/fork", {"threadId": thread, "lastTurnId": turns[1]["id"]})
        copy = fork["thread"]
        assert copy["forkedFromId"] == thread
        assert copy["id"] != thread
        assert copy["turns"] == turns[:2]
        harness.model.enqueue_assistant_message("Another way.")
        await client.run_turn(copy["id"], "differently")
        said = [item for item in harness.model.requests()[-1].input if item.get("role") == "user"]
        assert len(said) == 3
        assert await texts(client, thread) == [f"Answer {number}." for number in range(4)]
        assert await texts(client, copy["id"]) == ["Answer 0.", "Answer 1.", "Another way."]


async def test_a_fork_in_the_middle_of_a_turn(harness: AppServerHarness) -> None:
    gate = threading.Event()
    harness.model.enqueue_assistant_message("Held.", gate=gate)
    async with harness.connect() as client:
        thread = await started(client)
        given = {"threadId": thread, "input": [{"type": "text", "text": "hi"}]}
        turn = (await client.request("turn/start", given))["turn"]["id"]
        await client.wait_for("item/completed")
        fork = (await client.request("thread/fork", {"threadId": thread}))["thread"]
        assert [(each["id"], each["status"]) for each in fork["turns"]] == [(turn, "interrupted")]
        gate.set()
        assert (await client.turn_end(turn))["turn"]["status"] == "completed"


async def test_a_turn_that_ends_while_somebody_resumes_is_not_lost(
    harness: AppServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    harness.model.enqueue_assistant_message("The end.", gate=gate)
    async with asyncio.timeout(30), harness.server() as server, harness.connect(server=server) as client:
        thread = await started(client)
        given = {"threadId": thread, "input": [{"type": "text", "text": "hi"}]}
        turn = (await client.request("turn/start", given))["turn"]["id"]
        store = await server.store()
        read = store.turns

        async def slow(*arguments: Any, **more: Any) -> Any:
            found = await read(*arguments, **more)
            gate.set()
            await client.turn_end(turn)
            return found

        monkeypatch.setattr(store, "turns", slow)
        async with harness.connect(server=server) as other:
            resumed = await other.request("thread/resume", {"threadId": thread})
        (found,) = resumed["thread"]["turns"]
        assert (found["id"], found["status"]) == (turn, "completed")
        assert found["items"][-1]["text"] == "The end."


# --- threads without turns ---


async def test_an_empty_thread_that_is_loaded(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        answer = await client.request("thread/start", {"model": "mine", "sandbox": "read-only"})
        thread = answer["thread"]["id"]
        resumed = await client.request("thread/resume", {"threadId": thread})
        assert (resumed["model"], resumed["sandbox"]) == ("mine", answer["sandbox"])
        assert resumed["thread"]["turns"] == []
        assert (await client.request("thread/list", {}))["data"] == []
        read = await client.request("thread/read", {"threadId": thread, "includeTurns": True})
        assert read["thread"]["turns"] == []


async def test_a_named_thread_without_turns_is_a_thread(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        thread = await started(client)
        await client.request("thread/name/set", {"threadId": thread, "name": "  plans  "})
        assert (await client.wait_for("thread/name/updated"))["params"]["threadName"] == "plans"
        fork = (await client.request("thread/fork", {"threadId": thread}))["thread"]
        assert fork["turns"] == []
        listed = (await client.request("thread/list", {}))["data"]
        assert {each["id"] for each in listed} == {thread, fork["id"]}
        assert {each["name"] for each in listed} == {"plans"}
    async with harness.connect() as client:
        read = await client.request("thread/read", {"threadId": thread, "includeTurns": True})
        assert (read["thread"]["name"], read["thread"]["turns"]) == ("plans", [])
        await client.request("thread/archive", {"threadId": thread})
        archived = (await client.request("thread/list", {"archived": True}))["data"]
        assert [each["id"] for each in archived] == [thread]
        back = (await client.request("thread/unarchive", {"threadId": thread}))["thread"]
        assert (back["id"], back["name"], back["status"]) == (thread, "plans", {"type": "notLoaded"})
        assert (await client.request("thread/resume", {"threadId": thread}))["thread"]["name"] == "plans"


# --- away and back ---


async def test_archive_and_unarchive(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        thread = await talked(harness, client)
        since = len(client.messages)
        await client.request("thread/archive", {"threadId": thread})
        methods = [message["method"] for message in client.messages[since:]]
        assert methods == ["thread/status/changed", "thread/archived"]
        assert (
            await refusal(client, "thread/archive", {"threadId": thread}) == f"no rollout found for thread id {thread}"
        )
        assert f"session {thread} is archived" in await refusal(client, "thread/resume", {"threadId": thread})
        given = {"threadId": thread, "input": []}
        assert await refusal(client, "turn/start", given) == f"thread not found: {thread}"
        assert await texts(client, thread) == ["Answer 0."]
        await client.request("thread/unarchive", {"threadId": thread})
        assert "no archived rollout found" in await refusal(client, "thread/unarchive", {"threadId": thread})
        assert await refusal(client, "turn/start", given) == f"thread not found: {thread}"
        await client.request("thread/resume", {"threadId": thread})
        harness.model.enqueue_assistant_message("Back.")
        await client.run_turn(thread, "again")
        assert await texts(client, thread) == ["Answer 0.", "Back."]


async def test_archive_ends_a_turn_that_runs(harness: AppServerHarness) -> None:
    harness.model.enqueue_assistant_message("Never.", gate=threading.Event())
    async with harness.connect() as client:
        thread = await started(client)
        given = {"threadId": thread, "input": [{"type": "text", "text": "hi"}]}
        turn = (await client.request("turn/start", given))["turn"]["id"]
        await harness.model.arrived(1)
        archived, late = await asyncio.gather(
            client.request("thread/archive", {"threadId": thread}),
            client.request("turn/start", given),
            return_exceptions=True,
        )
        assert archived == {}
        # It came while the thread was put away: it must not run in a thread that nobody can reach.
        assert isinstance(late, RpcError)
        assert late.message == f"thread not found: {thread}"
        assert (await client.turn_end(turn))["turn"]["status"] == "interrupted"
        assert (await client.request("thread/loaded/list", {}))["data"] == []
        harness.model.enqueue_assistant_message("Others are not held up.")
        assert (await client.run_turn(await started(client), "hi"))["turn"]["status"] == "completed"


async def test_resume_and_archive_at_the_same_time(harness: AppServerHarness) -> None:
    async with harness.server() as server, harness.connect(server=server) as client:
        thread = await talked(harness, client)
        resumed, archived = await asyncio.gather(
            client.request("thread/resume", {"threadId": thread}),
            client.request("thread/archive", {"threadId": thread}),
        )
        assert resumed["thread"]["id"] == thread
        assert archived == {}
        assert server.threads.ids() == []


async def test_delete(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        thread = await talked(harness, client)
        fork = (await client.request("thread/fork", {"threadId": thread}))["thread"]["id"]
        await client.request("thread/delete", {"threadId": thread})
        assert (await client.wait_for("thread/deleted"))["params"] == {"threadId": thread}
        assert "thread not loaded" in await refusal(client, "thread/read", {"threadId": thread})
        assert "no rollout found" in await refusal(client, "thread/delete", {"threadId": thread})
        assert [each["id"] for each in (await client.request("thread/list", {}))["data"]] == [fork]
        assert await texts(client, fork) == ["Answer 0."]


async def test_revert_and_rollback(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        thread = await talked(harness, client, 5)
        turns = (await client.request("thread/read", {"threadId": thread, "includeTurns": True}))["thread"]["turns"]
        await client.request("thread/revert", {"threadId": thread, "beforeTurnId": turns[3]["id"]})
        await client.wait_for("thread/reverted")
        assert await texts(client, thread) == ["Answer 0.", "Answer 1.", "Answer 2."]
        rolled = await client.request("thread/rollback", {"threadId": thread, "numTurns": 1})
        assert [turn["id"] for turn in rolled["thread"]["turns"]] == [turn["id"] for turn in turns[:2]]
        harness.model.enqueue_assistant_message("Instead.")
        await client.run_turn(thread, "instead")
        said = [item for item in harness.model.requests()[-1].input if item.get("role") == "user"]
        assert len(said) == 3
        assert await texts(client, thread) == ["Answer 0.", "Answer 1.", "Instead."]
        rolled = await client.request("thread/rollback", {"threadId": thread, "numTurns": 100})
        assert rolled["thread"]["turns"] == []


async def test_nothing_is_cut_under_a_turn_that_runs(harness: AppServerHarness) -> None:
    gate = threading.Event()
    async with harness.connect() as client:
        thread = await talked(harness, client)
        harness.model.enqueue_assistant_message("Held.", gate=gate)
        given = {"threadId": thread, "input": [{"type": "text", "text": "hi"}]}
        turn = (await client.request("turn/start", given))["turn"]["id"]
        assert "while a turn is in progress" in await refusal(
            client, "thread/rollback", {"threadId": thread, "numTurns": 1}
        )
        assert "while a turn is in progress" in await refusal(
            client, "thread/revert", {"threadId": thread, "beforeTurnId": turn}
        )
        gate.set()
        assert (await client.turn_end(turn))["turn"]["status"] == "completed"


# --- ephemeral ---


async def test_ephemeral_threads(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        answer = await client.request("thread/start", {"ephemeral": True})
        thread = answer["thread"]["id"]
        assert (answer["thread"]["ephemeral"], answer["thread"]["path"]) == (True, None)
        harness.model.enqueue_assistant_message("Soon forgotten.")
        assert (await client.run_turn(thread, "hi"))["turn"]["status"] == "completed"
        assert (await client.request("thread/list", {}))["data"] == []
        assert (await client.request("thread/loaded/list", {}))["data"] == [thread]
        assert (await client.request("thread/read", {"threadId": thread}))["thread"]["preview"] == "hi"
        text = await refusal(client, "thread/read", {"threadId": thread, "includeTurns": True})
        assert text == "ephemeral threads do not support includeTurns"
        assert (await client.request("thread/messages/search", {"searchTerm": "forgotten"}))["data"] == []
        source = await talked(harness, client)
        fork = (await client.request("thread/fork", {"threadId": source, "ephemeral": True}))["thread"]
        assert (fork["ephemeral"], len(fork["turns"])) == (True, 1)
        assert [each["id"] for each in (await client.request("thread/list", {}))["data"]] == [source]
    async with harness.connect() as client:
        for lost in (thread, fork["id"]):
            assert "thread not loaded" in await refusal(client, "thread/read", {"threadId": lost})


# --- in and out of memory ---


async def test_idle_threads_are_unloaded(harness: AppServerHarness) -> None:
    gate = threading.Event()
    async with harness.server() as server, harness.connect(server=server) as client:
        idle = await talked(harness, client)
        heard = await talked(harness, client)
        busy = await started(client)
        harness.model.enqueue_assistant_message("Held.", gate=gate)
        given = {"threadId": busy, "input": [{"type": "text", "text": "hi"}]}
        await client.request("turn/start", given)
        for thread in (idle, busy):
            await client.request("thread/unsubscribe", {"threadId": thread})
        await server.threads.unload_idle(0)  # used since
        assert set(server.threads.ids()) == {idle, heard, busy}
        await server.threads.unload_idle(2**62)
        assert set(server.threads.ids()) == {heard, busy}
        assert [message["params"]["threadId"] for message in client.told("thread/closed")] == [idle]
        status = client.told("thread/status/changed")[-1]["params"]
        assert status == {"threadId": idle, "status": {"type": "notLoaded"}}
        assert (await client.request("thread/read", {"threadId": idle}))["thread"]["status"] == {"type": "notLoaded"}
        assert await refusal(client, "turn/start", {**given, "threadId": idle}) == f"thread not found: {idle}"
        await client.request("thread/resume", {"threadId": idle})
        harness.model.enqueue_assistant_message("Again.")
        gate.set()
        await client.run_turn(idle, "again")
        assert (await texts(client, idle))[0] == "Answer 0."


async def test_an_ephemeral_thread_does_not_wait_as_long_as_the_others(harness: AppServerHarness) -> None:
    async with harness.server() as server, harness.connect(server=server) as client:
        kept, ephemeral = await talked(harness, client), await started(client, ephemeral=True)
        for thread in (kept, ephemeral):
            await client.request("thread/unsubscribe", {"threadId": thread})
        await server.threads.unload_idle(0, 2**62)
        assert server.threads.ids() == [kept]
        assert (await client.wait_for("thread/closed"))["params"] == {"threadId": ephemeral}


def test_an_ephemeral_thread_is_closed_within_minutes() -> None:
    assert loaded_threads.EPHEMERAL_IDLE_S + loaded_threads.LOOK_S < 2 * 60
    assert loaded_threads.IDLE_S > 10 * loaded_threads.EPHEMERAL_IDLE_S


async def test_an_ephemeral_thread_that_is_unloaded_leaves_nothing(harness: AppServerHarness) -> None:
    async with harness.server() as server, harness.connect(server=server) as client:
        thread = await started(client, ephemeral=True)
        harness.model.enqueue_assistant_message("Gone soon.")
        await client.run_turn(thread, "hi")
        assert await server.ephemeral_store.load(thread) is not None
        await client.request("thread/unsubscribe", {"threadId": thread})
        await server.threads.unload_idle(2**62)
        assert await server.ephemeral_store.load(thread) is None


async def test_histories_of_idle_threads_are_bounded(
    harness: AppServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last ones used stay, as far as there is room; what was dropped is read again."""
    async with harness.server() as server, harness.connect(server=server) as client:
        threads = [await talked(harness, client) for _ in range(4)]
        assert warm(server) == threads
        size = history_of(server, threads[0]).weight
        monkeypatch.setattr("treadle.server.loaded_threads.KEPT_HISTORY_BYTES", 3 * size)
        await client.request("thread/inject_items", {"threadId": threads[0], "items": [INJECTED]})
        assert warm(server) == [threads[0], threads[3]]  # it was used last, and is larger now
        harness.model.enqueue_assistant_message("Still known.")
        await client.run_turn(threads[1], "what was said?")
        said = json.dumps(harness.model.requests()[-1].input)
        assert "Answer" in said, "what was dropped is read again"
        server.threads.drop_histories(2**62)
        assert warm(server) == []
        assert server.threads._warm_bytes == 0


async def test_the_history_of_a_running_turn_is_not_dropped(
    harness: AppServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    monkeypatch.setattr("treadle.server.loaded_threads.KEPT_HISTORY_BYTES", 1)
    async with harness.server() as server, harness.connect(server=server) as client:
        busy, other = await talked(harness, client), await started(client)
        asked = len(harness.model.requests())
        harness.model.enqueue_assistant_message("Held.", gate=gate)
        given = {"threadId": busy, "input": [{"type": "text", "text": "hi"}]}
        turn = (await client.request("turn/start", given))["turn"]["id"]
        await harness.model.arrived(asked + 1)
        server.threads.drop_histories(2**62)
        assert warm(server) == [busy]
        harness.model.enqueue_assistant_message("Other.")
        await client.run_turn(other, "hi")
        gate.set()
        await client.wait_for("turn/completed", lambda params: params["turn"]["id"] == turn)
        assert warm(server) == [busy], "it was used last"


INJECTED: Json = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "more"}]}


def warm(server: AppServer) -> list[str]:
    """Threads whose history is in memory."""
    return [name for name in server.threads.ids() if server.threads.find(name)._thread.history is not None]


def history_of(server: AppServer, thread: str) -> History:
    history = server.threads.find(thread)._thread.history
    assert history is not None
    return history


async def test_resume_while_an_idle_thread_is_unloaded(harness: AppServerHarness) -> None:
    async with harness.server() as server, harness.connect(server=server) as client:
        thread = await talked(harness, client)
        await client.request("thread/unsubscribe", {"threadId": thread})
        resumed, _ = await asyncio.gather(
            client.request("thread/resume", {"threadId": thread}), server.threads.unload_idle(2**62)
        )
        assert resumed["thread"]["id"] == thread
        harness.model.enqueue_assistant_message("Again.")
        assert (await client.run_turn(thread, "again"))["turn"]["status"] == "completed"


async def test_threads_in_memory_by_pages(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        threads = [await started(client) for _ in range(7)]
        found: list[str] = []
        cursor = None
        while True:
            page = await client.request("thread/loaded/list", {"limit": 3, "cursor": cursor})
            found += page["data"]
            cursor = page["nextCursor"]
            if cursor is None:
                break
        assert found == threads
        assert "invalid cursor" in await refusal(client, "thread/loaded/list", {"cursor": NOBODY})


# --- history by pages ---


async def test_turns_and_items_by_pages(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        thread = await talked(harness, client, 7)
        turns = (await client.request("thread/read", {"threadId": thread, "includeTurns": True}))["thread"]["turns"]
        for direction, whole in (("desc", turns[::-1]), ("asc", turns)):
            walk = await _walk(
                client, "thread/turns/list", {"threadId": thread, "sortDirection": direction, "limit": 3}
            )
            assert [turn["id"] for turn in walk] == [turn["id"] for turn in whole]
        items = [item for turn in turns for item in turn["items"]]
        for direction, whole in (("desc", items[::-1]), ("asc", items)):
            walk = await _walk(
                client, "thread/items/list", {"threadId": thread, "sortDirection": direction, "limit": 4}
            )
            assert [entry["item"] for entry in walk] == whole
        one = await client.request("thread/items/list", {"threadId": thread, "turnId": turns[2]["id"]})
        assert [entry["item"] for entry in one["data"]] == turns[2]["items"]
        assert {entry["turnId"] for entry in one["data"]} == {turns[2]["id"]}
        for view, number in (("notLoaded", 0), ("summary", 2), ("full", 2)):
            page = await client.request("thread/turns/list", {"threadId": thread, "itemsView": view})
            assert {(turn["itemsView"], len(turn["items"])) for turn in page["data"]} == {(view, number)}


async def test_a_page_back(harness: AppServerHarness) -> None:
    async with harness.connect() as client:
        thread = await talked(harness, client, 5)
        first = await client.request("thread/turns/list", {"threadId": thread, "limit": 2})
        harness.model.enqueue_assistant_message("New.")
        await client.run_turn(thread, "new")
        newer = {"threadId": thread, "cursor": first["backwardsCursor"], "sortDirection": "asc"}
        page = await client.request("thread/turns/list", newer)
        assert page["data"][0]["id"] == first["data"][0]["id"]
        assert len(page["data"]) == 2
        other = await talked(harness, client)
        text = await refusal(client, "thread/turns/list", {"threadId": other, "cursor": first["backwardsCursor"]})
        assert text.startswith("invalid cursor")


async def _walk(client: HarnessClient, method: str, params: Json) -> list[Json]:
    found: list[Json] = []
    cursor = None
    while True:
        page = await client.request(method, {**params, "cursor": cursor})
        assert len(page["data"]) <= params["limit"]
        found += page["data"]
        cursor = page["nextCursor"]
        if cursor is None:
            return found


async def test_a_turn_whose_end_is_being_written_is_not_told_to_run(
    harness: AppServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the end of a turn and its commit: who resumes then will not hear of the end, so it must be told of it."""
    gate = threading.Event()
    harness.model.enqueue_assistant_message("The end.", gate=gate)
    async with asyncio.timeout(30), harness.server() as server, harness.connect(server=server) as client:
        thread = await started(client)
        given = {"threadId": thread, "input": [{"type": "text", "text": "hi"}]}
        turn = (await client.request("turn/start", given))["turn"]["id"]
        running = server.threads.find(thread)._thread
        store = await server.store()
        submit = store.submit
        ending = asyncio.Event()
        held: list[tuple[Any, ...]] = []

        def slow(*call: Any) -> None:
            if running.turn is None and not ending.is_set():
                held.append(call)
                ending.set()
            else:
                submit(*call)

        monkeypatch.setattr(store, "submit", slow)
        flush, turns = running.journal.flush, store.turns

        def go_on() -> None:
            if held:
                submit(*held.pop())

        async def flushed() -> None:
            go_on()
            await flush()

        async def read(*arguments: Any, **more: Any) -> Any:
            found = await turns(*arguments, **more)
            go_on()
            return found

        gate.set()
        await ending.wait()
        monkeypatch.setattr(running.journal, "flush", flushed)
        monkeypatch.setattr(store, "turns", read)
        async with harness.connect(server=server) as other:
            (found,) = (await other.request("thread/resume", {"threadId": thread}))["thread"]["turns"]
        assert (found["id"], found["status"]) == (turn, "completed")
