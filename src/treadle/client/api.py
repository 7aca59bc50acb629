"""`Codex`, `Thread`, `TurnHandle`: the SDK for blocking code.

Made from async_api.py by scripts/make_sync.py: edit those.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, cast, overload

from msgspec.structs import replace as replaced

from treadle.arguments import count, flag
from treadle.arguments import limit as seconds_or_none
from treadle.client.client import AppServerClient
from treadle.client.lifecycle import Lifecycle, ShownThread
from treadle.client.params import (
    ApprovalMode,
    Sandbox,
    asked_again,
    check_config,
    check_handlers,
    check_images,
    check_limits,
    folder_of,
    fork_params,
    has_approval_handler,
    limit_of,
    list_params,
    live_turn,
    output_of,
    remaining,
    required,
    resume_params,
    review_params,
    start_params,
    tools_of,
    turn_params,
    with_hooks,
    with_mcp_servers,
    with_offline,
    with_provider,
)
from treadle.client.sdk_errors import OutputError, RequestTimeout
from treadle.client.turn_values import Collector, Input, OutputT, RunInput, TurnResult, wire_input
from treadle.client.workplaces import as_sent, directory_of, workplaces_of

if TYPE_CHECKING:
    from treadle.client.codex_config import CodexConfig
    from treadle.client.notification import Notification
    from treadle.client.params import TurnOptions
    from treadle.client.schemas import OutputType
    from treadle.client.server_requests import ApprovalHandler, UserInputHandler
    from treadle.client.tools import Tool
    from treadle.client.turn_events import Event
    from treadle.client.workplaces import Environments
    from treadle.hooks.python_hooks import PythonHooks
    from treadle.protocol.app.accounts import (
        AccountLoginCompletedNotification,
        CancelLoginAccountResponse,
        GetAccountResponse,
    )
    from treadle.protocol.app.base import JsonObject
    from treadle.protocol.app.models import ModelListResponse
    from treadle.protocol.app.settings import Personality, ReasoningEffort, ReasoningSummary, TurnEnvironmentParams
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

AnswerT = TypeVar("AnswerT")


class Codex(Lifecycle):
    """A connection to a server: threads are started, found and listed here.

    `with Codex() as codex:` uses our own server in this process; a `CodexConfig` names another one. What
    cannot be used is an `ArgumentError` at the call, whatever the server.

    Args:
        config: Which server to use.
        provider: Whose model is asked, by a server that is started here: a built-in provider such as `vllm`, one of
            `config.toml`, or any name for the server at `base_url`.
        base_url: Where the provider's server is, such as `http://localhost:8000/v1`; else its usual address.
        api_key: The key for it; else what is configured. It is handed to the server in its environment alone.
        wire_api: What the provider's server speaks, `chat`, `responses` or `anthropic`; else as is known of the
            provider, and `responses` for one that nobody knows.
        model: The model of threads that name none.
        approval_handler: A function, plain or async, that decides about commands, patches and permissions: it is given
            an `ApprovalRequest` and returns True, False or an `ApprovalDecision`. Without it the answer is no.
        user_input_handler: A function, plain or async, that answers questions: it is given a `UserInputRequest` and
            returns the answers, or None. Without it there are none.
        offline: Whether the scripted offline model may answer, for a server that is started here: False forbids it, so
            that a missing key or provider is an error at once; True uses it whatever is configured.
        hooks: Functions, plain or async, by the event that they are called for, such as `{"PreToolUse": check}`: they
            may refuse and change what the agent does (see `treadle.hooks`). For a server in this process.
    """

    def __init__(
        self,
        config: CodexConfig | None = None,
        *,
        provider: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        wire_api: str | None = None,
        model: str | None = None,
        approval_handler: ApprovalHandler | None = None,
        user_input_handler: UserInputHandler | None = None,
        offline: bool | None = None,
        hooks: PythonHooks | None = None,
    ) -> None:
        check_config(config)
        check_handlers(approval_handler, user_input_handler)
        config = with_provider(
            config, provider=provider, base_url=base_url, api_key=api_key, wire_api=wire_api, model=model
        )
        self._client = AppServerClient(config=with_hooks(with_offline(config, offline), hooks))
        self._open(approval_handler, user_input_handler)

    # --- accounts ---

    def login_api_key(self, api_key: str, *, timeout: float | None = None) -> None:
        """Log in with an API key.

        Args:
            api_key: The key; the server stores it in its home.
            timeout: Seconds to wait for the answer; then `RequestTimeout` is raised.
        """
        given = required(api_key=api_key)
        limit = limit_of(timeout)
        self._client.account_login_start({"type": "apiKey", "apiKey": given["api_key"]}, **limit)

    def login_chatgpt(self, *, timeout: float | None = None) -> ChatgptLoginHandle:
        """Begin a login in the browser: open `auth_url` of the handle, then `wait()`.

        Args:
            timeout: Seconds to wait for the answer; then `RequestTimeout` is raised.
        """
        limit = limit_of(timeout)
        answer: Any = self._client.account_login_start({"type": "chatgpt"}, **limit)
        return ChatgptLoginHandle(self._client, answer.login_id, answer.auth_url)

    def login_chatgpt_device_code(self, *, timeout: float | None = None) -> DeviceCodeLoginHandle:
        """Begin a login with a code: show `verification_url` and `user_code` of the handle, then `wait()`.

        Args:
            timeout: Seconds to wait for the answer; then `RequestTimeout` is raised.
        """
        limit = limit_of(timeout)
        answer: Any = self._client.account_login_start({"type": "chatgptDeviceCode"}, **limit)
        return DeviceCodeLoginHandle(self._client, answer.login_id, answer.verification_url, answer.user_code)

    def account(self, *, refresh_token: bool = False, timeout: float | None = None) -> GetAccountResponse:
        """Who is logged in.

        Args:
            refresh_token: Renew the token of a ChatGPT login first.
            timeout: Seconds to wait for the answer; then `RequestTimeout` is raised.
        """
        given, limit = required(refresh_token=refresh_token), limit_of(timeout)
        return self._client.account_read({"refreshToken": given["refresh_token"]}, **limit)

    def logout(self, *, timeout: float | None = None) -> None:
        """Forget the credentials.

        Args:
            timeout: Seconds to wait for the answer; then `RequestTimeout` is raised.
        """
        limit = limit_of(timeout)
        self._client.account_logout(**limit)

    # --- threads ---

    def thread_start(
        self,
        *,
        approval_mode: ApprovalMode = ApprovalMode.auto_review,
        base_instructions: str | None = None,
        config: JsonObject | None = None,
        cwd: str | os.PathLike[str] | None = None,
        developer_instructions: str | None = None,
        ephemeral: bool | None = None,
        model: str | None = None,
        model_provider: str | None = None,
        permissions: str | None = None,
        personality: Personality | str | None = None,
        sandbox: Sandbox | None = None,
        service_name: str | None = None,
        service_tier: str | None = None,
        session_start_source: ThreadStartSource | str | None = None,
        thread_source: ThreadSource | str | None = None,
        mcp_servers: Mapping[str, Mapping[str, Any]] | None = None,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        max_thread_tokens: int | None = None,
        max_thread_cost_usd: float | None = None,
        environment: Environments | None = None,
        timeout: float | None = None,
    ) -> Thread:
        """A new thread. What is left out is as the settings of the server have it.

        Args:
            approval_mode: Who decides about what goes beyond the sandbox.
            base_instructions: The first instructions of the model, instead of the server's own.
            config: Settings for this thread alone, as in `config.toml`: `{"model_reasoning_summary": "concise"}`.
            cwd: The working directory of its commands; else that of the server. It must exist where the server is on
                this machine.
            developer_instructions: Further instructions of the model, with less weight than `base_instructions`.
            ephemeral: Keep nothing of it on disk: it ends with the server.
            model: The model to ask; `models()` lists what there is.
            model_provider: The provider of the model, by its name in `config.toml`.
            permissions: The permission profile that says what commands may do, instead of `sandbox`: `:read-only`,
                `:workspace`, `:danger-full-access` or one of `config.toml`.
            personality: The tone of the agent: `none`, `friendly` or `pragmatic`.
            sandbox: What commands may do with files.
            service_name: A name for the program that starts the thread, for the provider's records.
            service_tier: The tier of the provider, such as `fast`.
            session_start_source: Why the thread begins, `startup` or `clear`, for hooks of the server.
            thread_source: What started the thread, such as `user` or `subagent`; any word will do.
            mcp_servers: MCP servers for this thread, besides those of `config.toml`: by name, each with the keys of its
                table there: `{"time": {"command": "uvx", "args": ["mcp-server-time"]}}`.
            tools: Python functions that the agent may call (see `Tool`).
            max_thread_tokens: Tokens that the thread and its sub-agents may use in all its turns. Then a turn ends with
                `TurnLimitReached`.
            max_thread_cost_usd: The same in dollars; for models whose price is known.
            environment: Another machine that it works on, by the id of its environment; `cwd` is a directory there
                then, and without it that of the environment. Or several, as a list of `(id, cwd)`; the first is that of
                calls that name none. `local` is the machine of the server.
            timeout: Seconds to wait for the answer; then `RequestTimeout` is raised.
        """
        by_name, limit = tools_of(tools), limit_of(timeout)
        places = None if environment is None else workplaces_of(environment, cwd)
        params = start_params(
            approval_mode,
            sandbox,
            by_name.values(),
            has_approval_handler(self._client),
            base_instructions=base_instructions,
            config=with_mcp_servers(config, mcp_servers),
            cwd=folder_of(self._client, None if isinstance(environment, str) else cwd),
            developer_instructions=developer_instructions,
            ephemeral=ephemeral,
            model=model,
            model_provider=model_provider,
            permissions=permissions,
            personality=personality,
            service_name=service_name,
            service_tier=service_tier,
            session_start_source=session_start_source,
            thread_source=thread_source,
            max_thread_tokens=max_thread_tokens,
            max_thread_cost_usd=max_thread_cost_usd,
        )
        check_limits(self._client, max_thread_tokens=max_thread_tokens, max_thread_cost_usd=max_thread_cost_usd)
        if places is not None:
            params = replaced(params, environments=_workplaces(self._client, places, **limit))
        started = self._client.thread_start(params, **limit)
        return self._thread(started.thread.id, by_name, started)

    def thread_list(
        self,
        *,
        archived: bool | None = None,
        cursor: str | None = None,
        cwd: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        limit: int | None = None,
        model_providers: Sequence[str] | None = None,
        search_term: str | None = None,
        section_id: str | None = None,
        sort_direction: SortDirection | str | None = None,
        sort_key: ThreadSortKey | str | None = None,
        source_kinds: Sequence[ThreadSourceKind | str] | None = None,
        use_state_db_only: bool | None = None,
        timeout: float | None = None,
    ) -> ThreadListResponse:
        """Stored threads, newest first unless `sort_key` says otherwise; `next_cursor` of the answer has the rest.

        Args:
            archived: Those that were archived, instead of the others.
            cursor: Where to go on: `next_cursor` of the answer before.
            cwd: Only those with this working directory, or with one of these.
            limit: How many at most.
            model_providers: Only those of these providers.
            search_term: Only those in whose name or first words this is found.
            section_id: Only those of this section.
            sort_direction: `asc` or `desc`.
            sort_key: What they are sorted by, such as `created_at` or `updated_at`.
            source_kinds: Only those that were started like this, such as `cli` or `appServer`.
            use_state_db_only: Look into the index alone, not at the files of the threads.
            timeout: Seconds to wait for the answer; then `RequestTimeout` is raised.
        """
        limit_given = limit_of(timeout)
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
        return self._client.thread_list(params, **limit_given)

    def thread_resume(
        self,
        thread_id: str,
        *,
        approval_mode: ApprovalMode | None = None,
        base_instructions: str | None = None,
        config: JsonObject | None = None,
        cwd: str | os.PathLike[str] | None = None,
        developer_instructions: str | None = None,
        include_turns: bool | None = None,
        model: str | None = None,
        model_provider: str | None = None,
        permissions: str | None = None,
        personality: Personality | str | None = None,
        sandbox: Sandbox | None = None,
        service_tier: str | None = None,
        mcp_servers: Mapping[str, Mapping[str, Any]] | None = None,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        max_thread_tokens: int | None = None,
        max_thread_cost_usd: float | None = None,
        timeout: float | None = None,
    ) -> Thread:
        """A stored thread, to go on with. What is left out stays as it was.

        Args:
            thread_id: The id of the thread.
            approval_mode: Who decides about what goes beyond the sandbox from now on.
            base_instructions: The first instructions of the model, instead of the server's own.
            config: Settings for this thread alone, as in `config.toml`: `{"model_reasoning_summary": "concise"}`.
            cwd: The working directory of its commands from now on. It must exist where the server is on this machine.
            developer_instructions: Further instructions of the model, with less weight than `base_instructions`.
            include_turns: Whether the server answers with the history too. It is about the answer, not about what
                the model knows: use `thread.read()` for the history.
            model: The model to ask; `models()` lists what there is.
            model_provider: The provider of the model, by its name in `config.toml`.
            permissions: The permission profile that says what commands may do, instead of `sandbox`: `:read-only`,
                `:workspace`, `:danger-full-access` or one of `config.toml`.
            personality: The tone of the agent: `none`, `friendly` or `pragmatic`.
            sandbox: What commands may do with files.
            service_tier: The tier of the provider, such as `fast`.
            mcp_servers: MCP servers for this thread, instead of those that it was started with: by name, each with the
                keys of its table in `config.toml`.
            tools: The functions behind the tools that the thread was started with.
            max_thread_tokens: Tokens that the thread and its sub-agents may use in all its turns. Then a turn ends with
                `TurnLimitReached`.
            max_thread_cost_usd: The same in dollars; for models whose price is known.
            timeout: Seconds to wait for the answer; then `RequestTimeout` is raised.
        """
        by_name, limit = tools_of(tools), limit_of(timeout)
        params = resume_params(
            thread_id,
            approval_mode=approval_mode,
            sandbox=sandbox,
            include_turns=include_turns,
            has_approval_handler=has_approval_handler(self._client),
            base_instructions=base_instructions,
            config=with_mcp_servers(config, mcp_servers),
            cwd=folder_of(self._client, cwd),
            developer_instructions=developer_instructions,
            model=model,
            model_provider=model_provider,
            permissions=permissions,
            personality=personality,
            service_tier=service_tier,
            max_thread_tokens=max_thread_tokens,
            max_thread_cost_usd=max_thread_cost_usd,
        )
        check_limits(self._client, max_thread_tokens=max_thread_tokens, max_thread_cost_usd=max_thread_cost_usd)
        resumed = self._client.thread_resume(thread_id, params, **limit)
        return self._thread(resumed.thread.id, by_name, resumed)

    def thread_fork(
        self,
        thread_id: str,
        *,
        approval_mode: ApprovalMode | None = None,
        base_instructions: str | None = None,
        config: JsonObject | None = None,
        cwd: str | os.PathLike[str] | None = None,
        developer_instructions: str | None = None,
        ephemeral: bool | None = None,
        include_turns: bool | None = None,
        model: str | None = None,
        model_provider: str | None = None,
        permissions: str | None = None,
        sandbox: Sandbox | None = None,
        service_tier: str | None = None,
        thread_source: ThreadSource | str | None = None,
        mcp_servers: Mapping[str, Mapping[str, Any]] | None = None,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        max_thread_tokens: int | None = None,
        max_thread_cost_usd: float | None = None,
        timeout: float | None = None,
    ) -> Thread:
        """A new thread with the history of another. What is left out is as it is there.

        Args:
            thread_id: The id of the other thread.
            approval_mode: Who decides about what goes beyond the sandbox.
            base_instructions: The first instructions of the model, instead of the server's own.
            config: Settings for this thread alone, as in `config.toml`: `{"model_reasoning_summary": "concise"}`.
            cwd: The working directory of its commands; else that of the server. It must exist where the server is on
                this machine.
            developer_instructions: Further instructions of the model, with less weight than `base_instructions`.
            ephemeral: Keep nothing of it on disk: it ends with the server.
            include_turns: Whether the server answers with the history too. It is about the answer, not about what
                the model knows: use `thread.read()` for the history.
            model: The model to ask; `models()` lists what there is.
            model_provider: The provider of the model, by its name in `config.toml`.
            permissions: The permission profile that says what commands may do, instead of `sandbox`: `:read-only`,
                `:workspace`, `:danger-full-access` or one of `config.toml`.
            sandbox: What commands may do with files.
            service_tier: The tier of the provider, such as `fast`.
            thread_source: What started the thread, such as `user` or `subagent`; any word will do.
            mcp_servers: MCP servers for this thread, instead of those that the other was started with: by name, each
                with the keys of its table in `config.toml`.
            tools: The functions behind the tools that the other thread was started with.
            max_thread_tokens: Tokens that the thread and its sub-agents may use in all its turns. Then a turn ends with
                `TurnLimitReached`.
            max_thread_cost_usd: The same in dollars; for models whose price is known.
            timeout: Seconds to wait for the answer; then `RequestTimeout` is raised.
        """
        by_name, limit = tools_of(tools), limit_of(timeout)
        params = fork_params(
            thread_id,
            approval_mode=approval_mode,
            sandbox=sandbox,
            include_turns=include_turns,
            has_approval_handler=has_approval_handler(self._client),
            base_instructions=base_instructions,
            config=with_mcp_servers(config, mcp_servers),
            cwd=folder_of(self._client, cwd),
            developer_instructions=developer_instructions,
            ephemeral=ephemeral,
            model=model,
            model_provider=model_provider,
            permissions=permissions,
            service_tier=service_tier,
            thread_source=thread_source,
            max_thread_tokens=max_thread_tokens,
            max_thread_cost_usd=max_thread_cost_usd,
        )
        check_limits(self._client, max_thread_tokens=max_thread_tokens, max_thread_cost_usd=max_thread_cost_usd)
        forked = self._client.thread_fork(thread_id, params, **limit)
        return self._thread(forked.thread.id, by_name, forked)

    def thread_archive(self, thread_id: str, *, timeout: float | None = None) -> ThreadArchiveResponse:
        """Put a thread away: it is not listed any more, unless with `archived=True`.

        Args:
            thread_id: The id of the thread.
            timeout: Seconds to wait for the answer; then `RequestTimeout` is raised.
        """
        given, limit = required(thread_id=thread_id), limit_of(timeout)
        return self._client.thread_archive(given["thread_id"], **limit)

    def thread_unarchive(self, thread_id: str, *, timeout: float | None = None) -> Thread:
        """Take a thread out of the archive.

        Args:
            thread_id: The id of the thread.
            timeout: Seconds to wait for the answer; then `RequestTimeout` is raised.
        """
        given, limit = required(thread_id=thread_id), limit_of(timeout)
        unarchived = self._client.thread_unarchive(given["thread_id"], **limit)
        return self._thread(unarchived.thread.id, {})

    def thread_delete(self, thread_id: str, *, timeout: float | None = None) -> None:
        """Remove a thread for good, with all that was said in it; there is no way back, as there is from the archive.

        Args:
            thread_id: The id of the thread. What its turns have done to files stays.
            timeout: Seconds to wait for the answer; then `RequestTimeout` is raised.
        """
        given, limit = required(thread_id=thread_id), limit_of(timeout)
        self._client.thread_delete({"threadId": given["thread_id"]}, **limit)

    def models(self, *, include_hidden: bool = False, timeout: float | None = None) -> ModelListResponse:
        """The models to choose from.

        Args:
            include_hidden: Also those that are not offered to users.
            timeout: Seconds to wait for the answer; then `RequestTimeout` is raised.
        """
        given, limit = required(include_hidden=include_hidden), limit_of(timeout)
        return self._client.model_list(include_hidden=given["include_hidden"], **limit)

    def _thread(self, thread_id: str, tools: dict[str, Tool], opened: object = None) -> Thread:
        self._warn()
        if tools:
            self._client.handlers.add_tools(thread_id, tools)
        thread = Thread(self._client, thread_id)
        thread._cwd = getattr(opened, "cwd", None)
        return thread


@dataclass(slots=True)
class Thread(ShownThread):
    """A conversation with the agent."""

    _client: AppServerClient = field(repr=False)
    id: str
    _cwd: str | None = field(default=None, init=False, repr=False, compare=False)

    @overload
    def run(
        self,
        input: RunInput,
        *,
        output_type: type[AnswerT],
        output_retries: int = 1,
        show: bool = False,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[AnswerT]: ...
    @overload
    def run(
        self,
        input: RunInput,
        *,
        output_type: None = None,
        output_retries: int = 1,
        show: bool = False,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[None]: ...
    @overload
    def run(
        self,
        input: RunInput,
        *,
        output_type: Any,
        output_retries: int = 1,
        show: bool = False,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[Any]: ...
    def run(
        self,
        input: RunInput,
        *,
        approval_mode: ApprovalMode | None = None,
        cwd: str | os.PathLike[str] | None = None,
        effort: ReasoningEffort | str | None = None,
        model: str | None = None,
        output_schema: JsonObject | None = None,
        permissions: str | None = None,
        personality: Personality | str | None = None,
        sandbox: Sandbox | None = None,
        service_tier: str | None = None,
        source: str | None = None,
        summary: ReasoningSummary | str | None = None,
        turn_service_tier: str | None = None,
        max_turns: int | None = None,
        max_turn_tokens: int | None = None,
        max_turn_cost_usd: float | None = None,
        environment: Environments | None = None,
        output_type: Any = None,
        output_retries: int = 1,
        show: bool = False,
        timeout: float | None = None,
    ) -> TurnResult[Any]:
        """Run a turn to its end. Raises `TurnFailed` when it fails.

        A turn whose caller is stopped by Ctrl-C is interrupted. Most options stay for later turns; see `turn`.

        Args:
            input: What the user says: a text, an item such as `LocalImageInput`, a list of items, or an
                `ExternalMessage`, which is not the user's word.
            approval_mode: Who decides about what goes beyond the sandbox.
            cwd: The working directory of its commands; a relative one is seen from that of the thread. It must exist
                where the server is on this machine.
            effort: How much the model is to think: `none`, `minimal`, `low`, `medium`, `high` or `xhigh`. Another word
                of a model has to be passed as `ReasoningEffort("word")`.
            model: The model to ask.
            output_schema: A JSON schema that the answer has to follow.
            permissions: The permission profile that says what commands may do, instead of `sandbox`: `:read-only`,
                `:workspace`, `:danger-full-access` or one of `config.toml`.
            personality: The tone of the agent: `none`, `friendly` or `pragmatic`.
            sandbox: What commands may do with files.
            service_tier: The tier of the provider, such as `fast`.
            source: What caused the turn, such as the name of a timer, for the server's records; for this turn.
            summary: How the model sums up its thoughts: `auto`, `concise`, `detailed` or `none`.
            turn_service_tier: The tier of the provider for this turn alone.
            max_turns: Rounds of tool calls that the model may make, for this turn. Then it is asked for its answer with
                what it has, and `limit` of the result says so.
            max_turn_tokens: Tokens that the turn and its sub-agents may use. Then it ends with `TurnLimitReached`.
            max_turn_cost_usd: The same in dollars; for models whose price is known.
            environment: Where it works, and the turns after it, as in `thread_start`: `cwd` is a directory there then.
            output_type: The Python type of the answer: a dataclass, msgspec struct, TypedDict, NamedTuple or pydantic
                model, or a plain type such as `list[int]`. It takes the place of `output_schema`, and the result has
                the answer as an object of it in `output`.
            output_retries: How often a model whose answer is not of the `output_type` is told what does not fit, and
                asked again, in another turn of the thread, whose result it is then. After that `OutputError` is raised.
            show: Whether a notebook shows the turn while it runs, in the output of the cell. Elsewhere it does nothing.
            timeout: Seconds for all of it: then the turn is interrupted, and `RequestTimeout` raised.
        """
        since, timeout = time.monotonic(), seconds_or_none(timeout)
        retries, show = count("output_retries", output_retries), flag("show", show)
        turn: TurnHandle[Any] | None = None
        try:
            while True:
                turn = self.turn(
                    input,
                    approval_mode=approval_mode,
                    cwd=cwd,
                    effort=effort,
                    model=model,
                    output_schema=output_schema,
                    permissions=permissions,
                    personality=personality,
                    sandbox=sandbox,
                    service_tier=service_tier,
                    source=source,
                    summary=summary,
                    turn_service_tier=turn_service_tier,
                    max_turns=max_turns,
                    max_turn_tokens=max_turn_tokens,
                    max_turn_cost_usd=max_turn_cost_usd,
                    environment=environment,
                    output_type=output_type,
                    timeout=remaining(timeout, since),
                )
                try:
                    return turn.run(timeout=remaining(timeout, since), show=show)
                except OutputError as error:
                    if retries == 0:
                        raise
                    retries -= 1
                    # The settings of the first turn stay; a relative folder would be seen from there.
                    input, cwd, environment, turn = asked_again(error), None, None, None
        except KeyboardInterrupt:
            if turn is not None:
                self._client.abandon_turn(self.id, turn.id)
            raise

    @overload
    def turn(
        self, input: RunInput, *, output_type: type[AnswerT], **options: Unpack[TurnOptions]
    ) -> TurnHandle[AnswerT]: ...
    @overload
    def turn(
        self, input: RunInput, *, output_type: None = None, **options: Unpack[TurnOptions]
    ) -> TurnHandle[None]: ...
    @overload
    def turn(self, input: RunInput, *, output_type: Any, **options: Unpack[TurnOptions]) -> TurnHandle[Any]: ...
    def turn(
        self,
        input: RunInput,
        *,
        approval_mode: ApprovalMode | None = None,
        cwd: str | os.PathLike[str] | None = None,
        effort: ReasoningEffort | str | None = None,
        model: str | None = None,
        output_schema: JsonObject | None = None,
        permissions: str | None = None,
        personality: Personality | str | None = None,
        sandbox: Sandbox | None = None,
        service_tier: str | None = None,
        source: str | None = None,
        summary: ReasoningSummary | str | None = None,
        turn_service_tier: str | None = None,
        max_turns: int | None = None,
        max_turn_tokens: int | None = None,
        max_turn_cost_usd: float | None = None,
        environment: Environments | None = None,
        output_type: Any = None,
        timeout: float | None = None,
    ) -> TurnHandle[Any]:
        """Start a turn. Raises `TurnConflict` while the thread has one that was started here: `steer` that one.

        Only an `ExternalMessage` joins the turn that runs, and the handle is of that one: whoever reads it goes on.
        Most options stay for later turns; `output_schema`, `output_type`, `source` and `turn_service_tier` are for this
        one, and so are the limits that begin with `max_`.

        Args:
            input: What the user says: a text, an item such as `LocalImageInput`, a list of items, or an
                `ExternalMessage`, which is not the user's word.
            approval_mode: Who decides about what goes beyond the sandbox.
            cwd: The working directory of its commands; a relative one is seen from that of the thread. It must exist
                where the server is on this machine.
            effort: How much the model is to think: `none`, `minimal`, `low`, `medium`, `high` or `xhigh`. Another word
                of a model has to be passed as `ReasoningEffort("word")`.
            model: The model to ask.
            output_schema: A JSON schema that the answer has to follow.
            permissions: The permission profile that says what commands may do, instead of `sandbox`: `:read-only`,
                `:workspace`, `:danger-full-access` or one of `config.toml`.
            personality: The tone of the agent: `none`, `friendly` or `pragmatic`.
            sandbox: What commands may do with files.
            service_tier: The tier of the provider, such as `fast`.
            source: What caused the turn, such as the name of a timer, for the server's records; for this turn.
            summary: How the model sums up its thoughts: `auto`, `concise`, `detailed` or `none`.
            turn_service_tier: The tier of the provider for this turn alone.
            max_turns: Rounds of tool calls that the model may make, for this turn. Then it is asked for its answer with
                what it has, and `limit` of the result says so.
            max_turn_tokens: Tokens that the turn and its sub-agents may use. Then it ends with `TurnLimitReached`.
            max_turn_cost_usd: The same in dollars; for models whose price is known.
            environment: Where it works, and the turns after it, as in `thread_start`: `cwd` is a directory there then.
            output_type: The Python type of the answer: a dataclass, msgspec struct, TypedDict, NamedTuple or pydantic
                model, or a plain type such as `list[int]`. It takes the place of `output_schema`, and the result has
                the answer as an object of it in `output`.
            timeout: Seconds to wait for the start alone; then `RequestTimeout` is raised.
        """
        client = self._client
        output, limit = output_of(output_type, output_schema), limit_of(timeout)
        places = None if environment is None else workplaces_of(environment, cwd)
        folder = folder_of(client, None if isinstance(environment, str) else cwd, of_thread=False)
        place = self._cwd if folder is None else os.path.join(self._cwd or "", folder)
        check_images(client, input, place)
        params = turn_params(
            self.id,
            input,
            approval_mode,
            sandbox,
            source,
            turn_service_tier,
            max_turns,
            has_approval_handler(client),
            cwd=folder,
            effort=effort,
            model=model,
            output_schema=output_schema if output is None else output.schema,
            permissions=permissions,
            personality=personality,
            service_tier=service_tier,
            summary=summary,
            max_turn_tokens=max_turn_tokens,
            max_turn_cost_usd=max_turn_cost_usd,
        )
        check_limits(client, max_turns=max_turns, max_turn_tokens=max_turn_tokens, max_turn_cost_usd=max_turn_cost_usd)
        if places is not None:
            params = replaced(params, environments=_workplaces(client, places, **limit))
        started = client.turn_start(self.id, cast("Any", list(params.input)), params=params, **limit)
        self._cwd = place
        turn: TurnHandle[Any] = TurnHandle(self._client, self.id, started.turn.id)
        turn._output_type = output
        return turn

    @overload
    def events(
        self, input: RunInput, *, output_type: type[AnswerT], **options: Unpack[TurnOptions]
    ) -> Generator[Event[AnswerT], None, None]: ...
    @overload
    def events(
        self, input: RunInput, *, output_type: None = None, **options: Unpack[TurnOptions]
    ) -> Generator[Event[None], None, None]: ...
    @overload
    def events(
        self, input: RunInput, *, output_type: Any, **options: Unpack[TurnOptions]
    ) -> Generator[Event[Any], None, None]: ...
    def events(
        self, input: RunInput, *, output_type: Any = None, timeout: float | None = None, **options: Any
    ) -> Generator[Event[Any], None, None]:
        """Run a turn and give its simplified events (see `treadle.types`).

        Args:
            input: What the user says, as with `turn`.
            output_type: The Python type of the answer, which the result in `Done` then has in `output`.
            timeout: Seconds for the whole turn: then it is interrupted, and `RequestTimeout` raised.
            options: The other options of `turn`.
        """
        since = time.monotonic()
        turn: TurnHandle[Any] = self.turn(input, output_type=output_type, timeout=timeout, **options)
        with closing(turn.events(timeout=remaining(timeout, since))) as events:
            yield from events

    def read(self, *, include_turns: bool = False, timeout: float | None = None) -> ThreadReadResponse:
        """The thread as it is stored, with its turns if they are wanted.

        Args:
            include_turns: With the turns and all their items.
            timeout: Seconds to wait for the answer; then `RequestTimeout` is raised.
        """
        given, limit = required(include_turns=include_turns), limit_of(timeout)
        return self._client.thread_read(self.id, include_turns=given["include_turns"], **limit)

    def html(self, *, timeout: float | None = None) -> str:
        """The thread with its last turns as HTML for inside of a page: the blocks of `treadle threads export`, with
        their style; no scripts, and nothing is fetched.

        Args:
            timeout: Seconds to wait for the answer; then `RequestTimeout` is raised.
        """
        from treadle.pages.inset import thread_html  # only for who shows threads

        return thread_html((self.read(include_turns=True, timeout=timeout)).thread)

    def set_name(self, name: str, *, timeout: float | None = None) -> ThreadSetNameResponse:
        """Name the thread.

        Args:
            name: What lists of threads show.
            timeout: Seconds to wait for the answer; then `RequestTimeout` is raised.
        """
        given, limit = required(name=name), limit_of(timeout)
        return self._client.thread_set_name(self.id, given["name"], **limit)

    def compact(self, *, timeout: float | None = None) -> ThreadCompactStartResponse:
        """Begin to summarise the history, so that more fits in.

        Args:
            timeout: Seconds to wait for the answer; then `RequestTimeout` is raised.
        """
        limit = limit_of(timeout)
        return self._client.thread_compact(self.id, **limit)

    def review(
        self,
        instructions: str | None = None,
        *,
        branch: str | None = None,
        commit: str | None = None,
        timeout: float | None = None,
    ) -> TurnHandle[None]:
        """Start a review, by default of the changes that are not committed: a turn whose answer is the report.

        Raises `TurnConflict` while the thread has a turn that was started here.

        Args:
            instructions: What to review, in your own words.
            branch: Review what would be merged into this branch instead.
            commit: Review what the commit with this hash changes instead.
            timeout: Seconds to wait for the start alone; then `RequestTimeout` is raised.
        """
        params, limit = review_params(self.id, instructions, branch, commit), limit_of(timeout)
        started = self._client.start_review(params, **limit)
        return TurnHandle(self._client, self.id, started.turn.id)


@dataclass(slots=True)
class TurnHandle(Generic[OutputT]):
    """A turn that was started: read it once, with `stream`, `events` or `run`; steer it; interrupt it.

    A type checker knows what `run` gives: `turn(…, output_type=Answer)` is an `TurnHandle[Answer]`.
    """

    _client: AppServerClient = field(repr=False)
    thread_id: str
    id: str
    _output_type: OutputType[OutputT] | None = field(default=None, init=False, repr=False, compare=False)

    def steer(self, input: Input | str, *, timeout: float | None = None) -> TurnSteerResponse:
        """Add input to the turn while it runs.

        Args:
            input: What the user says besides: a text, an item such as `LocalImageInput`, or a list of items.
            timeout: Seconds to wait for the answer; then `RequestTimeout` is raised.
        """
        items, limit = wire_input(input), limit_of(timeout)
        check_images(self._client, input, None)
        return self._client.turn_steer(self.thread_id, self.id, items, **limit)

    def interrupt(self, *, timeout: float | None = None) -> TurnInterruptResponse:
        """End the turn: its stream then ends with the status `interrupted`.

        Args:
            timeout: Seconds to wait for the answer; then `RequestTimeout` is raised.
        """
        limit = limit_of(timeout)
        return self._client.turn_interrupt(self.thread_id, self.id, **limit)

    def stream(self, *, timeout: float | None = None) -> Generator[Notification, None, None]:
        """The notifications of this turn, from its beginning to `turn/completed`.

        Who leaves the loop may come back: the turn goes on, and nothing is lost. When the reader is stopped by Ctrl-C,
        the turn is interrupted.

        Args:
            timeout: Seconds for all of it: a turn that takes longer is interrupted, and `RequestTimeout` raised.
        """
        timeout = seconds_or_none(timeout)
        client = self._client
        deadline = None if timeout is None else time.monotonic() + timeout
        reading, next_event = client.open_turn(self.id), client._turn_source(self.thread_id, self.id)
        try:
            while True:
                limit = {} if deadline is None else {"timeout": max(0.0, deadline - time.monotonic())}
                event = next_event(**limit)
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

    def events(self, *, timeout: float | None = None) -> Generator[Event[OutputT], None, None]:
        """The turn as simplified events, the last of which is `Done` with the result.

        Args:
            timeout: Seconds for all of it: a turn that takes longer is interrupted, and `RequestTimeout` raised.
        """
        from treadle.client.turn_events import EventReader  # only for who reads the simplified events

        reader = EventReader(self.id, self._output_type)
        with closing(self.stream(timeout=timeout)) as notifications:
            for notification in notifications:
                yield from reader.read(notification)

    def run(self, *, timeout: float | None = None, show: bool = False) -> TurnResult[OutputT]:
        """Read the turn to its end. Raises `TurnFailed` when it failed.

        Args:
            timeout: Seconds for all of it: a turn that takes longer is interrupted, and `RequestTimeout` raised.
            show: Whether a notebook shows the turn while it runs, in the output of the cell. Elsewhere it does nothing.
        """
        collector, live = Collector(self.id), live_turn() if flag("show", show) else None
        result: TurnResult[OutputT] | None = None
        try:
            with closing(self.stream(timeout=timeout)) as events:
                for event in events:
                    collector.add(event)
                    if live is not None:
                        live.add(event)
            result = collector.result(self._output_type)
        except KeyboardInterrupt:
            self._client.abandon_turn(self.thread_id, self.id)
            raise
        finally:
            if live is not None:
                live.end(result)
        return result


class _LoginHandle:
    """How any interactive login is waited for or stopped by Ctrl-C."""

    __slots__ = ()
    _client: AppServerClient
    login_id: str

    def wait(self, *, timeout: float | None = None) -> AccountLoginCompletedNotification:
        """Wait for its end.

        Args:
            timeout: Seconds to wait; then `RequestTimeout` is raised.
        """
        limit = limit_of(timeout)
        return self._client.wait_for_login_completed(self.login_id, **limit)

    def cancel(self, *, timeout: float | None = None) -> CancelLoginAccountResponse:
        """Give it up.

        Args:
            timeout: Seconds to wait for the answer; then `RequestTimeout` is raised.
        """
        limit = limit_of(timeout)
        return self._client.account_login_cancel(self.login_id, **limit)


@dataclass(slots=True)
class ChatgptLoginHandle(_LoginHandle):
    """A login that goes on in the browser."""

    _client: AppServerClient = field(repr=False)
    login_id: str
    auth_url: str = field(repr=False)


@dataclass(slots=True)
class DeviceCodeLoginHandle(_LoginHandle):
    """A login with a code that is entered elsewhere."""

    _client: AppServerClient = field(repr=False)
    login_id: str
    verification_url: str
    user_code: str = field(repr=False)


def _workplaces(
    client: AppServerClient, places: Sequence[tuple[str, str | None]], *, timeout: float | None = None
) -> tuple[TurnEnvironmentParams, ...]:
    """Environments as they are sent; one whose directory is not named is asked for its own."""
    found: list[tuple[str, str]] = []
    for place, directory in places:
        if directory is None:
            info = client.environment_info({"environmentId": place}, timeout=timeout)
            directory = directory_of(place, info)
        found.append((place, directory))
    return as_sent(found)
