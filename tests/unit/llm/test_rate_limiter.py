"""The limiter without a clock: never over the limits, everyone leaves in the end, and in a fair order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.llm import (
    MAX_REPORTED_WAIT_S,
    MINUTE_S,
    WIDEN_AFTER_S,
    FairQueue,
    QueueEntry,
    RateLimiter,
    RateLimits,
    ReportedLimit,
    TooManyWaiting,
)
from treadle.llm import rate_limiter as module

NONE = RateLimits()
KEYS = st.sampled_from("abcd")
limits = st.builds(
    RateLimits,
    st.none() | st.integers(1, 5),
    st.none() | st.integers(1, 8),
    st.none() | st.integers(1, 300),
)


class World:
    """A limiter with a clock of its own, and a record of who left when."""

    def __init__(self, given_limits: RateLimits = NONE, now: float = 1000.0) -> None:
        self.limiter = RateLimiter(given_limits)
        self.now = now
        self.running: list[QueueEntry] = []
        self.left: list[tuple[float, QueueEntry]] = []

    def join(self, key: str = "a", tokens: int = 1) -> QueueEntry:
        entry = self.limiter.join(key, tokens)
        self.advance()
        return entry

    def advance(self) -> list[QueueEntry]:
        leaving = self.limiter.advance(self.now)
        self.running += leaving
        self.left += [(self.now, entry) for entry in leaving]
        return leaving

    def later(self, seconds: float) -> list[QueueEntry]:
        self.now += seconds
        return self.advance()

    def end(self, entry: QueueEntry) -> list[QueueEntry]:
        self.running.remove(entry)
        self.limiter.leave(entry, self.now)
        return self.advance()

    def refuse(self, entry: QueueEntry, wait_s: float) -> None:
        self.running.remove(entry)
        self.limiter.refused(entry, wait_s, self.now)
        self.limiter.rejoin(entry)
        self.advance()

    def accept(self, *entries: QueueEntry) -> None:
        for entry in entries:
            self.limiter.accepted(entry, self.now)
            self.advance()

    def until_free(self) -> None:
        """Go to when the first may leave; it must be known, or somebody must run."""
        wait_reason = self.limiter.wait_reason(self.now)
        assert wait_reason is not None
        if wait_reason.until is None:
            assert self.running, "nobody could ever let the first one in"
            self.end(self.running[0])
        else:
            assert wait_reason.until > self.now
            self.later(wait_reason.until - self.now)


def keys_of(left: list[tuple[float, QueueEntry]]) -> str:
    return "".join(entry.key for _, entry in left)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("join"), KEYS, st.integers(0, 400)),
        st.tuples(st.just("end"), st.integers(0, 9), st.none()),
        st.tuples(st.just("later"), st.floats(0.001, 40), st.none()),
        st.tuples(st.just("give up"), st.integers(0, 9), st.none()),
        st.tuples(st.just("used"), st.integers(0, 9), st.integers(0, 600)),
        st.tuples(st.just("refuse"), st.integers(0, 9), st.floats(0, 30)),
        st.tuples(st.just("accept"), st.integers(0, 9), st.none()),
        st.tuples(st.just("update_limits"), st.integers(0, 9), st.integers(0, 20)),
    ),
    max_size=60,
)


def _do(world: World, waiting: list[QueueEntry], step: tuple[str, Any, Any]) -> None:
    what, first, second = step
    waiting[:] = [entry for entry in waiting if entry.waits]
    if what == "join":
        waiting.append(world.join(first, second))
    elif what == "later":
        world.later(first)
    elif what == "give up":
        if waiting:
            world.limiter.leave(waiting[first % len(waiting)], world.now)
            world.advance()
    elif world.running:
        entry = world.running[first % len(world.running)]
        match what:
            case "end":
                world.end(entry)
            case "used":
                world.limiter.used(entry, second, second, 1, world.now)
            case "refuse":
                world.refuse(entry, second)
                waiting.append(entry)
            case "accept":
                world.accept(entry)
            case "update_limits":
                world.limiter.update_limits(entry, [ReportedLimit("x", "requests", 20, second, 9.0)], world.now)
                world.advance()


def _check(world: World, given_limits: RateLimits) -> None:
    if given_limits.at_a_time is not None:
        assert len(world.running) <= given_limits.at_a_time
    if given_limits.requests_per_minute is not None:
        times = [at for at, _ in world.left]
        for at in times:
            assert sum(at <= other < at + MINUTE_S - 1e-6 for other in times) <= given_limits.requests_per_minute


@given(limits, steps)
def test_never_over_the_limits_and_all_leave(given_limits: RateLimits, script: list[tuple[str, Any, Any]]) -> None:
    world, waiting = World(given_limits), list[QueueEntry]()
    for step in script:
        _do(world, waiting, step)
        _check(world, given_limits)
    for _ in range(40 * len(script) + 1):
        if not world.limiter.stats().waiting:
            break
        world.until_free()
        _check(world, given_limits)
    assert world.limiter.stats().waiting == 0
    for entry in tuple(world.running):
        world.end(entry)
    assert (world.limiter.stats().running, world.limiter.stats().waiting) == (0, 0)


@given(st.integers(1, 300), st.lists(st.tuples(st.integers(0, 400), st.floats(0, 20)), max_size=40))
def test_tokens_of_any_minute_are_within_the_limit_but_for_one_that_is_more_alone(
    limit: int, asked: list[tuple[int, float]]
) -> None:
    world = World(RateLimits(tokens_per_minute=limit))
    for tokens, gap in asked:
        world.join(tokens=tokens)
        world.later(gap)
    while world.limiter.stats().waiting:
        world.until_free()
    for at, _ in world.left:
        within = [entry.tokens for other, entry in world.left if at <= other < at + MINUTE_S - 1e-6]
        costly = [tokens for tokens in within if tokens]
        assert sum(within) <= limit or len(costly) == 1


# --- the order -------------------------------------------------------------------------------------------------------


def test_threads_take_turns_however_many_requests_each_has() -> None:
    world = World(RateLimits(at_a_time=1))
    for key in "x" + "a" * 5 + "bcb":
        world.join(key)
    while world.running:
        world.end(world.running[0])
    assert keys_of(world.left) == "x" + "abc" + "ab" + "aaa"


def test_threads_that_ask_again_and_again_do_not_starve_one_with_many() -> None:
    world = World(RateLimits(at_a_time=1))
    for key in "ab" + "c" * 20:
        world.join(key)
    for _ in range(30):
        done = world.running[0]
        if done.key in "ab":
            world.limiter.join(done.key, 1)
        world.end(done)
    counted = Counter(keys_of(world.left[:30]))
    assert max(counted.values()) - min(counted.values()) <= 2


@given(st.lists(KEYS, min_size=1, max_size=40), st.lists(st.tuples(KEYS, st.booleans()), max_size=60))
def test_of_two_that_always_wait_neither_gets_ahead_by_more_than_two(
    first: list[str], more: list[tuple[str, bool]]
) -> None:
    line = FairQueue()
    for key in ["x", "y"] * 60 + first:
        line.add(QueueEntry(key, 0))
    served: Counter[str] = Counter()
    for key, comes in more:
        if comes:
            line.add(QueueEntry(key, 0))
        served[line.take().key] += 1
        assert abs(served["x"] - served["y"]) <= 2


def test_one_that_was_refused_is_before_those_that_came_later() -> None:
    world = World(RateLimits(at_a_time=1))
    first = world.join("a")
    for key in "abb":
        world.join(key)
    world.refuse(first, 5.0)
    assert world.running == []
    world.later(5.0)
    assert world.running == [first]


def test_one_that_gives_up_loses_its_thread_no_round() -> None:
    world = World(RateLimits(at_a_time=1))
    world.join("x")
    for _ in range(10):
        world.limiter.leave(world.join("a"), world.now)
    second, third = world.join("b"), world.join("a")
    world.join("b")
    while world.running:
        world.end(world.running[0])
    assert [entry for _, entry in world.left[1:3]] == [second, third]


def test_nothing_is_kept_of_those_that_are_gone() -> None:
    line = FairQueue()
    line.add(QueueEntry("first", 0))
    for number in range(3000):
        entry = QueueEntry(str(number), 0)
        line.add(entry)
        line.remove(entry)
    assert line.waiting == 1
    assert len(line._heap) + len(line._next_rounds) < 2000


def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    world = World(RateLimits(at_a_time=1))
    for _ in range(3):
        world.join()
    with pytest.raises(TooManyWaiting):
        world.join()


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_an_estimate_is_corrected_by_what_was_used() -> None:
    world = World(RateLimits(tokens_per_minute=100))
    first = world.join(tokens=90)
    second = world.join(tokens=50)
    assert second.waits
    world.limiter.used(first, 30, 30, 1, world.now)
    assert world.advance() == [second]
    third = world.join(tokens=20)
    assert world.running[-1] is third
    world.limiter.used(second, 80, 80, 1, world.now)
    assert world.join(tokens=0).waits


def test_what_was_used_after_its_minute_counts_for_the_next() -> None:
    world = World(RateLimits(tokens_per_minute=100))
    first = world.join(tokens=10)
    world.later(MINUTE_S + 1)
    world.limiter.used(first, 110, 110, 1, world.now)
    assert world.join(tokens=1).waits
    assert len(world.later(MINUTE_S)) == 1


def test_the_tokens_of_one_that_was_refused_were_not_used() -> None:
    world = World(RateLimits(tokens_per_minute=100))
    first = world.join(tokens=90)
    world.refuse(first, 1.0)
    assert world.later(1.0) == [first]


# --- refusals --------------------------------------------------------------------------------------------------------


def test_a_refusal_closes_the_gate_for_all_until_then() -> None:
    world = World()
    assert world.limiter.is_open
    entries = [world.limiter.enter_now(key, 1, world.now) for key in "abc"]
    world.running += entries
    world.refuse(entries[0], 7.0)
    assert not world.limiter.is_open
    late = world.join("d")
    wait_reason = world.limiter.wait_reason(world.now)
    assert wait_reason is not None
    assert wait_reason.until == world.now + 7.0
    assert world.later(6.9) == []
    world.end(entries[1])
    assert world.later(0.2) == []  # one runs, and was not answered
    assert world.end(entries[2]) == [entries[0]]
    world.accept(entries[0])
    assert late.waits


def test_what_was_sent_before_the_refusal_is_no_further_refusal() -> None:
    world = World()
    entries = [world.limiter.enter_now("a", 1, world.now) for _ in range(50)]
    world.running += entries
    world.accept(*entries[:5])
    for entry in entries[5:]:
        world.refuse(entry, 0.2)
    assert world.limiter.refusals == 1
    assert world.limiter.stats().at_a_time == 5
    assert world.later(0.3) == []
    assert world.end(entries[0]) == [entries[5]]


def test_it_opens_slowly_and_tries_more_now_and_then() -> None:
    world = World()
    entries = [world.limiter.enter_now(str(n), 1, world.now) for n in range(20)]
    world.running += entries
    for entry in entries:
        world.refuse(entry, 1.0)
    world.later(1.0)
    seen = [len(world.running)]
    for _ in range(4):
        world.accept(*tuple(world.running))
        seen.append(len(world.running))
    assert seen == [1, 2, 4, 8, 10]
    assert world.limiter.refusals == 0
    world.later(WIDEN_AFTER_S)
    world.accept(*world.running[:3])
    assert len(world.running) == 11


def test_refusals_in_a_row_are_counted_until_an_answer() -> None:
    world = World()
    entry = world.limiter.enter_now("a", 1, world.now)
    world.running.append(entry)
    for number in range(1, 4):
        world.refuse(entry, 1.0)
        assert world.limiter.refusals == number
        world.later(1.0)
    world.accept(entry)
    assert world.limiter.refusals == 0


def test_a_refusal_is_forgotten_when_all_is_quiet() -> None:
    world = World()
    entry = world.limiter.enter_now("a", 1, world.now)
    world.running.append(entry)
    world.refuse(entry, 100.0)
    world.later(100.0)
    world.accept(entry)
    world.now += MINUTE_S + 1
    world.end(entry)
    assert world.limiter.is_open


# --- what the server tells -------------------------------------------------------------------------------------------


def test_what_is_left_comes_back_evenly() -> None:
    world = World()
    first = world.limiter.enter_now("a", 1, world.now)
    world.limiter.update_limits(first, [ReportedLimit("r", "requests", 60, 2, 58.0)], world.now)
    assert [world.join().waits for _ in range(4)] == [False, False, True, True]
    assert len(world.later(1.01)) == 1
    assert len(world.later(1.01)) == 1


def test_requests_that_the_server_has_not_seen_are_taken_off() -> None:
    world = World()
    first, *_ = [world.limiter.enter_now("a", 1, world.now) for _ in range(4)]
    world.limiter.update_limits(first, [ReportedLimit("r", "requests", 60, 4, 60.0)], world.now)
    assert [world.join().waits for _ in range(2)] == [False, True]


def test_tokens_from_a_cache_are_not_what_servers_count() -> None:
    world = World()
    for _ in range(40):
        world.limiter.used(world.limiter.enter_now("a", 1000, world.now), 1000, 100, 1, world.now)
    first = world.limiter.enter_now("a", 1000, world.now)
    world.limiter.update_limits(first, [ReportedLimit("t", "tokens", 10_000, 250, 60.0)], world.now)
    assert [world.join(tokens=1000).waits for _ in range(3)] == [False, False, True]


def test_output_tokens_are_taken_to_be_as_many_as_lately() -> None:
    world = World()
    for _ in range(40):
        world.limiter.used(world.limiter.enter_now("a", 10_000, world.now), 10_000, 10_000, 100, world.now)
    first = world.limiter.enter_now("a", 10_000, world.now)
    world.limiter.update_limits(first, [ReportedLimit("o", "output tokens", 1000, 250, 75.0)], world.now)
    assert [world.join(tokens=10_000).waits for _ in range(3)] == [False, False, True]
    wait_reason = world.limiter.wait_reason(world.now)
    assert wait_reason is not None
    assert "output tokens" in wait_reason.why
    assert len(world.later(5.1)) == 1  # ten a second come back, and fifty were missing


def test_more_than_the_whole_limit_goes_when_it_is_whole() -> None:
    world = World()
    first = world.limiter.enter_now("a", 1, world.now)
    world.limiter.update_limits(first, [ReportedLimit("t", "tokens", 100, 50, 10.0)], world.now)
    large = world.join(tokens=5000)
    assert world.later(9.9) == []
    assert world.later(0.2) == [large]


def test_a_server_that_is_whole_only_tomorrow_is_asked() -> None:
    world = World()
    first = world.limiter.enter_now("a", 1, world.now)
    world.limiter.update_limits(first, [ReportedLimit("r", "requests", 10, 0, 100 * MAX_REPORTED_WAIT_S)], world.now)
    assert not world.join().waits
