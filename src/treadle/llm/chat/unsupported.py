"""Features that some Chat Completions servers do not support, and how their error messages show that."""

from __future__ import annotations

import re
from typing import Final

from treadle.llm.chat.failure import is_too_long, read_error
from treadle.llm.model import HttpFailure

NO_STREAM_OPTIONS: Final = "no stream_options"
NO_PARALLEL: Final = "no parallel_tool_calls"
NO_EFFORT: Final = "no reasoning_effort"
JSON_OBJECT: Final = "json_object for json_schema"
NO_FORMAT: Final = "no response_format"
OTHER_LIMIT: Final = "the other name of max_tokens"
AS_DEVELOPER: Final = "developer for system"
AS_USER: Final = "user for system"
SYSTEM_FIRST: Final = "system only at the beginning"
ALTERNATING: Final = "roles alternate"
NINE: Final = "call ids of nine letters"
THOUGHTS_BACK: Final = "reasoning_content is sent back"


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


# In this order: the first that fits and is not known yet is tried. Those of a family come one after the other.
_REFUSALS: Final[tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]] = (
    (_words(r"stream_options|include_usage"), (NO_STREAM_OPTIONS,)),
    (_words(r"parallel_tool_calls|parallel tool calls"), (NO_PARALLEL,)),
    (_words(r"reasoning_effort|reasoning effort|reasoning\.effort|not support (thinking|reasoning)"), (NO_EFFORT,)),
    (
        _words(r"reasoning_content.*(missing|must|required|passed|pass back)|missing.*reasoning_content"),
        (THOUGHTS_BACK,),
    ),
    (_words(r"max_completion_tokens|max_tokens"), (OTHER_LIMIT,)),
    (_words(r"tool.?call.?id.*(length of 9|a-z)"), (NINE,)),
    (_words(r"system (message|role|prompt)s? (must|should|can only) be (at|the|first)"), (SYSTEM_FIRST, AS_USER)),
    (_words(r"role.*not support.*'system'|'system'.*use 'developer'"), (AS_DEVELOPER, AS_USER)),
    (_words(r"system role (is )?not supported|not support.*system (role|message|prompt|instruction)"), (AS_USER,)),
    (_words(r"unknown variant `(system|developer)`|role[^.]{0,60}(system|developer)[^.]{0,60}not"), (AS_USER,)),
    (_words(r"roles? must alternate|must alternate|alternate user"), (ALTERNATING,)),
    (_words(r"response_format|json_schema|json_object|json mode|structured outputs?"), (JSON_OBJECT, NO_FORMAT)),
)
# That the schema itself is wrong is for whoever wrote it.
_BAD_SCHEMA: Final = _words(r"invalid schema|invalid json.?schema|schema is (invalid|not valid)")
# 500 and 501: template errors of local servers. The other statuses are about something else than the request.
_STATUSES: Final = frozenset({400, 404, 405, 415, 422, 500, 501})


def other_way(failure: HttpFailure, quirks: frozenset[str]) -> frozenset[str] | None:
    """The quirks with which to ask again, when the refusal is about one of them."""
    if failure.status not in _STATUSES:
        return None
    said = read_error(failure.body).words
    if is_too_long(said) or _BAD_SCHEMA.search(said):
        return None
    for refusal, ways in _REFUSALS:
        way = next((way for way in ways if way not in quirks), None)
        if way is not None and refusal.search(said):
            return quirks | {way}
    return None
