"""`Codex`, `Thread`, `TurnHandle`: the SDK for blocking code.

Made from async_api.py by scripts/make_sync.py: edit those.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from treadle.client.client import AppServerClient
from treadle.client.errors import RequestTimeout
from treadle.client.inputs import Input, RunInput, wire_input
from treadle.client.modes import ApprovalMode, Sandbox
from treadle.client.opening import Opening
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


class Codex(Opening):
    """A connection to a server: threads are started, found and listed here.

    `with Codex() as codex:` uses our own server in this process; a `CodexConfig` names another one.
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
        self._client = AppServerClient(config=config)
        self._open(approval_handler, user_input_handler)

    # --- accounts ---

    def login_api_key(self, api_key: str, *, timeout: float | None = None) -> None:
        """Log in with an API key."""
        self._client.account_login_start({"type": "apiKey", "apiKey": api_key}, **limit_of(timeout))

    def login_chatgpt(self, *, timeout: float | None = None) -> ChatgptLoginHandle:
        """Begin a login in the browser: open `auth_url` of the handle, then `wait()`."""
        answer: Any = self._client.account_login_start({"type": "chatgpt"}, **limit_of(timeout))
        return ChatgptLoginHandle(self._client, answer.login_id, answer.auth_url)

    def login_chatgpt_device_code(self, *, timeout: float | None = None) -> DeviceCodeLoginHandle:
        """Begin a login with a code: show `verification_url` and `user_code` of the handle, then `wait()`."""
        answer: Any = self._client.account_login_start({"type": "chatgptDeviceCode"}, **limit_of(timeout))
        return DeviceCodeLoginHandle(self._client, answer.login_id, answer.verification_url, answer.user_code)

    def account(self, *, refresh_token: bool = False, timeout: float | None = None) -> GetAccountResponse:
        """Who is logged in."""
        return self._client.account_read({"refreshToken": refresh_token}, **limit_of(timeout))

    def logout(self, *, timeout: float | None = None) -> None:
        """Forget the credentials."""
        self._client.account_logout(**limit_of(timeout))

    # --- threads ---

    def thread_start(
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
    ) -> Thread:
        """A new thread. `tools` are Python functions that the agent may call; `ephemeral` keeps nothing on disk."""
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
        started = self._client.thread_start(params, **limit_of(timeout))
        return self._thread(started.thread.id, by_name)

    def thread_list(
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
        return self._client.thread_list(params, **limit_of(timeout))

    def thread_resume(
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
    ) -> Thread:
        """A stored thread, to go on with. What is left out stays as it was.

        `tools` are the functions behind the tools that the thread was started with. `include_turns` is about what the
        server answers, not about what the model knows: use `thread.read()` for the history.
        """
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
        resumed = self._client.thread_resume(thread_id, params, **limit_of(timeout))
        return self._thread(resumed.thread.id, by_name)

    def thread_fork(
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
    ) -> Thread:
        """A new thread with the history of another. What is left out is as it is there."""
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
        forked = self._client.thread_fork(thread_id, params, **limit_of(timeout))
        return self._thread(forked.thread.id, by_name)

    def thread_archive(self, thread_id: str, *, timeout: float | None = None) -> ThreadArchiveResponse:
        """Put a thread away: it is not listed any more, unless with `archived=True`."""
        return self._client.thread_archive(thread_id, **limit_of(timeout))

    def thread_unarchive(self, thread_id: str, *, timeout: float | None = None) -> Thread:
        """Take a thread out of the archive."""
        unarchived = self._client.thread_unarchive(thread_id, **limit_of(timeout))
        return self._thread(unarchived.thread.id, {})

    def models(self, *, include_hidden: bool = False, timeout: float | None = None) -> ModelListResponse:
        """The models to choose from."""
        return self._client.model_list(include_hidden=include_hidden, **limit_of(timeout))

    def _thread(self, thread_id: str, tools: dict[str, Tool]) -> Thread:
        if tools:
            self._client.handlers.add_tools(thread_id, tools)
        return Thread(self._client, thread_id)


@dataclass(slots=True)
class Thread:
    """A conversation with the agent."""

    _client: AppServerClient = field(repr=False)
    id: str

    def run(
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
        is stopped by Ctrl-C.
        """
        since = time.monotonic()
        turn: TurnHandle | None = None
        try:
            turn = self.turn(
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
            return turn.run(timeout=what_is_left(timeout, since))
        except KeyboardInterrupt:
            if turn is not None:
                self._client.abandon_turn(self.id, turn.id)
            raise

    def turn(
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
    ) -> TurnHandle:
        """Start a turn. Raises `TurnConflict` while the thread has one that was started here: `steer` that one.

        Only an `ExternalMessage` joins the turn that runs, and the handle is of that one: whoever reads it goes on.
        Most options stay for later turns; `output_schema`, `source` and `turn_service_tier` are for this one. An
        `output_type` (a dataclass, msgspec struct, TypedDict or pydantic model) takes the place of `output_schema`; the
        result then has the response as an object of it in `output`. `timeout` is for the start alone.
        """
        client = self._client
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
        started = client.turn_start(self.id, wire_input(input), params=params, **limit_of(timeout))
        turn = TurnHandle(self._client, self.id, started.turn.id)
        turn._output_type = output
        return turn

    def events(self, input: RunInput, *, timeout: float | None = None, **options: Any) -> Generator[Event, None, None]:
        """Run a turn and give small events (see `treadle.types`); the options are those of `turn`.

        `timeout` is for the whole turn, as with `run`.
        """
        since = time.monotonic()
        turn = self.turn(input, timeout=timeout, **options)
        with closing(turn.events(timeout=what_is_left(timeout, since))) as events:
            yield from events

    def read(self, *, include_turns: bool = False, timeout: float | None = None) -> ThreadReadResponse:
        """The thread as it is stored, with its turns if they are wanted."""
        return self._client.thread_read(self.id, include_turns=include_turns, **limit_of(timeout))

    def set_name(self, name: str, *, timeout: float | None = None) -> ThreadSetNameResponse:
        """Name the thread."""
        return self._client.thread_set_name(self.id, name, **limit_of(timeout))

    def compact(self, *, timeout: float | None = None) -> ThreadCompactStartResponse:
        """Begin to summarise the history, so that more fits in."""
        return self._client.thread_compact(self.id, **limit_of(timeout))


@dataclass(slots=True)
class TurnHandle:
    """A turn that was started: read it once, with `stream`, `events` or `run`; steer it; interrupt it."""

    _client: AppServerClient = field(repr=False)
    thread_id: str
    id: str
    _output_type: Any = field(default=None, init=False, repr=False, compare=False)

    def steer(self, input: Input | str, *, timeout: float | None = None) -> TurnSteerResponse:
        """Add input to the turn while it runs."""
        items = wire_input(input)
        return self._client.turn_steer(self.thread_id, self.id, items, **limit_of(timeout))

    def interrupt(self, *, timeout: float | None = None) -> TurnInterruptResponse:
        """End the turn: its stream then ends with the status `interrupted`."""
        return self._client.turn_interrupt(self.thread_id, self.id, **limit_of(timeout))

    def stream(self, *, timeout: float | None = None) -> Generator[Notification, None, None]:
        """The notifications of this turn, from its beginning to `turn/completed`.

        Who leaves the loop may come back: the turn goes on, and nothing is lost. `timeout` is for all of it; a turn
        that takes longer is interrupted, and so is one whose reader is stopped by Ctrl-C.
        """
        client = self._client
        deadline = None if timeout is None else time.monotonic() + timeout
        reading = client.open_turn(self.id)
        try:
            while True:
                if deadline is None:
                    event = client.next_turn_notification(self.thread_id, self.id)
                else:
                    left = max(0.0, deadline - time.monotonic())
                    event = client.next_turn_notification(self.thread_id, self.id, timeout=left)
                yield event
                if event.method == "turn/completed":
                    return
        except KeyboardInterrupt:
            client.abandon_turn(self.thread_id, self.id)
            raise
        except RequestTimeout:
            client.abandon_turn(self.thread_id, self.id)
            raise RequestTimeout(f"turn {self.id} did not end in time and was interrupted") from None
        finally:
            client.close_turn(reading)

    def events(self, *, timeout: float | None = None) -> Generator[Event, None, None]:
        """The turn as small events, the last of which is `Done` with the result."""
        from treadle.client.events import EventReader

        reader = EventReader(self.id, self._output_type)
        with closing(self.stream(timeout=timeout)) as notifications:
            for notification in notifications:
                yield from reader.read(notification)

    def run(self, *, timeout: float | None = None) -> TurnResult:
        """Read the turn to its end. Raises `TurnFailed` when it failed."""
        collector = Collector(self.id)
        try:
            with closing(self.stream(timeout=timeout)) as events:
                for event in events:
                    collector.add(event)
        except KeyboardInterrupt:
            self._client.abandon_turn(self.thread_id, self.id)
            raise
        return collector.result(self._output_type)


@dataclass(slots=True)
class ChatgptLoginHandle:
    """A login that goes on in the browser."""

    _client: AppServerClient = field(repr=False)
    login_id: str
    auth_url: str = field(repr=False)

    def wait(self, *, timeout: float | None = None) -> AccountLoginCompletedNotification:
        """Wait for its end."""
        return self._client.wait_for_login_completed(self.login_id, **limit_of(timeout))

    def cancel(self, *, timeout: float | None = None) -> CancelLoginAccountResponse:
        """Give it up."""
        return self._client.account_login_cancel(self.login_id, **limit_of(timeout))


@dataclass(slots=True)
class DeviceCodeLoginHandle:
    """A login with a code that is entered elsewhere."""

    _client: AppServerClient = field(repr=False)
    login_id: str
    verification_url: str
    user_code: str = field(repr=False)

    def wait(self, *, timeout: float | None = None) -> AccountLoginCompletedNotification:
        """Wait for its end."""
        return self._client.wait_for_login_completed(self.login_id, **limit_of(timeout))

    def cancel(self, *, timeout: float | None = None) -> CancelLoginAccountResponse:
        """Give it up."""
        return self._client.account_login_cancel(self.login_id, **limit_of(timeout))
