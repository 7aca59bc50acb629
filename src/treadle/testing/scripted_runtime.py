"""`ScriptedRuntime`: a runtime of the host that plays what a test wrote down, and records what it was asked for.

    runtime = ScriptedRuntime([[said("hello"), DONE], [ran("make"), SILENCE]])
    session = Session(runtime, clock=ManualClock())

A step of a script is an event, an exception to raise, a `Gate` to wait at, an `Ask` for the person, `SILENCE`,
or an async function that is called with the runtime and may give an event.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeAlias, cast, get_args

from treadle.host.approver import Ask, AskPerson, Choice
from treadle.host.faults import Fault, RuntimeFault
from treadle.host.runtime import Compacted, ItemCompleted, Opened, Opening, RuntimeEvent, TurnEnded, UserInput
from treadle.protocol.app.item_parts import TextUserInput
from treadle.protocol.app.items import (
    AgentMessageThreadItem,
    CommandExecutionStatus,
    CommandExecutionThreadItem,
    ReasoningThreadItem,
    UserMessageThreadItem,
)

_EVENTS: Final = get_args(RuntimeEvent)
_numbers = itertools.count(1)


class Gate:
    """A place where a script stops until the test opens it. All of it may be used from any thread."""

    def __init__(self) -> None:
        self._reached: Future[None] = Future()
        self._opened: Future[None] = Future()

    def open(self) -> None:
        """Open the gate, also before the script is here."""
        if not self._opened.done():
            self._opened.set_result(None)

    async def reached(self) -> None:
        """Return when the script is here."""
        await asyncio.shield(asyncio.wrap_future(self._reached))

    def wait_reached(self, timeout: float = 30.0) -> None:
        """`reached` for a test without an event loop.

        Args:
            timeout: After that many seconds it is a `TimeoutError`.
        """
        self._reached.result(timeout)

    async def _pass(self) -> None:
        if not self._reached.done():
            self._reached.set_result(None)
        await asyncio.shield(asyncio.wrap_future(self._opened))


class Silence:
    """Nothing more, until the turn is interrupted or the runtime closed."""


SILENCE: Final = Silence()
DONE: Final = TurnEnded("completed")
STOPPED: Final = TurnEnded("interrupted")
SUMMED_UP: Final = Compacted()

Act: TypeAlias = Callable[["ScriptedRuntime"], Awaitable[RuntimeEvent | None]]
Step: TypeAlias = RuntimeEvent | BaseException | Gate | Ask | Silence | Act
Script: TypeAlias = Sequence[Step]
Start: TypeAlias = Opened | BaseException | Gate | Silence


class ScriptedRuntime:
    """A runtime that plays scripts.

    Args:
        turns: A script for each turn. An exception in the place of a script is raised by `start_turn`; a `Gate` or
            `SILENCE` there holds that call up, and the next entry is for the same call.
        opens: What happens at each `open`, in order: what is opened, or what is raised. A `Gate` or `SILENCE` holds it
            up. After the last one, threads are opened as usual.
        on_interrupt: What is played instead of the rest of a turn when it is interrupted; nothing is: the turn goes on.
        probes: What happens at a `probe` before it comes back.
        compaction: What is played for `compact`; None is a runtime that cannot.
        closing: What happens at a `close` before it comes back.
        steerable: Whether it takes what is said in the middle of a turn.
        name: What the runtime is called.
    """

    def __init__(
        self,
        turns: Iterable[Script | BaseException | Gate | Silence] = (),
        *,
        opens: Iterable[Start] = (),
        on_interrupt: Script = (STOPPED,),
        probes: Script = (),
        compaction: Script | None = (SUMMED_UP, DONE),
        closing: Script = (),
        steerable: bool = True,
        name: str = "scripted",
    ) -> None:
        self._turns = iter(turns)
        self._opens = iter(opens)
        self._on_interrupt = on_interrupt
        self._probes = probes
        self._compaction = compaction
        self._closing = closing
        self._steerable = steerable
        self._name = name
        self._ask: AskPerson | None = None
        self._events: asyncio.Queue[RuntimeEvent | BaseException] = asyncio.Queue()
        self._player: asyncio.Task[None] | None = None
        self.calls: list[str] = []
        """What was called, in order: `open`, `start_turn`, `interrupt`, `steer`, `probe`, `compact`, `close`."""
        self.openings: list[Opening] = []
        self.inputs: list[UserInput] = []
        """What the turns were started with; also those that were refused."""
        self.options: list[dict[str, Any]] = []
        self.steered: list[str] = []
        self.answers: list[Choice] = []
        """What the person decided, for each `Ask` of the script that was answered."""
        self.closed: bool = False

    @property
    def name(self) -> str:
        """What the runtime is called."""
        return self._name

    @property
    def opening(self) -> Opening:
        """How the thread was opened last, for steps that use the host's tools."""
        return self.openings[-1]

    async def open(self, opening: Opening, ask: AskPerson) -> Opened:
        """Open a thread; what it was given is in `openings`."""
        self._called("open")
        self.openings.append(opening)
        self._ask = ask
        for step in self._opens:
            if isinstance(step, Opened):
                return step
            await self._play(step)
        return Opened(thread_id=opening.resume or f"thread-{len(self.openings)}")

    async def start_turn(self, user_input: UserInput, options: Mapping[str, Any]) -> str:
        """Begin to play the next turn; what it was given is in `inputs`."""
        self._called("start_turn")
        self.inputs.append(user_input)
        self.options.append(dict(options))
        for script in self._turns:
            if isinstance(script, Sequence):
                await self._begin(script)
                return f"turn-{len(self.inputs)}"
            await self._play(script)
        raise AssertionError(f"the script has no turn number {len(self.inputs)}")

    async def next_event(self) -> RuntimeEvent:
        """The next event of the turn that is played."""
        event = await self._events.get()
        if isinstance(event, BaseException):
            raise event
        return event

    async def interrupt(self) -> None:
        """End the turn, as the script says."""
        self._called("interrupt")
        if self._on_interrupt and self._player is not None and not self._player.done():
            await self._replace_player(self._on_interrupt)

    async def steer(self, text: str) -> bool:
        """Take what is said in the middle of a turn; it is in `steered`."""
        self._called("steer")
        self.steered.append(text)
        return self._steerable

    async def probe(self) -> None:
        """Answer whether the runtime is well, as the script says."""
        self._called("probe")
        for step in self._probes:
            await self._play(step)

    async def compact(self) -> bool:
        """Make room in the conversation, as the script says."""
        self._called("compact")
        if self._compaction is None:
            return False
        await self._begin(self._compaction)
        return True

    async def close(self) -> None:
        """End everything."""
        self.calls.append("close")
        self.closed = True
        for step in self._closing:
            await self._play(step)
        await self._replace_player(None)

    def _called(self, method: str) -> None:
        self.calls.append(method)
        if self.closed:
            raise RuntimeFault(Fault(kind="dead", message="The scripted runtime is closed.", replace_runtime=True))

    async def _begin(self, script: Script) -> None:
        # What is left of an earlier turn is no event of this one.
        await self._replace_player(None)
        self._events = asyncio.Queue()
        await self._replace_player(script)

    async def _replace_player(self, script: Script | None) -> None:
        player, self._player = self._player, None
        if player is not None:
            player.cancel()
            await asyncio.wait({player})
        if script is not None:
            self._player = asyncio.create_task(self._play_all(script), name="scripted turn")

    async def _play_all(self, script: Script) -> None:
        try:
            for step in script:
                if (event := await self._play(step)) is not None:
                    self._events.put_nowait(event)
        except Exception as error:
            self._events.put_nowait(error)

    async def _play(self, step: Step | Opened) -> RuntimeEvent | None:
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, Gate):
            await step._pass()
        elif isinstance(step, Ask):
            assert self._ask is not None, "the thread is not open"
            self.answers.append(await self._ask(step))
        elif isinstance(step, Silence):
            await asyncio.get_running_loop().create_future()
        elif isinstance(step, _EVENTS):
            return cast("RuntimeEvent", step)
        else:
            return await cast("Act", step)(self)
        return None


# --- items -----------------------------------------------------------------------------------------------------------


def said(text: str, **members: Any) -> ItemCompleted:
    """An answer of the model; `members` are those of the item, such as `phase`."""
    return ItemCompleted(AgentMessageThreadItem(**{"id": _id("message"), **members}, text=text))


def thought(text: str) -> ItemCompleted:
    """Thoughts of the model."""
    return ItemCompleted(ReasoningThreadItem(id=_id("thought"), summary=(text,)))


def echoed(text: str) -> ItemCompleted:
    """The user's message as a runtime reports it."""
    return ItemCompleted(UserMessageThreadItem(id=_id("user"), content=(TextUserInput(text=text),)))


def running(command: str, **members: Any) -> CommandExecutionThreadItem:
    """A command that has begun, for `ItemStarted`."""
    status = CommandExecutionStatus.in_progress
    known = {"id": _id("command"), "command_actions": (), "cwd": "/", "status": status, **members}
    return CommandExecutionThreadItem(command=command, **known)


def ran(command: str, output: str = "", exit_code: int = 0, **members: Any) -> ItemCompleted:
    """A command that has ended."""
    known = {"status": CommandExecutionStatus.completed, "aggregated_output": output, "exit_code": exit_code, **members}
    return ItemCompleted(running(command, **known))


def _id(kind: str) -> str:
    return f"{kind}-{next(_numbers)}"
