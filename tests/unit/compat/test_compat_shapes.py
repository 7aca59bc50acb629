"""The earlier shapes of the official SDK: what they export, what their calls take, and what their results are.

The names and parameters were read off those releases; what a turn gives is tried on a client that is told of a turn
without a server.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import treadle
from treadle import CodexConfig, CodexError, CodexRpcError, TurnResult
from treadle.client import Notification, make
from treadle.types import AskForApprovalValue, ReadOnlySandboxPolicy, SandboxMode, SandboxPolicy, Turn, TurnStatus

EARLIER = ("codex_app_server", "openai_codex_0_131")
ROOT = [
    "__version__",
    "AppServerConfig",
    "Codex",
    "AsyncCodex",
    "Thread",
    "AsyncThread",
    "TurnHandle",
    "AsyncTurnHandle",
    "RunResult",
    "Input",
    "InputItem",
    "TextInput",
    "ImageInput",
    "LocalImageInput",
    "SkillInput",
    "MentionInput",
    "retry_on_overload",
    "AppServerError",
    "TransportClosedError",
    "JsonRpcError",
    "AppServerRpcError",
    "ParseError",
    "InvalidRequestError",
    "MethodNotFoundError",
    "InvalidParamsError",
    "InternalRpcError",
    "ServerBusyError",
    "RetryLimitExceededError",
    "is_retryable_error",
]
TYPES = [
    "ApprovalsReviewer",
    "AskForApproval",
    "InitializeResponse",
    "JsonObject",
    "ModelListResponse",
    "Notification",
    "Personality",
    "PlanType",
    "ReasoningEffort",
    "ReasoningSummary",
    "SandboxMode",
    "SandboxPolicy",
    "SortDirection",
    "ThreadArchiveResponse",
    "ThreadCompactStartResponse",
    "ThreadItem",
    "ThreadListCwdFilter",
    "ThreadListResponse",
    "ThreadReadResponse",
    "ThreadSetNameResponse",
    "ThreadSortKey",
    "ThreadSource",
    "ThreadSourceKind",
    "ThreadStartSource",
    "ThreadTokenUsage",
    "ThreadTokenUsageUpdatedNotification",
    "Turn",
    "TurnCompletedNotification",
    "TurnInterruptResponse",
    "TurnStatus",
    "TurnSteerResponse",
]
THREAD = "base_instructions config cwd developer_instructions"
TURN = "cwd effort model output_schema personality sandbox_policy service_tier summary"
KEYWORDS = {
    "Codex.thread_start": f"APPROVAL {THREAD} ephemeral model model_provider personality sandbox service_name "
    "service_tier session_start_source thread_source",
    "Codex.thread_list": "archived cursor cwd limit model_providers search_term sort_direction sort_key source_kinds "
    "use_state_db_only",
    "Codex.thread_resume": f"APPROVAL {THREAD} model model_provider personality sandbox service_tier",
    "Codex.thread_fork": f"APPROVAL {THREAD} ephemeral model model_provider sandbox service_tier thread_source",
    "Codex.models": "include_hidden",
    "Thread.turn": f"APPROVAL {TURN}",
    "Thread.run": f"APPROVAL {TURN}",
    "Thread.read": "include_turns",
    "TurnHandle.run": "",
}
APPROVAL = {"codex_app_server": "approval_policy approvals_reviewer", "openai_codex_0_131": "approval_mode"}


@pytest.fixture(params=EARLIER)
def sdk(request: pytest.FixtureRequest) -> ModuleType:
    return import_module(f"treadle.compat.{request.param}")


def _name(sdk: ModuleType) -> str:
    return sdk.__name__.rpartition(".")[2]


def test_the_exports_are_those_of_the_release(sdk: ModuleType) -> None:
    expected = list(ROOT)
    if _name(sdk) == "openai_codex_0_131":
        expected.insert(4, "ApprovalMode")
    assert sdk.__all__ == expected
    everything: dict[str, object] = {}
    exec(f"from {sdk.__name__} import *", everything)
    assert everything.keys() - {"__builtins__"} == set(expected)
    assert not [name for name in ("AppServerClient", "TurnStatus", "ThreadStartParams") if hasattr(sdk, name)]


def test_the_types_are_those_of_the_release(sdk: ModuleType) -> None:
    types = import_module(f"{sdk.__name__}.types")
    assert types.__all__ == TYPES
    values = import_module(f"{sdk.__name__}.generated.v2_all")
    assert all(getattr(types, name) is getattr(treadle.types, name) for name in TYPES)
    assert values.TurnStatus is TurnStatus


def test_names_that_have_changed_since(sdk: ModuleType) -> None:
    assert sdk.AppServerError is CodexError
    assert sdk.AppServerRpcError is CodexRpcError
    assert [kind.__name__ for kind in (sdk.AppServerConfig, sdk.RunResult)] == ["AppServerConfig", "RunResult"]
    config = sdk.AppServerConfig(codex_bin="codex")
    assert isinstance(config, CodexConfig)
    assert (config.client_name, config.client_version) == ("codex_python_sdk", sdk.__version__)
    assert repr(config).startswith("AppServerConfig(")


@pytest.mark.parametrize("face", ["", "Async"])
@pytest.mark.parametrize("call", KEYWORDS)
def test_the_calls_take_what_they_took(sdk: ModuleType, call: str, face: str) -> None:
    owner, method = call.split(".")
    signature = inspect.signature(getattr(getattr(sdk, face + owner), method))
    keywords = [each.name for each in signature.parameters.values() if each.kind is inspect.Parameter.KEYWORD_ONLY]
    if keywords[-1:] == ["timeout"]:  # every call of the newer client has got it
        keywords.pop()
    assert keywords == KEYWORDS[call].replace("APPROVAL", APPROVAL[_name(sdk)]).split()


def test_a_class_of_a_users_own_is_of_its_release(sdk: ModuleType) -> None:
    """Whatever else its module has under the names of ours."""

    class Own(sdk.Codex):  # type: ignore[name-defined, misc]
        pass

    told = RecordingView(sdk, "sync")
    codex = Own.__new__(Own)
    codex._client = told.client
    told.client.thread_start = lambda params: SimpleNamespace(thread=SimpleNamespace(id="t"))
    assert type(codex.thread_start()) is sdk.Thread
    assert inspect.signature(Own.thread_start) == inspect.signature(sdk.Codex.thread_start)


def test_what_a_call_does_not_take_is_refused(sdk: ModuleType) -> None:
    with pytest.raises(TypeError, match="Unexpected keyword argument 'colour'"):
        sdk.Thread(None, "t").turn("hi", colour="red")


def test_who_decides_by_default() -> None:
    from treadle.compat.openai_codex_0_131 import ApprovalMode, AsyncCodex, Codex, Thread

    assert [mode.value for mode in ApprovalMode] == ["deny_all", "auto_review"]
    default: Callable[..., object] = lambda call: inspect.signature(call).parameters["approval_mode"].default  # noqa: E731
    assert [default(call) for call in (Codex.thread_start, AsyncCodex.thread_start)] == [ApprovalMode.auto_review] * 2
    assert [default(call) for call in (Codex.thread_resume, Codex.thread_fork, Thread.run)] == [None] * 3


def test_what_a_server_must_say_of_itself(sdk: ModuleType) -> None:
    from treadle.types import InitializeResponse

    told = InitializeResponse.model_validate({"userAgent": "codex-cli/1.2.3"})
    assert sdk.Codex._validate_initialize(told) is told
    assert told.serverInfo is not None
    assert (told.serverInfo.name, told.serverInfo.version) == ("codex-cli", "1.2.3")
    with pytest.raises(RuntimeError, match="missing required metadata"):
        sdk.Codex._validate_initialize(InitializeResponse())


# --- what a turn gives ---

DELTA = make("item/agentMessage/delta", {"threadId": "t", "turnId": "u", "itemId": "i", "delta": "He"})
USAGE_NUMBERS = {
    "cachedInputTokens": 0,
    "inputTokens": 1,
    "outputTokens": 2,
    "reasoningOutputTokens": 0,
    "totalTokens": 3,
}
USAGE = make(
    "thread/tokenUsage/updated",
    {"threadId": "t", "turnId": "u", "tokenUsage": {"last": USAGE_NUMBERS, "total": USAGE_NUMBERS}},
)


def _said(text: str, phase: str | None = None) -> Notification:
    item = {"type": "agentMessage", "id": text, "text": text, "phase": phase}
    return make("item/completed", {"threadId": "t", "turnId": "u", "completedAtMs": 0, "item": item})


def _asked() -> Notification:
    item = {"type": "userMessage", "id": "q", "content": []}
    return make("item/completed", {"threadId": "t", "turnId": "u", "completedAtMs": 0, "item": item})


def _ended(status: str = "completed", error: str | None = None) -> Notification:
    told = None if error is None else {"message": error}
    summary = [{"type": "agentMessage", "id": "m", "text": "newer servers tell the last item"}]
    turn: dict[str, Any] = {"id": "u", "items": summary, "status": status, "error": told}
    return make("turn/completed", {"threadId": "t", "turn": turn})


class RecordingView:
    """A thread and a turn of either face, on a client that is told these notifications."""

    def __init__(self, sdk: ModuleType, face: str, *told: Notification) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self._face = face
        module = import_module(f"{sdk.__name__}.{'client' if face == 'sync' else 'async_client'}")
        self.client = module.AppServerClient() if face == "sync" else module.AsyncAppServerClient()
        for notification in told:
            assert type(notification.payload).__name__ != "UnknownNotification", notification
            self.client._dispatch_notification(notification)
        if face == "sync":
            self.client.turn_start = self._start
            self.turn = sdk.TurnHandle(self.client, "t", "u")
            self.thread = sdk.Thread(self.client, "t")
        else:
            self.client.turn_start = self._start_later
            codex = sdk.AsyncCodex()
            codex._client, codex._initialized = self.client, True
            self.turn = sdk.AsyncTurnHandle(codex, "t", "u")
            self.thread = sdk.AsyncThread(codex, "t")

    def _start(self, thread_id: str, items: list[Any], *, params: Any) -> Any:
        self.sent.append((thread_id, items, params))
        return SimpleNamespace(turn=SimpleNamespace(id="u"))

    async def _start_later(self, thread_id: str, items: list[Any], *, params: Any) -> Any:
        return self._start(thread_id, items, params=params)

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        given = function(*arguments, **named)
        return given if self._face == "sync" else asyncio.run(given)


@pytest.fixture(params=["sync", "async"])
def tell(request: pytest.FixtureRequest, sdk: ModuleType) -> Callable[..., RecordingView]:
    return lambda *told: RecordingView(sdk, request.param, *told)


def test_a_handle_gives_the_bare_turn(tell: Callable[..., RecordingView]) -> None:
    told = tell(_asked(), DELTA, _said("Hello."), USAGE, _ended())
    turn = told.call(told.turn.run)
    assert isinstance(turn, Turn)
    given: list[Any] = [turn.id, turn.status, turn.items]
    assert given == ["u", TurnStatus.completed, []]


def test_a_handle_gives_a_failed_turn_too(tell: Callable[..., RecordingView]) -> None:
    told = tell(_ended("failed", "no more tokens"))
    turn = told.call(told.turn.run)
    assert turn.error is not None
    assert (turn.status, turn.error.message) == (TurnStatus.failed, "no more tokens")


def test_run_gives_the_answer_the_items_and_the_tokens(sdk: ModuleType, tell: Callable[..., RecordingView]) -> None:
    asked, said = _asked(), _said("Hello.")
    told = tell(asked, DELTA, said, USAGE, _ended())
    wrap: Any = SandboxPolicy  # a class with a `root` then, a union now that can be called like it
    policy = wrap(root=ReadOnlySandboxPolicy())
    result = told.call(told.thread.run, "hi", sandbox_policy=policy)
    payloads: list[Any] = [asked.payload, said.payload, USAGE.payload]
    items = [payload.item for payload in payloads[1:2]]  # the user's own message is not among them
    assert result == sdk.RunResult(final_response="Hello.", items=items, usage=payloads[2].token_usage)
    ((thread_id, sent, params),) = told.sent
    assert (thread_id, sent) == ("t", [{"type": "text", "text": "hi"}])
    assert params.sandbox_policy == ReadOnlySandboxPolicy()
    assert not isinstance(result, TurnResult)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ([_said("first"), _said("second")], "second"),
        ([_said("first"), _said("")], ""),
        ([_said("the answer", "final_answer"), _said("by the way", "commentary")], "the answer"),
        ([_said("by the way", "commentary")], None),
    ],
)
def test_which_message_is_the_answer(
    tell: Callable[..., RecordingView], said: list[Notification], answer: str | None
) -> None:
    told = tell(*said, _ended())
    assert told.call(told.thread.run, "hi").final_response == answer


def test_run_raises_for_a_failed_turn(tell: Callable[..., RecordingView]) -> None:
    told = tell(_ended("failed", "no more tokens"))
    with pytest.raises(RuntimeError, match="no more tokens"):
        told.call(told.thread.run, "hi")


def test_approvals_in_the_words_of_the_release() -> None:
    first, later = (import_module(f"treadle.compat.{name}") for name in EARLIER)
    old = RecordingView(first, "sync", _ended())
    old.thread.run("hi", approval_policy=AskForApprovalValue.never)
    new = RecordingView(later, "sync", _ended())
    new.thread.run("hi", approval_mode=later.ApprovalMode.deny_all)
    assert [told.sent[0][2].approval_policy for told in (old, new)] == ["never", "never"]


def test_the_low_level_calls_of_a_stream(sdk: ModuleType) -> None:
    client = import_module(f"{sdk.__name__}.client").AppServerClient()
    client.register_turn_notifications("u")
    client._dispatch_notification(DELTA)
    assert client.next_turn_notification("u") == DELTA
    client.unregister_turn_notifications("u")
    client._dispatch_notification(_ended())
    assert client.next_turn_notification("u").method == "turn/completed"


def test_a_client_that_cannot_start_is_closed(sdk: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    api, closed = import_module(f"{sdk.__name__}.api"), []

    class Nobody:
        def __init__(self, config: object = None) -> None: ...
        def start(self) -> None: ...
        def initialize(self) -> Any:
            from treadle.types import InitializeResponse

            return InitializeResponse()

        def close(self) -> None:
            closed.append(True)

    monkeypatch.setattr(api, "AppServerClient", Nobody)
    with pytest.raises(RuntimeError, match="missing required metadata"):
        sdk.Codex()
    assert closed == [True]


def test_a_thread_takes_the_sandbox_of_the_protocol(sdk: ModuleType) -> None:
    told = RecordingView(sdk, "sync")
    codex = sdk.Codex.__new__(sdk.Codex)
    codex._client = told.client
    seen: list[Any] = []

    def start(params: Any) -> Any:
        seen.append(params)
        return SimpleNamespace(thread=SimpleNamespace(id="t"))

    told.client.thread_start = start
    codex.thread_start(sandbox=SandboxMode.read_only, ephemeral=True)
    assert (seen[0].sandbox, seen[0].ephemeral) == (SandboxMode.read_only, True)
