"""`AsyncCodex`, `AsyncThread`, `AsyncTurnHandle`: the SDK for asyncio. `api` is made from this file.

Methods, parameters and attributes are those of the official SDK; what is ours besides comes after them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from treadle.client.async_client import AsyncAppServerClient
from treadle.client.errors import RequestTimeout
from treadle.client.inputs import Input, RunInput, wire_input
from treadle.client.modes import ApprovalMode, Sandbox
from treadle.client.opening import AsyncOpening
from treadle.client.params import (
    asks_us,
    fork_params,
    limit_of,
    list_params,
    output_of,
    resume_params,
    start_params,
    tools_of,
    turn_params,
    what_is_left,
)
from treadle.client.result import Collector, TurnResult

if TYPE_CHECKING:
    from treadle.client.approvals import ApprovalHandler, UserInputHandler
    from treadle.client.config import CodexConfig
    from treadle.client.events import Event
    from treadle.client.notification import Notification
    from treadle.client.tools import Tool
    from treadle.protocol.app.accounts import (
        AccountLoginCompletedNotification,
        CancelLoginAccountResponse,
        GetAccountResponse,
    )
    from treadle.protocol.app.base import JsonObject
    from treadle.protocol.app.models import ModelListResponse
    from treadle.protocol.app.settings import Personality, ReasoningEffort, ReasoningSummary
    from treadle.protocol.app.thread_methods import (
        SortDirection,
        ThreadArchiveResponse,
        ThreadCompactStartResponse,
        ThreadListResponse,
        ThreadReadResponse,
        ThreadSetNameResponse,
        ThreadSortKey,
        ThreadSourceKind,
        ThreadStartSource,
    )
    from treadle.protocol.app.threads import ThreadSource
    from treadle.protocol.app.turns import TurnInterruptResponse, TurnSteerResponse


class AsyncCodex(AsyncOpening):
    """A connection to a server: threads are started, found and listed here.

    `async with AsyncCodex() as codex:` uses our own server in this process; a `CodexConfig` names another one.
    `approval_handler` decides about commands, patches and permissions (see `ApprovalRequest`), `user_input_handler`
    answers questions (see `UserInputRequest`). Both may be plain or async functions; without them the answer is no.
    """

    def __init__(
        self,
        config: CodexConfig | None = None,
        *,
        approval_handler: ApprovalHandler | None = None,
        user_input_handler: UserInputHandler | None = None,
    ) -> None:
        self._client = AsyncAppServerClient(config=config)
        self._open(approval_handler, user_input_handler)

    # --- accounts ---

    async def login_api_key(self, api_key: str, *, timeout: float | None = None) -> None:
        """Log in with an API key."""
        await self._ensure_initialized()
        await self._client.account_login_start({"type": "apiKey", "apiKey": api_key}, **limit_of(timeout))

    async def login_chatgpt(self, *, timeout: float | None = None) -> AsyncChatgptLoginHandle:
        """Begin a login in the browser: open `auth_url` of the handle, then `wait()`."""
        await self._ensure_initialized()
        answer: Any = await self._client.account_login_start({"type": "chatgpt"}, **limit_of(timeout))
        return AsyncChatgptLoginHandle(self, answer.login_id, answer.auth_url)

    async def login_chatgpt_device_code(self, *, timeout: float | None = None) -> AsyncDeviceCodeLoginHandle:
        """Begin a login with a code: show `verification_url` and `user_code` of the handle, then `wait()`."""
        await self._ensure_initialized()
        answer: Any = await self._client.account_login_start({"type": "chatgptDeviceCode"}, **limit_of(timeout))
        return AsyncDeviceCodeLoginHandle(self, answer.login_id, answer.verification_url, answer.user_code)

    async def account(self, *, refresh_token: bool = False, timeout: float | None = None) -> GetAccountResponse:
        """Who is logged in."""
        await self._ensure_initialized()
        return await self._client.account_read({"refreshToken": refresh_token}, **limit_of(timeout))

    async def logout(self, *, timeout: float | None = None) -> None:
        """Forget the credentials."""
        await self._ensure_initialized()
        await self._client.account_logout(**limit_of(timeout))

    # --- threads ---

    async def thread_start(
        self,
        *,
        approval_mode: ApprovalMode = ApprovalMode.auto_review,
        base_instructions: str | None = None,
        config: JsonObject | None = None,
        cwd: str | None = None,
        developer_instructions: str | None = None,
        ephemeral: bool | None = None,
        model: str | None = None,
        model_provider: str | None = None,
        personality: Personality | None = None,
        sandbox: Sandbox | None = None,
        service_name: str | None = None,
        service_tier: str | None = None,
        session_start_source: ThreadStartSource | None = None,
        thread_source: ThreadSource | None = None,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        timeout: float | None = None,
    ) -> AsyncThread:
        """A new thread. `tools` are Python functions that the agent may call; `ephemeral` keeps nothing on disk."""
        await self._ensure_initialized()
        by_name = tools_of(tools)
        params = start_params(
            approval_mode,
            sandbox,
            by_name.values(),
            asks_us(self._client),
            base_instructions=base_instructions,
            config=config,
            cwd=cwd,
            developer_instructions=developer_instructions,
            ephemeral=ephemeral,
            model=model,
            model_provider=model_provider,
            personality=personality,
            service_name=service_name,
            service_tier=service_tier,
            session_start_source=session_start_source,
            thread_source=thread_source,
        )
        started = await self._client.thread_start(params, **limit_of(timeout))
        return self._thread(started.thread.id, by_name)

    async def thread_list(
        self,
        *,
        archived: bool | None = None,
        cursor: str | None = None,
        cwd: str | list[str] | None = None,
        limit: int | None = None,
        model_providers: list[str] | None = None,
        search_term: str | None = None,
        section_id: str | None = None,
        sort_direction: SortDirection | None = None,
        sort_key: ThreadSortKey | None = None,
        source_kinds: list[ThreadSourceKind] | None = None,
        use_state_db_only: bool | None = None,
        timeout: float | None = None,
    ) -> ThreadListResponse:
        """Stored threads, newest first unless `sort_key` says otherwise; `next_cursor` of the answer has the rest."""
        await self._ensure_initialized()
        params = list_params(
            archived=archived,
            cursor=cursor,
            cwd=cwd,
            limit=limit,
            model_providers=model_providers,
            search_term=search_term,
            section_id=section_id,
            sort_direction=sort_direction,
            sort_key=sort_key,
            source_kinds=source_kinds,
            use_state_db_only=use_state_db_only,
        )
        return await self._client.thread_list(params, **limit_of(timeout))

    async def thread_resume(
        self,
        thread_id: str,
        *,
        approval_mode: ApprovalMode | None = None,
        base_instructions: str | None = None,
        config: JsonObject | None = None,
        cwd: str | None = None,
        developer_instructions: str | None = None,
        include_turns: bool | None = None,
        model: str | None = None,
        model_provider: str | None = None,
        personality: Personality | None = None,
        sandbox: Sandbox | None = None,
        service_tier: str | None = None,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        timeout: float | None = None,
    ) -> AsyncThread:
        """A stored thread, to go on with. What is left out stays as it was.

        `tools` are the functions behind the tools that the thread was started with. `include_turns` is about what the
        server answers, not about what the model knows: use `thread.read()` for the history.
        """
        await self._ensure_initialized()
        by_name = tools_of(tools)
        params = resume_params(
            thread_id,
            approval_mode,
            sandbox,
            include_turns,
            asks_us(self._client),
            base_instructions=base_instructions,
            config=config,
            cwd=cwd,
            developer_instructions=developer_instructions,
            model=model,
            model_provider=model_provider,
            personality=personality,
            service_tier=service_tier,
        )
        resumed = await self._client.thread_resume(thread_id, params, **limit_of(timeout))
        return self._thread(resumed.thread.id, by_name)

    async def thread_fork(
        self,
        thread_id: str,
        *,
        approval_mode: ApprovalMode | None = None,
        base_instructions: str | None = None,
        config: JsonObject | None = None,
        cwd: str | None = None,
        developer_instructions: str | None = None,
        ephemeral: bool | None = None,
        include_turns: bool | None = None,
        model: str | None = None,
        model_provider: str | None = None,
        sandbox: Sandbox | None = None,
        service_tier: str | None = None,
        thread_source: ThreadSource | None = None,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        timeout: float | None = None,
    ) -> AsyncThread:
        """A new thread with the history of another. What is left out is as it is there."""
        await self._ensure_initialized()
        by_name = tools_of(tools)
        params = fork_params(
            thread_id,
            approval_mode,
            sandbox,
            include_turns,
            asks_us(self._client),
            base_instructions=base_instructions,
            config=config,
            cwd=cwd,
            developer_instructions=developer_instructions,
            ephemeral=ephemeral,
            model=model,
            model_provider=model_provider,
            service_tier=service_tier,
            thread_source=thread_source,
        )
        forked = await self._client.thread_fork(thread_id, params, **limit_of(timeout))
        return self._thread(forked.thread.id, by_name)

    async def thread_archive(self, thread_id: str, *, timeout: float | None = None) -> ThreadArchiveResponse:
        """Put a thread away: it is not listed any more, unless with `archived=True`."""
        await self._ensure_initialized()
        return await self._client.thread_archive(thread_id, **limit_of(timeout))

    async def thread_unarchive(self, thread_id: str, *, timeout: float | None = None) -> AsyncThread:
        """Take a thread out of the archive."""
        await self._ensure_initialized()
        unarchived = await self._client.thread_unarchive(thread_id, **limit_of(timeout))
        return self._thread(unarchived.thread.id, {})

    async def models(self, *, include_hidden: bool = False, timeout: float | None = None) -> ModelListResponse:
        """The models to choose from."""
        await self._ensure_initialized()
        return await self._client.model_list(include_hidden=include_hidden, **limit_of(timeout))

    def _thread(self, thread_id: str, tools: dict[str, Tool]) -> AsyncThread:
        if tools:
            self._client.handlers.add_tools(thread_id, tools)
        return AsyncThread(self, thread_id)


@dataclass(slots=True)
class AsyncThread:
    """A conversation with the agent."""

    _codex: AsyncCodex = field(repr=False)
    id: str

    async def run(
        self,
        input: RunInput,
        *,
        approval_mode: ApprovalMode | None = None,
        cwd: str | None = None,
        effort: ReasoningEffort | None = None,
        model: str | None = None,
        output_schema: JsonObject | None = None,
        personality: Personality | None = None,
        sandbox: Sandbox | None = None,
        service_tier: str | None = None,
        source: str | None = None,
        summary: ReasoningSummary | None = None,
        turn_service_tier: str | None = None,
        output_type: Any = None,
        timeout: float | None = None,
    ) -> TurnResult:
        """Run a turn to its end. Raises `TurnFailed` when it fails; its other options are those of `turn`.

        `timeout` is for the whole turn: then it is interrupted, and `RequestTimeout` raised. So is a turn whose caller
        is cancelled.
        """
        since = time.monotonic()
        turn: AsyncTurnHandle | None = None
        try:
            turn = await self.turn(
                input,
                approval_mode=approval_mode,
                cwd=cwd,
                effort=effort,
                model=model,
                output_schema=output_schema,
                personality=personality,
                sandbox=sandbox,
                service_tier=service_tier,
                source=source,
                summary=summary,
                turn_service_tier=turn_service_tier,
                output_type=output_type,
                timeout=timeout,
            )
            return await turn.run(timeout=what_is_left(timeout, since))
        except asyncio.CancelledError:
            if turn is not None:
                self._codex._client.abandon_turn(self.id, turn.id)
            raise

    async def turn(
        self,
        input: RunInput,
        *,
        approval_mode: ApprovalMode | None = None,
        cwd: str | None = None,
        effort: ReasoningEffort | None = None,
        model: str | None = None,
        output_schema: JsonObject | None = None,
        personality: Personality | None = None,
        sandbox: Sandbox | None = None,
        service_tier: str | None = None,
        source: str | None = None,
        summary: ReasoningSummary | None = None,
        turn_service_tier: str | None = None,
        output_type: Any = None,
        timeout: float | None = None,
    ) -> AsyncTurnHandle:
        """Start a turn. Raises `TurnConflict` while the thread has one that was started here: `steer` that one.

        Only an `ExternalMessage` joins the turn that runs, and the handle is of that one: whoever reads it goes on.
        Most options stay for later turns; `output_schema`, `source` and `turn_service_tier` are for this one. An
        `output_type` (a dataclass, msgspec struct, TypedDict or pydantic model) takes the place of `output_schema`; the
        result then has the response as an object of it in `output`. `timeout` is for the start alone.
        """
        await self._codex._ensure_initialized()
        client = self._codex._client
        output = output_of(output_type)
        params = turn_params(
            self.id,
            input,
            approval_mode,
            sandbox,
            source,
            turn_service_tier,
            asks_us(client),
            cwd=cwd,
            effort=effort,
            model=model,
            output_schema=output_schema if output is None else output.schema,
            personality=personality,
            service_tier=service_tier,
            summary=summary,
        )
        started = await client.turn_start(self.id, wire_input(input), params=params, **limit_of(timeout))
        turn = AsyncTurnHandle(self._codex, self.id, started.turn.id)
        turn._output_type = output
        return turn

    async def events(
        self, input: RunInput, *, timeout: float | None = None, **options: Any
    ) -> AsyncGenerator[Event, None]:
        """Run a turn and give small events (see `treadle.types`); the options are those of `turn`.

        `timeout` is for the whole turn, as with `run`.
        """
        since = time.monotonic()
        turn = await self.turn(input, timeout=timeout, **options)
        async with aclosing(turn.events(timeout=what_is_left(timeout, since))) as events:
            async for event in events:
                yield event

    async def read(self, *, include_turns: bool = False, timeout: float | None = None) -> ThreadReadResponse:
        """The thread as it is stored, with its turns if they are wanted."""
        await self._codex._ensure_initialized()
        return await self._codex._client.thread_read(self.id, include_turns=include_turns, **limit_of(timeout))

    async def set_name(self, name: str, *, timeout: float | None = None) -> ThreadSetNameResponse:
        """Name the thread."""
        await self._codex._ensure_initialized()
        return await self._codex._client.thread_set_name(self.id, name, **limit_of(timeout))

    async def compact(self, *, timeout: float | None = None) -> ThreadCompactStartResponse:
        """Begin to summarise the history, so that more fits in."""
        await self._codex._ensure_initialized()
        return await self._codex._client.thread_compact(self.id, **limit_of(timeout))


@dataclass(slots=True)
class AsyncTurnHandle:
    """A turn that was started: read it once, with `stream`, `events` or `run`; steer it; interrupt it."""

    _codex: AsyncCodex = field(repr=False)
    thread_id: str
    id: str
    _output_type: Any = field(default=None, init=False, repr=False, compare=False)

    async def steer(self, input: Input | str, *, timeout: float | None = None) -> TurnSteerResponse:
        """Add input to the turn while it runs."""
        await self._codex._ensure_initialized()
        items = wire_input(input)
        return await self._codex._client.turn_steer(self.thread_id, self.id, items, **limit_of(timeout))

    async def interrupt(self, *, timeout: float | None = None) -> TurnInterruptResponse:
        """End the turn: its stream then ends with the status `interrupted`."""
        await self._codex._ensure_initialized()
        return await self._codex._client.turn_interrupt(self.thread_id, self.id, **limit_of(timeout))

    async def stream(self, *, timeout: float | None = None) -> AsyncGenerator[Notification, None]:
        """The notifications of this turn, from its beginning to `turn/completed`.

        Who leaves the loop may come back: the turn goes on, and nothing is lost. `timeout` is for all of it; a turn
        that takes longer is interrupted, and so is one whose reader is cancelled.
        """
        await self._codex._ensure_initialized()
        client = self._codex._client
        deadline = None if timeout is None else time.monotonic() + timeout
        reading = client.open_turn(self.id)
        try:
            while True:
                if deadline is None:
                    event = await client.next_turn_notification(self.thread_id, self.id)
                else:
                    left = max(0.0, deadline - time.monotonic())
                    event = await client.next_turn_notification(self.thread_id, self.id, timeout=left)
                yield event
                if event.method == "turn/completed":
                    return
        except asyncio.CancelledError:
            client.abandon_turn(self.thread_id, self.id)
            raise
        except RequestTimeout:
            client.abandon_turn(self.thread_id, self.id)
            raise RequestTimeout(f"turn {self.id} did not end in time and was interrupted") from None
        finally:
            client.close_turn(reading)

    async def events(self, *, timeout: float | None = None) -> AsyncGenerator[Event, None]:
        """The turn as small events, the last of which is `Done` with the result."""
        from treadle.client.events import EventReader

        reader = EventReader(self.id, self._output_type)
        async with aclosing(self.stream(timeout=timeout)) as notifications:
            async for notification in notifications:
                for event in reader.read(notification):
                    yield event

    async def run(self, *, timeout: float | None = None) -> TurnResult:
        """Read the turn to its end. Raises `TurnFailed` when it failed."""
        collector = Collector(self.id)
        try:
            async with aclosing(self.stream(timeout=timeout)) as events:
                async for event in events:
                    collector.add(event)
        except asyncio.CancelledError:
            self._codex._client.abandon_turn(self.thread_id, self.id)
            raise
        return collector.result(self._output_type)


@dataclass(slots=True)
class AsyncChatgptLoginHandle:
    """A login that goes on in the browser."""

    _codex: AsyncCodex = field(repr=False)
    login_id: str
    auth_url: str = field(repr=False)

    async def wait(self, *, timeout: float | None = None) -> AccountLoginCompletedNotification:
        """Wait for its end."""
        await self._codex._ensure_initialized()
        return await self._codex._client.wait_for_login_completed(self.login_id, **limit_of(timeout))

    async def cancel(self, *, timeout: float | None = None) -> CancelLoginAccountResponse:
        """Give it up."""
        await self._codex._ensure_initialized()
        return await self._codex._client.account_login_cancel(self.login_id, **limit_of(timeout))


@dataclass(slots=True)
class AsyncDeviceCodeLoginHandle:
    """A login with a code that is entered elsewhere."""

    _codex: AsyncCodex = field(repr=False)
    login_id: str
    verification_url: str
    user_code: str = field(repr=False)

    async def wait(self, *, timeout: float | None = None) -> AccountLoginCompletedNotification:
        """Wait for its end."""
        await self._codex._ensure_initialized()
        return await self._codex._client.wait_for_login_completed(self.login_id, **limit_of(timeout))

    async def cancel(self, *, timeout: float | None = None) -> CancelLoginAccountResponse:
        """Give it up."""
        await self._codex._ensure_initialized()
        return await self._codex._client.account_login_cancel(self.login_id, **limit_of(timeout))
