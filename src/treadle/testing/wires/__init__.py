"""The three wire APIs as servers see them: replies go out in the API that was asked, requests are read in one form.

The common form is that of the Responses API: a reply is a list of its events, and a conversation a list of its items.
`chat` and `anthropic` translate; each event gives one frame, so that a place in a reply is the same place in all three.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from treadle.testing.replies import Reply, error_reply
from treadle.testing.wires import anthropic, chat
from treadle.testing.wires.script import Event, at, dicts

WireName: TypeAlias = Literal["responses", "chat", "anthropic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFormat:
    """One API.

    Args:
        route: Where it is asked, below `/v1`.
        items: The conversation in a request.
        tool_names: The tools that a request offers.
        effort: How hard the model shall think, if a request says so.
        output_schema: The JSON schema that the answer shall follow, if a request has one.
        frames: The stream of a reply, a frame for each event; it is given the request as well.
        whole: The reply in one piece, for a request that wants no stream; None where there is always one.
        error: The body of an HTTP error, from one in the form of the Responses API.
    """

    route: str
    items: Callable[[Mapping[str, Any]], list[Event]]
    tool_names: Callable[[Mapping[str, Any]], list[str]]
    effort: Callable[[Mapping[str, Any]], Any]
    output_schema: Callable[[Mapping[str, Any]], Any]
    frames: Callable[[Sequence[Event | bytes], Mapping[str, Any]], tuple[bytes, ...]] | None = None
    whole: Callable[[Sequence[Event | bytes], Mapping[str, Any]], Event] | None = None
    error: Callable[[int, Event], Event] | None = None


def _items(body: Event) -> list[Event]:
    value = body.get("input", [])
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    return [item for item in value if isinstance(item, dict)]


WIRES: Final[Mapping[WireName, WireFormat]] = {
    "responses": WireFormat(
        route="/responses",
        items=_items,
        # A tool without a name goes by its type.
        tool_names=lambda body: [str(tool.get("name", tool.get("type"))) for tool in dicts(body.get("tools"))],
        effort=lambda body: at(body, "reasoning", "effort"),
        output_schema=lambda body: at(body, "text", "format", "schema"),
    ),
    "chat": WireFormat(
        route="/chat/completions",
        items=chat.items,
        tool_names=chat.tool_names,
        effort=chat.effort,
        output_schema=chat.output_schema,
        frames=chat.frames,
        whole=chat.whole,
    ),
    "anthropic": WireFormat(
        route="/messages",
        items=anthropic.items,
        tool_names=anthropic.tool_names,
        effort=anthropic.effort,
        output_schema=anthropic.output_schema,
        frames=anthropic.frames,
        whole=anthropic.whole,
        error=anthropic.error,
    ),
}
ROUTES: Final = tuple(wire.route for wire in WIRES.values())
_BY_ROUTE: Final[Mapping[str, WireName]] = {wire.route: name for name, wire in WIRES.items()}


def route_of(path: str) -> str:
    """Where a request goes, without version, query and last slash."""
    return path.partition("?")[0].removeprefix("/v1").rstrip("/")


def wire_name(path: str) -> WireName:
    """The API of a path; that of a strange one counts as Responses."""
    return _BY_ROUTE.get(route_of(path), "responses")


def wire_of(path: str) -> WireFormat:
    return WIRES[wire_name(path)]


def translated(reply: Reply, path: str, request: Mapping[str, Any]) -> Reply:
    """The reply as the API of the path has it. What was given as bytes stays as it is."""
    wire = wire_of(path)
    if reply.body is not None:
        if wire.error is None:
            return reply
        headers = {**reply.headers, "Content-Type": "application/json"}
        again = error_reply(reply.status, wire.error(reply.status, reply.body), headers)
        return replace(again, delay_s=reply.delay_s, gate=reply.gate)
    if not reply.events or wire.frames is None or wire.whole is None:
        return reply
    if request.get("stream"):
        return replace(reply, frames=wire.frames(reply.events, request))
    if reply.cut_after is not None:
        return replace(reply, dropped=True)  # what comes in one piece cannot be cut
    once = error_reply(200, wire.whole(reply.events, request))
    return replace(once, delay_s=reply.delay_s, gate=reply.gate)
