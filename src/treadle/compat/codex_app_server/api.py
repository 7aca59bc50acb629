"""`Codex`, `Thread`, `TurnHandle` with the parameters of `codex_app_server`, and the same for asyncio.

Made from codex_app_server/async_api.py by scripts/make_compat.py.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from treadle.client.lifecycle import Lifecycle
from treadle.client.metadata import check_metadata
from treadle.client.params import list_params
from treadle.client.request_values import without_none
from treadle.client.turn_input import Input, RunInput, wire_input
from treadle.compat.codex_app_server.async_api import AsyncCodex as AsyncCodex
from treadle.compat.codex_app_server.async_api import AsyncThread as AsyncThread
from treadle.compat.codex_app_server.async_api import AsyncTurnHandle as AsyncTurnHandle
from treadle.compat.codex_app_server.client import AppServerClient
from treadle.compat.older import RunCollector, RunResult, completed_turn
from treadle.protocol.app.thread_methods import ThreadForkParams, ThreadResumeParams, ThreadStartParams
from treadle.protocol.app.turns import TurnStartParams

if TYPE_CHECKING:
    from treadle.client.codex_config import CodexConfig
    from treadle.client.notification import Notification
    from treadle.protocol.app.base import JsonObject
    from treadle.protocol.app.models import ModelListResponse
    from treadle.protocol.app.settings import (
        ApprovalsReviewer,
        AskForApproval,
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


class Codex(Lifecycle):
    """A connection to a server: threads are started, found and listed here."""

    _client: AppServerClient
    _validate_initialize = staticmethod(check_metadata)

    def __init__(self, config: CodexConfig | None = None) -> None:
        self._client = AppServerClient(config=config)
        self._open(None, None)

    def thread_start(
        self,
        *,
        approval_policy: AskForApproval | None = None,
        approvals_reviewer: ApprovalsReviewer | None = None,
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
    ) -> Thread:
        """A new thread."""
        params = ThreadStartParams(
            **without_none(
                approval_policy=approval_policy,
                approvals_reviewer=approvals_reviewer,
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
            )
        )
        started = self._client.thread_start(params)
        return Thread(self._client, started.thread.id)

    def thread_list(
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
        return self._client.thread_list(params)

    def thread_resume(
        self,
        thread_id: str,
        *,
        approval_policy: AskForApproval | None = None,
        approvals_reviewer: ApprovalsReviewer | None = None,
        base_instructions: str | None = None,
        config: JsonObject | None = None,
        cwd: str | None = None,
        developer_instructions: str | None = None,
        model: str | None = None,
        model_provider: str | None = None,
        personality: Personality | None = None,
        sandbox: SandboxMode | None = None,
        service_tier: str | None = None,
    ) -> Thread:
        """A stored thread, to go on with."""
        params = ThreadResumeParams(
            thread_id=thread_id,
            **without_none(
                approval_policy=approval_policy,
                approvals_reviewer=approvals_reviewer,
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
        resumed = self._client.thread_resume(thread_id, params)
        return Thread(self._client, resumed.thread.id)

    def thread_fork(
        self,
        thread_id: str,
        *,
        approval_policy: AskForApproval | None = None,
        approvals_reviewer: ApprovalsReviewer | None = None,
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
    ) -> Thread:
        """A new thread with the history of another."""
        params = ThreadForkParams(
            thread_id=thread_id,
            **without_none(
                approval_policy=approval_policy,
                approvals_reviewer=approvals_reviewer,
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
        forked = self._client.thread_fork(thread_id, params)
        return Thread(self._client, forked.thread.id)

    def thread_archive(self, thread_id: str) -> ThreadArchiveResponse:
        """Put a thread away."""
        return self._client.thread_archive(thread_id)

    def thread_unarchive(self, thread_id: str) -> Thread:
        """Take a thread out of the archive."""
        unarchived = self._client.thread_unarchive(thread_id)
        return Thread(self._client, unarchived.thread.id)

    def models(self, *, include_hidden: bool = False) -> ModelListResponse:
        """The models to choose from."""
        return self._client.model_list(include_hidden=include_hidden)


@dataclass(slots=True)
class Thread:
    """A conversation with the agent."""

    _client: AppServerClient = field(repr=False)
    id: str

    def run(
        self,
        input: RunInput,
        *,
        approval_policy: AskForApproval | None = None,
        approvals_reviewer: ApprovalsReviewer | None = None,
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
        turn = self.turn(
            input,
            approval_policy=approval_policy,
            approvals_reviewer=approvals_reviewer,
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
        with closing(turn.stream()) as events:
            for event in events:
                collector.add(event)
        return collector.run_result()

    def turn(
        self,
        input: RunInput,
        *,
        approval_policy: AskForApproval | None = None,
        approvals_reviewer: ApprovalsReviewer | None = None,
        cwd: str | None = None,
        effort: ReasoningEffort | None = None,
        model: str | None = None,
        output_schema: JsonObject | None = None,
        personality: Personality | None = None,
        sandbox_policy: SandboxPolicy | None = None,
        service_tier: str | None = None,
        summary: ReasoningSummary | None = None,
    ) -> TurnHandle:
        """Start a turn."""
        items = wire_input(input)
        params = TurnStartParams(
            thread_id=self.id,
            input=(),
            **without_none(
                approval_policy=approval_policy,
                approvals_reviewer=approvals_reviewer,
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
        started = self._client.turn_start(self.id, items, params=params)
        return TurnHandle(self._client, self.id, started.turn.id)

    def read(self, *, include_turns: bool = False) -> ThreadReadResponse:
        """The thread as it is stored."""
        return self._client.thread_read(self.id, include_turns=include_turns)

    def set_name(self, name: str) -> ThreadSetNameResponse:
        """Name the thread."""
        return self._client.thread_set_name(self.id, name)

    def compact(self) -> ThreadCompactStartResponse:
        """Begin to summarise the history."""
        return self._client.thread_compact(self.id)


@dataclass(slots=True)
class TurnHandle:
    """A turn that was started: read it once, with `stream` or `run`; steer it; interrupt it."""

    _client: AppServerClient = field(repr=False)
    thread_id: str
    id: str

    def steer(self, input: Input | str) -> TurnSteerResponse:
        """Add input to the turn while it runs."""
        return self._client.turn_steer(self.thread_id, self.id, wire_input(input))

    def interrupt(self) -> TurnInterruptResponse:
        """End the turn."""
        return self._client.turn_interrupt(self.thread_id, self.id)

    def stream(self) -> Generator[Notification, None, None]:
        """The notifications of this turn, from its beginning to `turn/completed`."""
        client = self._client
        client.register_turn_notifications(self.id)
        try:
            while True:
                event = client.next_turn_notification(self.id)
                yield event
                if event.method == "turn/completed":
                    return
        finally:
            client.unregister_turn_notifications(self.id)

    def run(self) -> Turn:
        """Read the turn to its end and give it as the server told of it: without its items, and also when it failed."""
        last: Notification | None = None
        with closing(self.stream()) as events:
            for event in events:
                last = event
        return completed_turn(last, self.id)
