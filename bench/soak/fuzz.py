"""`python -m bench fuzz`: mutated messages to an app-server. Does it crash, fall silent, or fail inside?

Only messages that could do no harm if they were taken as they are: nothing about files, commands or settings is among
them, the model of the server calls no tools, and the server has a fresh home and a read-only sandbox.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.servers import BenchError
from bench.soak.client import Refused, SoakClient
from bench.soak.model import running_model
from bench.soak.server import home_for, running

Json = dict[str, Any]

_BATCH: Final = 50
# Whatever else is sent, none of these words may be in it: they would make the server act on the machine.
_NEVER: Final = (
    "fs/",
    "command/",
    "shellCommand",
    "config/",
    "account/",
    "danger",
    "workspace",
    "soak:c",
    "soak:patch",
)
_JUNK: Final[tuple[Any, ...]] = (
    None,
    True,
    -1,
    2**63,
    2**80,
    1.5,
    "",
    "x" * 5_000,
    "\x00\x1b[31m",
    [],
    {},
    [[]],
    {"": 0},
)


def _templates(thread: str) -> list[Json]:
    place = {"threadId": thread}
    said = {"input": [{"type": "text", "text": "soak:plain"}]}
    methods: list[tuple[str, Mapping[str, Any]]] = [
        ("initialize", {"clientInfo": {"name": "f", "version": "1"}, "capabilities": {"experimentalApi": True}}),
        ("thread/start", {"model": "m", "ephemeral": True, "config": {"a": {"b": [1, 2]}}}),
        ("thread/resume", {**place, "excludeTurns": False}),
        ("thread/fork", {**place, "ephemeral": True}),
        ("thread/read", {**place, "includeTurns": True}),
        ("thread/list", {"limit": 5, "sortKey": "created_at", "searchTerm": "x", "cursor": None}),
        ("thread/loaded/list", {"limit": 3}),
        ("thread/turns/list", {**place, "limit": 3, "sortDirection": "asc"}),
        ("thread/items/list", {**place, "limit": 3}),
        ("thread/events/list", {**place, "afterSeq": 0, "limit": 10}),
        ("thread/messages/search", {"searchTerm": "soak", "limit": 3}),
        ("thread/name/set", {**place, "name": "n"}),
        ("thread/goal/get", place),
        ("thread/inject_items", {**place, "items": [{"type": "message", "role": "user", "content": []}]}),
        ("thread/settings/update", {**place, "effort": "low"}),
        ("turn/start", {**place, **said, "outputSchema": {"type": "object"}}),
        ("turn/steer", {**place, **said, "expectedTurnId": thread}),
        ("turn/interrupt", {**place, "turnId": thread}),
        ("model/list", {}),
    ]
    requests = [{"id": number, "method": method, "params": params} for number, (method, params) in enumerate(methods)]
    return [*requests, {"method": "initialized"}, {"id": 0, "result": {"decision": "accept"}}]


def mutated(message: Json, chance: random.Random) -> bytes:
    """Values, members and bytes changed; never into something that acts on the machine."""
    changed = json.loads(json.dumps(message))
    for _ in range(chance.randrange(1, 4)):
        _change(changed, chance)
    data = bytearray(json.dumps(changed).encode())
    for _ in range(chance.choice((0, 0, 0, 1, 3))):
        data[chance.randrange(len(data))] = chance.randrange(256)
    if chance.random() < 0.05:
        del data[chance.randrange(len(data)) :]
    text = bytes(data).decode("utf-8", "replace")
    return json.dumps(message).encode() if any(word in text for word in _NEVER) else text.encode()


def _change(value: Any, chance: random.Random) -> None:
    place = value
    while isinstance(place, dict | list) and place:
        key: Any = chance.choice(list(place)) if isinstance(place, dict) else chance.randrange(len(place))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or chance.random() < 0.2:
            break
        place = inner
    else:
        return
    if chance.random() < 0.3:
        del place[key]
    else:
        place[key] = copy.deepcopy(chance.choice(_JUNK))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench fuzz", description=__doc__)
    parser.add_argument("--messages", type=int, default=3_000, metavar="N", help="how many (default 3000)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    try:
        with running_model() as model_url, home_for(model_url) as home:
            config = home / "config.toml"
            config.write_text(config.read_text().replace("danger-full-access", "read-only"))
            with running(home) as (url, _):
                seen = asyncio.run(_fuzz(url, options.messages, random.Random(options.seed)))
            tracebacks = _log(home).count("Traceback")
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(
        f"{options.messages} messages: {seen['crashes']} crashes, {seen['internal']} internal errors, "
        f"{tracebacks} tracebacks in the log; {seen['cut']} connections were ended by the server"
    )
    return 0


def _log(home: Path) -> str:
    return (home.parent / "stderr").read_text(errors="replace")


async def _fuzz(url: str, messages: int, chance: random.Random) -> Counter[str]:
    watcher = SoakClient(url)
    await watcher.open()
    thread = (await watcher.start_thread()).thread
    templates = _templates(thread)
    seen: Counter[str] = Counter()
    for _ in range(0, messages, _BATCH):
        client = _Listener(url, seen)
        await client.open()
        for _ in range(_BATCH):
            client.fire(mutated(chance.choice(templates), chance))
        # Everything before it was read when this is answered; a connection that was ended is answered by that.
        with suppress(BenchError, Refused):
            await client.call("model/list", {})
        seen["cut"] += client.failure is not None
        await client.close()
        try:  # who is not to blame must not notice
            await watcher.call("thread/read", {"threadId": thread})
        except BenchError:
            seen["crashes"] += 1
            break
    await watcher.close()
    return seen


class _Listener(SoakClient):
    """Counts the answers that tell of a failure inside."""

    def __init__(self, url: str, seen: Counter[str]) -> None:
        super().__init__(url)
        self._seen = seen

    def frame_received(self, frame: bytes) -> None:
        self._seen["internal"] += b"internal error" in frame
        with suppress(msgspec.DecodeError):  # an answer to an id that is no number
            super().frame_received(frame)
