"""A session of `treadle chat` without a terminal, on a server that a test chooses: a view that remembers, and waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from treadle.cli import ChatMessage, ChatSession, ThreadOptions, UserAnswer
from treadle.client import CodexConfig
from treadle.protocol.app import CommandExecutionRequestApprovalResponse
from treadle.testing import AppServerHarness

WAIT_S = 30.0
ESCALATED = {"cmd": "touch made", "sandbox_permissions": "require_escalated", "justification": "because"}


class RecordingView:
    """A view that remembers, and can be waited for."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, Any]] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answer: Callable[[], UserAnswer] = lambda: UserAnswer(
            CommandExecutionRequestApprovalResponse(decision="decline")
        )
        self.forever = False
        self.withdrawn = 0
        self._changed = asyncio.Event()

    def turn_started(self) -> None:
        self._add("begun", None)

    def show(self, method: str, payload: Any) -> None:
        self._add(method, payload)

    def note(self, text: str) -> None:
        self._add("note", text)

    def problem(self, text: str) -> None:
        self._add("problem", text)

    def lost(self, why: str) -> None:
        self._add("lost", why)

    async def ask(self, method: str, params: dict[str, Any]) -> UserAnswer:
        self.asked.append((method, params))
        self._add("asked", method)
        if self.forever:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.withdrawn += 1
                raise
        return self.answer()

    def _add(self, what: str, value: Any) -> None:
        self.shown.append((what, value))
        self._changed.set()

    def all(self, what: str) -> list[Any]:
        return [value for kind, value in self.shown if kind == what]

    async def wait_for(self, what: str, count: int = 1) -> Any:
        async with asyncio.timeout(WAIT_S):
            while len(found := self.all(what)) < count:
                self._changed.clear()
                await self._changed.wait()
        return found[count - 1]


class Stage:
    def __init__(self, harness: AppServerHarness, session: ChatSession, told: RecordingView) -> None:
        self.model = harness.model
        self.harness = harness
        self.session = session
        self.told = told

    def say(self, text: str) -> None:
        self.session.want(lambda: self.session.send(ChatMessage(text)))

    async def done(self, count: int = 1) -> Any:
        return (await self.told.wait_for("turn/completed", count)).turn


@asynccontextmanager
async def session_on(harness: AppServerHarness, config: CodexConfig | None = None) -> AsyncIterator[Stage]:
    """On a server in this process, or on that of the config."""
    told = RecordingView()
    session = ChatSession(config or harness.codex_config(), told, ThreadOptions(cwd=str(harness.workspace)))
    try:
        await session.connect()
        await session.enter(None)
        running = asyncio.create_task(session.run())
        await asyncio.sleep(0)
        try:
            yield Stage(harness, session, told)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    finally:
        await session.close()


@asynccontextmanager
async def on_stage(tmp_path: Path, **settings: Any) -> AsyncIterator[Stage]:
    with AppServerHarness(tmp_path, settings={"approval_policy": "on-request", **settings}) as harness:
        async with session_on(harness) as stage:
            yield stage
