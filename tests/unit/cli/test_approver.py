"""Questions at a terminal: one after the other, withdrawn when somebody else has answered, and no when nobody does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from treadle.cli import TerminalApprover, TurnRenderer
from treadle.errors import RpcError
from treadle.protocol.app import encode

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

    def restore(self) -> None: ...


class Screen:
    def __init__(self) -> None:
        self.renderer = TurnRenderer(0.0)
        self.file = StringIO()

    @contextmanager
    def aside(self) -> Iterator[Console]:
        yield Console(file=self.file, width=80)


class Stage:
    def __init__(self) -> None:
        self.keys = Keys()
        self.screen = Screen()
        self.approver = TerminalApprover(self.screen, self.keys)  # type: ignore[arg-type]

    @property
    def text(self) -> str:
        return self.screen.file.getvalue()

    def ask(self, command: str = "ls") -> asyncio.Task[tuple[Any, str]]:
        params = {"threadId": "t", "turnId": "u", "itemId": f"of {command}", "startedAtMs": 0, "command": command}
        asking = self.approver.ask("item/commandExecution/requestApproval", params)
        return asyncio.get_running_loop().create_task(asking)


async def in_time(check: Callable[[Stage], Awaitable[None]]) -> None:
    async with asyncio.timeout(10):
        await check(Stage())


async def decision(asking: asyncio.Task[tuple[Any, str]]) -> str:
    return encode((await asking)[0]).decode()


async def test_questions_are_asked_one_after_the_other() -> None:
    async def check(stage: Stage) -> None:
        first, second = stage.ask("first"), stage.ask("second")
        await stage.keys.asked.wait()
        assert "second" not in stage.text
        for typed in ("?", "y", "n", "do it by hand\n"):
            stage.keys.typed.put_nowait(typed)
        assert '"accept"' in await decision(first)
        assert '"decline"' in await decision(second)
        assert (await second)[1] == "do it by hand"

    await in_time(check)


async def test_a_question_that_was_answered_elsewhere_is_withdrawn() -> None:
    async def check(stage: Stage) -> None:
        first, second = stage.ask("first"), stage.ask("second")
        await stage.keys.asked.wait()
        stage.keys.asked.clear()
        first.cancel()
        await stage.keys.asked.wait()  # for the next one
        assert first.cancelled()
        assert "no answer is needed any more" in stage.text
        stage.keys.typed.put_nowait("a")
        assert '"acceptForSession"' in await decision(second)

    await in_time(check)


async def test_one_that_waits_its_turn_may_be_withdrawn_too() -> None:
    async def check(stage: Stage) -> None:
        first, second = stage.ask("first"), stage.ask("second")
        await stage.keys.asked.wait()
        second.cancel()
        stage.keys.typed.put_nowait("y")
        assert '"accept"' in await decision(first)
        await asyncio.wait([second])
        assert "second" not in stage.text

    await in_time(check)


@pytest.mark.parametrize("typed", ["", "\x04"])
async def test_the_end_of_input_is_no(typed: str) -> None:
    async def check(stage: Stage) -> None:
        asking = stage.ask()
        stage.keys.typed.put_nowait(typed)
        assert '"decline"' in await decision(asking)

    await in_time(check)


async def test_in_the_background_nobody_is_asked() -> None:
    async def check(stage: Stage) -> None:
        stage.keys.ours = False
        assert '"decline"' in await decision(stage.ask())
        assert not stage.keys.asked.is_set()

    await in_time(check)


@pytest.mark.parametrize(
    ("method", "params"),
    [("item/tool/call", {}), ("no/such/request", {}), ("item/commandExecution/requestApproval", {"command": 1})],
)
async def test_what_is_not_known_here_is_refused(method: str, params: dict[str, Any]) -> None:
    async def check(stage: Stage) -> None:
        with pytest.raises(RpcError):
            await stage.approver.ask(method, params)
        assert not stage.keys.asked.is_set()

    await in_time(check)
