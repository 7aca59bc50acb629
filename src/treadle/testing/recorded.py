"""`RecordedRequest`: what a client sent to the mock model, with the questions that tests ask about it.

Whichever API it came over, it is read in the form of the Responses API, by `treadle.testing.wires`. It is not judged:
what is missing reads as empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from treadle.testing.wires import wire_of

JsonObject: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class RecordedRequest:
    """One request. Header names are lower case; `repr` shows neither headers nor body, which may hold secrets."""

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @cached_property
    def json(self) -> JsonObject:
        """The body as a JSON object; `ValueError` when it is none."""
        value = json.loads(self.body)
        if not isinstance(value, dict):
            raise ValueError(f"the body of {self.method} {self.path} is no JSON object but a {type(value).__name__}")
        return value

    def header(self, name: str) -> str | None:
        """A header by name, in any case."""
        return self.headers.get(name.lower())

    @property
    def input(self) -> list[JsonObject]:
        """The conversation as items of the Responses API, whichever API was asked.

        A plain string counts as one user message, and what the system says in the other APIs as the developer's. A
        custom tool is a function there.
        """
        return [dict(item) for item in wire_of(self.path).items(self.json)]

    def input_texts(self, role: str) -> list[str]:
        """Every text of the messages of a role, in order: `"user"`, `"developer"`, `"assistant"`, `"system"`."""
        messages = (item for item in self.input if item.get("type", "message") == "message")
        return [text for item in messages if item.get("role") == role for text in _texts(item.get("content"))]

    @property
    def last_user_text(self) -> str | None:
        """The last text that the user role carries; `None` when there is none."""
        texts = self.input_texts("user")
        return texts[-1] if texts else None

    @property
    def tool_outputs(self) -> dict[str, str]:
        """The outputs of tool calls by call id, in the order of the input."""
        return {
            str(item.get("call_id")): "".join(_texts(item.get("output")))
            for item in self.input
            if str(item.get("type")).endswith("_call_output")
        }

    @property
    def tool_names(self) -> list[str]:
        """The tools that the model was offered; a tool without a name goes by its type."""
        return wire_of(self.path).tool_names(self.json)

    @property
    def reasoning_effort(self) -> str | None:
        """How hard the model was asked to think, such as `"high"`; `None` when nothing was said."""
        effort: str | None = wire_of(self.path).effort(self.json)
        return effort

    @property
    def output_schema(self) -> JsonObject | None:
        """The JSON schema that the answer had to follow; `None` when it was free."""
        schema: JsonObject | None = wire_of(self.path).output_schema(self.json)
        return schema


def _texts(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]
