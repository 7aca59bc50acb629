"""`MockModel`: a model server for tests, which records requests and plays queued responses.

Owns the queue. `mock_server` does the HTTP and records requests, `replies` makes the events, `wires` speaks the APIs.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, Unpack

from treadle.arguments import one_of
from treadle.testing import replies
from treadle.testing.mock_server import ModelServer, RecordedRequest, in_the_api_of, refusal_reply
from treadle.testing.replies import Event, Reply, Timing, ToolCall, Usage

MAX_QUEUED: Final = 100_000

OnEmpty: TypeAlias = Literal["error", "wait"] | Callable[[RecordedRequest], Reply | str]


class MockModel(ModelServer):
    """An HTTP server on 127.0.0.1 that plays a queue in the Responses, Chat Completions or Messages API.

    What is queued is written in the API that is asked for it. `base_url` is for clients that add `/responses`,
    `/chat/completions` or `/messages` to it.

    It serves from construction until `close()`, in threads of its own, so it works in sync and async tests:

        with MockModel() as model:
            model.enqueue_function_call("exec_command", {"cmd": "ls"}, call_id="c1")
            model.enqueue_assistant_message("There are two files.")
            run_my_agent(base_url=model.base_url, prompt="What is here?")
            first, second = model.requests()
            assert first.last_user_text == "What is here?"
            assert "README.md" in second.tool_outputs["c1"]

    Every request takes the next queued response. When and how much of it is sent is said when it is queued, see
    `Timing`: `delta_delay_s=0.1` streams slowly, `cut_after=3` breaks off; `enqueue_drop` hangs up. All methods
    may be called from any thread.

    Args:
        on_empty: What is done when the queue is empty: `"error"` answers HTTP 500 and says so, `"wait"` holds the
            request until something is queued, a function is given the request and returns the text of a message or a
            `Reply` (see `reply_message`). What a function raises is raised again by `with`.
        port: Where it answers; 0 takes a free one.
    """

    def __init__(self, *, on_empty: OnEmpty = "error", port: int = 0) -> None:
        if not callable(on_empty):
            one_of("on_empty", on_empty, ("error", "wait"), " or a function")
        self._on_empty = on_empty
        self._numbers = itertools.count(1)
        self._queue: deque[Reply] = deque()
        super().__init__(port=port)

    # --- what will be answered ---

    def enqueue_assistant_message(
        self,
        text: str,
        *,
        phase: str | None = None,
        deltas: Sequence[str] | None = None,
        reasoning: str | None = None,
        usage: Usage | None = None,
        **timing: Unpack[Timing],
    ) -> None:
        """A response with one message.

        Its events are: created, item added, the deltas, item done, completed. `cut_after` and `gate_after` count them,
        in every API. A thought comes before the message, in four events more.

        Args:
            text: What the agent says.
            phase: What the message is, such as `final_answer`.
            deltas: The pieces that it is streamed in, which must make the text; else one.
            reasoning: What the agent thinks before it.
            usage: The token counts.
            timing: When it is sent, and how much of it (see `Timing`).
        """
        self.enqueue(self.reply_message(text, phase=phase, deltas=deltas, reasoning=reasoning, usage=usage, **timing))

    def enqueue_function_call(
        self,
        name: str,
        arguments: Mapping[str, Any] | str,
        *,
        call_id: str | None = None,
        usage: Usage | None = None,
        **timing: Unpack[Timing],
    ) -> str:
        """A response with one function call; returns its call id.

        Args:
            name: The function.
            arguments: Its arguments. A string is sent as it is, even if no JSON.
            call_id: The id of the call; else one is made.
            usage: The token counts.
            timing: When it is sent, and how much of it (see `Timing`).
        """
        return self.enqueue_calls(ToolCall(name, arguments, call_id), usage=usage, **timing)[0]

    def enqueue_custom_call(
        self,
        name: str,
        text: str,
        *,
        call_id: str | None = None,
        usage: Usage | None = None,
        **timing: Unpack[Timing],
    ) -> str:
        """A response with one call of a tool that takes free text; returns its call id.

        Args:
            name: The tool.
            text: What it is given.
            call_id: The id of the call; else one is made.
            usage: The token counts.
            timing: When it is sent, and how much of it (see `Timing`).
        """
        return self.enqueue_calls(ToolCall(name, text, call_id, custom=True), usage=usage, **timing)[0]

    def enqueue_calls(
        self,
        *calls: ToolCall,
        text: str | None = None,
        reasoning: str | None = None,
        usage: Usage | None = None,
        **timing: Unpack[Timing],
    ) -> list[str]:
        """A response with several calls; returns the call ids.

        Args:
            calls: The calls.
            text: A message that comes before them.
            reasoning: What the agent thinks before all that.
            usage: The token counts.
            timing: When it is sent, and how much of it (see `Timing`).
        """
        number = next(self._numbers)
        items = _call_items(number, calls, text)
        self.enqueue(_reply_of(number, items, reasoning=reasoning, usage=usage, **timing))
        return [item["call_id"] for item in items if "call_id" in item]

    def reply_calls(
        self,
        *calls: ToolCall,
        text: str | None = None,
        reasoning: str | None = None,
        usage: Usage | None = None,
        **timing: Unpack[Timing],
    ) -> Reply:
        """The reply that `enqueue_calls` queues, for a function that is given as `on_empty`.

        Args:
            calls: The calls.
            text: A message that comes before them.
            reasoning: What the agent thinks before all that.
            usage: The token counts.
            timing: When it is sent, and how much of it (see `Timing`).
        """
        number = next(self._numbers)
        return _reply_of(number, _call_items(number, calls, text), reasoning=reasoning, usage=usage, **timing)

    def enqueue_sse(self, events: Sequence[Event | bytes] | bytes, **timing: Unpack[Timing]) -> None:
        """A response of exactly these events.

        Args:
            events: Objects with a `type`, or bytes that are sent as they are.
            timing: When it is sent, and how much of it (see `Timing`).
        """
        self.enqueue(replies.sse_reply(events, **timing))

    def enqueue_error(
        self,
        status: int,
        body: Mapping[str, Any] | str | bytes,
        headers: Mapping[str, str] | None = None,
        *,
        delay_s: float = 0.0,
        gate: threading.Event | None = None,
    ) -> None:
        """A plain HTTP answer.

        Args:
            status: Its HTTP status.
            body: What is sent; a mapping as JSON.
            headers: Headers to add.
            delay_s: Seconds to wait before it is sent.
            gate: Wait until the test sets this event.
        """
        self.enqueue(replies.error_reply(status, body, headers, delay_s=delay_s, gate=gate))

    def enqueue_drop(self, *, delay_s: float = 0.0, gate: threading.Event | None = None) -> None:
        """No answer: the connection is closed after the request was read. (`cut_after` closes it in the stream.)

        Args:
            delay_s: Seconds to wait before it is closed.
            gate: Wait until this is set, too.
        """
        self.enqueue(Reply(dropped=True, delay_s=delay_s, gate=gate))

    def enqueue(self, reply: Reply) -> None:
        """Any reply.

        Args:
            reply: As made by `reply_message` or by hand.
        """
        with self._changed:
            if len(self._queue) >= MAX_QUEUED:
                raise OverflowError(f"the mock model holds at most {MAX_QUEUED} queued responses: close it")
            self._queue.append(reply)
            self._changed.notify_all()

    def reply_message(
        self,
        text: str,
        *,
        phase: str | None = None,
        deltas: Sequence[str] | None = None,
        reasoning: str | None = None,
        usage: Usage | None = None,
        **timing: Unpack[Timing],
    ) -> Reply:
        """The reply that `enqueue_assistant_message` queues, for a function that is given as `on_empty`.

        Args:
            text: What the agent says.
            phase: What the message is, such as `final_answer`.
            deltas: The pieces that it is streamed in, which must make the text; else one.
            reasoning: What the agent thinks before it.
            usage: The token counts.
            timing: When it is sent, and how much of it (see `Timing`).
        """
        pieces = [text] if deltas is None else list(deltas)
        if "".join(pieces) != text:
            raise ValueError("the deltas do not make up the text: joined, they must equal it")
        number = next(self._numbers)
        item = replies.message_item(f"msg_{number}", text, phase)
        return _reply_of(number, [item], deltas=pieces, reasoning=reasoning, usage=usage, **timing)

    @property
    def pending(self) -> int:
        """How many queued responses were not asked for yet."""
        with self._changed:
            return len(self._queue)

    def _reply(self, request: RecordedRequest, number: int) -> Reply:
        return in_the_api_of(request, self._next(request, number))

    def _next(self, request: RecordedRequest, number: int) -> Reply:
        with self._changed:
            if self._on_empty == "wait":
                self._changed.wait_for(lambda: bool(self._queue) or self._closing)
            if self._queue:
                return self._queue.popleft()
        if not callable(self._on_empty):
            what = f"the mock model has no response queued for request {number}"
            return refusal_reply(500, f"{what}: call one of its enqueue methods first")
        try:
            made = self._on_empty(request)
        except Exception as error:
            self._server.failures.append(error)
            return refusal_reply(500, f"on_empty of the mock model raised {type(error).__name__}: {error}")
        return self.reply_message(made) if isinstance(made, str) else made


def _call_items(number: int, calls: Sequence[ToolCall], text: str | None) -> list[dict[str, Any]]:
    items = [call.item(call.call_id or f"call_{number}_{index}") for index, call in enumerate(calls)]
    return items if text is None else [replies.message_item(f"msg_{number}", text, None), *items]


def _reply_of(
    number: int,
    items: list[dict[str, Any]],
    *,
    deltas: Sequence[str] | None = None,
    reasoning: str | None = None,
    usage: Usage | None = None,
    **timing: Unpack[Timing],
) -> Reply:
    """A response of these items; the deltas are those of the message."""
    if reasoning is not None:
        items = [replies.reasoning_item(f"rs_{number}", reasoning, f"sealed-{number}"), *items]
    body: list[Event] = []
    for index, item in enumerate(items):
        match item["type"]:
            case "message":
                body += replies.message_events(item, deltas or [item["content"][0]["text"]], index)
            case "reasoning":
                body += replies.reasoning_events(item, index)
            case _:
                body += replies.item_events(item, index)
    return replies.sse_reply(replies.stream(f"resp_{number}", body, items, usage), **timing)
