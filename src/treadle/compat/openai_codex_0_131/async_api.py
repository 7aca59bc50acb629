"""`AsyncCodex`, `AsyncThread`, `AsyncTurnHandle` with the parameters of `openai_codex_0_131`.

Made from codex_app_server/async_api.py by scripts/make_compat.py.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from treadle.client.lifecycle import AsyncLifecycle
from treadle.client.metadata import check_metadata
from treadle.client.modes import ApprovalMode, approval_settings
from treadle.client.params import list_params
from treadle.client.request_values import without_none
from treadle.client.turn_input import Input, RunInput, wire_input
from treadle.compat.older import RunCollector, RunResult, completed_turn
from treadle.compat.openai_codex_0_131.async_client import AsyncAppServerClient
from treadle.protocol.app.thread_methods import ThreadForkParams, ThreadResumeParams, ThreadStartParams
from treadle.protocol.app.turns import TurnStartParams

if TYPE_CHECKING:
    from treadle.client.codex_config import CodexConfig
    from treadle.client.notification import Notification
    from treadle.protocol.app.base import JsonObject
    from treadle.protocol.app.models import ModelListResponse
    from treadle.protocol.app.settings import (
        Personality,
        ReasoningEffort,
        ReasoningSummary,
        SandboxMode,
        SandboxPolicy,
    )
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
    from treadle.protocol.app.turns import Turn, TurnInterruptResponse, TurnSteerResponse


class AsyncCodex(AsyncLifecycle):
    """A connection to a server: threads are started, found and listed here."""

    _client: AsyncAppServerClient
    _validate_initialize = staticmethod(check_metadata)

    def __init__(self, config: CodexConfig | None = None) -> None:
        self._client = AsyncAppServerClient(config=config)
        self._open(None, None)

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
        sandbox: SandboxMode | None = None,
        service_name: str | None = None,
        service_tier: str | None = None,
        session_start_source: ThreadStartSource | None = None,
        thread_source: ThreadSource | None = None,
    ) -> AsyncThread:
        """A new thread."""
        await self._ensure_initialized()
        params = ThreadStartParams(
            **approval_settings(approval_mode),
            **without_none(
                base_instructions=base_instructions,
                config=config,
                cwd=cwd,
                developer_instructions=developer_instructions,
                ephemeral=ephemeral,
                model=model,
                model_provider=model_provider,
                personality=personality,
                sandbox=sandbox,
                service_name=service_name,
                service_tier=service_tier,
                session_start_source=session_start_source,
                thread_source=thread_source,
            ),
        )
        started = await self._client.thread_start(params)
        return AsyncThread(self, started.thread.id)

    async def thread_list(
        self,
        *,
        archived: bool | None = None,
        cursor: str | None = None,
        cwd: str | list[str] | None = None,
        limit: int | None = None,
        model_providers: list[str] | None = None,
        search_term: str | None = None,
        sort_direction: SortDirection | None = None,
        sort_key: ThreadSortKey | None = None,
        source_kinds: list[ThreadSourceKind] | None = None,
        use_state_db_only: bool | None = None,
    ) -> ThreadListResponse:
        """Stored threads."""
        await self._ensure_initialized()
        params = list_params(
            archived=archived,
            cursor=cursor,
            cwd=cwd,
            limit=limit,
            model_providers=model_providers,
            search_term=search_term,
            sort_direction=sort_direction,
            sort_key=sort_key,
            source_kinds=source_kinds,
            use_state_db_only=use_state_db_only,
        )
        return await self._client.thread_list(params)

    async def thread_resume(
        self,
        thread_id: str,
        *,
        approval_mode: ApprovalMode | None = None,
        base_instructions: str | None = None,
        config: JsonObject | None = None,
        cwd: str | None = None,
        developer_instructions: str | None = None,
        model: str | None = None,
        model_provider: str | None = None,
        personality: Personality | None = None,
        sandbox: SandboxMode | None = None,
        service_tier: str | None = None,
    ) -> AsyncThread:
        """A stored thread, to go on with."""
        await self._ensure_initialized()
        params = ThreadResumeParams(
            thread_id=thread_id,
            **approval_settings(approval_mode),
            **without_none(
                base_instructions=base_instructions,
                config=config,
                cwd=cwd,
                developer_instructions=developer_instructions,
                model=model,
                model_provider=model_provider,
                personality=personality,
                sandbox=sandbox,
                service_tier=service_tier,
            ),
        )
        resumed = await self._client.thread_resume(thread_id, params)
        return AsyncThread(self, resumed.thread.id)

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
        model: str | None = None,
        model_provider: str | None = None,
        sandbox: SandboxMode | None = None,
        service_tier: str | None = None,
        thread_source: ThreadSource | None = None,
    ) -> AsyncThread:
        """A new thread with the history of another."""
        await self._ensure_initialized()
        params = ThreadForkParams(
            thread_id=thread_id,
            **approval_settings(approval_mode),
            **without_none(
                base_instructions=base_instructions,
                config=config,
                cwd=cwd,
                developer_instructions=developer_instructions,
                ephemeral=ephemeral,
                model=model,
                model_provider=model_provider,
                sandbox=sandbox,
                service_tier=service_tier,
                thread_source=thread_source,
            ),
        )
        forked = await self._client.thread_fork(thread_id, params)
        return AsyncThread(self, forked.thread.id)

    async def thread_archive(self, thread_id: str) -> ThreadArchiveResponse:
        """Put a thread away."""
        await self._ensure_initialized()
        return await self._client.thread_archive(thread_id)

    async def thread_unarchive(self, thread_id: str) -> AsyncThread:
        """Take a thread out of the archive."""
        await self._ensure_initialized()
        unarchived = await self._client.thread_unarchive(thread_id)
        return AsyncThread(self, unarchived.thread.id)

    async def models(self, *, include_hidden: bool = False) -> ModelListResponse:
        """The models to choose from."""
        await self._ensure_initialized()
        return await self._client.model_list(include_hidden=include_hidden)


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
        sandbox_policy: SandboxPolicy | None = None,
        service_tier: str | None = None,
        summary: ReasoningSummary | None = None,
    ) -> RunResult:
        """Run a turn to its end. Raises `RuntimeError` when it fails."""
        turn = await self.turn(
            input,
            approval_mode=approval_mode,
            cwd=cwd,
            effort=effort,
            model=model,
            output_schema=output_schema,
            personality=personality,
            sandbox_policy=sandbox_policy,
            service_tier=service_tier,
            summary=summary,
        )
        collector = RunCollector(turn.id)
        async with aclosing(turn.stream()) as events:
            async for event in events:
                collector.add(event)
        return collector.run_result()

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
        sandbox_policy: SandboxPolicy | None = None,
        service_tier: str | None = None,
        summary: ReasoningSummary | None = None,
    ) -> AsyncTurnHandle:
        """Start a turn."""
        await self._codex._ensure_initialized()
        items = wire_input(input)
        params = TurnStartParams(
            thread_id=self.id,
            input=(),
            **approval_settings(approval_mode),
            **without_none(
                cwd=cwd,
                effort=effort,
                model=model,
                output_schema=output_schema,
                personality=personality,
                sandbox_policy=sandbox_policy,
                service_tier=service_tier,
                summary=summary,
            ),
        )
        started = await self._codex._client.turn_start(self.id, items, params=params)
        return AsyncTurnHandle(self._codex, self.id, started.turn.id)

    async def read(self, *, include_turns: bool = False) -> ThreadReadResponse:
        """The thread as it is stored."""
        await self._codex._ensure_initialized()
        return await self._codex._client.thread_read(self.id, include_turns=include_turns)

    async def set_name(self, name: str) -> ThreadSetNameResponse:
        """Name the thread."""
        await self._codex._ensure_initialized()
        return await self._codex._client.thread_set_name(self.id, name)

    async def compact(self) -> ThreadCompactStartResponse:
        """Begin to summarise the history."""
        await self._codex._ensure_initialized()
        return await self._codex._client.thread_compact(self.id)


@dataclass(slots=True)
class AsyncTurnHandle:
    """A turn that was started: read it once, with `stream` or `run`; steer it; interrupt it."""

    _codex: AsyncCodex = field(repr=False)
    thread_id: str
    id: str

    async def steer(self, input: Input | str) -> TurnSteerResponse:
        """Add input to the turn while it runs."""
        await self._codex._ensure_initialized()
        return await self._codex._client.turn_steer(self.thread_id, self.id, wire_input(input))

    async def interrupt(self) -> TurnInterruptResponse:
        """End the turn."""
        await self._codex._ensure_initialized()
        return await self._codex._client.turn_interrupt(self.thread_id, self.id)

    async def stream(self) -> AsyncGenerator[Notification, None]:
        """The notifications of this turn, from its beginning to `turn/completed`."""
        await self._codex._ensure_initialized()
        client = self._codex._client
        client.register_turn_notifications(self.id)
        try:
            while True:
                event = await client.next_turn_notification(self.id)
                yield event
                if event.method == "turn/completed":
                    return
        finally:
            client.unregister_turn_notifications(self.id)

    async def run(self) -> Turn:
        """Read the turn to its end and give it as the server told of it: without its items, and also when it failed."""
        last: Notification | None = None
        async with aclosing(self.stream()) as events:
            async for event in events:
                last = event
        return completed_turn(last, self.id)
