# mypy: disable-error-code="import-not-found"
"""Whole objects: every field of what the SDK returns, by the name of its attribute."""

from __future__ import annotations

from enum import Enum
from typing import Any

from openai_codex.types import ThreadSource

from interop.sdk.normal import normal
from interop.sdk.stage import Events, Stage, now

RESULT = ("id", "status", "error", "started_at", "completed_at", "duration_ms", "final_response", "items", "usage")


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def _play_a_turn(stage: Stage) -> None:
    stage.model.enqueue_function_call("exec_command", {"cmd": "echo to-the-model"}, call_id="call-1")
    text = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"
    stage.model.enqueue_custom_call("apply_patch", text, call_id="call-2")
    stage.model.enqueue_assistant_message("It said so.", deltas=["It said ", "so."])


async def result(stage: Stage) -> Any:
    _play_a_turn(stage)
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        result = await now(thread.run("Run it."))
    return normal({name: _plain(getattr(result, name)) for name in RESULT}, stage.folder)


async def events(stage: Stage) -> Any:
    _play_a_turn(stage)
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        events = await Events(await now(thread.turn("Run it."))).rest()
    return normal([[event.method, _plain(event.payload)] for event in events], stage.folder)


async def answers(stage: Stage) -> Any:
    _play_a_turn(stage)
    async with stage.codex(client_name="my_client", client_title="My client", client_version="7.8") as codex:
        thread = await now(codex.thread_start(thread_source=ThreadSource.user))
        await now(thread.run("Run it."))
        client = codex._client
        named = await now(thread.set_name("a name"))
        seen = {
            "read": await now(thread.read(include_turns=True)),
            "named": named,
            "listed": await now(codex.thread_list()),
            "models": await now(codex.models(include_hidden=True)),
            "account": await now(codex.account()),
            "started": await now(client.thread_start({})),
            "resumed": await now(client.thread_resume(thread.id, {})),
            "forked": await now(client.thread_fork(thread.id, {})),
            "archived": await now(codex.thread_archive(thread.id)),
            "unarchived": await now(client.thread_unarchive(thread.id)),
        }
        metadata = codex.metadata
    return normal({**{name: _plain(answer) for name, answer in seen.items()}, "said": _plain(metadata)}, stage.folder)


async def kinds(stage: Stage) -> Any:
    """Which types of Python the fields have, where JSON does not tell."""
    stage.model.enqueue_function_call("exec_command", {"cmd": "true"}, call_id="call-1")
    stage.model.enqueue_assistant_message("Done.")
    async with stage.codex() as codex:
        thread = await now(codex.thread_start())
        result = await now(thread.run("Run it."))
        read = (await now(thread.read(include_turns=True))).thread
    command = next(item.root for item in result.items if item.root.type == "commandExecution")
    return {
        "items of a result": type(result.items).__name__,
        "turns of a thread": type(read.turns).__name__,
        "a path": type(getattr(command.cwd, "root", command.cwd)).__name__,
        "a path has a root": hasattr(command.cwd, "root"),
        "a status": isinstance(result.status, Enum),
        "a phase": isinstance(result.items[-1].root.phase, Enum | None),
        "a command's status": isinstance(command.status, Enum),
        "a usage": type(result.usage.total.total_tokens).__name__,
    }
