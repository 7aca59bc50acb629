"""`AppServerRuntime`: turns on an app-server: ours as a child or elsewhere, or the real codex.

It owns the connection, the thread and the turn being read. `server_events`, `approval_asks` and `faults` translate what
the server says; `server_config` says how it is started.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final

from treadle.arguments import limit as seconds_or_none
from treadle.arguments import one_of
from treadle.client.codex_config import CodexConfig
from treadle.client.lifecycle import async_retry_on_overload, check_metadata
from treadle.client.params import Sandbox, TurnOptions, check_config, folder_of, sandbox_mode, turn_params
from treadle.client.router import Stream
from treadle.client.sdk_errors import CodexError, JsonRpcError, TransportClosedError
from treadle.client.server_requests import ApprovalDecision, ApprovalRequest
from treadle.client.tools import tools_by_name
from treadle.client.turn_values import ImageInput, Input, InputItem, LocalImageInput, TextInput, wire_input
from treadle.errors import ArgumentError, ArgumentValueError
from treadle.host.app_server.faults import NO_CONTEXT, REPLACED, FaultContext, error_fault
from treadle.host.app_server.host_client import HostClient, login_advice, server_config
from treadle.host.app_server.server_events import NEED_CONTEXT, ask_of, decision_of, events_of
from treadle.host.approver import AskPerson
from treadle.host.chat_messages import history_text
from treadle.host.faults import BUSY, CLOSED, NOT_OPEN, Fault, FaultKind, ResumeFailed, RuntimeFault
from treadle.host.host_tools import limited
from treadle.host.runtime import (
    Notice,
    Opened,
    Opening,
    RuntimeEvent,
    TurnEnded,
    Usage,
    UsageReported,
    UserInput,
    begins_work,
)
from treadle.host.timeouts import TOOL_S
from treadle.protocol.app.thread_history import ThreadRevertParams
from treadle.protocol.app.thread_methods import ThreadResumeParams, ThreadStartParams
from treadle.secrets import secrets_in

if TYPE_CHECKING:
    from treadle.protocol.app.turns import TurnStartParams

logger: logging.Logger = logging.getLogger(__name__)

CLOSE_S: Final = 10.0
"""A server that is stuck is killed long before that."""
START_S: Final = 30.0
"""For a turn that was accepted to begin."""
USAGE_S: Final = 1.0
"""The tokens of a resumed thread come right after it, if at all."""
_EMPTY: Final = Fault(kind="refused", message="There is nothing to send: the message is empty.")
_REFUSED: Final = frozenset({"refused", "context_window", "policy"})
_NO_TURN: Final = Fault(kind="refused", message="No turn was started, so there is nothing to wait for.")
_SANDBOXES: Final = {sandbox_mode(sandbox): sandbox for sandbox in Sandbox}


class AppServerRuntime:
    """A thread on an app-server.

    Args:
        config: Which server to use; without it Treadle's own, as a process of its own. `CodexConfig()` is the same
            server in this process, one with `codex_bin` the real codex, one with `url` a server that runs already.
        provider: The provider of the model; else what the server's settings say.
        api_key: The key for it. It is handed to the server in its environment.
        base_url: Where the provider answers, if not at its usual place.
        tool_timeout: Seconds that one of the host's own tools may take; None has no limit.
    """

    _EPHEMERAL: ClassVar[bool] = False
    _OPTIONS: ClassVar[frozenset[str]] = frozenset(TurnOptions.__annotations__)
    _REPLACED: ClassVar[frozenset[FaultKind]] = REPLACED

    def __init__(
        self,
        config: CodexConfig | None = None,
        *,
        provider: str | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        tool_timeout: float | None = TOOL_S,
    ) -> None:
        check_config(config)
        self._config = server_config(config, provider=provider, api_key=api_key, base_url=base_url)
        self._login = login_advice(config, provider=provider, has_key=api_key is not None)
        self._tool_timeout = seconds_or_none(tool_timeout)
        self._client = HostClient(self._config, ephemeral_only=self._EPHEMERAL)
        self._connected = False
        self._dead: Fault | None = None
        self._thread_id = ""
        self._usage: Usage | None = None
        self._turn: Stream | None = None
        self._said: UserInput = ""
        self._did_nothing = False
        """Whether the last turn failed before anything was said or done in it."""
        self._was_refused = False
        self._began_work = False
        self._interrupted = False
        self._turns: deque[str] = deque(maxlen=64)
        self._events: deque[RuntimeEvent] = deque()

    @property
    def name(self) -> str:
        """What the runtime is called."""
        return "app_server"

    @property
    def is_over(self) -> bool:
        """Whether the server has ended, or the connection to it."""
        return self._connected and self._client.is_over

    # --- the thread ---

    async def open(self, opening: Opening, ask: AskPerson) -> Opened:
        """Start the server, unless it is there, and open the thread."""
        tools = tools_by_name(opening.tools)
        # Our server takes new instructions for a thread that it resumes; the real codex keeps those that it has.
        unknown = opening.history if opening.resume is None else opening.history[: opening.before_thread]
        instructions = "\n\n".join(filter(None, [opening.instructions, history_text(unknown)]))
        sandbox = "workspace-write" if opening.sandbox is None else opening.sandbox
        params = {
            "developer_instructions": instructions or None,
            "cwd": folder_of(self._client, opening.cwd),
            "model": opening.model,
            # Said explicitly: what the server's settings say may be meant for somebody who sits in front of it.
            "sandbox": one_of("sandbox", sandbox, [name for name in _SANDBOXES if name]),
            "approval_policy": "on-request",
            "approvals_reviewer": "user",
        }

        async def approve(request: ApprovalRequest) -> ApprovalDecision:
            return decision_of(await ask(ask_of(request)))

        self._client.handlers.approval = approve
        async with self._faults(starting=True):
            if not self._connected:  # once for a connection, however often a thread is opened
                try:
                    await self._client.start()
                    check_metadata(await self._client.initialize())
                except asyncio.CancelledError:
                    await self._end()
                    raise
                self._connected = True
            opened = await (self._start(opening, params) if opening.resume is None else self._resume(opening, params))
        limited_tools = {name: limited(tool, self._tool_timeout) for name, tool in tools.items()}
        self._client.handlers.add_tools(opened.thread_id, limited_tools)
        self._thread_id = self._client.thread_id = opened.thread_id
        return opened

    async def _start(self, opening: Opening, members: Mapping[str, Any]) -> Opened:
        specs = tuple(tool.spec() for tool in opening.tools) or None
        params = ThreadStartParams(**members, dynamic_tools=specs)
        answer = await async_retry_on_overload(lambda: self._client.thread_start(params))
        return Opened(thread_id=answer.thread.id, model=answer.model)

    async def _resume(self, opening: Opening, members: Mapping[str, Any]) -> Opened:
        wanted = opening.resume or ""
        params = ThreadResumeParams(thread_id=wanted, exclude_turns=True, **members)
        client = self._client
        client.thread_id, client.usage = wanted, None
        try:
            answer = await async_retry_on_overload(lambda: client.thread_resume(wanted, params))
        except JsonRpcError as error:
            fault = error_fault(error, self._fault_context())
            if fault.kind in ("overloaded", "auth"):  # the thread is there, and may be had later
                raise
            raise ResumeFailed(fault) from None
        if answer.thread.id != wanted:
            message = f"The server was asked for the thread {wanted} and opened {answer.thread.id}."
            raise ResumeFailed(Fault(kind="refused", message=message))
        usage = await client.wait_for(lambda: client.usage, USAGE_S)
        return Opened(thread_id=wanted, model=answer.model, usage=usage)

    # --- turns ---

    async def start_turn(self, user_input: UserInput, options: Mapping[str, Any]) -> str:
        """Start a turn. The options are those of the SDK's `thread.turn`, such as `model` and `effort`."""
        async with self._faults():
            if not self._thread_id:
                raise RuntimeFault(NOT_OPEN)
            if self._turn is not None and not self._turn.completed and not self._interrupted:
                raise RuntimeFault(BUSY)
            try:
                unknown = next((name for name in options if name not in self._OPTIONS), None)
                if unknown is not None:
                    known = ", ".join(sorted(self._OPTIONS))
                    raise ArgumentValueError(unknown, f"a turn has no option `{unknown}`; there are {known}")
                said: Input = (
                    TextInput(user_input) if isinstance(user_input, str) else [_sdk_item(part) for part in user_input]
                )
                if not user_input:
                    raise RuntimeFault(_EMPTY)
                sent, given = wire_input(said), dict(options)
                limit = seconds_or_none(given.pop("timeout", None))
                params = self._turn_params(said, given)
            except ArgumentError as error:
                raise RuntimeFault(Fault(kind="refused", message=str(error))) from None
            self._close_turn()
            await self._take_back(user_input)
            answer = await self._client.turn_start(self._thread_id, sent, params=params, timeout=limit)
            self._said = user_input
            self._read(answer.turn.id)
        return answer.turn.id

    async def _take_back(self, user_input: UserInput | None) -> None:
        """Take back the last turn if it failed before anything was said or done, and the same message comes again: the
        model would get it twice. What the provider refuses is taken back in any case: it would be refused with
        everything that follows it, too."""
        if self._did_nothing and (self._was_refused or user_input == self._said):
            turn_id, self._did_nothing = self._turns[-1], False
            try:
                await self._client.thread_revert(ThreadRevertParams(thread_id=self._thread_id, before_turn_id=turn_id))
            except JsonRpcError as error:
                logger.debug("turn %s is not taken back: %s", turn_id, error)

    def _turn_params(self, said: Input, given: dict[str, Any]) -> TurnStartParams:
        """The parameters of `turn/start` for these options. Raises `ArgumentError`."""
        sandbox = given.pop("sandbox", None)
        if isinstance(sandbox, str) and not isinstance(sandbox, Sandbox):
            sandbox = _SANDBOXES[one_of("sandbox", sandbox, [name for name in _SANDBOXES if name])]
        named = {name: given.pop(name, None) for name in ("approval_mode", "source", "turn_service_tier", "max_turns")}
        return turn_params(self._thread_id, said, sandbox=sandbox, has_approval_handler=True, **named, **given)

    def _read(self, turn_id: str) -> None:
        self._events.clear()
        self._interrupted = self._did_nothing = False
        self._began_work = False
        self._turns.append(turn_id)
        self._turn = self._client.open_turn(turn_id)

    def _close_turn(self) -> None:
        """Stop reading the turn before; if it still runs, it is interrupted."""
        turn, self._turn = self._turn, None
        if turn is not None:
            self._client.close_turn(turn)
            self._client.abandon_turn(self._thread_id, turn.key)

    async def next_event(self) -> RuntimeEvent:
        """The next event of the turn. Notifications about other turns and threads are left out."""
        if not self._events:
            turn = self._turn
            if turn is None:
                raise RuntimeFault(self._dead or _NO_TURN)
            async with self._faults():
                notification = await self._client.next_turn_notification(self._thread_id, turn.key)
            self._events.extend(Notice(text, keep=True) for text in self._client.take_warnings())
            context = self._fault_context() if notification.method in NEED_CONTEXT else NO_CONTEXT
            self._events.extend(events_of(notification, context))
        event = self._events.popleft()
        self._began_work = self._began_work or begins_work(event)
        if isinstance(event, UsageReported):
            self._usage = event.total
        if isinstance(event, TurnEnded) and self._turn is not None:
            turn, self._turn = self._turn, None
            self._client.close_turn(turn)
            self._did_nothing = event.status == "failed" and not self._began_work
            self._was_refused = event.fault is not None and event.fault.kind in _REFUSED
        return event

    async def interrupt(self) -> None:
        """Tell the turn to end."""
        turn = self._turn
        if turn is None or turn.completed:
            return
        self._interrupted = True
        async with self._faults():
            try:
                await self._client.turn_interrupt(self._thread_id, turn.key)
            except JsonRpcError:
                # It has ended; or it was accepted and has not begun, and is interrupted again when it has.
                if turn.completed or turn.key in self._client.begun:
                    return
                await self._client.wait_for(lambda: turn.key if turn.key in self._client.begun else None, START_S)
                if not turn.completed:
                    with suppress(JsonRpcError):  # it has ended meanwhile
                        await self._client.turn_interrupt(self._thread_id, turn.key)

    async def steer(self, text: str) -> bool:
        """Say something in the middle of the turn; False when it has ended, or cannot be steered."""
        turn = self._turn
        if turn is None or turn.completed:
            return False
        async with self._faults():
            try:
                answer = await self._client.turn_steer(self._thread_id, turn.key, text)
            except JsonRpcError as error:
                logger.debug("turn %s is not steered: %s", turn.key, error)
                return False
        return answer.turn_id == turn.key

    async def probe(self) -> None:
        """Ask for the thread without its turns: every answer is one, a refusal too."""
        async with self._faults():
            try:
                await self._client.thread_read(self._thread_id)
            except JsonRpcError as error:
                logger.debug("the server is there and says: %s", error)

    async def compact(self) -> bool:
        """Begin to sum up the thread. Its turn has an id that is learned when it begins."""
        self._close_turn()
        client = self._client
        before = {*client.begun, *self._turns}
        async with self._faults():
            await self._take_back(None)
            await client.thread_compact(self._thread_id)
            turn_id = await client.wait_for(
                lambda: next((it for it in client.begun if it not in before), None), START_S
            )
            if turn_id is None and self._client.is_over:
                await self.probe()  # which says how it ended
            if turn_id is None:
                message = f"The server was to sum up the thread and has not begun within {START_S:g} s."
                raise RuntimeFault(Fault(kind="stuck", message=message, replace_runtime=True))
            self._read(turn_id)
        return True

    # --- the end ---

    async def close(self) -> None:
        """End the server with all that it started, if it is ours; else the connection."""
        self._turn = None
        self._dead = self._dead or CLOSED
        await self._end()

    async def _end(self) -> None:
        self._connected = False
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._client.close()
        except (CodexError, OSError, TimeoutError) as error:
            logger.warning("the app-server could not be ended in order: %s", error or "it takes too long")

    def _fault_context(self) -> FaultContext:
        # The secrets stay in the settings, which do not show them.
        secrets = tuple(secrets_in(self._config.env or {}, self._config.config_overrides))
        return FaultContext(secrets, self._client.limits, self._login, time.time(), self._REPLACED)

    @asynccontextmanager
    async def _faults(self, *, starting: bool = False) -> AsyncIterator[None]:
        """Errors of the SDK become faults here. What a server that is gone leaves behind is ended at once."""
        if self._dead is not None:
            raise RuntimeFault(self._dead)
        try:
            yield
        except (CodexError, OSError) as error:
            fault = error_fault(error, self._fault_context(), starting=starting)
            if isinstance(error, TransportClosedError) or (starting and not self._connected):
                self._dead = None if fault.retryable and not fault.replace_runtime else fault
                self._turn = None
                await self._end()
            raise RuntimeFault(fault) from None  # what the error says may be more than may be shown


def _sdk_item(part: Mapping[str, Any]) -> InputItem:
    match part:
        case {"type": "text", "text": str(text)}:
            return TextInput(text)
        case {"type": "image_url", "image_url": {"url": str(url)}} | {"type": "image_url", "image_url": str(url)}:
            return ImageInput(url)
        case {"type": "local_image", "path": path}:
            return LocalImageInput(path)
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    raise ArgumentValueError("user_input", f"{kind!r} is no part of a message: use text, image_url or local_image")
