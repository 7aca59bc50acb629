"""`Executors`: exec-servers that have dialed us, for machines that nobody can connect to.

An executor opens a WebSocket at `/executors`, with the token for executors, and says in the query who it is: a name,
labels, and an id of its process. Then it serves the exec-server's protocol there: whoever is given the channel here is
its client. A channel is for one client, so an executor keeps one connection open that nobody uses, and opens the next
as soon as that is taken.

    dialed ─▶ idle ──`channel`──▶ used ─▶ closed        at most `MAX_IDLE` for each executor; the oldest goes
               └─ it sends something, or is lost ─▶ closed

A name belongs to a process as long as it has a connection here. Who comes with the name of another one is refused, and
the connections of that one are probed, for it may be gone without a word.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator
from http import HTTPStatus
from typing import Final

from msgspec import Struct

from treadle.errors import ChannelClosed
from treadle.logs import audit
from treadle.logs.metrics import Gauge
from treadle.transport import Channel
from treadle.transport.websocket import HandshakeAnswer

logger: logging.Logger = logging.getLogger(__name__)

PATH: Final = "/executors"
MAX_EXECUTORS: Final = 256
MAX_IDLE: Final = 2  # one, and one more while the other may be dead
MAX_USED: Final = 64
MAX_LABELS: Final = 16
MAX_WAITING: Final = 256
# How long a client waits for a connection: the next one of an executor takes a round trip, after a loss some seconds.
CONNECT_S: Final = 10.0
# A connection whose name somebody else wants is dropped when it shows no sign of life for so long.
PROBE_S: Final = 2.0
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_INSTANCE: Final = re.compile(r"[0-9a-f]{32}")


class Introduction(Struct, frozen=True):
    """What an executor says of itself."""

    name: str
    labels: frozenset[str]
    instance: str

    @classmethod
    def parse(cls, query: str) -> Introduction:
        """Raises `ValueError` with a text for the executor."""
        from urllib.parse import parse_qsl  # with the first executor

        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, max_num_fields=MAX_LABELS + 2)
        values = {key: [value for name, value in pairs if name == key] for key, _ in pairs}
        names, instances = values.pop("name", []), values.pop("instance", [])
        labels = values.pop("label", [])
        if values or len(names) != 1 or len(instances) != 1 or not _INSTANCE.fullmatch(instances[0]):
            raise ValueError("the query has one `name`, one `instance` and several `label`")
        if not all(_WORD.fullmatch(word) for word in (*names, *labels)):
            raise ValueError("names and labels have letters, digits, `.`, `_` and `-`, at most 64")
        return cls(names[0], frozenset(labels), instances[0])


class Executor:
    """One that is there."""

    def __init__(self, said: Introduction) -> None:
        self.said = said
        self.idle: deque[Channel] = deque()
        self.used: set[Channel] = set()

    @property
    def name(self) -> str:
        return self.said.name

    def fits(self, wanted: str | Collection[str]) -> bool:
        return wanted == self.name if isinstance(wanted, str) else self.said.labels.issuperset(wanted)


class Executors:
    """The executors of a server. Without a `token` there are none: whoever comes is refused."""

    path: str = PATH

    def __init__(self, token: str | None) -> None:
        self.token = token
        self._executors: dict[str, Executor] = {}
        self._waiting: set[asyncio.Future[None]] = set()
        self._watches: set[asyncio.Task[None]] = set()

    # --- for those who need one ---

    async def channel(self, wanted: str | Collection[str], *, deadline_s: float = CONNECT_S) -> Channel:
        """A connection to the executor of this name, or, of those that have all of these labels, to the one with the
        fewest users. Raises `ChannelClosed` when there is none in time."""
        return await self._connect(lambda executor: executor.fits(wanted), _shown(wanted), deadline_s)

    def opener(self, wanted: str | Collection[str]) -> Callable[[], Awaitable[Channel]]:
        """What connects, again after a loss. It stays with the process that it got first, which has the session, until
        another one has its name."""
        chosen: list[str] = []

        async def connect() -> Channel:
            if not chosen:
                channel = await self.channel(wanted)
                chosen.append(channel.peer)
                return channel
            return await self._connect(lambda executor: _peer(executor) == chosen[0], chosen[0], CONNECT_S)

        return connect

    def there(self) -> list[Executor]:
        """Those that have a connection now."""
        return list(self._executors.values())

    def gauges(self) -> Iterator[Gauge]:
        """What is true now, for metrics."""
        used = sum(len(executor.used) for executor in self._executors.values())
        yield Gauge("treadle_executors", "Executors that have dialed this server.", len(self._executors))
        yield Gauge("treadle_executor_connections_used", "Connections of executors that somebody uses.", used)

    async def close(self) -> None:
        for executor in self.there():
            for channel in (*executor.idle, *executor.used):
                channel.close()
        for watch in self._watches:
            watch.cancel()
        if self._watches:
            await asyncio.wait(self._watches)

    async def _connect(self, fits: Callable[[Executor], bool], shown: str, deadline_s: float) -> Channel:
        if len(self._waiting) >= MAX_WAITING:
            raise ChannelClosed(f"{shown}: {MAX_WAITING} others wait for executors already")
        try:
            async with asyncio.timeout(deadline_s):
                while True:
                    free = [each for each in self._executors.values() if each.idle and fits(each)]
                    if free:
                        return self._take(min(free, key=lambda each: len(each.used)))
                    arrival = asyncio.get_running_loop().create_future()
                    self._waiting.add(arrival)
                    try:
                        await arrival
                    finally:
                        self._waiting.discard(arrival)
        except TimeoutError:
            known = ", ".join(sorted(self._executors)[:10]) or "none"
            text = f"{shown} is not there (connected: {known}): start `treadle exec-server --dial` on its machine"
            raise ChannelClosed(text) from None

    def _take(self, executor: Executor) -> Channel:
        channel = executor.idle.pop()  # the newest: it was alive a moment ago
        channel.detach()
        channel.peer = _peer(executor)
        executor.used.add(channel)
        watch = asyncio.get_running_loop().create_task(self._watch(executor, channel), name="executor")
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return channel

    async def _watch(self, executor: Executor, channel: Channel) -> None:
        await channel.wait_closed()
        executor.used.discard(channel)
        self._remove_if_gone(executor)

    # --- for the listener ---

    def refusal(self, query: str) -> HandshakeAnswer | None:
        """Why this executor is refused; None when it may come in."""
        try:
            said = Introduction.parse(query)
        except ValueError as error:
            return HandshakeAnswer(HTTPStatus.BAD_REQUEST, f"no executor: {error}")
        known = self._executors.get(said.name)
        if known is None:
            if len(self._executors) < MAX_EXECUTORS:
                return None
            return HandshakeAnswer(HTTPStatus.SERVICE_UNAVAILABLE, f"{MAX_EXECUTORS} executors are connected already")
        if known.said.instance != said.instance:
            for channel in (*known.idle, *known.used):
                channel.abort_unless_alive(PROBE_S)
            text = (
                f"an executor named {said.name} is connected already: choose another name, or try again if it has ended"
            )
            return HandshakeAnswer(HTTPStatus.CONFLICT, text)
        if len(known.used) >= MAX_USED:
            return HandshakeAnswer(HTTPStatus.SERVICE_UNAVAILABLE, f"{MAX_USED} connections of it are in use")
        return None

    def accept(self, channel: Channel, query: str) -> None:
        """Take a connection that was not refused."""
        said = Introduction.parse(query)
        executor = self._executors.get(said.name)
        if executor is None:
            fields = {"name": said.name, "labels": " ".join(sorted(said.labels)) or None, "peer": channel.peer}
            logger.info("an executor has come", fields)
            if audit.log is not None:
                try:
                    audit.log.record("executor", fields)
                except audit.AuditFailed as error:
                    logger.error("an executor was refused: %s", error)
                    channel.close()
                    return
            executor = self._executors[said.name] = Executor(said)
        executor.said = said
        while len(executor.idle) >= MAX_IDLE:
            executor.idle[0].abort()
        executor.idle.append(channel)
        channel.attach(_Idle(self, executor, channel))
        for arrival in self._waiting:
            if not arrival.done():
                arrival.set_result(None)

    def idle_lost(self, executor: Executor, channel: Channel) -> None:
        if channel in executor.idle:
            executor.idle.remove(channel)
        self._remove_if_gone(executor)

    def _remove_if_gone(self, executor: Executor) -> None:
        if not executor.idle and not executor.used and self._executors.get(executor.name) is executor:
            del self._executors[executor.name]
            logger.info("an executor has gone", {"name": executor.name})


class _Idle:
    """Receives from a connection that nobody uses yet: an executor that serves does not speak first."""

    def __init__(self, executors: Executors, executor: Executor, channel: Channel) -> None:
        self._executors = executors
        self._executor = executor
        self._channel = channel

    def frame_received(self, frame: bytes) -> None:
        logger.warning("an executor spoke first: disconnecting", {"name": self._executor.name})
        self._channel.abort()

    def channel_closed(self, reason: str) -> None:
        self._executors.idle_lost(self._executor, self._channel)

    def channel_writable(self) -> None:
        pass


def _peer(executor: Executor) -> str:
    return f"executor {executor.name}"


def _shown(wanted: str | Collection[str]) -> str:
    return (
        f"executor {wanted}" if isinstance(wanted, str) else f"an executor with the labels {', '.join(sorted(wanted))}"
    )
