"""`tool_specs`: what a model is told of our own tools, those that tests know by name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec import Raw

from treadle.agent import BUILT_IN, offered
from treadle.config import ModelFacts, built_in_config

# The tools that tests have tables and hashes of: one that somebody adds needs none of them to change.
KNOWN: Final = (
    *("exec_command", "write_stdin", "apply_patch", "update_plan", "request_user_input", "view_image"),
    *("get_goal", "create_goal", "update_goal"),
)
TOOLS: Final = tuple(tool for tool in BUILT_IN if tool.name in KNOWN)


def tool_specs(*, freeform_patch: bool = False, images: bool = True, mode: str = "default") -> tuple[Raw, ...]:
    model = ModelFacts(
        context_window=1000,
        usable_window=1000,
        auto_compact_limit=1000,
        output_limit=None,
        price=None,
        freeform_patch=freeform_patch,
        supports_images=images,
    )
    tools = offered(TOOLS, mode, built_in_config(Path("/")))
    return tuple(tool.spec for tool in tools if tool.suits(model))
