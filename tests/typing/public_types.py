"""What a type checker knows of the SDK. Never run: mypy and pyright read it, and both must agree with every line.

`make lint` runs both. A line that is wrong on purpose says so to each of them, and they complain if it is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, assert_type

from treadle import (
    AsyncCodex,
    AsyncThread,
    AsyncTurnHandle,
    Codex,
    CodexConfig,
    Environment,
    LocalImageInput,
    Notification,
    Thread,
    TurnHandle,
    TurnResult,
)
from treadle.types import (
    AgentMessageDeltaNotification,
    ChatgptAuthTokensLoginAccountParams,
    CommandFinished,
    Done,
    Event,
    ReasoningEffort,
    TextDelta,
    TurnCompletedNotification,
    UnknownNotification,
)


@dataclass
class Answer:
    city: str


class Row(TypedDict):
    name: str


def tagged() -> None:
    given = ChatgptAuthTokensLoginAccountParams(type="chatgptAuthTokens", access_token="a", chatgpt_account_id="b")
    assert_type(given, ChatgptAuthTokensLoginAccountParams)
    assert_type(given.type, str)
    ChatgptAuthTokensLoginAccountParams(access_token="a", chatgpt_account_id="b")
    ChatgptAuthTokensLoginAccountParams(kind="x", access_token="a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def blocking(thread: Thread) -> None:
    assert_type(thread.run("go"), TurnResult[None])
    assert_type(thread.run("go").output, None)
    assert_type(thread.run("go").final_response, str | None)
    assert_type(thread.run("go", output_type=Answer), TurnResult[Answer])
    assert_type(thread.run("go", output_type=Answer, effort="high", cwd=Path("/")).output, Answer)
    assert_type(thread.run("go", output_type=list[int]).output, list[int])
    assert_type(thread.run("go", output_type=Row).output["name"], str)
    assert_type(thread.turn("go"), TurnHandle[None])
    assert_type(thread.turn("go", output_type=Answer, model="m"), TurnHandle[Answer])
    assert_type(thread.turn("go", output_type=Answer).run().output, Answer)


async def awaited(thread: AsyncThread) -> None:
    assert_type(await thread.run("go"), TurnResult[None])
    assert_type((await thread.run("go", output_type=Answer)).output, Answer)
    turn = await thread.turn("go", output_type=Answer, effort=ReasoningEffort.high)
    assert_type(turn, AsyncTurnHandle[Answer])
    assert_type(await turn.run(timeout=3), TurnResult[Answer])
    async for event in thread.events("go", output_type=Answer):
        if isinstance(event, Done):
            assert_type(event.result.output, Answer)


def events(thread: Thread) -> None:
    for event in thread.events("go", output_type=Answer, model="m"):
        match event:
            case TextDelta():
                assert_type(event.text, str)
            case CommandFinished(exit_code=code):
                assert_type(code, int | None)
            case Done():
                assert_type(event.result.output, Answer)
            case _:
                pass
    for plain in thread.turn("go").events():
        if plain.kind == "done":
            assert_type(plain.result.output, None)
        elif plain.kind == "text_delta":
            assert_type(plain, TextDelta)


def notifications(turn: TurnHandle[None]) -> None:
    for notification in turn.stream():
        assert_type(notification, Notification)
        payload = notification.payload
        if isinstance(payload, AgentMessageDeltaNotification):
            assert_type(payload.delta, str)
        match payload:
            case TurnCompletedNotification():
                assert_type(payload.turn.id, str)
            case UnknownNotification(params=params):
                params.get("anything")
            case _:
                pass
        _ = payload.delta  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


def without_parameters(result: TurnResult, event: Event, turn: TurnHandle) -> None:
    """As before there were any: nothing is missing, and nothing is checked."""
    assert_type(result.output, Any)
    assert_type(turn.run().output, Any)
    if isinstance(event, Done):
        assert_type(event.result.output, Any)


def handed_on(thread: Thread) -> None:
    without_parameters(thread.run("go", output_type=Answer), TextDelta(text="", item_id=""), thread.turn("go"))


async def paths(codex: Codex, thread: Thread) -> None:
    folder = Path("/")
    config = CodexConfig(codex_bin=folder / "codex", cwd=folder, config_overrides=["a=b"])
    codex.thread_start(cwd=folder, personality="friendly")
    codex.thread_start(permissions=":workspace").run("x", permissions=":read-only")
    codex.thread_list(cwd=[folder, "/tmp"])
    thread.run([LocalImageInput(folder / "image.png")], cwd=folder)
    async with AsyncCodex(config) as other, await Environment.connect([folder / "program"]) as env:
        await other.thread_start(cwd=folder)
        await env.run([folder / "program"], cwd=folder)


def mistakes(codex: Codex, thread: Thread) -> None:
    Codex("codex")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Codex(approval_handler=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    codex.thread_start(timeout="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    thread.run("go", modle="m")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    thread.events("go", timeout="3")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
