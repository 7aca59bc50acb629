"""`MockModel`: a model server for tests, which records requests and plays queued responses.

Owns the queue and the record. `mock_server` does the HTTP, `replies` the events, `recorded` reads requests.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, Unpack

from treadle.arguments import one_of
from treadle.testing import replies
from treadle.testing.mock_server import MockServer, empty_queue, refusal_of
from treadle.testing.recorded import RecordedRequest
from treadle.testing.replies import Event, Reply, Timing, ToolCall, Usage

MAX_RECORDED: Final = 100_000  # a client in an endless loop must not eat the machine; the oldest are dropped
MAX_QUEUED: Final = 100_000
WAIT_S: Final = 30.0

OnEmpty: TypeAlias = Literal["error", "wait"] | Callable[[RecordedRequest], Reply | str]


class MockModel:
    """An HTTP server on 127.0.0.1 that speaks the Responses API (server-sent events) and plays a queue.

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
        self._requests: deque[RecordedRequest] = deque(maxlen=MAX_RECORDED)
        self._received = 0
        self._closing = False
        self._changed = threading.Condition()  # guards the queue and the record
        self._server = MockServer(self._answer, port)

    # --- life ---

    @property
    def base_url(self) -> str:
        """What a client is configured with: requests go to `{base_url}/responses`."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def port(self) -> int:
        """Where it answers."""
        return self._server.port

    def close(self) -> None:
        """End every connection and thread; waiting replies are given up. May be called again."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        if error is None and self._server.failures:
            raise self._server.failures[0]

    # --- what will be answered ---

    def enqueue_assistant_message(
        self,
        text: str,
        *,
        phase: str | None = None,
        deltas: Sequence[str] | None = None,
        usage: Usage | None = None,
        **timing: Unpack[Timing],
    ) -> None:
        """A response with one message.

        Its events are: created, item added, the deltas, item done, completed. `cut_after` and `gate_after` count them.

        Args:
            text: What the agent says.
            phase: What the message is, such as `final_answer`.
            deltas: The pieces that it is streamed in, which must make the text; else one.
            usage: The token counts.
            timing: When it is sent, and how much of it (see `Timing`).
        """
        self.enqueue(self.reply_message(text, phase=phase, deltas=deltas, usage=usage, **timing))

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
        self, *calls: ToolCall, text: str | None = None, usage: Usage | None = None, **timing: Unpack[Timing]
    ) -> list[str]:
        """A response with several calls; returns the call ids.

        Args:
            calls: The calls.
            text: A message that comes before them.
            usage: The token counts.
            timing: When it is sent, and how much of it (see `Timing`).
        """
        number = next(self._numbers)
        call_ids = [call.call_id or f"call_{number}_{index}" for index, call in enumerate(calls)]
        items = [call.item(call_id) for call, call_id in zip(calls, call_ids, strict=True)]
        body: list[Event] = []
        if text is not None:
            message = replies.message_item(f"msg_{number}", text, None)
            body += replies.message_events(message, [text])
            items.insert(0, message)
        for index, item in enumerate(items):
            if item["type"] != "message":
                body += replies.item_events(item, index)
        self.enqueue(replies.sse_reply(replies.stream(f"resp_{number}", body, items, usage), **timing))
        return call_ids

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
        usage: Usage | None = None,
        **timing: Unpack[Timing],
    ) -> Reply:
        """The reply that `enqueue_assistant_message` queues, for a function that is given as `on_empty`.

        Args:
            text: What the agent says.
            phase: What the message is, such as `final_answer`.
            deltas: The pieces that it is streamed in, which must make the text; else one.
            usage: The token counts.
            timing: When it is sent, and how much of it (see `Timing`).
        """
        pieces = [text] if deltas is None else list(deltas)
        if "".join(pieces) != text:
            raise ValueError("the deltas do not make up the text: joined, they must equal it")
        number = next(self._numbers)
        item = replies.message_item(f"msg_{number}", text, phase)
        body = list(replies.message_events(item, pieces))
        return replies.sse_reply(replies.stream(f"resp_{number}", body, [item], usage), **timing)

    @property
    def pending(self) -> int:
        """How many queued responses were not asked for yet."""
        with self._changed:
            return len(self._queue)

    # --- what was asked ---

    def requests(self) -> list[RecordedRequest]:
        """Every request for a response so far, in the order of arrival."""
        with self._changed:
            return list(self._requests)

    def single_request(self) -> RecordedRequest:
        """The only request; `AssertionError` when there was none, or more than one."""
        requests = self.requests()
        if len(requests) != 1:
            raise AssertionError(f"the mock model was asked {len(requests)} times, not once")
        return requests[0]

    def wait_for_requests(self, n: int, timeout: float = WAIT_S) -> list[RecordedRequest]:
        """Block until so many requests have arrived in all, and return all; `TimeoutError` says how many did.

        In an async test that runs the client on the same loop, use `await model.arrived(n)`.

        Args:
            n: How many.
            timeout: Seconds to wait for them.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._received >= n, timeout):
                raise TimeoutError(f"the mock model was asked {self._received} times in {timeout:g} s, not {n} times")
            return list(self._requests)

    async def arrived(self, n: int, timeout: float = WAIT_S) -> list[RecordedRequest]:
        """`wait_for_requests` without blocking the event loop.

        Args:
            n: How many.
            timeout: Seconds to wait for them.
        """
        return await asyncio.to_thread(self.wait_for_requests, n, timeout)

    def _answer(self, request: RecordedRequest) -> Reply:
        with self._changed:
            self._requests.append(request)
            self._received += 1
            number = self._received
            self._changed.notify_all()
            if self._on_empty == "wait":
                self._changed.wait_for(lambda: bool(self._queue) or self._closing)
            if self._queue:
                return self._queue.popleft()
        if not callable(self._on_empty):
            return empty_queue(number)
        try:
            made = self._on_empty(request)
        except Exception as error:
            self._server.failures.append(error)
            return refusal_of(error)
        return self.reply_message(made) if isinstance(made, str) else made
