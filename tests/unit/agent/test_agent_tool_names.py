"""Which function for sub-agents a call means, and what a model is told of them."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from treadle.agent import AGENT_TOOLS, BUILT_IN_ROLES, Roles, ToolCall, namespace

NAMES = ("close_agent", "resume_agent", "send_input", "spawn_agent", "wait_agent")


def _call(space: str | None, name: str, *, free_text: bool = False) -> ToolCall:
    return ToolCall(cast("Any", None), "c1", name, "{}", space, "custom_tool_call" if free_text else "function_call")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("space", "form"),
    [
        ("multi_agent_v1", "{}"),
        (None, "{}"),
        (None, "multi_agent_v1__{}"),
        (None, "multi_agent_v1.{}"),
        (None, "multi-agent-v1/{}"),
        ("multi_agent_v1", "multi_agent_v1__{}"),
    ],
)
def test_a_name_is_known_in_every_form(space: str | None, form: str, name: str) -> None:
    assert AGENT_TOOLS.answers(_call(space, form.format(name)))


@pytest.mark.parametrize(
    ("space", "name"),
    [("mcp__x", "spawn_agent"), (None, "x__spawn_agent"), (None, "spawn"), ("multi_agent_v1", "echo"), (None, "")],
)
def test_others_are_not_meant(space: str | None, name: str) -> None:
    assert not AGENT_TOOLS.answers(_call(space, name))
    assert not AGENT_TOOLS.answers(_call("multi_agent_v1", "spawn_agent", free_text=True))


def test_what_a_model_is_told() -> None:
    told = msgspec.json.decode(namespace(Roles(BUILT_IN_ROLES)))
    assert (told["type"], told["name"]) == ("namespace", "multi_agent_v1")
    assert tuple(tool["name"] for tool in told["tools"]) == NAMES
    properties = {tool["name"]: tool["parameters"] for tool in told["tools"]}
    assert properties["send_input"]["required"] == properties["close_agent"]["required"] == ["target"]
    assert properties["wait_agent"]["required"] == ["targets"]
    assert properties["resume_agent"]["required"] == ["id"]
    recorded = {"message", "items", "model", "reasoning_effort", "fork_context", "agent_type"}
    assert recorded <= set(properties["spawn_agent"]["properties"])
    assert all(
        f"- {name}: " in properties["spawn_agent"]["properties"]["agent_type"]["description"] for name in BUILT_IN_ROLES
    )
    assert len(namespace(Roles(BUILT_IN_ROLES))) < 6_000  # every request of every thread has it
