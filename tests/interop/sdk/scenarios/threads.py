# mypy: disable-error-code="import-not-found"
"""Threads beyond their turns: resume, fork, list, read, names, archive, compaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openai_codex import InvalidRequestError
from openai_codex.types import SortDirection, ThreadListCwdFilter, ThreadSortKey

from interop.sdk.stage import Stage, now, roles_of


async def resumed(stage: Stage) -> Any:
    """The same home, another server: the conversation goes on."""
    stage.model.enqueue_assistant_message("Noted.")
    stage.model.enqueue_assistant_message("It was blue.")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        await now(thread.run("My colour is blue."))
    async with stage.codex() as codex:
        again = await now(codex.thread_resume(thread.id))
        before = (await now(again.read(include_turns=True))).thread
        result = await now(again.run("Which colour?"))
        after = (await now(again.read(include_turns=True))).thread
    second = stage.model.requests()[1]
    return {
        "same": again.id == thread.id,
        "before": [[item.root.type for item in turn.items] for turn in before.turns],
        "after": [turn.status.value for turn in after.turns],
        "answer": result.final_response,
        "said": [text for text in second.input_texts("user") if not text.startswith("<")],
        "answered": second.input_texts("assistant"),
    }


async def without_turns(stage: Stage) -> Any:
    """`include_turns=False` is refused by the SDK itself unless the server calls itself 0.151 or newer."""
    stage.model.enqueue_assistant_message("Noted.")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        await now(thread.run("Remember."))
    async with stage.codex() as codex:
        client = codex._client
        short = await now(client.thread_resume(thread.id, {"excludeTurns": True}))
        forked = await now(client.thread_fork(thread.id, {"excludeTurns": True}))
        await now(codex.thread_resume(thread.id, include_turns=False))
        full = await now(client.thread_fork(thread.id, {}))
    return [len(answer.thread.turns) for answer in (short, forked, full)]


async def forked(stage: Stage) -> Any:
    for text in ("Noted.", "In the fork.", "In the source."):
        stage.model.enqueue_assistant_message(text)
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        await now(thread.run("Shared."))
        fork = await now(codex.thread_fork(thread.id))
        await now(fork.run("Only the fork."))
        await now(thread.run("Only the source."))
        states = [(await now(one.read(include_turns=True))).thread for one in (thread, fork)]
    said = [
        [text for text in request.input_texts("user") if not text.startswith("<")] for request in stage.model.requests()
    ]
    return {
        "other": fork.id != thread.id,
        "from": states[1].forked_from_id == thread.id,
        "turns": [len(state.turns) for state in states],
        "said": said,
    }


async def listed(stage: Stage) -> Any:
    """Only threads that were spoken to are listed, the newest first; pages and filters."""
    async with stage.codex() as codex:
        await now(codex.thread_start())
        ids = []
        for number in range(3):
            stage.model.enqueue_assistant_message("ok")
            folder = stage.workspace / f"folder-{number}"
            folder.mkdir()
            thread = await now(codex.thread_start(cwd=str(folder)))
            await now(thread.run(f"thread number {number}"))
            await now(thread.set_name(f"name {number}"))
            ids.append(thread.id)

        async def found(**filters: Any) -> list[int]:
            return [ids.index(thread.id) for thread in (await now(codex.thread_list(**filters))).data]

        async def pages(**filters: Any) -> list[list[int]]:
            first = await now(codex.thread_list(limit=2, **filters))
            rest = await now(codex.thread_list(limit=2, cursor=first.next_cursor, **filters))
            return [[ids.index(thread.id) for thread in page.data] for page in (first, rest)]

        everything = await now(codex.thread_list())
        return {
            "all": [ids.index(thread.id) for thread in everything.data],
            "previews": [thread.preview for thread in everything.data],
            "names": [thread.name for thread in everything.data],
            "end": everything.next_cursor,
            "pages": await pages(),
            "pages by recency": await pages(sort_key=ThreadSortKey.recency_at),
            "oldest first": await found(sort_direction=SortDirection.asc, sort_key=ThreadSortKey.created_at),
            "folder": await found(cwd=ThreadListCwdFilter(root=str(stage.workspace / "folder-1"))),
            "search": await found(search_term="name 2"),
            "provider": await found(model_providers=["nobody"]),
            "archived": await found(archived=True),
        }


async def archived(stage: Stage) -> Any:
    stage.model.enqueue_assistant_message("ok")
    stage.model.enqueue_assistant_message("still here")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        await now(thread.run("Keep me."))

        async def lists() -> list[list[bool]]:
            return [
                [one.id == thread.id for one in (await now(codex.thread_list(archived=archived))).data]
                for archived in (False, True)
            ]

        await now(codex.thread_archive(thread.id))
        away = await lists()
        try:
            await now(codex.thread_resume(thread.id))
        except InvalidRequestError as error:
            refusal = "archived" in error.message
        await now(codex.thread_unarchive(thread.id))
        back = await lists()
        again = await now(codex.thread_resume(thread.id))
        result = await now(again.run("Are you there?"))
    return {
        "away": away,
        "refused": refusal,
        "back": back,
        "answer": result.final_response,
        "told": [
            stage.wire.received(f"thread/{what}") == [{"threadId": thread.id}] for what in ("archived", "unarchived")
        ],
    }


async def named(stage: Stage) -> Any:
    stage.model.enqueue_assistant_message("ok")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        await now(thread.run("Hello."))
        await now(thread.set_name("a good name"))
        await stage.wire.wait_for("thread/name/updated")
        try:
            await now(thread.set_name("  "))
        except InvalidRequestError as error:
            refusal = error.message
        read = (await now(thread.read())).thread
    async with stage.codex() as codex:
        after = (await now(codex._client.thread_read(thread.id))).thread
    return {
        "name": [read.name, after.name],
        "preview": read.preview,
        "status": [read.status.root.type, after.status.root.type],
        "turns": read.turns,
        "told": stage.wire.received("thread/name/updated")[0]["threadName"],
        "refusal": refusal,
    }


async def ephemeral(stage: Stage) -> Any:
    stage.model.enqueue_assistant_message("ok")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start(ephemeral=True))
        result = await now(thread.run("Forget me."))
        read = (await now(thread.read())).thread
        listed = (await now(codex.thread_list())).data
    async with stage.codex() as codex:
        try:
            await now(codex.thread_resume(thread.id))
        except InvalidRequestError as error:
            refusal = error.message.replace(thread.id, "ID")
    return {
        "answer": result.final_response,
        "ephemeral": read.ephemeral,
        "path": read.path,
        "listed": len(listed),
        "refusal": refusal,
    }


async def compacted(stage: Stage) -> Any:
    """Compaction is a turn of its own; afterwards the model sees the summary in place of the old answers."""
    stage.model.enqueue_assistant_message("A long answer.")
    stage.model.enqueue_assistant_message("SUMMARY of it all")
    stage.model.enqueue_assistant_message("Going on.")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        await now(thread.run("A long question."))
        await now(thread.compact())
        completed = (await stage.wire.wait_for("turn/completed", 2))["turn"]
        result = await now(thread.run("Go on."))
    last = stage.model.requests()[-1]
    items = [
        note["item"]["type"] for note in stage.wire.received("item/completed") if note["turnId"] == completed["id"]
    ]
    return {
        "status": completed["status"],
        "items": items,
        "completed": [completed["items"], completed["itemsView"]],
        "tools": stage.model.requests()[1].tool_names,
        "answer": result.final_response,
        "question": "A long question." in last.input_texts("user"),
        "old": [text for text in last.input_texts("assistant") if "SUMMARY" not in text],
        "summary": roles_of(last, "SUMMARY of it all"),
    }


async def unknown(stage: Stage) -> Any:
    nobody = "01a1dd9c-3d5a-71a0-99d1-f681687985a4"
    async with stage.codex() as codex:
        ghost = stage.thread(codex, nobody)
        calls: dict[str, Callable[[], Any]] = {
            "run": lambda: ghost.run("Hello?"),
            "read": lambda: ghost.read(),
            "resume": lambda: codex.thread_resume(nobody),
            "fork": lambda: codex.thread_fork(nobody),
            "archive": lambda: codex.thread_archive(nobody),
            "unarchive": lambda: codex.thread_unarchive(nobody),
            "no id": lambda: codex.thread_resume("nonsense"),
        }
        refusals = {}
        for name, call in calls.items():
            try:
                await now(call())
            except InvalidRequestError as error:
                refusals[name] = error.message.replace(nobody, "ID")
    # What follows is the wording of whoever parsed the id.
    refusals["no id"] = refusals["no id"].partition(":")[0]
    return refusals
