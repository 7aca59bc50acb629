"""`Codex`, `Thread`, `TurnHandle` of `openai_codex_0_131`, and their twins for asyncio: those of `treadle.client`, with
the keywords and results of that release.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from types import FunctionType
from typing import Any, ClassVar

from msgspec.structs import asdict, replace

from treadle.client import api, async_api
from treadle.client.codex_config import CodexConfig
from treadle.client.lifecycle import check_metadata
from treadle.client.params import ApprovalMode, approval_settings
from treadle.client.requests import without_none
from treadle.client.turn_values import RunInput, wire_input
from treadle.compat.openai_codex_0_131.async_client import AsyncAppServerClient as AsyncAppServerClient
from treadle.compat.openai_codex_0_131.client import AppServerClient as AppServerClient
from treadle.protocol.app.items import ThreadItem
from treadle.protocol.app.thread_methods import ThreadForkParams, ThreadResumeParams, ThreadStartParams
from treadle.protocol.app.threads import ThreadTokenUsage
from treadle.protocol.app.turns import Turn, TurnStartParams


@dataclass(slots=True)
class RunResult:
    """What `Thread.run` gives: the answer, or None when there is none, what the agent did and said, and the tokens."""

    final_response: str | None
    items: list[ThreadItem]
    usage: ThreadTokenUsage | None


class Usage(ThreadTokenUsage, frozen=True, kw_only=True, eq=False):
    """`ThreadTokenUsage` that is dumped with the members of its time: programs compare what they get, or store it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ThreadTokenUsage) and asdict(self) == asdict(other)

    def __hash__(self) -> int:
        return hash(ThreadTokenUsage(**asdict(self)))

    def model_dump(self, *, by_alias: bool = False, mode: str = "python", exclude_none: bool = False) -> dict[str, Any]:
        dumped = super().model_dump(by_alias=by_alias, mode=mode, exclude_none=exclude_none)
        for count in (dumped["last"], dumped["total"]):
            count.pop("cacheWriteInputTokens" if by_alias else "cache_write_input_tokens")
        return dumped


def run_result(whole: Any) -> RunResult:
    used = None if whole.usage is None else Usage(**asdict(whole.usage))
    return RunResult(whole.final_response, whole.items, used)


def _approval_mode_settings(mode: ApprovalMode) -> tuple[Any, Any]:
    """The policy and the reviewer that a mode stands for."""
    settings = approval_settings(mode)
    return settings.get("approval_policy"), settings.get("approvals_reviewer")


def params_of(options: dict[str, Any]) -> dict[str, Any]:
    """Members of protocol params, from the keywords of a call."""
    mode = options.pop("approval_mode", None)
    return {**approval_settings(mode), **without_none(**options)}


_THREAD = "APPROVALS base_instructions config cwd developer_instructions model model_provider sandbox service_tier"
_TURN = "APPROVALS cwd effort model output_schema personality sandbox_policy service_tier summary"
_KEYWORDS = {
    "thread_start": f"{_THREAD} ephemeral personality service_name session_start_source thread_source",
    "thread_list": "archived cursor cwd limit model_providers search_term sort_direction sort_key source_kinds "
    "use_state_db_only",
    "thread_resume": f"{_THREAD} personality",
    "thread_fork": f"{_THREAD} ephemeral thread_source",
    "turn": _TURN,
    "run": _TURN,
}


class Older:
    """A class whose calls take `**options`. `inspect` and `help` are shown which ones the release had."""

    _release: ClassVar[Any]  # the module in which tests replace clients
    _usual: ClassVar[dict[str, Any]]  # what a new thread is started with

    def __init_subclass__(cls, approvals: str = "") -> None:
        if not approvals:
            return  # a user's own class
        cls._release = sys.modules[cls.__module__]
        cls._usual = {"approval_mode": ApprovalMode.auto_review} if approvals == "approval_mode" else {}
        for name in _KEYWORDS.keys() & set(dir(cls)):
            call, usual = getattr(cls, name), cls._usual if name == "thread_start" else {}
            ids = [one for one in signature(call).parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
            words = sorted(_KEYWORDS[name].replace("APPROVALS", approvals).split())
            options = [Parameter(word, Parameter.KEYWORD_ONLY, default=usual.get(word)) for word in words]
            # A function of its own: the other release has the same one with other keywords.
            copy: Any = FunctionType(call.__code__, call.__globals__, name, call.__defaults__, call.__closure__)
            copy.__kwdefaults__, copy.__signature__ = call.__kwdefaults__, Signature([*ids, *options])
            setattr(cls, name, copy)


class OlderCodex(Older):
    """What `Codex` and `AsyncCodex` have in common. A call gives what `_opened` gives: a thread, or its awaitable."""

    _validate_initialize = staticmethod(check_metadata)

    def __init__(self: Any, config: CodexConfig | None = None) -> None:
        self._client = getattr(self._release, self._client_name)(config=config)
        self._open(None, None)

    def thread_start(self: Any, **options: Any) -> Any:
        return self._opened("thread_start", ThreadStartParams(**params_of({**self._usual, **options})))

    def thread_resume(self: Any, thread_id: str, **options: Any) -> Any:
        return self._opened("thread_resume", thread_id, ThreadResumeParams(thread_id=thread_id, **params_of(options)))

    def thread_fork(self: Any, thread_id: str, **options: Any) -> Any:
        return self._opened("thread_fork", thread_id, ThreadForkParams(thread_id=thread_id, **params_of(options)))


class Codex(OlderCodex, api.Codex, approvals="approval_mode"):
    """A connection to a server: threads are started, found and listed here."""

    _client_name = "AppServerClient"

    def _opened(self, call: str, *arguments: Any) -> Thread:
        return self._thread(getattr(self._client, call)(*arguments).thread.id)

    def _thread(self, thread_id: str, *_: object) -> Thread:
        return self._release.Thread(self._client, thread_id)  # type: ignore[no-any-return]


class AsyncCodex(OlderCodex, async_api.AsyncCodex, approvals="approval_mode"):
    """The same for asyncio."""

    _client_name = "AsyncAppServerClient"

    async def _opened(self, call: str, *arguments: Any) -> AsyncThread:
        await self._ensure_initialized()
        return self._thread((await getattr(self._client, call)(*arguments)).thread.id)

    def _thread(self, thread_id: str, *_: object) -> AsyncThread:
        return self._release.AsyncThread(self, thread_id)  # type: ignore[no-any-return]


class Thread(Older, api.Thread, approvals="approval_mode"):
    """A conversation with the agent."""

    def run(self, input: RunInput, **options: Any) -> RunResult:  # type: ignore[override]
        return run_result(api.TurnHandle.run(self.turn(input, **options)))

    def turn(self, input: RunInput, **options: Any) -> TurnHandle:  # type: ignore[override]
        params = TurnStartParams(thread_id=self.id, input=(), **params_of(options))
        started = self._client.turn_start(self.id, wire_input(input), params=params)
        return TurnHandle(self._client, self.id, started.turn.id)


class AsyncThread(Older, async_api.AsyncThread, approvals="approval_mode"):
    """The same for asyncio."""

    async def run(self, input: RunInput, **options: Any) -> RunResult:  # type: ignore[override]
        return run_result(await async_api.AsyncTurnHandle.run(await self.turn(input, **options)))

    async def turn(self, input: RunInput, **options: Any) -> AsyncTurnHandle:  # type: ignore[override]
        params = TurnStartParams(thread_id=self.id, input=(), **params_of(options))
        await self._codex._ensure_initialized()
        started = await self._codex._client.turn_start(self.id, wire_input(input), params=params)
        return AsyncTurnHandle(self._codex, self.id, started.turn.id)


class TurnHandle(api.TurnHandle[None]):
    """A turn that was started. Its `run` gives it as servers sent it then: without items, and also if it failed."""

    def run(self) -> Turn:  # type: ignore[override]
        last: Any = deque(self.stream(), 1)[0].payload
        return replace(last.turn, items=[])  # type: ignore[no-any-return]


class AsyncTurnHandle(async_api.AsyncTurnHandle[None]):
    """The same for asyncio."""

    async def run(self) -> Turn:  # type: ignore[override]
        last: Any = [event async for event in self.stream()][-1].payload
        return replace(last.turn, items=[])  # type: ignore[no-any-return]
