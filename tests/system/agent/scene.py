"""A server in this process, a mock model and a client that keeps the replies in their place among the notifications."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

from treadle.llm import GO_ON, OPENING
from treadle.server import AppServer
from treadle.testing import AppServerHarness, HarnessClient, MockModel, RecordedRequest

Json: TypeAlias = dict[str, Any]

DEADLINE = 60.0
# How a command exits that is ended: the executor of the real codex kills it at once.
ENDED = 137 if os.environ.get("TREADLE_TEST_ENVIRONMENT") == "codex" else 143
REPLY = "<reply>"  # the method under which a reply stands in `messages`
DELTAS = frozenset(
    {
        "item/agentMessage/delta",
        "item/plan/delta",
        "item/reasoning/summaryPartAdded",
        "item/reasoning/summaryTextDelta",
        "item/reasoning/textDelta",
        "item/commandExecution/outputDelta",
        "item/mcpToolCall/progress",
        "mcpServer/startupStatus/updated",
    }
)


class Scene:
    """Shorthands for one server with one client; `harness` and `client` have the rest."""

    def __init__(self, harness: AppServerHarness, server: AppServer, client: HarnessClient) -> None:
        self.harness = harness
        self.server = server
        self.client = client
        keep_replies(client)

    @property
    def model(self) -> MockModel:
        return self.harness.model

    @property
    def workspace(self) -> Path:
        return self.harness.workspace

    async def start(self, **params: Any) -> str:
        """A new thread."""
        thread_id: str = (await self.client.request("thread/start", params))["thread"]["id"]
        return thread_id

    async def begin(self, thread: str, text: str = "go", **params: Any) -> str:
        """Start a turn without waiting for it."""
        given = {"threadId": thread, "input": said(text), **params}
        turn_id: str = (await self.client.request("turn/start", given))["turn"]["id"]
        return turn_id

    async def run(self, thread: str, text: str = "go", **params: Any) -> Json:
        """A whole turn; the turn as `turn/completed` tells it."""
        done = await self.client.turn_end(await self.begin(thread, text, **params))
        turn: Json = done["turn"]
        return turn

    async def end(self, turn: str) -> Json:
        ended: Json = (await self.client.turn_end(turn))["turn"]
        return ended

    async def steer(self, thread: str, turn: str, text: str) -> Json:
        return await self.client.request(
            "turn/steer", {"threadId": thread, "expectedTurnId": turn, "input": said(text)}
        )

    async def interrupt(self, thread: str, turn: str) -> Json:
        return await self.client.request("turn/interrupt", {"threadId": thread, "turnId": turn})

    async def read(self, thread: str) -> list[Json]:
        """The turns, as `thread/read` has them."""
        answer = await self.client.request("thread/read", {"threadId": thread, "includeTurns": True})
        turns: list[Json] = answer["thread"]["turns"]
        return turns

    async def items(self, thread: str) -> list[Json]:
        return [item for turn in await self.read(thread) for item in turn["items"]]

    def completed(self, kind: str) -> list[Json]:
        """Items of a type that were told to be completed."""
        items = [message["params"]["item"] for message in self.client.told("item/completed")]
        return [item for item in items if item["type"] == kind]

    async def asked(self, method: str, number: int = 1) -> Json:
        """The request of the server with this method that came as the `number`th."""
        await self.client.wait_for(method, lambda _: len(self.client.told(method)) >= number)
        return self.client.told(method)[number - 1]

    async def command_output(self, thread: str, text: str = "") -> Json:
        """Wait until a command has written something."""
        return await self.client.wait_for(
            "item/commandExecution/outputDelta",
            lambda params: params["threadId"] == thread and text in params["delta"],
        )


@asynccontextmanager
async def scene(
    tmp_path: Path,
    *,
    model: MockModel | None = None,
    settings: Mapping[str, str | int | bool] | None = None,
    provider: Mapping[str, str | int | bool] | None = None,
    extra_toml: str = "",
) -> AsyncIterator[Scene]:
    harness = AppServerHarness(tmp_path, model=model, settings=settings, provider=provider, extra_toml=extra_toml)
    with harness:
        async with asyncio.timeout(DEADLINE), harness.server() as server, harness.connect(server=server) as client:
            yield Scene(harness, server, client)


@asynccontextmanager
async def waiting_scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """With a model that waits until the test has made up its mind."""
    with MockModel(on_empty="wait") as model:
        async with scene(tmp_path, model=model) as stage:
            yield stage


def keep_replies(client: HarnessClient) -> None:
    """Replies are put among the messages, where a connection would have written them."""
    replied = client._replied

    def reply(message: Json) -> None:
        if "result" in message:
            client.messages.append({"method": REPLY, "params": {"result": message["result"]}})
        replied(message)

    client._replied = reply  # type: ignore[method-assign]


def said(text: str) -> list[Json]:
    return [{"type": "text", "text": text}]


def gate() -> threading.Event:
    return threading.Event()


def shell(cmd: str, **more: Any) -> Json:
    """Arguments of exec_command, without the profile of whoever runs the tests."""
    return {"cmd": cmd, "login": False, **more}


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"]) + "\n"


def failed(code: str, message: str) -> Json:
    return {"type": "response.failed", "response": {"id": "r", "error": {"code": code, "message": message}}}


def roles(request: RecordedRequest) -> list[str]:
    """The input as a line of roles and types."""
    return [str(item.get("role") or item.get("type")) for item in request.input]


def user_texts(request: RecordedRequest) -> list[str]:
    """What the user said, without what an API wants in the user's role so that there is something in it."""
    return [text for text in request.input_texts("user") if text not in (OPENING, GO_ON)]


def methods(messages: Sequence[Json]) -> list[str]:
    return [message["method"] for message in messages]
