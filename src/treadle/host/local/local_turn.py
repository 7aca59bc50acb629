"""`LocalTurn`: one turn in this process: ask the model, run the tools it calls, ask again until it is done.

It owns the task that does it, and leaves a history that is valid for the next request however it ends.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from treadle.agent.ids import new_id
from treadle.agent.model_history import History, repaired
from treadle.agent.summary import history_after, user_message
from treadle.client.tools import Tool
from treadle.host.faults import Fault
from treadle.host.local.faults import model_fault
from treadle.host.local.model_source import ModelSource
from treadle.host.local.response import LocalResponse
from treadle.host.local.tool_calls import LocalCalls, output
from treadle.host.runtime import Compacted, ItemCompleted, Notice, TurnEnded, UsageReported
from treadle.host.turn_events import TurnEvents
from treadle.host.usage import Usage
from treadle.llm import JsonObject, ModelError, ModelRequest, TokenUsage, Waiting
from treadle.llm.backoff import pause_after, was_retried
from treadle.protocol.app.inputs import TextUserInput
from treadle.protocol.app.items import UserMessageThreadItem
from treadle.tools.specs import dynamic_spec

logger: Final = logging.getLogger(__name__)

MAX_STEERS: Final = 64
"""Things said in the middle of a turn that wait for the next request; more are refused."""
INTERRUPTED: Final = "(The user interrupted this turn before it was done.)"
NO_MORE_TOOLS: Final = "You have used all the rounds of tool calls that this turn has. Answer now, with what you have."
_REFUSED: Final = frozenset({"refused", "context_window", "policy"})
NOT_RUN: Final = "not run: the limit of tool calls in this turn is reached"


class TurnOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can differ from turn to turn."""

    model: str | None = None
    effort: str | None = None
    summary: str | None = None
    output_schema: dict[str, Any] | None = None
    max_output_tokens: int | None = None


class LocalThread(Struct, kw_only=True):
    """What is kept between turns."""

    id: str
    source: ModelSource
    cwd: str
    instructions: str | None = None
    tools: Mapping[str, Tool] = {}
    history: History = msgspec.field(default_factory=History)
    total: Usage | None = None
    unanswered: tuple[Raw, ...] = ()
    """What the user said last, when nothing came of it."""

    def hear(self, said: Sequence[Raw]) -> None:
        """Add what the user says. Who says the same again after a failure has said it once."""
        if not self.unanswered or self.unanswered != tuple(said):
            self.remember(said)
        self.unanswered = tuple(said)

    def forget_unanswered(self) -> None:
        """What the user said last was refused: it would be refused with everything that is said after it, too."""
        self.history.replace(self.history.items[: len(self.history) - len(self.unanswered)])
        self.unanswered = ()

    def remember(self, items: Sequence[Raw]) -> None:
        """Add to what the model knows."""
        for item in items:
            self.history.add(item)

    def count(self, used: TokenUsage) -> Usage:
        """Add a response to the total, and give that."""
        before, price = self.total or Usage(cost_usd=0.0), self.source.price
        cost = None if price is None or before.cost_usd is None else before.cost_usd + price.cost(used)
        self.total = Usage(
            input_tokens=before.input_tokens + used.input_tokens,
            cached_input_tokens=before.cached_input_tokens + used.cached_input_tokens,
            cache_write_input_tokens=before.cache_write_input_tokens + used.cache_write_input_tokens,
            output_tokens=before.output_tokens + used.output_tokens,
            reasoning_output_tokens=before.reasoning_output_tokens + used.reasoning_output_tokens,
            total_tokens=before.total_tokens + used.total_tokens,
            cost_usd=cost,
            context_tokens=used.total_tokens,
            context_window=self.source.context_window,
        )
        return self.total


class LocalTurn:
    """A turn that runs from the moment it is made.

    Args:
        thread: Whose turn it is.
        events: Where it tells what happens, with a `TurnEnded` as the last.
        options: What is different in this turn.
        max_iterations: Rounds of tool calls; None has no limit.
        tool_timeout: Seconds for one call; None has no limit.
        compacts: Whether it only sums the thread up.
    """

    def __init__(
        self,
        thread: LocalThread,
        events: TurnEvents,
        options: TurnOptions,
        *,
        max_iterations: int | None = None,
        tool_timeout: float | None = None,
        compacts: bool = False,
    ) -> None:
        self.id: str = new_id()
        self._thread = thread
        self._events = events
        self._options = options
        self._rounds_left = max_iterations
        self._tool_timeout = tool_timeout
        self._steers: deque[str] = deque()
        self._deaf = compacts  # nothing can be said to it any more
        self._answered = False
        self._begun = self._interrupted = False
        work = self._compact if compacts else self._converse
        self.task: asyncio.Task[None] = asyncio.create_task(self._run(work), name=f"turn {self.id}")

    def interrupt(self) -> None:
        """End it as interrupted, unless it is over."""
        if not self._interrupted:
            self._interrupted = self._deaf = True
            if self._begun:  # a task that has not begun could not even tell its end
                self.task.cancel()

    def steer(self, text: str) -> bool:
        """Say something before the next request; False when there will be none."""
        if self._deaf or len(self._steers) >= MAX_STEERS:
            return False
        self._steers.append(text)
        return True

    # --- the task ---

    async def _run(self, work: Callable[[], Awaitable[None]]) -> None:
        self._begun = True
        ended = await self._outcome(work)
        self._deaf = True
        self._leave(ended)
        self._events.note(ended)

    def _leave(self, ended: TurnEnded) -> None:
        """Leave a history that the next request can begin with."""
        thread = self._thread
        thread.history.replace(repaired(thread.history.items))
        if ended.status == "interrupted":
            thread.unanswered = ()
            # In the model's place: some servers want that it and the user take turns, and others make one message of
            # two, so that it would answer to what it was told to leave.
            thread.remember([_message("assistant", INTERRUPTED)])
        elif ended.fault is not None and ended.fault.kind in _REFUSED and thread.unanswered:
            thread.forget_unanswered()

    async def _outcome(self, work: Callable[[], Awaitable[None]]) -> TurnEnded:
        if self._interrupted:
            return TurnEnded("interrupted")
        try:
            await work()
        except asyncio.CancelledError:
            return TurnEnded("interrupted")
        except ModelError as error:
            return TurnEnded("failed", self._fault(error))
        except Exception as error:
            logger.exception("a turn failed")
            return TurnEnded("failed", Fault(kind="other", message=f"the turn failed: {type(error).__name__}: {error}"))
        return TurnEnded("completed")

    def _fault(self, error: ModelError) -> Fault:
        source = self._thread.source
        return model_fault(error, source.provider, now=time.time(), given_key=source.given_key)

    # --- the conversation ---

    async def _converse(self) -> None:
        while True:
            await self._take_steers()
            response = await self._ask(self._request(), LocalResponse(self._events))
            self._thread.unanswered = ()
            self._thread.remember(response.raw)
            for event in response.completed():
                self._events.note(event)
            self._tell_usage(response.usage)
            if not await self._goes_on(response):
                return

    async def _goes_on(self, response: LocalResponse) -> bool:
        """Whether the model is asked again, after its calls were run."""
        if response.calls or response.paused:
            if self._rounds_left == 0:
                self._end_of_rounds(response)
                return False
            if self._rounds_left is not None:
                self._rounds_left -= 1
            await self._call(response)
            return True
        if self._steers:
            return True
        self._deaf = True
        return False

    async def _call(self, response: LocalResponse) -> None:
        calls = LocalCalls(self._thread.tools, self._events, self._tool_timeout)
        try:
            if response.calls:
                await calls.run(response.calls)
        finally:
            self._thread.remember(
                [calls.outputs[call.call_id] for call in response.calls if call.call_id in calls.outputs]
            )

    def _end_of_rounds(self, response: LocalResponse) -> None:
        """It was told that there are no more calls, and made some."""
        self._deaf = True
        self._thread.remember([output(call, NOT_RUN) for call in response.calls])
        self._events.note(
            Notice("The turn ended at its limit of tool calls; the model wanted to make more.", keep=True)
        )

    async def _take_steers(self) -> None:
        while self._steers:
            text = self._steers.popleft()
            self._thread.unanswered = ()
            self._thread.remember([_message("user", text)])
            said = UserMessageThreadItem(id=new_id(), content=(TextUserInput(text=text),))
            await self._events.tell(ItemCompleted(said))

    def _request(self) -> ModelRequest:
        thread, options = self._thread, self._options
        last = self._rounds_left == 0
        return self._request_for(
            [*thread.history.items, *([_message("developer", NO_MORE_TOOLS)] if last and thread.tools else [])],
            tools=() if last else [dynamic_spec(tool.spec()) for tool in thread.tools.values()],
            output_schema=options.output_schema,
            max_output_tokens=options.max_output_tokens,
        )

    def _request_for(self, items: Sequence[JsonObject], **more: Any) -> ModelRequest:
        thread, options = self._thread, self._options
        return ModelRequest(
            model=options.model or thread.source.name,
            input=items,
            instructions=thread.instructions,
            reasoning_effort=options.effort,
            reasoning_summary=options.summary or "auto",
            prompt_cache_key=thread.id,
            headers={"user-agent": "treadle", "originator": "treadle", "session-id": thread.id},
            fair_key=thread.id,
            on_wait=self._tell_wait,
            **more,
        )

    async def _ask(self, request: ModelRequest, response: LocalResponse) -> LocalResponse:
        """Ask until a response came to its end, as often as the provider's settings say. Raises `ModelError`."""
        source = self._thread.source
        for attempt in itertools.count():
            try:
                async with source.model.stream(request) as events:
                    async for event in events:
                        self._answered = True
                        await response.receive(event)
                return response
            except ModelError as error:
                wait = pause_after(error, attempt, source.max_retries, answered=self._answered)
                if wait is None:
                    raise
                if was_retried(error):
                    request = msgspec.structs.replace(request, retried=True)
                told = f"The model is asked again ({attempt + 1}/{source.max_retries}): {error.message}"
                self._events.note(Notice(told, self._fault(error)))
                await asyncio.sleep(wait)
                response = response.anew()
        raise AssertionError("the loop ends by a return or an error")

    # --- summing up ---

    async def _compact(self) -> None:
        thread = self._thread
        request = self._request_for([*thread.history.items, user_message(thread.source.compact_prompt)])
        response = await self._ask(request, LocalResponse())
        if not response.text.strip():
            raise ModelError("the model wrote no summary; the thread is as it was", kind="incomplete")
        self._tell_usage(response.usage)
        anew = history_after(response.text, thread.history.items)
        thread.history.replace([item if isinstance(item, Raw) else _raw(item) for item in anew])
        if thread.total is not None:
            thread.total = msgspec.structs.replace(thread.total, context_tokens=thread.history.tokens)
            self._events.note(UsageReported(thread.total))
        self._events.note(Compacted())

    # --- telling ---

    def _tell_usage(self, used: TokenUsage | None) -> None:
        if used is not None:
            self._events.note(UsageReported(self._thread.count(used)))

    def _tell_wait(self, waiting: Waiting) -> None:
        self._events.note(Notice(f"Waiting for provider `{waiting.provider}`: {waiting.why}"))


def _message(role: str, text: str) -> Raw:
    kind = "output_text" if role == "assistant" else "input_text"
    return _raw({"type": "message", "role": role, "content": [{"type": kind, "text": text}]})


def _raw(item: object) -> Raw:
    return Raw(msgspec.json.encode(item))
