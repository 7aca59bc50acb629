"""Which tools a model has under which settings.

The rows are what codex 0.166 did with them, except that it reads only some of the names in `[tools]`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from told_tools import TOOLS
from treadle.agent import BUILT_IN, NO_ENVIRONMENT, left, offered, tool_refusal
from treadle.config import Config, ConfigError, load_config
from treadle.tools import built_in_names
from unit.agent.bare_thread import settings

SHELL, PATCH, PLAN, IMAGE = {"exec_command", "write_stdin"}, {"apply_patch"}, {"update_plan"}, {"view_image"}
GOALS, QUESTIONS = {"get_goal", "create_goal", "update_goal"}, {"request_user_input"}
ALL = SHELL | PATCH | PLAN | IMAGE | GOALS

OFF = [
    ({}, set()),
    ({"features.shell_tool": False}, SHELL),
    ({"features": {"shell_tool": False}}, SHELL),
    ({"features.unified_exec": False}, set()),
    ({"features.view_image": False}, IMAGE),
    ({"features.goals": False}, GOALS),
    ({"features.goals": True}, set()),
    (
        {"features": {"goals": False, "view_image": False}, "tools": {"update_plan": {"enabled": False}}},
        GOALS | IMAGE | PLAN,
    ),
    ({"tools.update_plan.enabled": False}, PLAN),
    ({"tools.update_plan.enabled": True}, set()),
    ({"tools.apply_patch.enabled": False}, PATCH),
    ({"tools.view_image": False}, IMAGE),
    ({"tools.view_image": {"enabled": False}}, IMAGE),
    ({"tools.web_search": {"context_size": "high"}}, set()),
    ({"web_search": "disabled", "mcp_servers": {}}, set()),
    ({"features.multi_agent": False, "features.nonsense": {"enabled": True}}, set()),
]


def names(config: Config, mode: str = "default") -> set[str]:
    return {tool.name for tool in offered(TOOLS, mode, config)}


def configured(tmp_path: Path, *flags: str, file: str = "") -> Config:
    (tmp_path / "config.toml").write_text(file)
    return load_config(tmp_path, overrides=flags, environ={}).config


@pytest.mark.parametrize(("given", "off"), OFF)
def test_what_a_thread_switches_off(tmp_path: Path, given: dict[str, Any], off: set[str]) -> None:
    config = configured(tmp_path).with_thread_overrides(given)
    assert names(config) == ALL - off
    assert {tool.name for tool in left(TOOLS, config)} == (ALL | QUESTIONS) - off


def test_file_profile_command_line_and_thread(tmp_path: Path) -> None:
    file = (
        "[features]\ngoals = false\n[tools.update_plan]\nenabled = false\n"
        "[profiles.quiet.features]\nshell_tool = false\n"
    )
    assert names(configured(tmp_path, file=file)) == ALL - GOALS - PLAN
    assert names(configured(tmp_path, "profile=quiet", file=file)) == PATCH | IMAGE
    assert names(configured(tmp_path, "features.goals=true", file=file)) == ALL - PLAN
    assert names(configured(tmp_path, "tools.update_plan={enabled=true}", file=file)) == ALL - GOALS
    assert names(configured(tmp_path, file=file).with_thread_overrides({"features.goals": True})) == ALL - PLAN


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"features.goals": "false"}, "features.goals"),
        ({"features": True}, "features"),
        ({"tools.update_plan": "off"}, "tools.update_plan"),
        ({"tools.update_plan.enabled": 0}, "tools.update_plan"),
    ],
)
def test_a_switch_that_cannot_be_read_is_no_switch(tmp_path: Path, given: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(tmp_path).with_thread_overrides(given)
    assert caught.value.key == key


def test_flags_without_an_effect_are_named(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[features]\ngoals = false\nunified_exec = false\n")
    (warning,) = load_config(tmp_path, environ={}).warnings
    assert "`features.unified_exec`" in warning.message
    assert "goals" not in warning.message


def test_the_modes(tmp_path: Path) -> None:
    config = configured(tmp_path)
    assert names(config, "plan") == ALL - PLAN - PATCH | QUESTIONS
    asking = config.with_thread_overrides({"features.default_mode_request_user_input": True})
    assert names(asking) == ALL | QUESTIONS
    silent = config.with_thread_overrides({"tools.experimental_request_user_input.enabled": False})
    assert names(silent, "plan") == ALL - PLAN - PATCH


def test_what_is_refused_when_it_is_called_all_the_same(tmp_path: Path) -> None:
    config = configured(tmp_path)
    bare = {tool.name: tool_refusal(tool, settings(has_environment=False), config) for tool in TOOLS}
    assert {name for name, why in bare.items() if why == NO_ENVIRONMENT} == SHELL | PATCH | IMAGE
    plain = {tool.name: tool_refusal(tool, settings(), config) for tool in TOOLS}
    assert {name: why for name, why in plain.items() if why is not None} == {
        "request_user_input": "request_user_input cannot be used in default mode"
    }
    planning = {tool.name: tool_refusal(tool, settings(mode="plan"), config) for tool in TOOLS}
    assert {name: why for name, why in planning.items() if why is not None} == {
        "apply_patch": "apply_patch cannot be used in plan mode",
        "update_plan": "update_plan cannot be used in plan mode",
    }


def test_what_tools_say_of_themselves() -> None:
    """Whether a call only reads, may destroy something, and needs a place where commands run."""
    assert {tool.name for tool in TOOLS if tool.only_reads} == {"get_goal"} | IMAGE | QUESTIONS
    assert {tool.name for tool in TOOLS if tool.may_destroy} == SHELL | PATCH
    assert {tool.name for tool in TOOLS if tool.needs_environment} == SHELL | PATCH | IMAGE
    assert not any(tool.only_reads and (tool.may_destroy or tool.exclusive) for tool in BUILT_IN)


def test_clients_know_the_names_of_all_tools() -> None:
    assert built_in_names() == {tool.name for tool in BUILT_IN}
