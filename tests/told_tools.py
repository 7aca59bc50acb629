"""`tool_specs`: what a model is told of our own tools."""

from __future__ import annotations

from pathlib import Path

from msgspec import Raw

from treadle.agent.tools.built_in import BUILT_IN
from treadle.agent.tools.tool_choice import offered
from treadle.config import ModelFacts, built_in_config


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
    tools = offered(BUILT_IN, mode, built_in_config(Path("/")))
    return tuple(tool.spec for tool in tools if tool.suits(model))
