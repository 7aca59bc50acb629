"""A reply as the translators walk through it: what each event means, and what of an item was not streamed yet."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

Event: TypeAlias = Mapping[str, Any]

CALLS: Final = ("function_call", "custom_tool_call")
_SHOWN: Final = ("message", "reasoning", *CALLS)
_DELTAS: Final = (
    "response.output_text.delta",
    "response.reasoning_summary_text.delta",
    "response.reasoning_text.delta",
    "response.function_call_arguments.delta",
)


@dataclass(slots=True)
class Growing:
    """An item of a reply. `index` counts the items that every API can express."""

    item: Event
    index: int
    opened: bool = False
    sent: str = ""

    @property
    def kind(self) -> str:
        return str(self.item["type"])


@dataclass(slots=True)
class Script:
    """The items of one reply by what their events call them."""

    request: Event
    items: dict[object, Growing] = field(default_factory=dict)

    def find(self, event: Event) -> Growing | None:
        """The item that an event is about; None for items that only the Responses API knows."""
        item = event.get("item")
        key = (item.get("id") if item else event.get("item_id")) or event.get("output_index")
        if key not in self.items:
            if not item or item.get("type") not in _SHOWN:
                return None
            self.items[key] = Growing(item, len(self.items))
        found = self.items[key]
        found.item = item or found.item
        return found

    def rest(self, growing: Growing) -> str:
        """What of a whole item was not streamed in deltas, which do not separate the parts of a thought."""
        if growing.kind == "reasoning" and growing.sent:
            return ""
        return self.text(growing.item).removeprefix(growing.sent)

    def text(self, item: Event) -> str:
        """What an item says, thinks or passes to a tool."""
        match item["type"]:
            case "message":
                return "".join(part.get("text", "") for part in item.get("content") or ())
            case "reasoning":
                parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
                return "\n\n".join(part.get("text", "") for part in parts)
            case "custom_tool_call":
                # A tool that takes free text is a function of one text here: its argument's name is in the request.
                argument = "input"
                for tool in self.request.get("tools") or ():
                    function = tool.get("function") or tool
                    if function.get("name") == item["name"]:
                        schema = function.get("parameters") or function.get("input_schema") or {}
                        argument = next(iter(schema.get("properties") or {}), argument)
                        break
                return json.dumps({argument: item["input"]})
        return str(item["arguments"])


def name_of(call: Event) -> str:
    """What a tool is called where there are no namespaces."""
    return f"{call['namespace']}__{call['name']}" if call.get("namespace") else str(call["name"])


def delta_of(event: Event) -> str | None:
    """What an event adds to its item. A tool's free text comes when it is whole: it has to be written as JSON."""
    return event.get("delta", "") if event["type"] in _DELTAS else None


def ending(events: Sequence[Event | bytes]) -> tuple[Event, str | None]:
    """The response as its last event has it, and why it is incomplete, if it is."""
    for event in reversed(events):
        if not isinstance(event, bytes) and event["type"] in ("response.completed", "response.incomplete"):
            response = event.get("response") or {}
            details = response.get("incomplete_details") or {}
            return response, details.get("reason", "") if event["type"] == "response.incomplete" else None
    return {}, None


def failure_of(event: Event) -> Event | None:
    """The error in an event that reports one."""
    if event["type"] == "response.failed":
        return (event.get("response") or {}).get("error") or {}
    if event["type"] == "error":
        return event.get("error") or event
    return None


def items_of(events: Sequence[Event | bytes]) -> list[Event]:
    """The items that are done, in order."""
    return [
        event["item"]
        for event in events
        if not isinstance(event, bytes)
        and event["type"] == "response.output_item.done"
        and event["item"].get("type") in _SHOWN
    ]


def at(value: Any, *names: str) -> Any:
    """What is there, going down by these names; None where the way ends."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def dicts(value: object) -> list[dict[str, Any]]:
    """The objects in a list; none in anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
