"""`Gate`: which request may go to a provider now, and when the next may. Sans I/O: it takes the time.

It keeps to the settings always, and to what the server tells of its own limits where that is a matter of seconds. A
refusal (HTTP 429, or 503 and 529 with a time to wait) closes it for all; then it opens slowly. What is sent, and who
waits how, is not its matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from treadle.llm.limits.line import FairLine, Place
from treadle.llm.limits.rates import MINUTE_S, Bucket, Minute, Opening, Slot
from treadle.llm.limits.told import Told

# More do not wait: whoever makes so many requests at once should hear of it.
MAX_WAITING: Final = 4096
# A server whose limit is whole again later than this is asked all the same: then it says itself how long to wait, and
# whoever waits for the turn hears of it.
MAX_TOLD_S: Final = 120.0
# How much a new observation counts against those before.
_NEW: Final = 0.2


class Overcrowded(Exception):
    """`MAX_WAITING` requests wait already."""


class Limits(Struct, frozen=True):
    """What the settings allow. None is no limit."""

    at_a_time: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


class Hold(Struct, frozen=True):
    """Why the first in the line waits, and until when at the latest; None is until another one ends."""

    why: str
    until: float | None = None


class GateStats(Struct, frozen=True, kw_only=True):
    """`at_a_time` is how many may run now, None when that is not limited; `refusals` those since the last answer."""

    running: int
    waiting: int
    at_a_time: int | None
    refusals: int


class Gate:
    """`join`, or `pass_by` when it `is_open`; `advance` after every change. Each place must `leave` in the end."""

    def __init__(self, limits: Limits) -> None:
        self._at_a_time = limits.at_a_time
        self._requests = _minute(limits.requests_per_minute)
        self._tokens = _minute(limits.tokens_per_minute)
        self._limited = limits != Limits()
        self._told: dict[str, tuple[Told, Bucket]] = {}
        self._share = 1.0  # of the estimated tokens, those that servers count
        self._written = 1.0  # tokens of an answer, as they were lately
        self._line = FairLine()
        self._running: dict[Place, None] = {}  # in the order of leaving
        self._sent = 0
        self._opening: Opening | None = None
        self._closed_until = 0.0
        self._forget_at = 0.0  # when a refusal is not of interest any more
        self._sent_when_refused = 0
        self._refused_by = 429
        self.refusals: int = 0

    @property
    def is_open(self) -> bool:
        """Whether there is no limit at all, known or set."""
        return not (self._limited or self._told or self._opening is not None or self._line)

    def stats(self) -> GateStats:
        return GateStats(
            running=len(self._running), waiting=len(self._line), at_a_time=self._width(), refusals=self.refusals
        )

    # --- coming and going ---

    def pass_by(self, key: str, tokens: int, now: float) -> Place:
        place = Place(key, tokens)
        self._let_in(place, now)
        return place

    def join(self, key: str, tokens: int) -> Place:
        if len(self._line) >= MAX_WAITING:
            raise Overcrowded
        place = Place(key, tokens)
        self._line.add(place)
        return place

    def advance(self, now: float) -> list[Place]:
        """Those that may leave now, in order."""
        leaving: list[Place] = []
        while self._line and self.hold(now) is None:
            place = self._line.take()
            self._let_in(place, now)
            leaving.append(place)
        return leaving

    def leave(self, place: Place, now: float) -> None:
        """Its response is over, or it is given up, waiting or not. It may be called again."""
        if place.waits:
            self._line.remove(place)
        self._running.pop(place, None)
        if self._opening is not None and not self._running and not self._line and now > self._forget_at:
            self._opening = None

    def _let_in(self, place: Place, now: float) -> None:
        self._sent += 1
        place.sent = self._sent
        place.answered = False
        self._running[place] = None
        if self._requests is not None:
            self._requests.spend(1, now)
        if self._tokens is not None:
            place.slot = self._tokens.spend(place.tokens, now)
        for told, bucket in self._told.values():
            bucket.spend(self._cost(told, place), now)

    # --- who must wait ---

    def hold(self, now: float) -> Hold | None:
        """Why the first waits; None when it may leave, or there is none."""
        place = self._line.first()
        return None if place is None else self._hold(place, now)

    def _hold(self, place: Place, now: float) -> Hold | None:
        if now < self._closed_until:
            until, by = self._closed_until, f"HTTP {self._refused_by}"
            return Hold(f"the server has refused a request ({by}); free in {until - now:.1f} s", until)
        width = self._width()
        if width is not None and len(self._running) >= width:
            return self._too_many(width)
        return self._too_fast(place, now) or self._told_to_wait(place, now)

    def _width(self) -> int | None:
        if self._opening is None:
            return self._at_a_time
        return self._opening.width if self._at_a_time is None else min(self._opening.width, self._at_a_time)

    def _too_many(self, width: int) -> Hold:
        if width == self._at_a_time:
            return Hold(f"{len(self._running)} of its requests are running (max_concurrent_requests = {width})")
        more = f"the server has refused more (HTTP {self._refused_by})"
        return Hold(f"{len(self._running)} of its requests are running, and {more}")

    def _too_fast(self, place: Place, now: float) -> Hold | None:
        if self._requests is not None and (at := self._requests.free_at(1, now)) > now:
            return Hold(f"requests_per_minute = {self._requests.limit} is reached; free in {at - now:.1f} s", at)
        if self._tokens is not None and (at := self._tokens.free_at(place.tokens, now)) > now:
            return Hold(f"tokens_per_minute = {self._tokens.limit} is reached; free in {at - now:.1f} s", at)
        return None

    def _told_to_wait(self, place: Place, now: float) -> Hold | None:
        for told, bucket in self._told.values():
            at = bucket.free_at(self._cost(told, place), now)
            if now < at <= now + MAX_TOLD_S:
                return Hold(f"its limit of {told.unit} is used up, says the server; free in {at - now:.1f} s", at)
        return None

    def _cost(self, told: Told, place: Place) -> float:
        if told.unit == "tokens":
            return place.tokens * self._share
        return 1.0 if told.unit == "requests" else self._written

    # --- what came of it ---

    def accepted(self, place: Place, now: float) -> None:
        """The server answers."""
        place.answered = True
        self.refusals = 0
        if self._opening is not None:
            self._opening.accepted(len(self._running), now)

    def refused(self, place: Place, wait_s: float, now: float, status: int = 429) -> None:
        """The server has too much to do: nobody asks for `wait_s`. Those sent before it said so count as one."""
        self._refused_by = status
        self._running.pop(place, None)
        self._correct(place, 0, now)
        self._closed_until = max(self._closed_until, now + wait_s)
        self._forget_at = self._closed_until + MINUTE_S
        if place.sent <= self._sent_when_refused:
            return
        answered = sum(other.answered for other in self._running)
        self._opening = Opening(answered, len(self._running) + 1, now)
        self._sent_when_refused = self._sent
        self.refusals += 1

    def rejoin(self, place: Place) -> None:
        """One that was refused goes back to where it was in the line, or to its end if it never was in it."""
        if place.number:
            self._line.put_back(place)
        else:
            self._line.add(place)

    def tell(self, place: Place, told: Iterable[Told], now: float) -> None:
        """What the server says that is left, which does not know of what it has not seen."""
        unseen = [other for other in self._running if other.sent > place.sent and not other.answered]
        for one in told:
            bucket = Bucket(one.limit, one.left, one.whole_in_s, now)
            bucket.spend(sum(self._cost(one, other) for other in unseen), now)
            self._told[one.name] = one, bucket

    def used(self, place: Place, tokens: int, fresh: int, written: int, now: float) -> None:
        """What the response has cost: all tokens, those that came from no cache, and those that the model wrote."""
        self._correct(place, tokens, now)
        self._written = max(1.0, self._written + (written - self._written) * _NEW)
        if place.tokens:
            self._share += (min(2.0, fresh / place.tokens) - self._share) * _NEW

    def _correct(self, place: Place, tokens: int, now: float) -> None:
        slot, place.slot = place.slot, None
        if self._tokens is not None and isinstance(slot, Slot):
            self._tokens.correct(slot, place.tokens, tokens, now)


def _minute(limit: int | None) -> Minute | None:
    return None if limit is None else Minute(limit)
