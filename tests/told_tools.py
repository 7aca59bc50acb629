"""`tool_specs`: what a model is told of our own tools."""

from __future__ import annotations

from msgspec import Raw

from treadle.agent.tools.built_in import BUILT_IN
from treadle.config import ModelFacts


def tool_specs(*, freeform_patch: bool = False, images: bool = True) -> tuple[Raw, ...]:
    model = ModelFacts(
        context_window=1000,
        usable_window=1000,
        auto_compact_limit=1000,
        output_limit=None,
        price=None,
        freeform_patch=freeform_patch,
        supports_images=images,
    )
    return tuple(tool.spec for tool in BUILT_IN if tool.suits(model))
