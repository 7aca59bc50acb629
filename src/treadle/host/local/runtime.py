"""`LocalRuntime`: our own loop in this process, directly on a provider, with only the host's tools.

No server, no commands, no files. What the model knows of a thread is kept in memory, so a thread lives as long as its
runtime. It owns the thread and the running turn; `LocalTurn` is how a turn goes.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from treadle.agent.ids import new_id
from treadle.agent.model_history import History
from treadle.arguments import count, one_of, seconds
from treadle.client.tools import tools_by_name
from treadle.errors import ArgumentError
from treadle.host.ask import AskPerson
from treadle.host.chat_items import history_items, input_items, recent
from treadle.host.fault_text import CLOSED
from treadle.host.faults import Fault, ResumeFailed, RuntimeFault
from treadle.host.local.local_turn import LocalThread, LocalTurn, TurnOptions
from treadle.host.local.model_source import WIRES, LocalWire, ModelArguments, find_model
from treadle.host.one_thread import OneThread
from treadle.host.runtime import Opened, Opening, UserInput

logger: Final = logging.getLogger(__name__)

TOOL_S: Final = 90.0
CLOSE_S: Final = 5.0
BYTES_PER_TOKEN: Final = 4


class LocalRuntime(OneThread[LocalThread, LocalTurn]):
    """Runs turns in this process.

    Args:
        wire: The API that the model is asked in.
        provider: The provider, by its id in the configuration or among those that are built in; `offline` needs no key
            and no network. Without it the configuration decides.
        api_key: A key for it, in place of the one of the environment or of the login.
        base_url: Where its server is, in place of the configured one.
        model: The model, for threads that name none.
        max_iterations: How many rounds of tool calls a turn may have. After that the model is asked once more, without
            tools, so that the turn ends with an answer. None has no limit.
        tool_timeout: Seconds that one call of a tool may take; None has no limit.
    """

    def __init__(
        self,
        wire: LocalWire = "responses",
        *,
        provider: str | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        model: str | None = None,
        max_iterations: int | None = None,
        tool_timeout: float | None = TOOL_S,
    ) -> None:
        super().__init__()
        one_of("wire", wire, tuple(WIRES))
        if max_iterations is not None:
            count("max_iterations", max_iterations)
        if tool_timeout is not None:
            seconds("tool_timeout", tool_timeout)
        self._given = ModelArguments(
            wire=wire, provider=provider, api_key=api_key or None, base_url=base_url, model=model
        )
        self._max_iterations = max_iterations
        self._tool_timeout = tool_timeout

    def __repr__(self) -> str:
        return f"<LocalRuntime {self.name}>"

    @property
    def name(self) -> str:
        """The API that the model is asked in."""
        return self._given.wire

    async def open(self, opening: Opening, ask: AskPerson) -> Opened:
        """Make a thread. Nothing is sent. There is nobody to ask for: the tools are the host's own."""
        self._check_open()
        self._check_idle()
        thread = self._thread
        if opening.resume is not None:
            if thread is None or thread.id != opening.resume:
                missing = f"there is no thread `{opening.resume}` here: it lived in the process that made it"
                raise ResumeFailed(Fault(kind="refused", message=missing))
            return Opened(thread_id=thread.id, model=thread.source.name, usage=thread.total)
        self._thread = await self._new_thread(opening)
        if thread is not None:
            await thread.source.model.close()
        return Opened(thread_id=self._thread.id, model=self._thread.source.name)

    async def _new_thread(self, opening: Opening) -> LocalThread:
        try:
            tools = tools_by_name(opening.tools)
        except ArgumentError as error:
            raise RuntimeFault(Fault(kind="refused", message=str(error))) from None
        cwd = _absolute(opening.cwd)
        source = find_model(self._given, opening.model)
        # Half of the window, so that there is room for the turns to come: what does not fit could not be summed up.
        fits = source.context_window * BYTES_PER_TOKEN // 2
        history = History()
        history.replace(await history_items(recent(opening.history, fits), cwd))
        return LocalThread(
            id=new_id(), source=source, cwd=cwd, instructions=opening.instructions, tools=tools, history=history
        )

    async def start_turn(self, user_input: UserInput, options: Mapping[str, Any]) -> str:
        """Start a turn. `options` are `model`, `effort`, `summary`, `output_schema` and `max_output_tokens`."""
        thread = self._ready()
        chosen = _options(options)
        items = await input_items(user_input, thread.cwd)
        self._ready()  # reading an image takes a moment
        thread.hear(items)
        return self._start(thread, chosen, compacts=False)

    async def compact(self) -> bool:
        """Sum the thread up, with a request of its own. When that fails, the thread is as it was."""
        self._start(self._ready(), TurnOptions(), compacts=True)
        return True

    def _start(self, thread: LocalThread, options: TurnOptions, *, compacts: bool) -> str:
        self._events.begin()
        self._turn = LocalTurn(
            thread,
            self._events,
            options,
            max_iterations=self._max_iterations,
            tool_timeout=self._tool_timeout,
            compacts=compacts,
        )
        return self._turn.id

    async def steer(self, text: str) -> bool:
        """Say something before the next request of the turn; False when there is none to come."""
        turn = self._running()
        return turn is not None and turn.steer(text)

    async def probe(self) -> None:
        """It is in this process, so it is as alive as whoever asks."""
        self._check_open()

    async def close(self) -> None:
        """End the turn, and the connections to the provider."""
        if self._closed:
            return
        self._closed = True
        self._events.close(CLOSED)
        if self._turn is not None:
            self._turn.interrupt()
            await asyncio.wait([self._turn.task], timeout=CLOSE_S)
        if self._thread is None:
            return
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._thread.source.model.close()
        except Exception:
            logger.warning("the connections to the model could not be closed in order", exc_info=True)


def _absolute(cwd: str | os.PathLike[str] | None) -> str:
    return os.path.abspath(os.fspath(cwd or "."))


def _options(options: Mapping[str, Any]) -> TurnOptions:
    try:
        return msgspec.convert(dict(options), TurnOptions)
    except msgspec.ValidationError as error:
        known = ", ".join(TurnOptions.__struct_fields__)
        problem = f"an option of the turn cannot be used: {error}. The options are {known}."
        raise RuntimeFault(Fault(kind="refused", message=problem)) from None
