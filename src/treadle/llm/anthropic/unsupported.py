"""Features that a server of this API may not support, and how its error message shows that. Gateways and servers of
other models implement less of the API.
"""

from __future__ import annotations

import re
from typing import Final

from treadle.llm.model import HttpFailure

AS_BUDGET: Final = "thinking is told as a budget"
NO_THINKING: Final = "thinking is not told"
NO_THOUGHTS: Final = "thoughts are not sent back"
SCHEMA_AS_TEXT: Final = "a schema is told as text"
NO_CACHE: Final = "nothing is marked for the cache"

_REFUSED: Final = (400, 422)
_SCHEMA: Final = re.compile(r"output_config(?!\W*effort)|output_format|json_schema|\bschema\b")
_THINKING: Final = re.compile(r"thinking|adaptive|budget_tokens|\beffort\b|output_config(?!\W*format)")
_THOUGHT: Final = re.compile(r"signature|expected \W*thinking|thinking\W+blocks?\b")


def other_way(failure: HttpFailure, quirks: frozenset[str]) -> frozenset[str] | None:
    """Which of them the refusal is about, with those that are known."""
    if failure.status not in _REFUSED:
        return None
    said = failure.body.decode("utf-8", "replace").lower()
    found: set[str] = set()
    if "cache_control" in said:
        found.add(NO_CACHE)
    if _THOUGHT.search(said) and NO_THOUGHTS not in quirks:
        found.add(NO_THOUGHTS)
    elif _THINKING.search(said):
        found.add(NO_THINKING if AS_BUDGET in quirks else AS_BUDGET)
    if _SCHEMA.search(said) and "input_schema" not in said:
        found.add(SCHEMA_AS_TEXT)
    return quirks | found if found - quirks else None
