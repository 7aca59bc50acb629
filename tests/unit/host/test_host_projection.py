"""Items of a turn as chat messages."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from treadle.host import DECLINED, UNFINISHED, project
from treadle.protocol.app import ThreadItem, convert


def item(kind: str, item_id: str = "i1", **members: Any) -> ThreadItem:
    found: ThreadItem = convert({"type": kind, "id": item_id, **members}, ThreadItem)
    return found


def command(item_id: str = "c1", **members: Any) -> ThreadItem:
    usual = {"command": "/bin/bash -lc 'ls -l'", "commandActions": [], "cwd": "/w", "status": "completed"}
    return item("commandExecution", item_id, **{**usual, **members})


def patch(status: str = "completed", *kinds: str) -> ThreadItem:
    changes = [{"path": f"f{n}", "diff": "+x", "kind": {"type": kind}} for n, kind in enumerate(kinds)]
    return item("fileChange", "p1", changes=changes, status=status)


def user(*texts: str) -> ThreadItem:
    return item("userMessage", content=[{"type": "text", "text": text} for text in texts])


def say(text: str, phase: str | None = None) -> ThreadItem:
    return item("agentMessage", text=text, phase=phase)


def result(*items: ThreadItem) -> str:
    """The result of the one tool."""
    _, told = project(items).messages
    content: str = told["content"]
    return content


def test_a_command_is_a_call_and_its_result() -> None:
    found = project([command(aggregatedOutput="a\nb\n", exitCode=0)])
    assert found.messages == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "exec_c1",
                    "type": "function",
                    "function": {"name": "exec_command", "arguments": '{"command": "ls -l", "cwd": "/w"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "exec_c1", "name": "exec_command", "content": "a\nb\n"},
    ]
    assert (found.tool_iterations, found.final_text) == (1, "")


def test_how_a_command_ended() -> None:
    assert result(command(aggregatedOutput="no\n", exitCode=2, status="failed")) == "[exit 2]\nno\n"
    assert result(command(status="declined")) == DECLINED
    assert result(command(status="inProgress")) == UNFINISHED
    assert result(command(status="failed")) == "[failed]\n"
    long = result(command(aggregatedOutput="a" * 50_000 + "z", exitCode=0))
    assert len(long) < 17_000
    assert long.endswith("z")


def test_a_patch_has_no_contents() -> None:
    call, told = project([patch("completed", "update", "add", "update", "delete", "update")]).messages
    changes = json.loads(call["tool_calls"][0]["function"]["arguments"])["changes"]
    assert changes[1] == {"kind": "add", "path": "f1"}
    assert told["content"] == "completed: 3 updated, 1 added, 1 deleted: f0, f1, f2, +2 more"
    assert result(patch("declined", "add")) == DECLINED


def test_other_tools() -> None:
    mcp: dict[str, Any] = {"server": "the docs", "tool": "look.up", "arguments": [1], "status": "completed"}
    call, told = project([item("mcpToolCall", **mcp, result={"content": [{"type": "text", "text": "found"}]})]).messages
    assert call["tool_calls"][0]["function"] == {"name": "mcp__the_docs__look_up", "arguments": '{"arguments": [1]}'}
    assert told["content"] == "found"
    assert result(item("mcpToolCall", **mcp, error={"message": "x" * 5000})).startswith("[error] xxx")
    dynamic: dict[str, Any] = {"tool": "memory", "arguments": {"ü": 1, "a": 2}, "status": "completed"}
    content = [{"type": "inputText", "text": "kept"}]
    call, told = project([item("dynamicToolCall", **dynamic, contentItems=content, success=True)]).messages
    assert call["tool_calls"][0]["function"]["arguments"] == '{"a": 2, "ü": 1}'
    assert told["content"] == "kept"
    assert result(item("dynamicToolCall", **dynamic, contentItems=content, success=False)) == "[error] kept"
    search = item("webSearch", query="tea", action={"type": "search", "query": "tea"})
    call, _ = project([search]).messages
    assert call["tool_calls"][0]["function"]["name"] == "web_search"


def test_thoughts_go_with_what_follows_them() -> None:
    thought = item("reasoning", summary=["first"], content=["then"])
    call, _, answer = project([thought, command(exitCode=0), say("done")]).messages
    assert call["reasoning"] == "first\nthen"
    assert "reasoning" not in answer


def test_the_echo_is_left_out_once() -> None:
    assert project([user("hi"), say("yes")], submitted="hi").messages == [{"role": "assistant", "content": "yes"}]
    twice = project([user("hi"), say("yes"), user("hi")], submitted="hi").messages
    assert twice[-1] == {"role": "user", "content": "hi"}
    parts: list[Any] = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]
    echo = item("userMessage", content=[{"type": "text", "text": "a"}, {"type": "image", "url": "x"}])
    assert project([echo], submitted=parts).messages == []
    echo = item("userMessage", content=[{"type": "text", "text": "a"}, {"type": "localImage", "path": "x"}])
    assert project([echo], submitted=[parts[0], {"type": "local_image", "path": "x"}]).messages == []
    assert project([user("other")], submitted="hi").messages == [{"role": "user", "content": "other"}]


def test_the_answer_is_not_a_commentary() -> None:
    assert project([say("I look", "commentary"), say("It is 4", "final_answer")]).final_text == "It is 4"
    assert project([say("It is 4", "final_answer"), say("bye", "commentary")]).final_text == "It is 4"
    assert project([say("one"), say("two")]).final_text == "two"


def test_what_is_of_no_use_later_is_left_out() -> None:
    quiet = [
        item("plan", text="1. x"),
        item("imageView", path="/x"),
        item("sleep", durationMs=1),
        item("enteredReviewMode", review="r"),
        item("contextCompaction"),
        item("somethingNew", text="?"),
    ]
    assert project(quiet).messages == []


def test_ids_fit_every_provider_and_stay_the_same() -> None:
    odd = "call:1|" + "x" * 100
    first, second = project([command(odd)]).messages, project([command(odd)]).messages
    assert first == second
    found = first[1]["tool_call_id"]
    assert len(found) <= 64
    assert found.isascii()


texts = st.text(max_size=20)
ids = st.sampled_from(["a", "b", "c d", "é", ""])
statuses = st.sampled_from(["inProgress", "completed", "failed", "declined", "someday"])
anything = st.recursive(st.none() | st.booleans() | st.integers() | texts, lambda it: st.lists(it, max_size=3))
items = st.one_of(
    st.builds(
        lambda i, s, o, e: command(i, status=s, aggregatedOutput=o, exitCode=e),
        ids,
        statuses,
        texts,
        st.none() | st.integers(0, 255),
    ),
    st.builds(
        lambda s, k: patch(s, *k), statuses, st.lists(st.sampled_from(["add", "update", "delete", "moved"]), max_size=5)
    ),
    st.builds(
        lambda i, s, t, a: item("dynamicToolCall", i, tool=t, arguments=a, status=s), ids, statuses, texts, anything
    ),
    st.builds(
        lambda i, s, t, a: item("mcpToolCall", i, server=t, tool=t, arguments=a, status=s),
        ids,
        statuses,
        texts,
        anything,
    ),
    st.builds(lambda i, q: item("webSearch", i, query=q), ids, texts),
    st.builds(lambda t: item("reasoning", summary=[t]), texts),
    st.builds(say, texts, st.sampled_from([None, "commentary", "final_answer", "new"])),
    st.builds(user, texts),
    st.builds(lambda t: item(t), st.sampled_from(["contextCompaction", "somethingNew"])),
)


@given(st.lists(items, max_size=12), st.none() | texts)
def test_whatever_happened_the_messages_are_valid(found: list[ThreadItem], submitted: str | None) -> None:
    projection = project(found, submitted=submitted)
    assert project(found, submitted=submitted) == projection
    used: set[str] = set()
    messages = iter(projection.messages)
    for message in messages:
        assert isinstance(message["content"], str)
        assert message["role"] != "tool"  # each follows its call
        for call in message.get("tool_calls", ()):
            answer = next(messages)
            assert (answer["role"], answer["tool_call_id"]) == ("tool", call["id"])
            assert call["id"] not in used
            used.add(call["id"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert len(used) == projection.tool_iterations
