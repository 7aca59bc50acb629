"""How the models of this API differ, as far as a request depends on it. Looked up by name; nothing is fetched."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from treadle.llm.catalogue import known_model

Thinking: TypeAlias = Literal["adaptive", "budget", "never", "unknown"]

_VERSION: Final = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
# Most tokens of an answer by a model that nobody has told us about: enough for a long patch, and still less than the
# context of what people run at home.
_UNKNOWN_OUTPUT: Final = 16_384


class Traits(Struct, frozen=True):
    """One model.

    Args:
        max_output: The most tokens of a response, thinking included, for models that the catalogue does not list.
        thinking: How thinking is requested: adaptive, with a budget, or not at all.
        schemas: Whether output can be constrained to a JSON schema.
        xhigh: Whether it accepts this effort.
    """

    max_output: int
    thinking: Thinking
    schemas: bool = True
    xhigh: bool = False


# What each of them since 4.5 can write.
_SINCE_4_5: Final = 64_000
_NEWEST: Final = Traits(_SINCE_4_5, "adaptive", xhigh=True)
_UNKNOWN: Final = Traits(_UNKNOWN_OUTPUT, "unknown")
# From which version on: the first that is not newer than the model's holds.
_BY_VERSION: Final = (
    ((4, 7), _NEWEST),
    ((4, 6), Traits(_SINCE_4_5, "adaptive")),
    ((4, 5), Traits(_SINCE_4_5, "budget")),
    # Before 4.5 the sum of prompt and `max_tokens` must fit into the context: all they can write would leave no room.
    ((3, 7), Traits(32_000, "budget", schemas=False)),
    ((3, 5), Traits(8_192, "never", schemas=False)),
    ((0, 0), Traits(4_096, "never", schemas=False)),
)


def traits_of(model: str) -> Traits:
    """Also for names of gateways, such as `anthropic/claude-opus-4.6`."""
    if "claude" not in model:
        return _UNKNOWN
    found = _VERSION.search(model)
    if found is None:
        return _NEWEST
    version = int(found[1]), int(found[2] or 0)
    return next(traits for since, traits in _BY_VERSION if version >= since)


def output_limit(model: str) -> int:
    """Most tokens of an answer, thoughts included: the API wants it said in every request."""
    return known_model(model).output_limit or traits_of(model).max_output
