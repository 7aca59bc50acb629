"""`Admission`: the gate of one provider, with a clock and tasks that wait at it.

Who waits is owned by the task that asks: it waits as long as it takes, and leaves the line when it is cancelled. No
time-out of a connection runs meanwhile, because there is none yet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from treadle.llm.limits.gate import MAX_WAITING, Gate, GateStats, Limits, Overcrowded
from treadle.llm.limits.line import Place
from treadle.llm.limits.told import read_limits
from treadle.llm.model import ModelError, TokenUsage, Waiting

OnWait: TypeAlias = Callable[[Waiting], None]

# A wait that nobody feels is not worth a word.
TELL_AFTER_S: Final = 0.5
_BYTES_PER_TOKEN: Final = 4


class Asker:
    """One request: whose it is, who is told when it waits (once), and where it stands."""

    __slots__ = ("key", "on_wait", "place")

    def __init__(self, key: str, on_wait: OnWait | None) -> None:
        self.key: str = key
        self.on_wait: OnWait | None = on_wait
        self.place: Place | None = None  # of a request that was refused


class Admission:
    """`enter`, then `accepted` or `refused`, then `leave`. After `close` nobody waits."""

    def __init__(self, provider: str, limits: Limits) -> None:
        self._provider = provider
        self._gate = Gate(limits)
        self._futures: dict[Place, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def stats(self) -> GateStats:
        return self._gate.stats()

    @property
    def refusals(self) -> int:
        """In a row, of all requests: none was answered meanwhile."""
        return self._gate.refusals

    async def enter(self, asker: Asker, size: int) -> Place:
        """Wait until a request of `size` bytes may be sent. Raises `ModelError` when too many wait."""
        if asker.place is None and self._gate.is_open:
            return self._gate.pass_by(asker.key, size // _BYTES_PER_TOKEN, _now())
        place = self._join(asker, size)
        try:
            await self._wait(asker, place)
        except BaseException:
            self.leave(place)
            raise
        finally:
            self._futures.pop(place, None)
        return place

    def accepted(self, place: Place, headers: Mapping[str, str]) -> None:
        now = _now()
        told = read_limits(headers, time.time())
        self._gate.accepted(place, now)
        if told:
            self._gate.tell(place, told, now)
        self._advance()

    def refused(self, asker: Asker, place: Place, headers: Mapping[str, str], wait_s: float, status: int) -> None:
        """By HTTP `status`: for `wait_s` nobody asks. `asker` may enter again, and is then where it was."""
        now = _now()
        self._gate.refused(place, wait_s, now, status)
        self._gate.tell(place, read_limits(headers, time.time()), now)
        asker.place = place
        self._advance()

    def used(self, place: Place, usage: TokenUsage) -> None:
        """What a response has cost."""
        fresh = usage.input_tokens - usage.cached_input_tokens + usage.output_tokens
        self._gate.used(place, usage.total_tokens, max(0, fresh), usage.output_tokens, _now())

    def leave(self, place: Place) -> None:
        """It is over, however it ended. It may be called again."""
        self._gate.leave(place, _now())
        self._advance()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for future in self._futures.values():
            if not future.done():
                future.set_exception(_closed())

    def _join(self, asker: Asker, size: int) -> Place:
        if self._closed:
            raise _closed()
        if asker.place is not None:
            place, asker.place = asker.place, None
            self._gate.rejoin(place)
            return place
        try:
            return self._gate.join(asker.key, size // _BYTES_PER_TOKEN)
        except Overcrowded:
            raise ModelError(
                f"{MAX_WAITING} requests wait for provider `{self._provider}` already; start fewer turns at a time",
                kind="overloaded",
            ) from None

    async def _wait(self, asker: Asker, place: Place) -> None:
        future = self._futures[place] = asyncio.get_running_loop().create_future()
        self._advance()
        if future.done():
            return
        if asker.on_wait is not None:
            await asyncio.wait([future], timeout=TELL_AFTER_S)
            if not future.done():
                self._tell(asker.on_wait)
                asker.on_wait = None
        await future

    def _tell(self, on_wait: OnWait) -> None:
        hold = self._gate.hold(_now())
        waiting = self._gate.stats().waiting
        on_wait(Waiting(self._provider, "the requests before it" if hold is None else hold.why, waiting))

    def _advance(self) -> None:
        """Let in who may, and look again when the next may."""
        if not self._futures and self._timer is None:
            return
        gate, now = self._gate, _now()
        for place in gate.advance(now):
            future = self._futures.get(place)
            if future is not None and not future.done():
                future.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        hold = gate.hold(now)
        if hold is not None and hold.until is not None and not self._closed:
            self._timer = asyncio.get_running_loop().call_at(hold.until, self._advance)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _closed() -> ModelError:
    return ModelError("the client is closed; make a new one")
