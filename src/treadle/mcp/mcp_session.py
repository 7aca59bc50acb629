"""`McpSession`: the conversation with one MCP server over one transport, from its handshake to its end.

It owns ids, deadlines, cancellation and progress of our requests, and runs what the server asks for in tasks of its
own, a bounded number at a time. It starts nothing and restarts nothing: that is `McpServer`. A server is not trusted:
what it sends is bounded before it is decoded, what cannot be read is logged and passed over, and what nobody asked for
is ignored. Nothing that it does blocks the loop for longer than one frame takes to read.

    open ─▶ initialize ─▶ initialized ─▶ request … request ─▶ close
                                   └─ the transport ends ─▶ every request fails, `on_closed`
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct

from treadle.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, OVERLOADED, MalformedMessage, RpcError
from treadle.llm.provider import is_http_url
from treadle.mcp.mcp_messages import (
    PROTOCOL_VERSIONS,
    Cancelled,
    ElicitParams,
    ElicitResult,
    LogParams,
    McpClientInfo,
    McpError,
    McpInitializeResult,
    McpProgress,
    Root,
    RootsResult,
    SamplingParams,
    SamplingResult,
)
from treadle.rpc import (
    Answer,
    Notification,
    Request,
    RpcPeer,
    encode_failure,
    encode_notification,
    encode_reply,
)
from treadle.rpc.message import MAX_VALUES, count_values, is_too_deep
from treadle.rpc.peer import UnmatchedAnswer

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

# A picture of 12 MB in base64. What is larger ends the session: nobody can tell where it would end.
MAX_FRAME: Final = 16 << 20
# Requests of the server that are answered at a time; so many more are refused, and the rest is ignored.
MAX_ASKED: Final = 16
# For what we send a server without waiting for an answer: one that does not read is not waited for.
SEND_S: Final = 5.0
# McpProgress and log messages of a server: so many at once, and then so many a second. The rest is dropped.
BURST: Final = 200
PER_SECOND: Final = 20.0
_SHOWN: Final = 200  # of a line that is no message


class McpHandler(Protocol):
    """What a server asks of whoever uses it. Only the awaited ones may take long; an `RpcError` is passed on to it."""

    async def elicit(self, params: ElicitParams) -> ElicitResult: ...

    async def sample(self, params: SamplingParams) -> SamplingResult: ...

    def roots(self) -> list[Root]: ...

    def log(self, level: str, logger: str | None, data: object) -> None: ...


class McpTransport:
    """How frames reach a server. Errors are `McpError`."""

    async def open(self, session: McpSession) -> None:
        """Begin; what arrives is for the session."""

    async def send(self, frame: bytes, request_id: int | None = None) -> None:
        """Send a frame, of a request if it has an id. May wait for a server that does not read."""

    def negotiated(self, version: str) -> None:
        """The handshake is done, for this version of the protocol."""

    def abandon(self, request_id: int) -> None:
        """Stop waiting for the answer to a request."""

    async def close(self) -> None:
        """End it, and leave nothing behind. Bounded; idempotent."""


class Allowance:
    """How much of something a server may send: a burst, and then so many a second."""

    def __init__(self, burst: float = BURST, per_second: float = PER_SECOND) -> None:
        self._burst = burst
        self._per_second = per_second
        self._left = burst
        self._at = asyncio.get_running_loop().time()

    def take(self) -> bool:
        now = asyncio.get_running_loop().time()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class McpSession:
    """Call `open` once, then `request`, from any number of tasks; `close` at the end."""

    def __init__(
        self,
        transport: McpTransport,
        handler: McpHandler,
        client: McpClientInfo,
        *,
        name: str,
        sampling: bool = False,
        on_closed: Callable[[str], None],
    ) -> None:
        self._transport = transport
        self._handler = handler
        self._client = client
        self._name = name
        self._sampling = sampling
        self._on_closed = on_closed
        self._peer: RpcPeer[asyncio.Future[Raw]] = RpcPeer(jsonrpc=True)
        self._progress: dict[int | str, Callable[[McpProgress], None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: dict[int | str, asyncio.Task[None]] = {}
        # The clocks of our requests, with what they have left while they stand still: the server waits for the user.
        self._clocks: dict[asyncio.Timeout, float] = {}
        self._waiting_for_user = 0
        self._steps = Allowance()
        self._messages = Allowance()
        self._strange = Allowance(10, 1 / 60)
        self._end: str | None = None
        self.info: McpInitializeResult = McpInitializeResult(protocol_version="")
        self.tools_changed: bool = False  # the server has said so, and nobody has asked for them since

    @property
    def closed(self) -> str | None:
        """Why it ended, if it did."""
        return self._end

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for an answer."""
        return not self._peer.pending

    async def open(self) -> None:
        """Connect and shake hands. Raises `McpError`; `close` is then still to be called."""
        await self._transport.open(self)
        capabilities: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}}
        if self._sampling:
            capabilities["sampling"] = {}
        offer = {
            "protocolVersion": PROTOCOL_VERSIONS[0],
            "capabilities": capabilities,
            "clientInfo": self._client,
        }
        self.info = await self.request("initialize", offer, McpInitializeResult)
        version = self.info.protocol_version
        if version not in PROTOCOL_VERSIONS:
            known = ", ".join(PROTOCOL_VERSIONS)
            raise McpError("protocol", f"it speaks version {version[:40]!r} of MCP; known here are {known}")
        self._transport.negotiated(version)
        await self._transport.send(encode_notification("notifications/initialized", jsonrpc=True))

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        result_type: type[T],
        *,
        timeout: float | None = None,
        on_progress: Callable[[McpProgress], None] | None = None,
    ) -> T:
        """Ask the server. Raises `McpError`. A caller that is cancelled, or whose time is up, takes the request back.

        The time stands still while the server waits for an answer of the user, which takes as long as it takes.
        """
        if self._end is not None:
            raise McpError("closed", self._end)
        answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        request_id = self._peer.last_id + 1
        if on_progress is not None:
            params = {**params, "_meta": {**(params.get("_meta") or {}), "progressToken": request_id}}
            self._progress[request_id] = on_progress
        clock = asyncio.timeout(timeout)
        try:
            frame = self._peer.request(method, params, answer)
            async with clock:
                if timeout is not None:
                    self._clocks[clock] = timeout
                    if self._waiting_for_user:
                        clock.reschedule(None)
                await self._transport.send(frame, request_id)
                raw = await answer
        except RpcError as error:
            raise McpError("rpc", error.message, code=error.code, data=error.data) from None
        except TimeoutError:
            self._take_back(method, request_id, "timed out")
            raise McpError("timeout", f"timed out awaiting {method} after {timeout or 0:g}s") from None
        except asyncio.CancelledError:
            self._take_back(method, request_id, "cancelled by the client")
            raise
        finally:
            self._clocks.pop(clock, None)
            self._progress.pop(request_id, None)
            self._peer.forget(request_id)
            answer.cancel()
        try:
            return msgspec.json.decode(raw, type=result_type)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise McpError("protocol", f"the answer to {method} is not what MCP says: {error}") from None

    async def close(self) -> None:
        """End it: requests fail, and nothing is left behind."""
        self._finish("the connection was closed", by_itself=False)
        for task in tuple(self._tasks):
            task.cancel()
        await self._transport.close()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=SEND_S)

    def roots_changed(self) -> None:
        """Notify the server, which asks for the roots then if it wants to know."""
        if self._end is None:
            self._spawn(self._post(encode_notification("notifications/roots/list_changed", jsonrpc=True)))

    # --- for the transport: none of these raises ---------------------------------------------------------------------

    def frame_received(self, frame: bytes) -> None:
        try:
            if not is_bounded(frame):
                self._refuse(frame)
                return
            message = self._peer.receive(frame)
        except MalformedMessage as error:
            repaired = None if isinstance(error, UnmatchedAnswer) else _repaired(frame)
            if repaired is not None and repaired != frame:
                self.frame_received(repaired)
            elif self._strange.take():
                shown = frame[:_SHOWN].decode("utf-8", "replace")
                fields = {"server": self._name, "problem": str(error), "line": shown}
                logger.warning("an MCP server sent what is no message", fields)
            return
        if isinstance(message, Answer):
            settle(message)
        elif isinstance(message, Notification):
            self._notified(message)
        elif isinstance(message, Request):
            self._ask(message)

    def request_failed(self, request_id: int, error: McpError) -> None:
        """Fail the caller of a request that will have no answer."""
        answer = self._peer.forget(request_id)
        if answer is not None and not answer.done():
            answer.set_exception(error)

    def awaits(self, request_id: int) -> bool:
        """Whether this request has no answer yet, and somebody waits for it."""
        return self._peer.awaits(request_id)

    def transport_closed(self, reason: str) -> None:
        """Called once, last."""
        self._finish(reason, by_itself=True)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _finish(self, reason: str, *, by_itself: bool) -> None:
        if self._end is not None:
            return
        self._end = reason
        for answer in self._peer.drain():
            if not answer.done():
                answer.set_exception(McpError("closed", reason))
        for task in self._asked.values():
            task.cancel()
        if by_itself:
            self._on_closed(reason)

    def _refuse(self, frame: bytes) -> None:
        """Fail the request whose answer is too large: of that only the id is read, so that nobody waits in vain."""
        problem = f"it holds more than {MAX_VALUES} JSON values, or they are nested too deep"
        try:
            found = msgspec.json.decode(frame, type=_OnlyId).id
        except (msgspec.DecodeError, RecursionError):  # too deep to be passed over
            ends = _ID.findall(frame[:_SHOWN]) or _ID.findall(frame[-_SHOWN:])[-1:]
            found = int(ends[0]) if ends else None
        if not isinstance(found, int):
            raise MalformedMessage(problem)
        self.request_failed(found, McpError("protocol", f"the answer cannot be read: {problem}"))

    def _take_back(self, method: str, request_id: int, reason: str) -> None:
        self._transport.abandon(request_id)
        if method != "initialize" and self._end is None:  # which must not be cancelled
            params = {"requestId": request_id, "reason": reason}
            self._spawn(self._post(encode_notification("notifications/cancelled", params, jsonrpc=True)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _post(self, frame: bytes) -> None:
        try:
            async with asyncio.timeout(SEND_S):
                await self._transport.send(frame)
        except (McpError, TimeoutError) as error:
            logger.debug("a message to an MCP server was not sent", {"server": self._name, "problem": str(error)})

    def _notified(self, message: Notification) -> None:
        try:
            match message.method:
                case "notifications/progress":
                    progress = msgspec.json.decode(message.params, type=McpProgress)
                    callback = self._progress.get(progress.progress_token)
                    # After the answer there are no steps, also when both have come at once.
                    if callback is not None and self._peer.awaits(progress.progress_token) and self._steps.take():
                        callback(progress)
                case "notifications/message":
                    if self._messages.take():
                        given = msgspec.json.decode(message.params, type=LogParams)
                        self._handler.log(given.level, given.logger, given.data)
                case "notifications/tools/list_changed":
                    self.tools_changed = True
                case "notifications/cancelled":
                    asked = msgspec.json.decode(message.params, type=Cancelled).request_id
                    if asked in self._asked:
                        self._asked[asked].cancel()
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            if self._strange.take():
                fields = {"server": self._name, "method": message.method[:_SHOWN], "problem": str(error)}
                logger.warning("an MCP server sent a notification that cannot be read", fields)

    # --- what the server asks for ------------------------------------------------------------------------------------

    def _ask(self, request: Request) -> None:
        if self._end is not None:
            return
        if len(self._asked) < MAX_ASKED and request.id not in self._asked:
            task = self._spawn(self._answer(request))
            self._asked[request.id] = task
            task.add_done_callback(lambda _: self._asked.pop(request.id, None))
        elif len(self._tasks) < 4 * MAX_ASKED:
            problem = f"{MAX_ASKED} requests are being answered"
            self._spawn(self._post(encode_failure(request.id, OVERLOADED, problem, jsonrpc=True)))
        elif self._strange.take():
            logger.warning("an MCP server asks for too much at once, and is not answered", {"server": self._name})

    async def _answer(self, request: Request) -> None:
        try:
            reply = encode_reply(request.id, await self._result_for(request), jsonrpc=True)
        except RpcError as error:
            reply = encode_failure(request.id, error.code, error.message, error.data, jsonrpc=True)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            reply = encode_failure(request.id, INVALID_PARAMS, str(error), jsonrpc=True)
        except Exception:
            logger.exception("a request of an MCP server could not be answered", {"server": self._name})
            reply = encode_failure(request.id, INTERNAL_ERROR, "internal error", jsonrpc=True)
        await self._post(reply)

    async def _result_for(self, request: Request) -> Struct | Mapping[str, Any]:
        match request.method:
            case "ping":
                return {}
            case "roots/list":
                return RootsResult(roots=tuple(self._handler.roots()))
            case "elicitation/create":
                form = msgspec.json.decode(request.params, type=ElicitParams)
                if form.mode == "url" and not is_http_url(form.url or ""):
                    raise RpcError(INVALID_PARAMS, "the url is no http or https URL")
                return with_defaults(form, await self._while_asking(self._handler.elicit(form)))
            case "sampling/createMessage" if self._sampling:
                wanted = msgspec.json.decode(request.params, type=SamplingParams)
                return await self._while_asking(self._handler.sample(wanted))
        raise RpcError(METHOD_NOT_FOUND, f"this client does not know {request.method[:_SHOWN]}")

    async def _while_asking(self, asking: Awaitable[T]) -> T:
        """The clocks of our requests stand still: it is the user who takes the time."""
        loop = asyncio.get_running_loop()
        if not self._waiting_for_user:
            for clock in self._clocks:
                when = clock.when()
                if when is not None and not clock.expired():
                    self._clocks[clock] = max(0.0, when - loop.time())
                    clock.reschedule(None)
        self._waiting_for_user += 1
        try:
            return await asking
        finally:
            self._waiting_for_user -= 1
            if not self._waiting_for_user:
                for clock, left in self._clocks.items():
                    if not clock.expired():
                        clock.reschedule(loop.time() + left)


def with_defaults(form: ElicitParams, answer: ElicitResult) -> ElicitResult:
    """What the user has left out of a form has the values that the form gives."""
    schema = form.requested_schema
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if answer.action != "accept" or not isinstance(properties, Mapping) or not isinstance(answer.content, Mapping):
        return answer
    fields = [(name, each) for name, each in properties.items() if isinstance(each, Mapping) and "default" in each]
    return msgspec.structs.replace(
        answer, content={name: each["default"] for name, each in fields} | {**answer.content}
    )


def settle(answer: Answer[asyncio.Future[Raw]]) -> None:
    """Give an answer to who waits for it, if anybody still does."""
    if answer.token.done():
        return
    if isinstance(answer.result, RpcError):
        answer.token.set_exception(answer.result)
    else:
        answer.token.set_result(answer.result)


_ID: Final = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*[,}]')


class _OnlyId(Struct):
    id: Any = None


def is_bounded(frame: bytes | Raw) -> bool:
    """Whether a message can be decoded without making too much of it."""
    data = bytes(frame)
    return count_values(data) <= MAX_VALUES and not is_too_deep(data)


def _repaired(frame: bytes) -> bytes | None:
    """Valid JSON with a `?` in place of bytes that are no UTF-8 and of half surrogate pairs; None for what is none."""
    try:
        text = json.dumps(json.loads(frame.decode("utf-8", "replace")), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return None
    return text.encode("utf-8", "replace")
