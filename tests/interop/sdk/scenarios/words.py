# mypy: disable-error-code="import-not-found"
"""The enums of the SDK: what its users compare with."""

from __future__ import annotations

from enum import Enum
from typing import Any

from openai_codex.generated import v2_all

from interop.sdk.stage import Stage


async def enums(stage: Stage) -> Any:
    """From the name of an enum to its members, from their names to their values."""
    found = [each for each in vars(v2_all).values() if isinstance(each, type) and issubclass(each, Enum)]
    return {each.__name__: {member.name: member.value for member in each} for each in found}
