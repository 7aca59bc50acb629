"""Which of our tools a model has: some are switched off by the settings, some are not for the mode that the thread is
in, some need an environment.

All of that is decided here, by pure functions. `toolbox` asks before it tells a model of a tool, and before it runs
one: a model may call what it was not told of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from treadle.agent.state import Settings
    from treadle.agent.tools.tool import Tool
    from treadle.config import Config

# What goes with a feature of `[features]`.
_OF_FEATURE: Final[Mapping[str, tuple[str, ...]]] = {
    "shell_tool": ("exec_command", "write_stdin"),
    "view_image": ("view_image",),
    "goals": ("get_goal", "create_goal", "update_goal"),
}
# What `[tools]` calls a tool, where that is not its name.
_IN_TABLE: Final = {"experimental_request_user_input": "request_user_input"}
# Tools that are for one mode. A plan is proposed as text, not as steps of work that is under way.
_MODE: Final = {"request_user_input": "plan", "update_plan": "default"}

NO_ENVIRONMENT: Final = "this thread has no environment, so nothing can be run, read or changed; go on without"


def switched_off(config: Config) -> frozenset[str]:
    """The names of the tools that the settings take away."""
    by_feature = (names for feature, names in _OF_FEATURE.items() if not getattr(config.features, feature))
    by_name = (name for name, switch in config.tools.items() if not getattr(switch, "enabled", switch))
    return frozenset(name for names in by_feature for name in names) | {_IN_TABLE.get(name, name) for name in by_name}


def left(tools: Sequence[Tool], config: Config) -> Sequence[Tool]:
    """Those that are not switched off. A call of another one is a call of a tool that does not exist."""
    off = switched_off(config)
    return [tool for tool in tools if tool.name not in off] if off else tools


def offered(tools: Sequence[Tool], mode: str, config: Config) -> Sequence[Tool]:
    """Those that a model is told of. Without an environment too: it can be given one in the course of the thread."""
    return [tool for tool in left(tools, config) if _suits_mode(tool.name, mode, config)]


def refusal(tool: Tool, settings: Settings, config: Config) -> str | None:
    """What a model is told that calls a tool which it cannot use now; None when it can."""
    if not _suits_mode(tool.name, settings.mode, config):
        return f"{tool.name} cannot be used in {settings.mode} mode"
    return NO_ENVIRONMENT if tool.needs_environment and not settings.has_environment else None


def _suits_mode(name: str, mode: str, config: Config) -> bool:
    if name == "request_user_input" and config.features.default_mode_request_user_input:
        return True
    return _MODE.get(name, mode) == mode
