"""What a turn is as `codex exec --json` tells it. The runs in `typescript_sdk_runs.jsonl` were recorded with Codex."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from treadle.cli import ExecEvents, JsonLines
from treadle.protocol.app import (
    AddPatchChangeKind,
    AgentMessageThreadItem,
    CollabAgentState,
    CollabAgentToolCallThreadItem,
    CommandExecutionThreadItem,
    DeletePatchChangeKind,
    DeprecationNoticeNotification,
    ErrorNotification,
    FileChangeThreadItem,
    FileUpdateChange,
    FindInPageWebSearchAction,
    ItemCompletedNotification,
    ItemStartedNotification,
    McpToolCallError,
    McpToolCallResult,
    McpToolCallThreadItem,
    OpenPageWebSearchAction,
    ReasoningThreadItem,
    SearchWebSearchAction,
    ThreadTokenUsage,
    ThreadTokenUsageUpdatedNotification,
    TokenUsageBreakdown,
    Turn,
    TurnCompletedNotification,
    TurnError,
    TurnPlanStep,
    TurnPlanUpdatedNotification,
    TurnStartedNotification,
    UpdatePatchChangeKind,
    UserMessageThreadItem,
    WarningNotification,
    WebSearchThreadItem,
)

RUNS = Path(__file__).parents[2] / "data" / "exec_json" / "typescript_sdk_runs.jsonl"
RecordingView: TypeAlias = tuple[str, Any]

STARTED: RecordingView = (
    "turn/started",
    TurnStartedNotification(thread_id="t", turn=Turn(id="u", items=(), status="inProgress")),
)
USER = UserMessageThreadItem(id="user", content=())


def begun(item: Any) -> RecordingView:
    return "item/started", ItemStartedNotification(thread_id="t", turn_id="u", item=item, started_at_ms=0)


def over(item: Any) -> RecordingView:
    return "item/completed", ItemCompletedNotification(thread_id="t", turn_id="u", item=item, completed_at_ms=0)


def message(text: str, name: str = "m") -> list[RecordingView]:
    item = AgentMessageThreadItem(id=name, text=text)
    return [begun(AgentMessageThreadItem(id=name, text="")), over(item)]


def used(**counts: int) -> RecordingView:
    names = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens", "total_tokens")
    total = TokenUsageBreakdown(**{name: counts.get(name, 0) for name in names})
    last = TokenUsageBreakdown(**dict.fromkeys(names, 1))
    usage = ThreadTokenUsage(total=total, last=last)
    return "thread/tokenUsage/updated", ThreadTokenUsageUpdatedNotification(
        thread_id="t", turn_id="u", token_usage=usage
    )


def ended(status: str = "completed", error: TurnError | None = None) -> RecordingView:
    turn = Turn(id="u", items=(), status=status, error=error)
    return "turn/completed", TurnCompletedNotification(thread_id="t", turn=turn)


def failure(text: str, details: str | None = None, *, will_retry: bool = False) -> RecordingView:
    error = TurnError(message=text, additional_details=details)
    return "error", ErrorNotification(thread_id="t", turn_id="u", error=error, will_retry=will_retry)


def plan(*steps: tuple[str, str]) -> RecordingView:
    listed = tuple(TurnPlanStep(step=step, status=status) for step, status in steps)
    return "turn/plan/updated", TurnPlanUpdatedNotification(thread_id="t", turn_id="u", plan=listed)


def command(**members: Any) -> CommandExecutionThreadItem:
    given: dict[str, Any] = {"status": "inProgress", "command": "run", **members}
    return CommandExecutionThreadItem(id="c", command_actions=(), cwd="/", **given)


def lines(*told: RecordingView, thread_id: str = "t") -> list[str]:
    """As they are printed, so that the order of the members counts."""
    events = ExecEvents()
    found = events.started(thread_id)
    for method, params in told:
        found += events.receive(method, params)
    return [json.dumps(event) for event in found]


def events_of(*told: RecordingView) -> list[Any]:
    return [json.loads(line) for line in lines(*told)][1:]


def recorded() -> Iterator[tuple[str, list[Any]]]:
    """The prompt of each run, and what Codex printed."""
    printed: list[Any] = []
    for record in map(json.loads, RUNS.read_text().splitlines()):
        if "text" in record:
            printed = []
            yield record["text"], printed
        elif "message" in record:
            printed.append(record["message"])


def recording(prompt: str) -> list[Any]:
    return next(printed for said, printed in [*recorded()] if said == prompt)


TURN_USAGE = {"input_tokens": 11, "cached_input_tokens": 3, "output_tokens": 7}
TWICE = {name: 2 * count for name, count in TURN_USAGE.items()}


def same(prompt: str, *told: RecordingView) -> None:
    printed = recording(prompt)
    assert lines(*told, thread_id=printed[0]["thread_id"]) == [json.dumps(event) for event in printed]


@pytest.mark.parametrize("prompt", ["hello sdk", "hello stream", "remember", "look mark888", "hello usage"])
def test_a_text_is_told_as_it_was_recorded(prompt: str) -> None:
    same(prompt, STARTED, begun(USER), over(USER), *message(f"pong: {prompt}"), used(**TURN_USAGE), ended())


def test_a_typed_answer_is_told_as_it_was_recorded() -> None:
    same("give a title", STARTED, *message('{"title": "Say hello"}'), used(**TURN_USAGE), ended())


def test_a_command_is_told_as_it_was_recorded() -> None:
    printed = recording("RUN:echo mark$((40+2)); exit 3")
    said = "/bin/bash -lc 'echo mark$((40+2)); exit 3'"
    same(
        "RUN:echo mark$((40+2)); exit 3",
        STARTED,
        begun(command(command=said)),
        over(command(command=said, status="failed", aggregated_output="mark42\n", exit_code=3)),
        *message(printed[-2]["item"]["text"]),
        used(**TWICE),
        ended(),
    )


def test_a_patch_is_told_as_it_was_recorded() -> None:
    prompt = next(said for said, _ in recorded() if said.startswith("CALL:apply_patch"))
    change = FileUpdateChange(path="$ROOT/work/sdk.txt", diff="one\n", kind=AddPatchChangeKind())
    same(
        prompt,
        STARTED,
        begun(FileChangeThreadItem(id="p", changes=(change,), status="inProgress")),
        over(FileChangeThreadItem(id="p", changes=(change,), status="completed")),
        *message(recording(prompt)[-2]["item"]["text"]),
        used(**TWICE),
        ended(),
    )


def test_a_failed_turn_is_told_as_it_was_recorded() -> None:
    text = '{"error": {"message": "mock error 400", "type": "mock_error", "code": "400"}}'
    same("HTTP:400", STARTED, failure(text), ended("failed", TurnError(message=text)))


def test_a_turn_that_is_cut_off_says_no_more() -> None:
    same("SLEEP:20 hi", STARTED, ended("interrupted"))


def test_every_recorded_run_was_looked_at() -> None:
    prompts = {said for said, _ in recorded() if not said.startswith(("USERS?", "CALL:apply_patch"))}
    assert prompts == {
        *("hello sdk", "hello stream", "remember", "look mark888", "hello usage", "give a title"),
        *("RUN:echo mark$((40+2)); exit 3", "HTTP:400", "SLEEP:20 hi"),
    }


def test_a_reconnect_is_an_error_with_its_reason() -> None:
    told = [failure("Reconnecting... 1/5", "the stream was cut", will_retry=True), failure("it was cut")]
    assert events_of(*told, ended("failed", TurnError(message="it was cut"))) == [
        {"type": "error", "message": "Reconnecting... 1/5 (the stream was cut)"},
        {"type": "error", "message": "it was cut"},
        {"type": "turn.failed", "error": {"message": "it was cut"}},
    ]


def test_a_failed_turn_without_a_reason_has_the_last_one() -> None:
    assert events_of(ended("failed"))[-1]["error"] == {"message": "turn failed"}
    assert events_of(failure("broken", "twice"), ended("failed"))[-1]["error"] == {"message": "broken (twice)"}


def test_a_plan_is_one_list_that_ends_with_the_turn() -> None:
    found = events_of(
        plan(("one", "inProgress"), ("two", "pending")), plan(("one", "completed")), *message("done"), ended()
    )
    assert [(event["type"], event.get("item", {}).get("id")) for event in found] == [
        ("item.started", "item_0"),
        ("item.updated", "item_0"),
        ("item.completed", "item_1"),
        ("item.completed", "item_0"),
        ("turn.completed", None),
    ]
    assert found[0]["item"]["items"] == [{"text": "one", "completed": False}, {"text": "two", "completed": False}]
    assert found[3]["item"]["items"] == [{"text": "one", "completed": True}]


def test_items_beside_each_other_keep_their_numbers() -> None:
    first, second = (
        command(),
        CommandExecutionThreadItem(id="d", command="other", command_actions=(), cwd="/", status="inProgress"),
    )
    found = events_of(begun(first), begun(second), over(command(status="completed", exit_code=0)))
    assert [event["item"]["id"] for event in found] == ["item_0", "item_1", "item_0"]


def test_a_command_that_goes_on_when_the_turn_ends_is_not_completed() -> None:
    assert [event["type"] for event in events_of(begun(command()), over(command()), ended())] == [
        "item.started",
        "turn.completed",
    ]


def test_thoughts() -> None:
    thought = ReasoningThreadItem(id="r", summary=("**one**\n\na", "two"))
    empty = ReasoningThreadItem(id="s", content=("hidden",))
    assert events_of(begun(thought), over(thought), over(empty)) == [
        {"type": "item.completed", "item": {"id": "item_0", "type": "reasoning", "text": "**one**\n\na\ntwo"}}
    ]


def test_a_declined_patch_has_failed() -> None:
    changes = (
        FileUpdateChange(path="/0", diff="", kind=UpdatePatchChangeKind()),
        FileUpdateChange(path="/1", diff="", kind=DeletePatchChangeKind()),
    )
    [event] = events_of(over(FileChangeThreadItem(id="p", changes=changes, status="declined")))
    assert event["item"] == {
        "id": "item_0",
        "type": "file_change",
        "changes": [{"path": "/0", "kind": "update"}, {"path": "/1", "kind": "delete"}],
        "status": "failed",
    }


@pytest.mark.parametrize(
    ("action", "told"),
    [
        (SearchWebSearchAction(query="a", queries=("a", "b")), {"type": "search", "query": "a", "queries": ["a", "b"]}),
        (OpenPageWebSearchAction(url="http://x"), {"type": "open_page", "url": "http://x"}),
        (
            FindInPageWebSearchAction(url="http://x", pattern="p"),
            {"type": "find_in_page", "url": "http://x", "pattern": "p"},
        ),
        (None, {"type": "other"}),
    ],
)
def test_a_search_has_the_id_of_the_provider(action: Any, told: dict[str, Any]) -> None:
    item = WebSearchThreadItem(id="ws_1", query="a", action=action)
    found = lines(begun(item), over(item), *message("x"))[1:]
    wanted = {"id": "ws_1", "type": "web_search", "query": "a", "action": told}
    assert found[0] == json.dumps({"type": "item.started", "item": wanted})
    assert json.loads(found[1])["item"] == wanted
    assert json.loads(found[2])["item"]["id"] == "item_1"  # it counts all the same


def test_a_tool_of_a_server() -> None:
    call: dict[str, Any] = {"id": "x", "server": "s", "tool": "t", "arguments": {"a": 1}}
    result = McpToolCallResult(content=({"type": "text", "text": "hi"},), structured_content={"b": 2})
    found = lines(
        begun(McpToolCallThreadItem(**call, status="inProgress")),
        over(McpToolCallThreadItem(**call, status="completed", result=result)),
        over(McpToolCallThreadItem(**call, status="failed", error=McpToolCallError(message="no"))),
    )[1:]
    start = {"id": "item_0", "type": "mcp_tool_call", "server": "s", "tool": "t", "arguments": {"a": 1}}
    told = {"content": [{"type": "text", "text": "hi"}], "structured_content": {"b": 2}}
    nothing = {"result": None, "error": None}
    items = [json.dumps(json.loads(line)["item"]) for line in found]
    assert items == [
        json.dumps(start | nothing | {"status": "in_progress"}),
        json.dumps(start | nothing | {"result": told, "status": "completed"}),
        json.dumps(start | {"id": "item_1"} | nothing | {"error": {"message": "no"}, "status": "failed"}),
    ]


def test_another_agent() -> None:
    states = {"b": CollabAgentState(status="pendingInit")}
    item = CollabAgentToolCallThreadItem(
        id="x",
        agents_states=states,
        receiver_thread_ids=("b",),
        sender_thread_id="a",
        status="completed",
        tool="spawnAgent",
        prompt="go",
    )
    [event] = events_of(over(item))
    assert event["item"] == {
        "id": "item_0",
        "type": "collab_tool_call",
        "tool": "spawn_agent",
        "sender_thread_id": "a",
        "receiver_thread_ids": ["b"],
        "prompt": "go",
        "agents_states": {"b": {"status": "pending_init", "message": None}},
        "status": "completed",
    }


def test_warnings_are_items() -> None:
    found = events_of(
        ("warning", WarningNotification(message="careful")),
        ("deprecationNotice", DeprecationNoticeNotification(summary="old", details="use new")),
        ("deprecationNotice", DeprecationNoticeNotification(summary="old")),
    )
    assert [event["item"] for event in found] == [
        {"id": f"item_{number}", "type": "error", "message": text}
        for number, text in enumerate(["careful", "old (use new)", "old"])
    ]


def test_what_has_no_words_here_is_left_out() -> None:
    assert events_of(begun(USER), over(USER), ("thread/status/changed", None), ("something/new", None)) == []


def test_a_turn_without_usage_has_used_nothing() -> None:
    assert set(events_of(ended())[0]["usage"].values()) == {0}


# --- the lines ---


class _Thread:
    id = "t"


class _Response:
    thread = _Thread()


def test_the_thread_is_told_first() -> None:
    printed: list[bytes] = []
    shown = JsonLines(printed.append)
    shown.show("warning", WarningNotification(message="early"))
    assert printed == []
    shown.started(_Response())
    shown.show(*STARTED)
    assert [json.loads(line)["type"] for line in printed] == ["thread.started", "item.completed", "turn.started"]
    assert all(line.endswith(b"}\n") and line.count(b"\n") == 1 for line in printed)


def test_a_line_is_written_whatever_is_in_it() -> None:
    printed: list[bytes] = []
    shown = JsonLines(printed.append)
    shown.started(_Response())
    shown.show(*over(AgentMessageThreadItem(id="m", text="ä \udc80")))
    shown.show(*over(AgentMessageThreadItem(id="m", text="ä")))
    assert json.loads(printed[1])["item"]["text"] == "ä \udc80"
    assert "ä".encode() in printed[2]
