"""The search among tools that a model is not sent, because there are too many. Pure.

`ToolIndex` ranks the tools of all servers by BM25 over their names, descriptions and servers. The model searches with
`tool_search`, a plain function, so that it works with every model and every wire API: what was found is offered from
the next request on. The Responses API has a type of its own for it, for the models that know it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct

from treadle.mcp.mcp_messages import ToolInfo
from treadle.mcp.tool_specs import ToolNames, namespace_spec

NAME: Final = "tool_search"
DEFAULT_LIMIT: Final = 8
MAX_LIMIT: Final = 50
_SHARE_OF_WINDOW: Final = 10  # a tenth: what is left is for the work
_BYTES_PER_TOKEN: Final = 4
_MAX_SOURCE: Final = 300  # characters of what a server says of itself


def too_many(specs: Iterable[bytes | Raw], context_window: int) -> bool:
    """Whether specifications take more of a model's window than they should, so that tools are better searched for.

    Args:
        specs: The specifications of all servers, encoded.
        context_window: The window of the model, in tokens.
    """
    return sum(len(bytes(spec)) for spec in specs) > context_window // _SHARE_OF_WINDOW * _BYTES_PER_TOKEN


# --- ranking ----------------------------------------------------------------------------------------------------------

_WORD: Final = re.compile(r"[a-z]+|[0-9]+|[^\W\d_a-z]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_K1: Final = 1.2
_B: Final = 0.75
_NAME_WEIGHT: Final = 3  # a word of the name counts as often as this in the description
_MAX_TEXT: Final = 10_000


class FoundTool(Struct, frozen=True):
    """A tool, and the server that has it."""

    server: str
    tool: ToolInfo


class ToolIndex:
    """All tools that can be found.

    Args:
        servers: The tools of each server.
    """

    def __init__(self, servers: Mapping[str, Sequence[ToolInfo]]) -> None:
        self._tools = [FoundTool(server, tool) for server, tools in servers.items() for tool in tools]
        self._counts = [_terms(found.server, found.tool) for found in self._tools]
        self._lengths = [sum(counts.values()) for counts in self._counts]
        self._average = sum(self._lengths) / len(self._lengths) if self._lengths else 0.0
        self._holders = Counter(term for counts in self._counts for term in counts)

    def __len__(self) -> int:
        return len(self._tools)

    def search(self, query: str, limit: int = DEFAULT_LIMIT) -> list[FoundTool]:
        """The best first; of two that are as good, the one that was named first."""
        terms = set(_words(query[:_MAX_TEXT]))
        scored: list[tuple[float, int]] = []
        for place, (counts, length) in enumerate(zip(self._counts, self._lengths, strict=True)):
            score = 0.0
            norm = _K1 * (1 - _B + _B * length / self._average) if self._average else _K1
            for term in sorted(terms & counts.keys()):
                holders = self._holders[term]
                rarity = math.log(1 + (len(self._tools) - holders + 0.5) / (holders + 0.5))
                score += rarity * counts[term] * (_K1 + 1) / (counts[term] + norm)
            if score > 0:
                scored.append((score, -place))
        return [self._tools[-place] for _, place in sorted(scored, reverse=True)[: max(min(limit, MAX_LIMIT), 1)]]


def _terms(server: str, tool: ToolInfo) -> Counter[str]:
    counts = Counter({word: count * _NAME_WEIGHT for word, count in Counter(_words(tool.name)).items()})
    counts.update(_words(server))
    counts.update(_words((tool.description or "")[:_MAX_TEXT]))
    return counts


def _words(text: str) -> list[str]:
    """`getUserByID2` and `get_user` share words; a plural finds its singular."""
    words = _WORD.findall(_CAMEL.sub(" ", text).lower())
    return [word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word for word in words]


# --- the tool ---------------------------------------------------------------------------------------------------------

_INTRODUCTION: Final = (
    "# Tool discovery\n\nSearches over deferred tool metadata with BM25 and exposes matching tools for the next model "
    "call.\n\nYou have access to tools from the following sources:\n"
)
_ADVICE: Final = (
    "\nSome of the tools may not have been provided to you upfront, and you should use this tool (`tool_search`) to "
    "search for the required tools. For MCP tool discovery, always use `tool_search` instead of `list_mcp_resources` "
    "or `list_mcp_resource_templates`."
)
_PARAMETERS: Final = {
    "type": "object",
    "properties": {
        "limit": {"type": "number", "description": f"Maximum number of tools to return. Defaults to {DEFAULT_LIMIT}."},
        "query": {"type": "string", "description": "Search query for deferred tools."},
    },
    "required": ["query"],
    "additionalProperties": False,
}


class SearchArguments(Struct, frozen=True):
    """`limit` is a number of any kind: models write `5.0`."""

    query: str
    limit: float = DEFAULT_LIMIT

    @property
    def count(self) -> int:
        """How many tools are wanted."""
        return int(min(max(self.limit, 1.0), MAX_LIMIT)) if self.limit == self.limit else DEFAULT_LIMIT


def search_spec(sources: Mapping[str, str | None], *, native: bool = False) -> Raw:
    """The tool, as a member of `tools` in a request of the Responses API.

    Args:
        sources: The servers, and what they say of themselves.
        native: In the form that this API has for a search, and not as a function.
    """
    lines = [f"- {server}: {_source(said)}" if said else f"- {server}" for server, said in sorted(sources.items())]
    spec = {"description": _INTRODUCTION + "\n".join(lines) + _ADVICE, "parameters": _PARAMETERS}
    if native:
        return Raw(msgspec.json.encode({"type": "tool_search", "execution": "client", **spec}))
    return Raw(msgspec.json.encode({"type": "function", "name": NAME, "strict": False, **spec}))


def _source(said: str) -> str:
    line = " ".join(said.split())
    line = line.encode("utf-8", "replace").decode()
    return line if len(line) <= _MAX_SOURCE else line[: _MAX_SOURCE - 1] + "…"


def found_specs(
    names: ToolNames, found: Iterable[FoundTool], instructions: Mapping[str, str | None], *, deferred: bool = False
) -> list[Raw]:
    """The namespaces of what was found, in an order that does not depend on when it was found: a provider's cache ends
    where the tools differ.

    Args:
        names: What the model calls the tools.
        found: What searches gave.
        instructions: What the servers say of themselves.
        deferred: As the answer of a native search has them.
    """
    by_server: dict[str, list[ToolInfo]] = {}
    for each in found:
        by_server.setdefault(each.server, []).append(each.tool)
    return [
        namespace_spec(names, server, instructions.get(server), by_server[server], deferred=deferred)
        for server in sorted(by_server)
    ]


def plain_answer(names: ToolNames, found: Sequence[FoundTool]) -> str:
    """What the model gets that has searched: the tools are offered with the next request."""
    if not found:
        return "No tool matches. Try other words."
    lines = [f"- {names.flat(each.server, each.tool.name)}: {_source(each.tool.description or '')}" for each in found]
    return "You can call these tools now:\n" + "\n".join(lines)
