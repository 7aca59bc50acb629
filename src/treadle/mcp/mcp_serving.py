"""`McpConnection`: the conversation with one MCP client, for a server that offers tools: `treadle mcp-server`, and the
host with the tools that an engine gets.

Here are the handshake, requests and their cancellation, progress, elicitations. What the tools do is up to
`ServedTools`; how frames move, to the channel. A client is bounded in the length of its messages and in its calls at a
time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw, Struct, field

from treadle.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    OVERLOADED,
    MalformedMessage,
    RpcError,
)
from treadle.mcp.mcp_messages import PROTOCOL_VERSIONS, Cancelled, McpClientInfo
from treadle.mcp.mcp_session import settle
from treadle.rpc import Answer, Notification, Request, RpcPeer, encode_failure, encode_notification, encode_reply
from treadle.rpc.message import is_too_deep
from treadle.rpc.peer import UnmatchedAnswer
from treadle.transport import Channel

logger: logging.Logger = logging.getLogger(__name__)

MAX_CALLS: Final = 128
"""Calls of one client at a time, most of which wait for turns."""
_PARSE_ERROR: Final = -32700
_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class ServedTools(Protocol):
    """What a server offers."""

    info: McpClientInfo
    """The name and version of the server."""
    instructions: str
    """What a model should know of the tools together."""

    def offered(self, *, can_ask: bool) -> Mapping[str, Mapping[str, Any]]:
        """The tools by name, as `tools/list` has them, for a client that can be asked, or not."""

    async def call(self, name: str, arguments: Raw, call: McpCall) -> Mapping[str, Any]:
        """Run a tool; the result of `tools/call`. What it raises is logged, and the client hears of an internal
        error."""


class _Meta(Struct, rename="camel"):
    progress_token: int | str | None = None


class _CallParams(Struct):
    name: str
    arguments: Raw = Raw(b"{}")
    meta: _Meta | None = field(name="_meta", default=None)


class _InitializeParams(Struct, rename="camel"):
    protocol_version: str
    capabilities: dict[str, Any] = {}


class _SetLevel(Struct):
    level: str


class McpConnection:
    """The conversation with one MCP client. It ends with its channel; then its turns are interrupted."""

    def __init__(self, channel: Channel, tools: ServedTools) -> None:
        self._channel = channel
        self._tools = tools
        self._peer: RpcPeer[asyncio.Future[Raw]] = RpcPeer(untrusted=True, jsonrpc=True)
        self._calls: dict[int | str, asyncio.Task[None]] = {}
        self.version: str = ""  # of the protocol, once the client has said hello
        self._elicitation: Mapping[str, Any] | None = None  # what the client can be asked
        self._level = _LEVELS.index("info")
        channel.attach(self)

    def close(self) -> None:
        self._channel.close()

    async def wait_closed(self) -> None:
        """Wait for the end of the channel, and of what was called over it."""
        await self._channel.wait_closed()
        if self._calls:
            await asyncio.wait(tuple(self._calls.values()))

    @property
    def name(self) -> str:
        return self._tools.info.name

    def can_ask(self, mode: str = "form") -> bool:
        """Whether the client can be asked in this mode: `form` or `url`."""
        asked = self._elicitation
        return asked is not None and (mode in asked or (mode == "form" and not asked))

    def is_logged(self, level: str) -> bool:
        return _LEVELS.index(level) >= self._level

    def send(self, frame: bytes, about: int | str, *, may_miss: bool = False) -> None:
        """Send what belongs to a request of the client; one that does not read misses what it may."""
        if not may_miss or self._channel.writable:
            self._channel.send(frame)

    def respond(self, frame: bytes, request_id: int | str) -> None:
        """Send the answer to a request of the client."""
        self._channel.send(frame)

    def notify(self, method: str, params: Mapping[str, Any], about: int | str) -> None:
        self.send(encode_notification(method, params, jsonrpc=True), about, may_miss=True)

    async def ask(self, method: str, params: Mapping[str, Any], about: int | str) -> Any:
        """Ask the client; the question is taken back when the caller is cancelled. Raises `RpcError`."""
        answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self.send(self._peer.request(method, params, answer), about)
        number = self._peer.last_id
        try:
            return msgspec.json.decode(await answer)
        except asyncio.CancelledError:
            self._peer.forget(number)
            cancelled = {"requestId": number, "reason": "it was answered or is over"}
            self.notify("notifications/cancelled", cancelled, about)
            raise
        except msgspec.DecodeError as error:
            raise RpcError(INVALID_PARAMS, f"the answer cannot be read: {error}") from None

    # --- for the channel ---

    def frame_received(self, frame: bytes) -> None:
        try:
            if is_too_deep(frame):
                raise MalformedMessage("the message is nested too deep")
            message = self._peer.receive(frame)
        except UnmatchedAnswer:
            return  # a question was taken back meanwhile
        except MalformedMessage as error:
            body = {"jsonrpc": "2.0", "id": None, "error": {"code": _PARSE_ERROR, "message": str(error)}}
            self._channel.send(msgspec.json.encode(body))
            return
        if isinstance(message, Answer):
            settle(message)
        elif isinstance(message, Notification):
            self._notified(message)
        elif isinstance(message, Request):
            try:
                if message.method == "tools/call":
                    self._call(message)
                else:
                    self.respond(encode_reply(message.id, self._answer(message), jsonrpc=True), message.id)
            except RpcError as error:
                self._refuse(message, error)
            except msgspec.DecodeError as error:
                self._refuse(
                    message, RpcError(INVALID_PARAMS, f"the params of {message.method} cannot be used: {error}")
                )
        if not self._channel.writable:
            self._channel.pause()  # a client that asks and does not read must wait

    def channel_writable(self) -> None:
        self._channel.resume()

    def channel_closed(self, reason: str) -> None:
        for answer in self._peer.drain():
            answer.cancel()
        for task in self._calls.values():
            task.cancel()

    # --- requests ---

    def _notified(self, message: Notification) -> None:
        if message.method != "notifications/cancelled":
            return
        try:
            task = self._calls.get(msgspec.json.decode(message.params, type=Cancelled).request_id)
        except msgspec.DecodeError as error:
            logger.warning("an MCP client sent a cancellation that cannot be read: %s", error)
            return
        if task is not None and not task.cancelling():  # once is enough: a second one would disturb its end
            task.cancel()

    def _refuse(self, request: Request, error: RpcError) -> None:
        self.respond(encode_failure(request.id, error.code, error.message, error.data, jsonrpc=True), request.id)

    def _answer(self, request: Request) -> Mapping[str, Any]:
        match request.method:
            case "initialize":
                given = msgspec.json.decode(request.params, type=_InitializeParams)
                if self.version:
                    raise RpcError(INVALID_REQUEST, "this session is initialized: begin another one")
                asked = given.capabilities.get("elicitation")
                self._elicitation = asked if isinstance(asked, dict) else None
                version = given.protocol_version
                self.version = version if version in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0]
                return {
                    "protocolVersion": self.version,
                    "capabilities": {"tools": {"listChanged": False}, "logging": {}},
                    "serverInfo": self._tools.info,
                    "instructions": self._tools.instructions,
                }
            case "ping":
                return {}
            case "tools/list":
                return {"tools": tuple(self._tools.offered(can_ask=self.can_ask()).values())}
            case "logging/setLevel":
                level = msgspec.json.decode(request.params, type=_SetLevel).level
                if level not in _LEVELS:
                    raise RpcError(INVALID_PARAMS, f"there is no level {level[:40]!r}: known are {', '.join(_LEVELS)}")
                self._level = _LEVELS.index(level)
                return {}
        raise RpcError(METHOD_NOT_FOUND, f"this server does not know {request.method[:200]}")

    def _call(self, request: Request) -> None:
        given = msgspec.json.decode(request.params, type=_CallParams)
        names = self._tools.offered(can_ask=self.can_ask())
        if given.name not in names:
            raise RpcError(INVALID_PARAMS, f"there is no tool {given.name[:80]!r}: known are {', '.join(names)}")
        if request.id in self._calls:
            raise RpcError(INVALID_REQUEST, f"a request with the id {request.id!r} is being answered")
        if len(self._calls) >= MAX_CALLS:
            raise RpcError(OVERLOADED, f"{MAX_CALLS} calls are being answered: retry later")

        def ended(_: asyncio.Task[None]) -> None:
            del self._calls[request.id]
            self.call_ended(request.id)

        task = asyncio.get_running_loop().create_task(self._answer_call(request, given))
        self._calls[request.id] = task
        task.add_done_callback(ended)

    def call_ended(self, request_id: int | str) -> None:
        """A call has ended, with an answer or without."""

    async def _answer_call(self, request: Request, given: _CallParams) -> None:
        """A call that is cancelled has no answer."""
        call = McpCall(self, request.id, None if given.meta is None else given.meta.progress_token)
        try:
            result = await self._tools.call(given.name, given.arguments, call)
            self.respond(encode_reply(request.id, result, jsonrpc=True), request.id)
        except Exception:
            logger.exception("a call of %s has failed", given.name)
            self._refuse(request, RpcError(INTERNAL_ERROR, "internal error"))


class McpCall:
    """One call of a tool, and the client that made it."""

    def __init__(self, connection: McpConnection, request_id: int | str, token: int | str | None) -> None:
        self._connection = connection
        self.id = request_id
        self._token = token
        self._steps = 0

    def can_ask(self, mode: str = "form") -> bool:
        return self._connection.can_ask(mode)

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Notify the client; one that does not read misses it."""
        self._connection.notify(method, params, self.id)

    async def ask(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask the client, as `elicitation/create`. Raises `RpcError`."""
        answer = await self._connection.ask("elicitation/create", params, self.id)
        if not isinstance(answer, Mapping):
            raise RpcError(INVALID_PARAMS, "the answer is no object")
        return answer

    def report(self, level: str, data: Mapping[str, Any], step: str | None) -> None:
        """Log an event; `step` is progress for a person to read, where it is worth it."""
        if step is not None and self._token is not None:
            self._steps += 1
            progress = {"progressToken": self._token, "progress": self._steps, "message": step}
            self.notify("notifications/progress", progress)
        if self._connection.is_logged(level):
            logged = {"level": level, "logger": self._connection.name, "data": data}
            self.notify("notifications/message", logged)
