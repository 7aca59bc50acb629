"""`Ask`: what a runtime may ask the person behind the host, the same for every runtime; `PersonApprover`: asks, with a
deadline.

Whatever goes wrong means no. A plain callback runs on a thread of its own, an async one as a task. Neither can hold up
a turn: when the time is over, the turn is to end, or the runtime withdraws its question, the answer is no, and a later
answer is ignored.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from treadle.client.own_thread import run_on_own_thread
from treadle.host.timeouts import Clock
from treadle.secrets import redact, secrets_in

Choice: TypeAlias = Literal["once", "session", "deny"]


class Ask(Struct, frozen=True, kw_only=True):
    """Something that is not done without a yes.

    Args:
        kind: What it is about.
        title: What is to be done, in one line: the command itself, or which files a patch changes.
        description: Where and why, for people.
        command: The command, if it is one.
        cwd: Where it would run.
        paths: The files that would change.
        tool: The tool that an engine wants to use, by the engine's name for it.
        thread_id: The thread.
        turn_id: The turn.
        detail: The runtime's own request, as it came.
    """

    kind: Literal["command", "patch", "permissions", "network", "tool"]
    title: str
    description: str = ""
    command: str | None = None
    cwd: str | None = None
    paths: tuple[str, ...] = ()
    tool: str | None = None
    thread_id: str | None = None
    turn_id: str | None = None
    detail: Any = None


Approvals: TypeAlias = Callable[[Ask], "Choice | bool | Awaitable[Choice | bool | None] | None"]
"""A user's callback. True is `once`; False, None, an exception and silence are `deny`."""

AskPerson: TypeAlias = Callable[[Ask], Awaitable[Choice]]
"""What a session gives its runtime: it decides, in time, and never raises but when it is cancelled."""


logger: logging.Logger = logging.getLogger(__name__)

CHOICES: Final[tuple[Choice, ...]] = ("once", "session", "deny")
MAX_AT_ONCE: Final = 16
"""Questions at a time; nobody reads more. Threads of callbacks that never end count too."""


class PersonApprover:
    """What decides for a session. It lives on one event loop.

    Args:
        callback: Whom to ask; without it the answer is no.
        limit_s: How long to wait for the answer; None has no limit.
        clock: Where to look for the time.
        asked: Called when somebody is asked; gives what is called when that is over.
    """

    def __init__(
        self,
        callback: Approvals | None,
        *,
        limit_s: float | None,
        clock: Clock,
        asked: Callable[[], Callable[[], None]],
    ) -> None:
        self._callback = callback
        self._limit_s = limit_s
        self._clock = clock
        self._asked = asked
        self._withdrawn: set[asyncio.Future[None]] = set()
        self._slots = threading.Semaphore(MAX_AT_ONCE)

    async def ask(self, ask: Ask) -> Choice:
        """The person's decision, or no. It raises only when it is cancelled."""
        if self._callback is None:
            return "deny"
        if not self._slots.acquire(blocking=False):
            logger.warning("a request for approval is declined: %d are waiting for an answer already", MAX_AT_ONCE)
            return "deny"
        withdrawn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._withdrawn.add(withdrawn)
        answered = self._asked()
        waits: set[asyncio.Future[Any]] = {withdrawn}
        try:
            ask = shown(ask)
            deciding = asyncio.create_task(self._decide(self._callback, ask), name="treadle approval")
            waits.add(deciding)
            if self._limit_s is not None:
                waits.add(asyncio.ensure_future(self._clock.sleep(self._limit_s)))
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if deciding.done() and not deciding.cancelled():
                return deciding.result()
            if not withdrawn.done():
                logger.warning("a request for approval was not answered in time, and is declined: %s", ask.title)
            return "deny"
        finally:
            for wait in waits:
                wait.cancel()
            self._withdrawn.discard(withdrawn)
            answered()

    def withdraw(self) -> None:
        """Decline what is being asked: nobody needs to answer any more."""
        for withdrawn in self._withdrawn:
            if not withdrawn.done():
                withdrawn.set_result(None)

    async def _decide(self, callback: Approvals, ask: Ask) -> Choice:
        try:
            answer = await self._answer(callback, ask)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # also one that would end the event loop
            why = redact(f"{type(error).__name__}: {error}", secrets_in(os.environ))
            logger.warning("a request for approval is declined, because the callback raised %s", why)
            return "deny"
        if answer is None or isinstance(answer, bool):
            return "once" if answer else "deny"
        # Only words: other things may say that they are equal to anything.
        choice = next((choice for choice in CHOICES if isinstance(answer, str) and answer == choice), None)
        if choice is None:
            wanted, got = ", ".join(map(repr, CHOICES)), type(answer).__name__
            logger.warning("a request for approval is declined: it needs %s or a bool, and got another %s", wanted, got)
        return choice or "deny"

    async def _answer(self, callback: Approvals, ask: Ask) -> Any:
        if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(type(callback).__call__):
            try:
                return await callback(ask)  # type: ignore[misc]
            finally:
                self._slots.release()

        def call() -> Any:
            try:
                return callback(ask)
            finally:
                # Not before: a thread cannot be ended, and one that hangs is one less.
                self._slots.release()

        answer = await run_on_own_thread(call)
        return await answer if inspect.isawaitable(answer) else answer


def shown(ask: Ask) -> Ask:
    """What is asked, as people may see it: without secrets.

    Args:
        ask: What the runtime asks.
    """
    secrets = secrets_in(os.environ)
    return replace(
        ask,
        title=redact(ask.title, secrets),
        description=redact(ask.description, secrets),
        command=None if ask.command is None else redact(ask.command, secrets),
        paths=tuple(redact(path, secrets) for path in ask.paths),
        detail=_without(ask.detail, secrets),
    )


def _without(value: Any, secrets: list[str]) -> Any:
    """The texts in plain data without the secrets; other values as they are."""
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, Mapping):
        return {name: _without(member, secrets) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_without(member, secrets) for member in value]
    return value
