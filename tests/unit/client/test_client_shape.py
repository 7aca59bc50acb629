"""The shape of the SDK: both faces have the same methods and parameters, and every call goes through `request`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, get_args

import pytest
from msgspec import Struct

import treadle
from treadle import client as sdk
from treadle.client import AppServerClient, AsyncAppServerClient, AsyncCodex, Calls, CodexConfig, api, async_api
from treadle.protocol.app import (
    METHODS,
    ApiKeyLoginAccountParams,
    ThreadForkParams,
    ThreadGoalStatus,
    ThreadStartParams,
)
from unit.protocol.app_samples import samples

pytestmark = pytest.mark.anyio

PAIRS = [
    *(
        (getattr(api, name), getattr(async_api, f"Async{name}"))
        for name in ("Codex", "Thread", "TurnHandle", "ChatgptLoginHandle", "DeviceCodeLoginHandle")
    ),
    (AppServerClient, AsyncAppServerClient),
]
BY_HAND = {"initialize", "turn/start"}


def _public(cls: type) -> dict[str, Any]:
    return {name: getattr(cls, name) for name in dir(cls) if not name.startswith("_")}


def _parameters(function: Callable[..., Any]) -> list[tuple[str, Any, Any, str]]:
    found = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default, str(each.annotation)) for each in found]


@pytest.mark.parametrize(("blocking", "awaitable"), PAIRS, ids=lambda cls: cls.__name__)
def test_both_faces_have_the_same_methods_and_parameters(blocking: type, awaitable: type) -> None:
    ours, theirs = _public(blocking), _public(awaitable)
    assert ours.keys() == theirs.keys()
    for name, function in ours.items():
        if inspect.isfunction(function):
            assert _parameters(function) == _parameters(theirs[name]), name
            assert (function.__doc__ or "").partition(" ")[0] == (theirs[name].__doc__ or "").partition(" ")[0], name


@pytest.mark.parametrize(("blocking", "awaitable"), PAIRS, ids=lambda cls: cls.__name__)
def test_what_waits_is_awaited_in_the_other_face(blocking: type, awaitable: type) -> None:
    assert not [name for name, one in _public(blocking).items() if inspect.iscoroutinefunction(one)]
    waits = {
        name
        for name, one in _public(awaitable).items()
        if inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one)
    }
    plain = {name for name, one in _public(awaitable).items() if inspect.isfunction(one)} - waits
    local = {"abandon_turn", "close_turn", "connection_ended", "frames_received", "notify", "open_turn"}
    assert plain == (local if awaitable is AsyncAppServerClient else set())


@pytest.mark.parametrize(("blocking", "awaitable"), PAIRS[:-1], ids=lambda cls: cls.__name__)
def test_every_call_may_have_a_limit(blocking: type, awaitable: type) -> None:
    for cls in (blocking, awaitable):
        calls = {name: one for name, one in _public(cls).items() if inspect.isfunction(one)}
        without = {name for name, one in calls.items() if "timeout" not in inspect.signature(one).parameters}
        assert without <= {"close", "events"}  # `events` of a thread passes its options on


def test_the_low_level_shape() -> None:
    for cls in (AppServerClient, AsyncAppServerClient):
        assert next(iter(inspect.signature(cls).parameters)) == "config"
        assert cls(config=None).config == CodexConfig()
        request = list(inspect.signature(cls.request).parameters)
        assert request[:4] == ["self", "method", "params", "response_model"]
        assert list(inspect.signature(cls.turn_start).parameters)[:4] == ["self", "thread_id", "input", "params"]
        reading = inspect.signature(cls.next_turn_notification)
        assert list(reading.parameters)[:3] == ["self", "thread_id", "turn_id"]
    codex = AsyncCodex()
    assert (type(codex._client), codex._initialized, codex._init) == (AsyncAppServerClient, False, None)


def test_the_names_are_loaded_when_they_are_used() -> None:
    for name in sdk.__all__:
        assert getattr(sdk, name) is not None
    for name in ("Codex", "AsyncCodex", "CodexConfig", "Thread", "TurnHandle", "RunResult", "retry_on_overload"):
        assert getattr(treadle, name) is getattr(sdk, name)
    assert sdk.RunResult is sdk.TurnResult
    assert sdk.AppServerConfig is sdk.CodexConfig
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = sdk.no_such_name


# --- one method for each RPC ---


def _calls() -> dict[str, str]:
    """From the method on the wire to the name of the call."""
    found = {}
    for name, function in inspect.getmembers(Calls, inspect.isfunction):
        told = re.search(r"\(`([^`]+)`\)$", function.__doc__ or "")
        if told is not None:
            found[told[1]] = name
    return found


def test_there_is_a_call_for_each_method() -> None:
    assert _calls().keys() == METHODS.keys() - BY_HAND


class Fakes:
    """`request` of both clients, replaced by one that knows nothing of `timeout`."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any, Any]] = []
        self.blocking, self.awaitable = AppServerClient(), AsyncAppServerClient()

        def request(method: str, params: Any, *, response_model: Any) -> str:
            self.asked.append((method, params, response_model))
            return f"answer to {method}"

        async def awaited(method: str, params: Any, *, response_model: Any) -> str:
            return request(method, params, response_model=response_model)

        self.blocking.request = request  # type: ignore[assignment, method-assign]
        self.awaitable.request = awaited  # type: ignore[assignment, method-assign]

    async def both(self, name: str, *arguments: Any, **named: Any) -> tuple[str, Any, Any]:
        """Call both faces; what they ask must be the same."""
        answers = [
            getattr(self.blocking, name)(*arguments, **named),
            await getattr(self.awaitable, name)(*arguments, **named),
        ]
        first, second = self.asked[-2:]
        assert first == second
        assert answers == [f"answer to {first[0]}"] * 2
        return first


def _structs(params: Any) -> list[Struct]:
    return [sample for struct in get_args(params) or (params,) for sample in samples(struct)]


@pytest.mark.parametrize("method", sorted(METHODS.keys() - BY_HAND))
async def test_each_call_asks_for_its_method_with_plain_params(method: str) -> None:
    fakes, name = Fakes(), _calls()[method]
    required = [
        parameter
        for parameter in inspect.signature(getattr(Calls, name)).parameters.values()
        if parameter.default is parameter.empty and parameter.name != "self"
    ]
    values: dict[str, list[Any]] = {
        "params": [{"some": "member"}, *_structs(METHODS[method].params)],
        "input": ["go"],
    }
    for given in values["params"] if any(each.name == "params" for each in required) else [None]:
        arguments = [given if each.name == "params" else values.get(each.name, [each.name])[0] for each in required]
        asked, params, model = await fakes.both(name, *arguments)
        assert (asked, model) == (method, METHODS[method].result)
        assert params is None or type(params) is dict
        assert not isinstance(given, dict) or params == given


@pytest.mark.parametrize(
    ("name", "arguments", "named", "params"),
    [
        ("account_login_cancel", ("login",), {}, {"loginId": "login"}),
        ("account_login_start", (ApiKeyLoginAccountParams(api_key="k"),), {}, {"type": "apiKey", "apiKey": "k"}),
        ("account_logout", (), {}, None),
        ("account_read", (), {}, {}),
        ("account_read", ({"refreshToken": True},), {}, {"refreshToken": True}),
        ("model_list", (), {}, {"includeHidden": False}),
        ("model_list", (True,), {}, {"includeHidden": True}),
        ("thread_archive", ("t",), {}, {"threadId": "t"}),
        ("thread_compact", ("t",), {}, {"threadId": "t"}),
        ("thread_fork", ("t",), {}, {"threadId": "t"}),
        ("thread_fork", ("t", {"model": "m"}), {}, {"threadId": "t", "model": "m"}),
        ("thread_fork", ("t", ThreadForkParams(thread_id="?", model="m")), {}, {"threadId": "t", "model": "m"}),
        ("thread_goal_clear", ("t",), {}, {"threadId": "t"}),
        ("thread_goal_set", ("t",), {"objective": "o"}, {"threadId": "t", "objective": "o"}),
        ("thread_goal_set", ("t",), {"status": ThreadGoalStatus.paused}, {"threadId": "t", "status": "paused"}),
        ("pause_goal", ("t",), {}, {"threadId": "t", "status": "paused"}),
        ("thread_list", (), {}, {}),
        ("thread_read", ("t",), {}, {"threadId": "t", "includeTurns": False}),
        ("thread_read", ("t", True), {}, {"threadId": "t", "includeTurns": True}),
        ("thread_resume", ("t", {"model": "m"}), {}, {"threadId": "t", "model": "m"}),
        ("thread_set_name", ("t", "n"), {}, {"threadId": "t", "name": "n"}),
        ("thread_start", (), {}, {}),
        ("thread_start", (ThreadStartParams(model="m"),), {}, {"model": "m"}),
        ("thread_unarchive", ("t",), {}, {"threadId": "t"}),
        ("turn_interrupt", ("t", "u"), {}, {"threadId": "t", "turnId": "u"}),
        (
            "turn_steer",
            ("t", "u", "more"),
            {},
            {"threadId": "t", "expectedTurnId": "u", "input": [{"type": "text", "text": "more"}]},
        ),
    ],
)
async def test_calls_with_parameters_of_their_own(
    name: str, arguments: tuple[Any, ...], named: dict[str, Any], params: Any
) -> None:
    assert (await Fakes().both(name, *arguments, **named))[1] == params


async def test_a_limit_is_passed_on_only_when_there_is_one() -> None:
    given = []
    client = AppServerClient()

    def request(method: str, params: Any, **named: Any) -> None:
        given.append(named.keys())

    client.request = request  # type: ignore[assignment, method-assign]
    client.model_list()
    client.model_list(timeout=3)
    assert given == [{"response_model"}, {"response_model", "timeout"}]


@pytest.mark.parametrize("sent", ["go", {"type": "text", "text": "go"}, [{"type": "text", "text": "go"}]])
async def test_starting_a_turn_goes_through_request_too(sent: Any) -> None:
    asked = []
    client = AppServerClient()

    def request(method: str, params: Any, *, response_model: type[Struct]) -> Any:
        asked.append((method, params))
        return response_model.model_validate({"turn": {"id": "u", "items": [], "status": "inProgress"}})  # type: ignore[attr-defined]

    client.request = request  # type: ignore[assignment, method-assign]
    assert client.turn_start("t", sent, params={"model": "m", "threadId": "?"}).turn.id == "u"
    assert asked == [("turn/start", {"model": "m", "threadId": "t", "input": [{"type": "text", "text": "go"}]})]


async def test_an_object_with_model_dump_is_as_good_as_a_struct() -> None:
    class Foreign:
        def model_dump(self, *, by_alias: bool, exclude_none: bool, mode: str) -> dict[str, Any]:
            assert (by_alias, exclude_none, mode) == (True, True, "json")
            return {"model": "m"}

    assert (await Fakes().both("thread_start", Foreign()))[1] == {"model": "m"}
    with pytest.raises(TypeError, match="not a list"):
        await Fakes().both("thread_start", ["nonsense"])
