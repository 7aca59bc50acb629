"""Questions at a terminal: one after the other, withdrawn when somebody else has answered, and no when nobody does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from treadle.agent.client_requests import ClientRequest
from treadle.cli.turn.story import TurnStory
from treadle.cli.turn.terminal_approver import MAX_OPEN, Approver
from treadle.errors import RpcError
from treadle.protocol.app.approvals import CommandExecutionRequestApprovalParams
from treadle.protocol.app.base import encode

pytestmark = pytest.mark.anyio


class Keys:
    """A keyboard at which the test types."""

    def __init__(self) -> None:
        self.typed: asyncio.Queue[str] = asyncio.Queue()
        self.ours = True
        self.asked = asyncio.Event()

    def is_ours(self) -> bool:
        return self.ours

    @contextmanager
    def keys(self) -> Iterator[None]:
        yield

    async def read(self) -> str:
        self.asked.set()
        return await self.typed.get()

    def withdraw(self) -> None:
        self.typed.put_nowait("")

    def restore(self) -> None: ...


class Screen:
    def __init__(self) -> None:
        self.story = TurnStory(0.0)
        self.file = StringIO()

    @contextmanager
    def aside(self) -> Iterator[Console]:
        yield Console(file=self.file, width=80)


class Stage:
    def __init__(self) -> None:
        self.keys = Keys()
        self.screen = Screen()
        self.approver = Approver(self.screen, self.keys)  # type: ignore[arg-type]
        self.answers: dict[int, Any] = {}
        self.told: list[str] = []
        self._answered = asyncio.Event()

    def ask(self, command: str = "ls") -> ClientRequest:
        request = ClientRequest("item/commandExecution/requestApproval")
        request.params = CommandExecutionRequestApprovalParams(
            thread_id="t", turn_id="u", item_id=f"of {command}", started_at_ms=0, command=command
        )
        assert self.approver.ask(request)
        return request

    def answer(self, request_id: int, answer: Any) -> None:
        self.answers[request_id] = answer
        self.approver.resolved(request_id)  # as the server says of every answer
        self._answered.set()

    async def decision(self, request: ClientRequest) -> str:
        while request.id not in self.answers:
            self._answered.clear()
            await self._answered.wait()
        return encode(self.answers[request.id]).decode()

    @contextmanager
    def running(self) -> Iterator[None]:
        task = asyncio.get_running_loop().create_task(self.approver.run(self.answer, self.told.append))
        try:
            yield
        finally:
            task.cancel()


async def in_time(check: Callable[[Stage], Any]) -> None:
    stage = Stage()
    async with asyncio.timeout(10):
        with stage.running():
            await check(stage)


async def test_questions_are_asked_one_after_the_other() -> None:
    async def check(stage: Stage) -> None:
        first, second = stage.ask("first"), stage.ask("second")
        await stage.keys.asked.wait()
        assert "second" not in stage.screen.file.getvalue()
        for typed in ("?", "y", "n", "do it by hand\n"):
            stage.keys.typed.put_nowait(typed)
        assert '"accept"' in await stage.decision(first)
        assert '"decline"' in await stage.decision(second)
        assert stage.told == ["do it by hand"]

    await in_time(check)


async def test_a_question_that_was_answered_elsewhere_is_withdrawn() -> None:
    async def check(stage: Stage) -> None:
        first, second = stage.ask("first"), stage.ask("second")
        await stage.keys.asked.wait()
        stage.keys.asked.clear()
        stage.approver.resolved(first.id)
        await stage.keys.asked.wait()  # for the next one
        assert "no answer is needed any more" in stage.screen.file.getvalue()
        stage.keys.typed.put_nowait("a")
        assert '"acceptForSession"' in await stage.decision(second)
        assert first.id not in stage.answers

    await in_time(check)


async def test_one_that_waits_its_turn_may_be_withdrawn_too() -> None:
    async def check(stage: Stage) -> None:
        first, second = stage.ask("first"), stage.ask("second")
        await stage.keys.asked.wait()
        stage.approver.resolved(second.id)
        stage.keys.typed.put_nowait("y")
        assert '"accept"' in await stage.decision(first)
        assert "second" not in stage.screen.file.getvalue()

    await in_time(check)


@pytest.mark.parametrize("typed", ["", "\x04"])
async def test_the_end_of_input_is_no(typed: str) -> None:
    async def check(stage: Stage) -> None:
        request = stage.ask()
        stage.keys.typed.put_nowait(typed)
        assert '"decline"' in await stage.decision(request)

    await in_time(check)


async def test_in_the_background_nobody_is_asked() -> None:
    async def check(stage: Stage) -> None:
        stage.keys.ours = False
        assert '"decline"' in await stage.decision(stage.ask())
        assert not stage.keys.asked.is_set()

    await in_time(check)


async def test_what_is_not_known_here_is_refused() -> None:
    async def check(stage: Stage) -> None:
        request = ClientRequest("item/tool/call")
        assert stage.approver.ask(request)
        while request.id not in stage.answers:
            await asyncio.sleep(0)
        assert isinstance(stage.answers[request.id], RpcError)

    await in_time(check)


async def test_too_many_questions_are_not_taken() -> None:
    stage = Stage()
    for _ in range(MAX_OPEN):
        stage.ask()
    assert not stage.approver.ask(ClientRequest("item/tool/call"))
