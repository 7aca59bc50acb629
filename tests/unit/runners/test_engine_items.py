"""What the runs of real engines said, as the items of a turn."""

from __future__ import annotations

from typing import Any

import pytest

from engine_streams import Stream, cases
from treadle.runners import (
    Action,
    ActionEvent,
    CompletedEvent,
    Ending,
    EngineItem,
    EngineItems,
    Event,
    OutputReader,
    ResumeToken,
    RunRequest,
    StartedEvent,
    TextDelta,
    find_engine,
)

ENGINES = ("codex", "claude", "opencode", "pi")


class Sink:
    """What became of a run."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.text: list[tuple[str, str]] = []
        self.ended: list[Any] = []
        self.notices: list[str] = []

    def started(self, item: EngineItem) -> None:
        self.begun.append(item.id)

    def grown(self, message_id: str, text: str) -> None:
        self.text.append((message_id, text))

    def completed(self, item: EngineItem) -> None:
        self.ended.append(item)

    def notice(self, text: str) -> None:
        self.notices.append(text)


def told(*events: Event, prefix: str = "t") -> Sink:
    sink = Sink()
    items = EngineItems(prefix, "/project", sink)
    for event in events:
        items.receive(event)
    return sink


def action(kind: Any, title: str, phase: Any = "completed", *, id: str = "a", **more: Any) -> ActionEvent:
    detail = more.pop("detail", {})
    return ActionEvent("claude", Action(id, kind, title, detail), phase, **{"ok": True, **more})


def played(stream: Stream) -> list[Event]:
    reading = OutputReader(find_engine(stream.engine), RunRequest(prompt="x", cwd="/project"))
    code = stream.rc if stream.rc >= 0 else 128 - stream.rc
    outputs: list[Any] = [*reading.receive(b"".join(stream.lines)), *reading.end(Ending(exit_code=code))]
    return [out for out in outputs if hasattr(out, "engine")]


@pytest.mark.parametrize("stream", [stream for engine in ENGINES for stream in cases(engine)], ids=str)
def test_recorded_runs(stream: Stream) -> None:
    events = played(stream)
    out = told(*events)
    ended = [item.id for item in out.ended]
    assert len(set(out.begun)) == len(out.begun)
    assert len(set(ended)) == len(ended)
    assert set(out.begun) <= set(ended)
    last = events[-1]
    assert isinstance(last, CompletedEvent)
    if last.answer:
        answer = out.ended[-1]
        assert (answer.type, answer.text) == ("agentMessage", last.answer)
        assert answer.phase == ("final_answer" if last.ok else "partial_answer")
    begun = [event.action.kind for event in events if isinstance(event, ActionEvent) and event.phase == "completed"]
    assert sum(item.type == "commandExecution" for item in out.ended) >= begun.count("command")
    assert sum(item.type == "fileChange" for item in out.ended) >= begun.count("file_change")


def test_a_command_a_patch_a_search_and_a_tool() -> None:
    out = told(
        StartedEvent("claude", ResumeToken("claude", "s1")),
        action("command", "ls", "started", detail={"input": {"command": "ls -l"}}),
        action("command", "ls", ok=False, detail={"input": {"command": "ls -l"}, "output": "no", "exit_code": 2}),
        action("file_change", "edit a.py", id="b", detail={"tool": "Edit", "input": {"file_path": "/project/a.py"}}),
        action("web_search", "weather", id="c"),
        action("tool", "Grep: x", id="d", detail={"tool": "Grep", "input": {"pattern": "x"}, "output": "found"}),
    )
    assert out.begun == ["t/a"]
    command, change, search, tool = out.ended
    assert (command.command, command.status, command.exit_code) == ("ls -l", "failed", 2)
    assert (command.aggregated_output, command.cwd) == ("no", "/project")
    assert [(each.path, each.kind.type) for each in change.changes] == [("/project/a.py", "update")]
    assert search.query == "weather"
    assert (tool.tool, tool.arguments, tool.success) == ("Grep", {"pattern": "x"}, True)
    assert tool.content_items[0].text == "found"


@pytest.mark.parametrize(
    ("given", "diff"),
    [
        ({"old_string": "a\nb", "new_string": "a\nc"}, "@@ -1,2 +1,2 @@\n a\n-b\n+c"),
        ({"edits": [{"oldText": "a", "newText": "b"}, 7, {"oldText": "c"}]}, "@@ -1 +1 @@\n-a\n+b\n@@ -1 +0,0 @@\n-c"),
        ({"content": "all\nof it\n"}, "@@ -0,0 +1,2 @@\n+all\n+of it"),
        ({"old_string": 3, "edits": "x"}, ""),
        ({"content": "x" * 200_000}, ""),
    ],
)
def test_what_would_be_changed_is_shown(given: dict[str, Any], diff: str) -> None:
    detail = {"tool": "Edit", "input": {"file_path": "a.py", **given}}
    [change] = told(action("file_change", "edit", detail=detail)).ended[0].changes
    assert change.diff == diff


def test_ids_of_two_runs_are_not_the_same() -> None:
    ids = {told(action("tool", "x"), prefix=turn).ended[0].id for turn in ("t1", "t2")}
    assert len(ids) == 2


def test_what_was_begun_and_not_ended_is_ended_with_the_run() -> None:
    out = told(
        action("command", "sleep 1000", "started"),
        CompletedEvent("claude", ok=False, answer="", error="cancelled"),
    )
    assert [(item.type, item.status) for item in out.ended] == [("commandExecution", "failed")]


def test_words_on_the_way_are_thoughts_and_notes_are_told_once() -> None:
    out = told(
        action("note", "I look", id="n1", message="I look at it first"),
        action("note", "retry 1/3", "started", id="r"),
        action("note", "retry 2/3", "updated", id="r"),
        action("note", "retry 2/3", id="r"),
        action("warning", "Bash was not allowed", id="w", message="allow it"),
        action("turn", "turn 1", "started", id="t"),
        action("telemetry", "x", id="y"),
    )
    assert out.ended[0].summary == ("I look at it first",)
    assert out.notices == ["retry 1/3", "retry 2/3", "Bash was not allowed: allow it"]


def test_an_answer_that_grows() -> None:
    out = told(
        TextDelta("claude", "I "),
        TextDelta("claude", "look"),
        action("note", "I look", message="I look"),
        TextDelta("claude", "done"),
        CompletedEvent("claude", ok=True, answer="done"),
    )
    said = out.ended
    assert [(item.text, item.phase) for item in said] == [("I look", "commentary"), ("done", "final_answer")]
    assert out.text == [(said[0].id, "I "), (said[0].id, "look"), (said[1].id, "done")]
