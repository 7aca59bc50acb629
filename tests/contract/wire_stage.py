"""The stage of the wire API suites: a server that plays bytes, and a model of the provider that is being tried.

Every provider that has a name takes part, with its own settings but for where it is; its server writes in the dialect
of its wire API.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from contract.wire_plays import DIALECTS, Dialect
from model_server import Json, ModelServer, Reply, chunked, model_server
from treadle.llm import (
    KNOWN,
    Completed,
    Created,
    ItemDone,
    ItemStarted,
    ModelError,
    ModelEvent,
    ModelRequest,
    ProviderModel,
    read_provider,
)
from treadle.testing import check_order

SECRET: Final = "sk-nobody-may-see-this"
REQUEST: Final = ModelRequest(
    model="m", instructions="Be brief.", input=[{"type": "message", "role": "user", "content": "hi"}]
)


@dataclass
class Outcome:
    """All that a stream gave, and how it ended."""

    events: list[ModelEvent] = field(default_factory=list)
    error: ModelError | None = None


@dataclass
class Stage:
    server: ModelServer
    provider: str

    @property
    def dialect(self) -> Dialect:
        wire_api = KNOWN[self.provider].table.get("wire_api", "responses")
        (found,) = (dialect for dialect in DIALECTS if dialect.wire_api == wire_api)
        return found

    @asynccontextmanager
    async def model(self, **settings: Any) -> AsyncIterator[ProviderModel]:
        known = KNOWN[self.provider].table
        variable = known.get("env_key", "LOCAL_KEY")  # a server at home may have been given one
        key = {} if known.get("requires_openai_auth") else {"env_key": variable}
        table = {**known, "base_url": self.server.base_url, "request_max_retries": 0, **key, **settings}
        config = read_provider(self.provider, table)
        model = ProviderModel(config, login_key=lambda: SECRET, environ={variable: SECRET})
        try:
            yield model
        finally:
            await model.close()

    async def ask(self, *replies: Reply, request: ModelRequest = REQUEST, **settings: Any) -> Outcome:
        """The outcome of one request, to a model that is used for nothing else."""
        self.server.play(*replies)
        async with self.model(**settings) as model:
            return await outcome(model, request)

    @property
    def body(self) -> Json:
        """Of the last request."""
        return self.server.asked[-1].body


@asynccontextmanager
async def stage_for(provider: str) -> AsyncIterator[Stage]:
    async with model_server() as server:
        yield Stage(server, provider)


async def outcome(model: ProviderModel, request: ModelRequest = REQUEST) -> Outcome:
    found = Outcome()
    try:
        async with model.stream(request) as stream:
            async for event in stream:
                found.events.append(event)
    except ModelError as error:
        found.error = error
    return found


def check_whole(events: Sequence[ModelEvent]) -> None:
    """All that `treadle.llm.model` promises of the order in a response that came to its end."""
    check_order(events)
    kinds = [type(event) for event in events]
    assert [kind for kind in kinds if kind in (Created, Completed)] == [kinds[0], kinds[-1]] == [Created, Completed]
    assert kinds.count(ItemStarted) == kinds.count(ItemDone)


def wire_bytes(frames: Sequence[bytes]) -> bytes:
    """A whole HTTP response, as it is on the wire."""
    return b"".join(chunked(frames).pieces)


def compressed(frames: Sequence[bytes]) -> Reply:
    """By a proxy that compresses whatever passes, asked or not."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n"
    body = gzip.compress(b"".join(frames))
    return Reply([head + b"Content-Length: %d\r\n\r\n" % len(body), body])


def refused(status: int, body: Json | str, headers: Mapping[str, str] | None = None) -> Reply:
    content = (body if isinstance(body, str) else json.dumps(body)).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return Reply(["\r\n".join(lines).encode() + b"\r\n\r\n" + content])
