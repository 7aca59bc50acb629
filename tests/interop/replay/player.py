"""`play`: the client side of a scenario against a live server.

Owns when a recorded client message is due (when the server has sent what preceded it), and what its ids and paths are
today. Does not judge what the server sent: `compare` does.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from interop.replay.model_script import ModelScript
from interop.replay.recording import Json, Line, received
from interop.replay.scenario import Places, Scenario
from interop.replay.wire import Executor, Wire, executor_of, stdio_server, websocket_server
from treadle.testing import MockModel

STEP_SECONDS: Final = 60.0
TAIL_SECONDS: Final = (
    10.0  # for what the recording has after its last milestone, and which a server may not send at all
)

# What a client may wait for. Everything else (usage, status, diffs, …) comes along on the way and is compared later.
_MILESTONES: Final = frozenset(
    {
        "turn/started",
        "turn/completed",
        "item/started",
        "item/completed",
        "thread/started",
        "thread/name/updated",
        "thread/goal/updated",
        "thread/archived",
        "thread/unarchived",
        "thread/deleted",
        "thread/reverted",
    }
)
_LEARNED_KEYS: Final = frozenset({"id", "turnId", "nextCursor", "backwardsCursor"})

Milestone: TypeAlias = tuple[str, ...]


@dataclass
class Played:
    """What happened, and the part of the recordings that it is to be compared with.

    `stalled` says what was waited for in vain; then nothing more was sent, and the recordings are cut there too.
    """

    lines: list[Line] = field(default_factory=list)
    recorded: list[Line] = field(default_factory=list)
    stalled: str | None = None
    model_requests: int = 0
    unused_replies: int = 0
    unscripted_requests: int = 0


async def play(scenario: Scenario, command: Sequence[str], base: Path, skipped: frozenset[str] = frozenset()) -> Played:
    """Play every session of a scenario. Requests in `skipped` are not sent, see `without`."""
    places = Places(base)
    script = ModelScript(scenario.replies, places, scenario.usage)
    played = Played()
    ids: dict[str, str] = {}
    variables = {"CODEX_EXEC_SERVER_URL": places.tokens["<executor>"]} if scenario.executor_variable else {}
    with MockModel(on_empty=script) as model, ExitStack() as stack:
        scenario.prepare(places, model.base_url)
        executor = stack.enter_context(executor_of(places)) if scenario.executor else None
        for number, (session, end) in enumerate(zip(scenario.sessions(), scenario.ends, strict=True)):
            player = _Player(scenario, without(session, skipped), places, model, script, ids, executor)
            opened = websocket_server if scenario.websocket else stdio_server
            async with opened(command, places, base / f"server-{number}.log", player.receive, variables) as wire:
                played.stalled = await player.run(wire)
                await wire.finish("kill" if played.stalled else end)
            played.lines += [_in_session(line, number) for line in player.live]
            played.recorded += [_in_session(line, number) for line in player.recorded[: player.reached]]
            if played.stalled:
                break
        played.model_requests = len(model.requests())
    played.unused_replies, played.unscripted_requests = script.unused, script.unscripted
    return played


def without(lines: Sequence[Line], requests: frozenset[str]) -> list[Line]:
    """A recording without some client messages (`method`, `method id`, or `result id` for an answer).

    With a request goes what came until the next client message; with an answer the question, and what told of it.
    """
    unasked = {
        line.message["id"] for line in lines if line.from_client and line.is_response and _name(line) in requests
    }
    dropped = _traces(lines, unasked)
    kept: list[Line] = []
    dropping = False
    for index, line in enumerate(lines):
        if line.from_client and not line.is_response:
            dropping = bool({line.method, _name(line)} & requests)
        if not dropping and index not in dropped:
            kept.append(line)
    return kept


def _traces(lines: Sequence[Line], unasked: set[int | str]) -> set[int]:
    """Where some questions of the server are: asked, answered, resolved, and the two changes of status for each."""
    statuses = [index for index, line in enumerate(lines) if line.method == "thread/status/changed"]
    found: set[int] = set()
    for index, line in enumerate(lines):
        if line.method == "serverRequest/resolved" and line.params["requestId"] in unasked:
            found |= {index, *[place for place in statuses if place > index][:1]}
        elif line.message.get("id") in unasked and line.is_request and not line.from_client:
            found |= {index, *[place for place in statuses if place < index][-1:]}
        elif line.message.get("id") in unasked and line.is_response and line.from_client:
            found.add(index)
    return found


def _in_session(line: Line, number: int) -> Line:
    """Connections of later servers get names of their own."""
    return Line(f"{line.conn}{number or ''}", line.from_client, line.message, line.raw, line.hang_up)


class _Player:
    """One session: one server process."""

    def __init__(
        self,
        scenario: Scenario,
        recorded: Sequence[Line],
        places: Places,
        model: MockModel,
        script: ModelScript,
        ids: dict[str, str],
        executor: Executor | None,
    ) -> None:
        self._executor = executor
        self.live: list[Line] = []
        self._scenario = scenario
        self.recorded = recorded
        self.reached = 0
        self._places = places
        self._model = model
        self._script = script
        self._ids = ids  # recorded to live
        self._request_ids: dict[tuple[str, int | str], int | str] = {}
        self._seen: Counter[Milestone] = Counter()
        self._closed: set[str] = set()
        self._hung_up: set[str] = set()
        self._left = False
        self._turns = 0
        self._changed = asyncio.Event()

    def receive(self, conn: str, text: str | None) -> None:
        if self._left or (text is None and conn in self._hung_up):
            return
        if text is None:
            self._closed.add(conn)
            self._changed.set()
            return
        line = received(conn, text)
        self.live.append(line)
        self._learn(line)
        milestone = _milestone(line)
        if milestone is not None:
            self._seen[milestone] += 1
        if line.is_response:
            self._script.release(str(line.message.get("id")))
        if line.method == "turn/completed":
            self._turns += 1
            self._script.release(f"turn {self._turns}")
        self._changed.set()

    async def run(self, wire: Wire) -> str | None:
        """Play to the end; returns what was missing when it could not go on."""
        for index, line in enumerate(self.recorded):
            if not line.from_client:
                continue
            self.reached = index
            missing = await self._reached(self.recorded[:index])
            if missing:
                return self._account(f"before sending {_name(line)}", missing, wire)
            await self._model.arrived(self._scenario.after_model_requests.get(str(line.message.get("id")), 0))
            if self._executor is not None and str(line.message.get("id")) in self._scenario.executor_restarts:
                self._executor.restart()
            await self._send(wire, line)
        self.reached = len(self.recorded)
        missing = await self._reached(self.recorded)
        if missing:
            return self._account("at the end", missing, wire)
        await self._take_tail()
        return None

    async def _take_tail(self) -> None:
        """The recorder left when it had seen enough; what a live server says after that has no counterpart."""
        server = [line for line in self.recorded if not (line.from_client or line.is_vendor)]
        last = max((index for index, line in enumerate(server) if _milestone(line)), default=-1)
        tail = {(line.conn, line.method) for line in server[last + 1 :]}
        wanted = _counted(server, tail)  # all of them: a server may have sent its own earlier
        while wanted - _counted(self.live, tail):
            if not await self._more(TAIL_SECONDS):
                break
        if not tail:
            marks = [index for index, line in enumerate(self.live) if last >= 0 and _same_kind(line, server[last])]
            del self.live[max(marks, default=len(self.live) - 1) + 1 :]
        self._left = True

    async def _send(self, wire: Wire, line: Line) -> None:
        if line.hang_up:
            self._hung_up.add(line.conn)
            await wire.hang_up(line.conn)
            self._script.release(f"hang up {line.conn}")
            return
        if line.raw is not None:
            self.live.append(line)
            await wire.send(line.conn, line.raw)
            return
        message = self._to_live(line.message)
        if line.is_response:
            message["id"] = self._request_ids.get((line.conn, message["id"]), message["id"])
        self.live.append(Line(line.conn, True, message))
        await wire.send(line.conn, json.dumps(message))

    # --- waiting ---

    def _due(self, before: Sequence[Line]) -> Counter[Milestone]:
        """The milestones in a part of the recording; of a turn that has completed there, only that it has."""
        completed = {line.params["turn"]["id"] for line in before if line.method == "turn/completed"}
        hung_up = {line.conn for line in before if line.hang_up}
        due: Counter[Milestone] = Counter()
        for line in before:
            milestone = None if line.from_client or line.conn in hung_up else _milestone(line)
            inner = line.params.get("turnId") in completed and not line.is_request
            if milestone is None or inner:
                continue
            key = tuple(self._ids.get(part, part) for part in milestone)
            due[key] = 1 if milestone[0] == "delta" else due[key] + 1
        return due

    async def _reached(self, before: Sequence[Line]) -> Counter[Milestone]:
        """Wait; returns what did not come in time."""
        deadline = asyncio.get_running_loop().time() + STEP_SECONDS
        while self._due(before) - self._seen and not self._closed:  # an answer may tell what a thread is called
            if not await self._more(deadline - asyncio.get_running_loop().time()):
                break
        return self._due(before) - self._seen

    async def _more(self, seconds: float) -> bool:
        """Wait until the server has sent anything."""
        self._changed.clear()
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _account(self, when: str, missing: Counter[Milestone], wire: Wire) -> str:
        wanted = ", ".join(" ".join(key) + (f" (x{count})" if count > 1 else "") for key, count in missing.items())
        why = "the server ended" if self._closed else f"waited {STEP_SECONDS:g} s"
        last = [_name(line) for line in self.live[-5:]]
        log = wire.log.read_text(errors="replace")[-1000:]
        return f"{when}: {why} for: {wanted}\nlast messages: {last}\nthe server said: {log}"

    # --- ids ---

    def _learn(self, live: Line) -> None:
        """Pair a live answer or request with the recorded one, and note how ids are called today."""
        if live.children:
            alike = [line for line in self.recorded if line.children and line.item["id"] == live.item["id"]]
            self._ids.update(zip(alike[0].children, live.children, strict=False) if alike else ())
            return
        if not (live.is_response or live.is_request):
            return
        nth = sum(_same_kind(line, live) for line in self.live) - 1
        alike = [line for line in self.recorded if _same_kind(line, live)]
        if nth >= len(alike):
            return
        recorded = alike[nth]
        if live.is_request:
            self._request_ids[live.conn, recorded.message["id"]] = live.message["id"]
        self._pair(recorded.message, live.message)

    def _pair(self, recorded: Any, live: Any) -> None:
        if isinstance(recorded, dict) and isinstance(live, dict):
            for key in recorded.keys() & live.keys():
                old, new = recorded[key], live[key]
                if key in _LEARNED_KEYS and isinstance(old, str) and isinstance(new, str):
                    self._ids.setdefault(old, new)
                self._pair(old, new)
        elif isinstance(recorded, list) and isinstance(live, list):
            for old, new in zip(recorded, live, strict=False):
                self._pair(old, new)

    def _to_live(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._ids.get(value) or self._places.live(value)
        if isinstance(value, list):
            return [self._to_live(part) for part in value]
        if isinstance(value, dict):
            return {self._places.live(key): self._to_live(part) for key, part in value.items()}
        return value


def _same_kind(one: Line, other: Line) -> bool:
    if one.from_client or one.conn != other.conn or one.is_response != other.is_response:
        return False
    if other.is_response:
        return bool(one.message.get("id") == other.message.get("id"))
    return one.is_request == other.is_request and one.method == other.method


def _counted(lines: Sequence[Line], kinds: set[tuple[str, str]]) -> Counter[tuple[str, str]]:
    found = ((line.conn, line.method) for line in lines if not line.from_client)
    return Counter(kind for kind in found if kind in kinds)


def _milestone(line: Line) -> Milestone | None:
    if line.is_response:
        return ("response", line.conn, str(line.message.get("id")))
    if line.is_request:
        return (line.method, line.conn, line.thread_id or "")
    if line.method in _MILESTONES:
        return (line.method, line.conn, line.thread_id or "", str(line.item.get("type", "")))
    if line.method == "item/agentMessage/delta":
        return ("delta", line.conn, str(line.params.get("itemId")))
    return None


def _name(line: Line) -> str:
    message: Json = line.message
    what = line.method or ("error" if "error" in message else "result")
    return f"{what} {message['id']}" if "id" in message else what
