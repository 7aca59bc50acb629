"""The language of the prompts: what the last item of a conversation makes the engines' model do."""

from __future__ import annotations

import json

import pytest

from treadle.testing import Asked, PlannedCall, ReplyPlan, flat, plan_for

SHELL = ("bash",)


def plan(text: str, tools: tuple[str, ...] = SHELL) -> ReplyPlan:
    return plan_for(Asked(text=text, tools=tools, users=4))


def test_anything_is_answered_with_its_last_line() -> None:
    assert plan("one\n two \n\n") == ReplyPlan(text="pong: two")
    assert plan("") == ReplyPlan(text="pong: ")


def test_what_a_tool_gave_is_repeated_whatever_it_says() -> None:
    asked = Asked(text=" RUN:echo hi HTTP:500 " + "x" * 300, by_tool=True, tools=SHELL)
    assert plan_for(asked) == ReplyPlan(text="tool said: " + ("RUN:echo hi HTTP:500 " + "x" * 300)[:200])


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("exec_command", {"cmd": "ls -l"}),
        ("shell_command", {"command": "ls -l"}),
        ("shell", {"command": ["bash", "-lc", "ls -l"]}),
        ("Bash", {"command": "ls -l", "description": "mock command"}),
        ("bash", {"command": "ls -l", "description": "mock command"}),
    ],
)
def test_a_command_goes_to_the_shell_tool_that_is_offered(tool: str, arguments: object) -> None:
    assert plan("please RUN:ls -l\nnow", ("other", tool)) == ReplyPlan(call=PlannedCall(tool, json.dumps(arguments)))


def test_a_call_of_any_tool() -> None:
    assert plan('CALL:todo {"a": [1, 2]}').call == PlannedCall("todo", '{"a": [1, 2]}')


@pytest.mark.parametrize("prompt", ["RUN:ls", "CALL:bash {}"])
def test_without_tools_there_is_a_text(prompt: str) -> None:
    """As for the title of a conversation, which some programs ask for with the words of the user."""
    assert plan(prompt, ()) == ReplyPlan(text=f"pong: {prompt}")
    assert plan("RUN:ls", ("read",)).text == "pong: RUN:ls"


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("USERS?", ReplyPlan(text="users=4")),
        ("THINK", ReplyPlan(text="pong: THINK", think=True)),
        ("TWOMSG", ReplyPlan(text="pong: TWOMSG", commentary=True)),
        ("HTTP:429", ReplyPlan(text="pong: HTTP:429", status=429)),
        ("FLAKY:2:ab", ReplyPlan(text="pong: FLAKY:2:ab", flaky=(2, "ab"))),
        ("DROP", ReplyPlan(text="pong: DROP", ending="early")),
        ("CUT", ReplyPlan(text="pong: CUT", ending="cut")),
        ("SLEEP:1.5", ReplyPlan(text="pong: SLEEP:1.5", delay_s=1.5)),
        ("GATE:a now", ReplyPlan(text="pong: GATE:a now", gate="a")),
        ("SEARCH:the news", ReplyPlan(text="pong: SEARCH:the news", search="the news")),
    ],
)
def test_words(prompt: str, expected: ReplyPlan) -> None:
    assert plan(prompt) == expected


def test_what_a_program_adds_to_the_prompt_does_not_count() -> None:
    added = "<system-reminder>RUN:ls\nHTTP:500</system-reminder>\n<environment_context>DROP</environment_context>"
    assert plan(f"hello\n{added}") == ReplyPlan(text="pong: hello")


def test_text_is_found_in_blocks() -> None:
    assert flat([{"text": "a"}, {"content": [{"type": "text", "text": "b"}]}, "c", None, 4]) == "a\nb\nc\n\n"
