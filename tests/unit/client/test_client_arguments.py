"""What a caller passes wrongly is an error at the call that says what to pass, in both faces, for every parameter."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from treadle import ArgumentError, ArgumentTypeError, ArgumentValueError, Environment, ExecParams
from treadle.client import (
    AppServerClient,
    AsyncAppServerClient,
    AsyncCodex,
    AsyncWaiter,
    Codex,
    CodexConfig,
    CodexError,
    ExternalMessage,
    ImageInput,
    InitializeResponse,
    LocalImageInput,
    MentionInput,
    SkillInput,
    TextInput,
    Tool,
    TransportClosedError,
    Waiter,
    api,
    async_api,
    async_retry_on_overload,
    paths,
    retry_on_overload,
)
from treadle.server import AppServer
from treadle.testing import AppServerHarness, MockModel
from treadle.tools import WEB_TOOLS, built_in_names
from treadle.types import Personality, ReasoningEffort, ThreadSourceKind

pytestmark = pytest.mark.anyio

# Neither can be sent, stored, or given to a program.
NO_TEXT: Final = ("a\0b", "a\ud800b")
# Of each parameter something that cannot be meant. One that is not here fails the test of its method.
WRONG: Final[dict[str, list[Any]]] = {
    "api_key": [5, "", None, *NO_TEXT],
    "approval_mode": ["deny_all", 5],
    "archived": ["yes", 1],
    "base_instructions": [5, ["a"], *NO_TEXT],
    "branch": [5, "", *NO_TEXT],
    "commit": [5, "", *NO_TEXT],
    "config": ["a=b", ["a"], {1: 2}],
    "cursor": [5, *NO_TEXT],
    "cwd": [5, b"/"],
    "developer_instructions": [5, *NO_TEXT],
    "effort": ["ultra", "banana", 5, "HIGH"],
    "environment": [5, {"box": "/"}, ["box"], [("box",)], [("box", "below")], [(5, "/")], *NO_TEXT],
    "ephemeral": ["no", 0],
    "include_hidden": ["no", None],
    "include_turns": ["no", 1],
    "input": [
        *(
            5,
            None,
            "",
            " \n",
            [],
            TextInput(" "),
            [TextInput(""), TextInput("\n")],
            [5],
            *NO_TEXT,
            *map(TextInput, NO_TEXT),
            *map(ImageInput, NO_TEXT),
        ),
        *(TextInput(5), ImageInput(5), LocalImageInput(b"/"), SkillInput("s", 5)),  # type: ignore[arg-type]
    ],
    "instructions": [5, "", *NO_TEXT],
    "limit": ["5", 1.5, True, -1],
    "max_thread_cost_usd": ["1", True, -0.1, 0, math.nan, math.inf],
    "max_thread_tokens": ["1", 1.5, True, -1, 0, 2**60],
    "max_turn_cost_usd": ["1", True, -0.1, 0, math.nan, math.inf],
    "max_turn_tokens": ["1", 1.5, True, -1, 0, 2**60],
    "max_turns": ["1", 1.5, True, -1],
    "mcp_servers": [
        *("time", ["time"], {5: {}}, {"time": 5}, {"time": {5: 5}}, {"time": {"comand": "x"}}),
        *({"time": {"command": text}} for text in NO_TEXT),
        *({text: {"command": "x"}} for text in NO_TEXT),
    ],
    "model": [5, *NO_TEXT],
    "model_provider": [5, *NO_TEXT],
    "model_providers": ["openai", [5], 5],
    "name": [5, None, *NO_TEXT],
    "output_retries": ["1", True, -1, None],
    "output_schema": ["{}", 5],
    "permissions": [5, ["a"], *NO_TEXT],
    "personality": ["grumpy", 5],
    "refresh_token": ["yes", None],
    "sandbox": ["read-only", 5],
    "search_term": [5, *NO_TEXT],
    "section_id": [5, *NO_TEXT],
    "service_name": [5, *NO_TEXT],
    "service_tier": [5, *NO_TEXT],
    "session_start_source": ["boredom", 5],
    "show": ["yes", 1, None],
    "sort_direction": ["up", 5],
    "sort_key": ["colour", 5],
    "source": [5, *NO_TEXT],
    "source_kinds": ["cli", ["boredom"], [5]],
    "summary": ["brief", 5],
    "thread_id": [5, "", None, *NO_TEXT],
    "thread_source": [5, *NO_TEXT],
    "timeout": ["3", True, -1, math.nan, [3]],
    "tools": ["add", 5, {"add": print}, len, [5]],
    "turn_service_tier": [5, *NO_TEXT],
    "use_state_db_only": ["no"],
}
# Not checked here: any type may be an answer, and `test_client_outputs` has those that cannot.
ELSEWHERE: Final = {"output_type", "options", "self"}
# The error names the part that is wrong, such as `TextInput.text`.
NAMED_BY_PART: Final = {"config", "input", "mcp_servers", "tools"}
REQUIRED: Final = {"api_key": "key", "input": "go", "name": "n", "thread_id": "t"}
CLASSES: Final = ("Codex", "Thread", "TurnHandle", "ChatgptLoginHandle", "DeviceCodeLoginHandle")


class _Client(AppServerClient):
    """Never connected: whatever gets as far as the server fails otherwise."""

    def start(self) -> None:
        pass

    def initialize(self) -> InitializeResponse:
        return InitializeResponse(userAgent="a/b")


def _calls() -> Iterator[tuple[str, str, str]]:
    for name in CLASSES:
        for method, function in inspect.getmembers(getattr(api, name), inspect.isfunction):
            if not method.startswith("_"):
                for parameter in inspect.signature(function).parameters.keys() - ELSEWHERE:
                    yield name, method, parameter


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(api, "AppServerClient", _Client)
    codex, other = Codex(), AsyncCodex()
    other._initialized = True
    found: dict[str, Any] = {"Codex": codex, "AsyncCodex": other}
    for name in CLASSES[1:]:
        ids = ["id"] * (len(inspect.signature(getattr(api, name)).parameters) - 1)
        found[name] = getattr(api, name)(codex._client, *ids)
        found[f"Async{name}"] = getattr(async_api, f"Async{name}")(other, *ids)
    return found


async def _done(made: Any) -> None:
    """To the first step of what a call gives."""
    if isinstance(made, AsyncGenerator):
        await anext(made)
    elif isinstance(made, Generator):
        next(made)
    elif inspect.isawaitable(made):
        await made


def _given(function: Callable[..., Any], parameter: str, value: Any) -> dict[str, Any]:
    needed = {name: REQUIRED[name] for name in inspect.signature(function).parameters if name in REQUIRED}
    return {**needed, parameter: value}


@pytest.mark.parametrize(("name", "method", "parameter"), sorted(set(_calls())))
async def test_a_wrong_argument_is_named_at_the_call(
    objects: dict[str, Any], name: str, method: str, parameter: str
) -> None:
    for face in ("", "Async"):
        function = getattr(objects[face + name], method)
        for value in WRONG[parameter]:
            with pytest.raises(ArgumentError) as caught:
                await _done(function(**_given(function, parameter, value)))
            assert isinstance(caught.value, TypeError | ValueError)
            assert parameter in NAMED_BY_PART or caught.value.parameter.startswith(parameter)


@pytest.mark.parametrize("limit", [math.inf, 1e12, 10**400], ids=["infinite", "long", "no float"])
async def test_a_limit_may_be_infinite(objects: dict[str, Any], limit: float) -> None:
    """In every call: the server is gone, and that is all there is to say."""
    for face in ("", "Async"):
        objects[f"{face}Codex"]._client.connection_ended(TransportClosedError("gone"))
        for name, method in sorted({call[:2] for call in _calls() if call[2] == "timeout"}):
            function = getattr(objects[face + name], method)
            with pytest.raises(TransportClosedError, match=r"gone|not connected"):
                await _done(function(**_given(function, "timeout", limit)))


@pytest.mark.parametrize("limit", [math.inf, None])
async def test_a_wait_without_a_limit_ends_when_there_is_something(limit: float | None) -> None:
    def taking(wake: Callable[[], object]) -> Callable[[], str | None]:
        """Nothing at the first look, after which somebody has something."""
        looks: list[None] = []

        def take() -> str | None:
            looks.append(None)
            if len(looks) > 1:
                return "found"
            wake()
            return None

        return take

    blocking, on_loop = Waiter(), AsyncWaiter()
    assert blocking.take(taking(lambda: threading.Thread(target=blocking.set).start()), limit) == "found"
    soon = asyncio.get_running_loop().call_soon
    assert await on_loop.take(taking(lambda: soon(on_loop.set)), limit) == "found"


@pytest.mark.parametrize("wrong", ["3", True, -1, math.nan, -math.inf])
async def test_low_level_waits_check_their_limit(wrong: Any) -> None:
    client, other = AppServerClient(), AsyncAppServerClient()
    ids = {"next_turn_notification": ("t", "u"), "next_login_notification": ("l",), "next_notification": ()}
    for name, given in ids.items():
        with pytest.raises(ArgumentError, match="timeout must be"):
            getattr(client, name)(*given, timeout=wrong)
        with pytest.raises(ArgumentError, match="timeout must be"):
            await getattr(other, name)(*given, timeout=wrong)


def test_every_wrong_argument_is_used() -> None:
    assert WRONG.keys() == {parameter for _, _, parameter in _calls()}


@pytest.mark.parametrize("codex", [Codex, AsyncCodex, AppServerClient, AsyncAppServerClient])
@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("codex", "must be a CodexConfig, not a str: pass CodexConfig(codex_bin=…)"),
        (Path("/bin/codex"), "pass CodexConfig(codex_bin=…)"),
        ("ws://127.0.0.1:1", "pass CodexConfig(url=…)"),
        ({"url": "ws://127.0.0.1:1"}, "pass CodexConfig(**…)"),
        (5, "must be a CodexConfig, not an int"),
    ],
)
def test_something_else_where_a_config_goes(codex: Any, given: Any, hint: str) -> None:
    with pytest.raises(ArgumentTypeError, match=re.escape(hint)):
        codex(given)


@pytest.mark.parametrize("codex", [Codex, AsyncCodex])
@pytest.mark.parametrize("handler", ["approval_handler", "user_input_handler"])
def test_a_handler_that_cannot_be_called(codex: Any, handler: str) -> None:
    with pytest.raises(ArgumentTypeError, match=f"{handler} must be a function that takes an? .*Request, not an int"):
        codex(**{handler: 5})


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("codex_bin", [5, b"codex"]),
        ("launch_args_override", ["codex app-server", [5], 5]),
        ("config_overrides", ["a=b", [5], {"a": "b"}, None]),
        ("cwd", [5]),
        ("env", ["A=b", {"A": 5}, {5: "b"}]),
        ("client_name", [5, None]),
        ("client_title", [5, None]),
        ("client_version", [5, None]),
        ("experimental_api", ["yes", None]),
        ("url", [5]),
        ("token", [5]),
        ("request_timeout", ["3", -1, True]),
        ("hooks", [5, {"Stop": 5}, {"Nothing": print}]),
    ],
)
def test_a_field_of_a_config(field: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ArgumentError, match=field):
            CodexConfig(**{field: value})
        config = CodexConfig()
        setattr(config, field, value)
        with pytest.raises(ArgumentError, match=field):
            config.check()


def test_every_field_of_a_config_is_checked() -> None:
    from treadle.client import codex_config as config

    assert config._KINDS.keys() == set(inspect.signature(CodexConfig).parameters)


def test_an_error_does_not_repeat_what_may_be_a_secret() -> None:
    for wrong in ({"config_overrides": "api_key=hunter2"}, {"env": {"KEY": b"hunter2"}}, {"token": b"hunter2"}):
        with pytest.raises(ArgumentError) as caught:
            CodexConfig(**wrong)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(ArgumentTypeError) as found:
        Codex("hunter2")  # type: ignore[arg-type]
    assert "hunter2" not in str(found.value)


# --- words -----------------------------------------------------------------------------------------------------------


async def test_a_word_that_is_not_known_has_to_be_meant(
    objects: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []

    def turn_start(thread_id: str, items: Any, *, params: Any) -> Any:
        sent.append(params.effort)
        raise StopIteration

    monkeypatch.setattr(objects["Thread"]._client, "turn_start", turn_start, raising=False)
    for effort in ("high", ReasoningEffort.ultra, ReasoningEffort("banana")):
        with pytest.raises(StopIteration):
            objects["Thread"].turn("go", effort=effort)
    assert sent == ["high", "ultra", "banana"]
    with pytest.raises(ArgumentValueError) as caught:
        objects["Thread"].turn("go", effort="ultra")
    assert str(caught.value) == (
        "effort must be one of 'none', 'minimal', 'low', 'medium', 'high', 'xhigh', not 'ultra'; "
        "if the server knows it, pass ReasoningEffort('ultra') of treadle.types"
    )


def test_words_of_another_library_are_understood() -> None:
    from enum import Enum

    from treadle.client import checked

    class Foreign(Enum):
        friendly = "friendly"
        high = "high"

    assert checked(personality=Foreign.friendly, effort=Foreign.high) == {"personality": "friendly", "effort": "high"}
    assert checked(personality=Personality("newer"), source_kinds=[ThreadSourceKind.cli, "exec"]) == {
        "personality": "newer",
        "source_kinds": ["cli", "exec"],
    }


# --- tools -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(built_in_names() - WEB_TOOLS))
async def test_a_tool_of_the_agent_cannot_be_replaced(objects: dict[str, Any], name: str) -> None:
    tool = Tool(lambda: None, name=name)
    for codex in (objects["Codex"], objects["AsyncCodex"]):
        for method in ("thread_start", "thread_resume", "thread_fork"):
            function = getattr(codex, method)
            with pytest.raises(ArgumentValueError, match=f"`{name}` is a tool that the agent has already"):
                await _done(function(**_given(function, "tools", [tool])))


def test_the_tools_of_the_agent_are_known() -> None:
    assert {"exec_command", "write_stdin", "apply_patch", "update_plan", "view_image"} <= built_in_names()


def _generator() -> Iterator[int]:
    yield 1


def _starred(*words: str) -> None: ...
def _positional(word: str, /) -> None: ...
def _unresolved(word: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037
def _undescribed(word: complex) -> None: ...


@pytest.mark.parametrize(
    "function",
    [_generator, _starred, _positional, _unresolved, _undescribed, partial(print), int, 5, dict.get],
    ids=lambda function: getattr(function, "__name__", type(function).__name__),
)
def test_a_function_that_cannot_be_a_tool(objects: dict[str, Any], function: Any) -> None:
    with pytest.raises(ArgumentError):
        Tool(function)
    with pytest.raises(ArgumentError):
        objects["Codex"].thread_start(tools=[function])


@pytest.mark.parametrize("name", ["", "two words", "x" * 65, "\ud800"])
def test_a_name_that_cannot_be_one_of_a_tool(name: str) -> None:
    with pytest.raises(ArgumentValueError, match=r"is no name for a tool|has half a character"):
        Tool(lambda: None, name=name)


class _Hostile(type):
    def __getattr__(cls, name: str) -> Any:
        raise RuntimeError("of its own")


class _Own(metaclass=_Hostile): ...


# From Python 3.13 on, an exception that msgspec meets when it asks for an attribute is reported before it is dropped.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "wrong",
    [5, "str", [int], dict[str, int], complex, lambda: 1, ..., _Own, list["Nowhere"]],  # type: ignore[name-defined]  # noqa: F821
    ids=["number", "word", "list", "dict", "complex", "function", "dots", "hostile", "unresolved"],
)
def test_a_type_that_cannot_be_an_answer(objects: dict[str, Any], wrong: Any) -> None:
    for call in ("run", "turn"):
        with pytest.raises(ArgumentTypeError, match="output_type cannot be used: "):
            getattr(objects["Thread"], call)("go", output_type=wrong)


@pytest.mark.parametrize("program", ["/nowhere/codex", "no-such-codex", "a\0b"])
async def test_a_program_that_is_not_there(program: str) -> None:
    config = CodexConfig(codex_bin=program)
    for codex in (Codex, AsyncCodex):
        with pytest.raises(ArgumentValueError, match="there is no program") as caught:
            await _done(codex(config).models())
        assert (caught.value.parameter, isinstance(caught.value, FileNotFoundError)) == ("codex_bin", True)
    with pytest.raises(TransportClosedError, match="cannot start"):
        Codex(CodexConfig(launch_args_override=["/nowhere/codex"]))
    with pytest.raises(TransportClosedError, match="cannot start"):
        Codex(CodexConfig(launch_args_override=["a\0b"]))


@pytest.mark.parametrize(
    "wrong", [{"op": 5}, {"max_attempts": "3"}, {"max_attempts": 0}, {"max_delay_s": -1}, {"jitter_ratio": "x"}]
)
async def test_how_to_try_again(wrong: dict[str, Any]) -> None:
    given = {"op": lambda: None, **wrong}
    for call in (retry_on_overload, async_retry_on_overload):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            await _done(call(**given))


def test_who_is_not_connected_has_no_metadata() -> None:
    with pytest.raises(CodexError, match="not connected yet"):
        _ = AsyncCodex().metadata


@pytest.mark.parametrize("wrong", [{"name": 5}, {"description": 5}])
def test_a_tool_is_named_and_described_with_words(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentTypeError, match="must be a str"):
        Tool(lambda: None, **{"name": "f", **wrong})


# --- paths -----------------------------------------------------------------------------------------------------------


def _wire(path: Any) -> list[Any]:
    from treadle.client import wire_input

    return wire_input([LocalImageInput(path), SkillInput("s", path), MentionInput("m", path)])


def test_a_path_goes_wherever_a_path_goes(tmp_path: Path) -> None:
    text = str(tmp_path)
    assert _wire(tmp_path) == _wire(text)
    config = CodexConfig(codex_bin=tmp_path, cwd=tmp_path, launch_args_override=[tmp_path, "x"])
    assert config == CodexConfig(codex_bin=text, cwd=text, launch_args_override=(text, "x"))
    assert (paths("cwd", tmp_path), paths("cwd", [tmp_path, "/a"])) == (text, [text, "/a"])
    server = AppServer(home=tmp_path, cwd=tmp_path)
    assert (server.home, server.cwd) == (text, text)


async def test_a_file_of_an_image_has_to_be_there(objects: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    for face in ("", "Async"):
        thread, turn = objects[f"{face}Thread"], objects[f"{face}TurnHandle"]
        client = objects[f"{face}Codex"]._client
        client.connection_ended(TransportClosedError("gone"))
        thread._cwd = str(tmp_path)
        missing = LocalImageInput(tmp_path / "b.png")
        for call in (thread.turn, thread.run, thread.events, turn.steer):
            for wrong in (missing, [TextInput("look"), missing], LocalImageInput(tmp_path)):
                with pytest.raises(ArgumentValueError, match=r"LocalImageInput\.path is no file: "):
                    await _done(call(wrong))
            with pytest.raises(TransportClosedError):  # as far as the server
                await _done(call(LocalImageInput(tmp_path / "a.png")))
        with pytest.raises(ArgumentValueError, match=r"b\.png"):  # seen from the thread
            await _done(thread.turn(LocalImageInput("b.png")))
        with pytest.raises(TransportClosedError):
            await _done(thread.turn(LocalImageInput("a.png")))
        client.config = CodexConfig(url="ws://127.0.0.1:1")  # another machine has files of its own
        with pytest.raises(TransportClosedError):
            await _done(thread.turn(missing))


@pytest.mark.parametrize("wrong", ["circle", object(), "\ud800"], ids=["circle", "object", "half"])
async def test_what_has_no_json_is_an_error_of_the_caller(objects: dict[str, Any], wrong: Any) -> None:
    given: dict[str, Any] = {"a": wrong}
    if wrong == "circle":
        given["a"] = given
    for face in ("", "Async"):
        client = objects[f"{face}Codex"]._client
        client._connection = object()  # it is not reached
        try:
            for call, named in (("Codex.thread_start", {"config": given}), ("Thread.turn", {"output_schema": given})):
                name, method = call.split(".")
                function = getattr(objects[face + name], method)
                with pytest.raises(ArgumentError, match=r"JSON|has half a character"):
                    await _done(function(**_given(function, *next(iter(named.items())))))
        finally:
            client._connection = None


async def test_a_path_among_the_params_is_sent_as_text(tmp_path: Path) -> None:
    from treadle.client import Router

    _, frame = Router().request("thread/start", {"config": {"writable_roots": [tmp_path]}}, None)
    assert f'"writable_roots":["{tmp_path}"]'.encode() in frame
    with pytest.raises(ArgumentTypeError, match="an object of object"):
        Router().request("thread/start", {"config": object()}, None)


@pytest.mark.parametrize("place", ["here", "program", "socket"])
@pytest.mark.parametrize("method", ["thread_start", "thread_resume", "thread_fork", "turn"])
async def test_a_folder_that_is_not_there(objects: dict[str, Any], tmp_path: Path, place: str, method: str) -> None:
    local = {"here": {}, "program": {"codex_bin": "codex"}, "socket": {"url": "unix:///s"}}[place]
    (tmp_path / "file").write_text("")
    for face in ("", "Async"):
        function = getattr(objects[f"{face}{'Thread' if method == 'turn' else 'Codex'}"], method)
        objects[f"{face}Codex"]._client.config = CodexConfig(**local)  # type: ignore[arg-type]
        for name, problem in (("missing", "does not exist"), ("file", "is a file")):
            with pytest.raises(ArgumentValueError, match=problem):
                await _done(function(**_given(function, "cwd", tmp_path / name)))


@pytest.mark.parametrize("elsewhere", [{"url": "ws://127.0.0.1:1"}, {"launch_args_override": ("ssh", "host")}])
async def test_a_folder_of_another_machine_is_its_own_business(objects: dict[str, Any], elsewhere: Any) -> None:
    from treadle.client import TransportClosedError

    for face in ("", "Async"):
        objects[f"{face}Codex"]._client.config = CodexConfig(**elsewhere)
        with pytest.raises(TransportClosedError):  # as far as the server
            await _done(objects[f"{face}Codex"].thread_start(cwd="/nowhere/at/all"))


def test_the_folder_of_a_server_has_to_be_there(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for config in (CodexConfig(cwd=missing), CodexConfig(cwd=missing, codex_bin="true")):
        with pytest.raises(ArgumentValueError, match=r"CodexConfig\.cwd does not exist"):
            Codex(config)
    with pytest.raises(ArgumentValueError, match="cwd does not exist"):
        AppServer(cwd=missing)


async def test_a_relative_folder_is_seen_from_that_of_the_server(objects: dict[str, Any], tmp_path: Path) -> None:
    from treadle.client import folder_of

    (tmp_path / "inside").mkdir()
    client = objects["Codex"]._client
    client.config = CodexConfig(cwd=tmp_path)
    assert folder_of(client, "inside") == "inside"
    with pytest.raises(ArgumentValueError, match="does not exist"):
        folder_of(client, "outside")
    assert folder_of(client, "outside", of_thread=False) == "outside"  # the thread may be anywhere


# --- commands, and what tests use ------------------------------------------------------------------------------------


async def test_what_a_command_is_given(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\npwd\n")
    program.chmod(0o755)
    async with await Environment.connect() as env:
        assert (await env.run([program], cwd=tmp_path)).text.strip() == str(tmp_path.resolve())
        wrong: list[dict[str, Any]] = [{"cwd": 5}, {"env": {"A": 5}}, {"env": "A=b"}, {"timeout": "3"}, {"argv": [5]}]
        for given in wrong:
            with pytest.raises(ArgumentError, match=next(iter(given))):
                await env.run(**{"argv": ["true"], **given})
        with pytest.raises(ArgumentTypeError, match="params must be an ExecParams"):
            await env.start(["true"])  # type: ignore[arg-type]
        assert (await env.run(["true"], timeout=math.inf)).exit_code == 0
        process = await env.start(ExecParams(process_id="p", argv=["sleep", "100"], cwd="/"))
        for seconds in (-1, math.nan, "3"):
            with pytest.raises(ArgumentError, match="grace_s must be"):
                await process.terminate(seconds)  # type: ignore[arg-type]
        with pytest.raises(ArgumentValueError, match="'interrupt', 'terminate', 'kill'"):
            await process.signal("KILL")  # type: ignore[arg-type]
        assert await process.terminate(math.inf)


@pytest.mark.parametrize("wrong", [{"url": 5}, {"url": Path("/s")}, {"token": 5}, {"recovery_s": "3"}])
async def test_where_commands_run(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentTypeError, match=f"{next(iter(wrong))} must be"):
        await Environment.connect(**wrong)


@pytest.mark.parametrize("wrong", [{"home": 5}, {"overrides": "a=b"}, {"environ": {"A": 5}}, {"cwd": 5}])
def test_what_a_server_is_given(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentTypeError, match=next(iter(wrong))):
        AppServer(**wrong)


def test_what_a_harness_is_given() -> None:
    with pytest.raises(ArgumentTypeError, match="tmp_path must be"):
        AppServerHarness(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="wire_api must be one of 'responses', 'chat', 'anthropic', not 'soap'"):
        AppServerHarness("nowhere", wire_api="soap")  # type: ignore[arg-type]
    with pytest.raises(
        ArgumentValueError, match="on_empty must be one of 'error', 'wait', not 'explode' or a function"
    ):
        MockModel(on_empty="explode")  # type: ignore[arg-type]


def test_an_external_message_has_content() -> None:
    from treadle.client import tool_output

    for wrong in (ExternalMessage("mail", 5), ExternalMessage(5, "hi"), ExternalMessage("mail", "hi", 5)):  # type: ignore[arg-type]
        with pytest.raises(ArgumentTypeError, match=r"ExternalMessage\."):
            tool_output(wrong)


@pytest.mark.parametrize("limit", ["max_turns", "max_turn_tokens", "max_turn_cost_usd"])
async def test_a_limit_that_the_server_would_not_hold_is_refused(objects: dict[str, Any], limit: str) -> None:
    with pytest.raises(ArgumentValueError, match=f"{limit} is for a server of Treadle"):
        objects["Thread"].run("go", **{limit: 1})
    with pytest.raises(ArgumentValueError, match=f"{limit} is for a server of Treadle"):
        await objects["AsyncThread"].run("go", **{limit: 1})


@pytest.mark.parametrize("limit", ["max_thread_tokens", "max_thread_cost_usd"])
async def test_a_limit_of_a_thread_that_the_server_would_not_hold_is_refused(
    objects: dict[str, Any], limit: str
) -> None:
    with pytest.raises(ArgumentValueError, match=f"{limit} is for a server of Treadle"):
        objects["Codex"].thread_start(**{limit: 1})
    with pytest.raises(ArgumentValueError, match=f"{limit} is for a server of Treadle"):
        await objects["AsyncCodex"].thread_resume("id", **{limit: 1})
