from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from treadle.host import NextCheck, Timeouts, TurnWatch

LIMITS = Timeouts(idle=600.0, turn=3600.0, quiet=90.0)


def after_tool(now: float = 0.0, timeouts: Timeouts = LIMITS) -> TurnWatch:
    watch = TurnWatch(timeouts, 0.0)
    watch.item_closed("tool", now, tool=True)
    return watch


def test_without_a_tool_only_the_deadlines_count() -> None:
    watch = TurnWatch(LIMITS, 0.0)
    watch.item_closed("message", 10.0, tool=False)
    assert watch.next_check() == NextCheck(610.0, "idle")
    assert watch.due(609.9) is None
    assert watch.due(610.0) == "idle"


def test_silence_after_a_tool_is_looked_into_and_looked_into_again() -> None:
    watch = after_tool(10.0)
    assert watch.due(99.9) is None
    assert watch.due(100.0) == "quiet"
    watch.quiet_handled(105.0)
    assert watch.next_check() == NextCheck(195.0, "quiet")
    for at in (195.0, 285.0, 375.0, 465.0, 555.0):
        assert watch.due(at) == "quiet"
        watch.quiet_handled(at)
    assert watch.due(610.0) == "idle", "that it was looked into is no sign of life of the turn"


def test_any_sign_of_life_begins_the_silence_anew() -> None:
    watch = after_tool()
    for now in range(0, 3000, 80):
        assert watch.due(now) is None
        watch.activity(now)


def test_an_open_item_is_no_silence() -> None:
    watch = after_tool()
    watch.item_opened("long", 10.0)
    assert watch.due(500.0) is None
    assert watch.working
    assert watch.next_check() == NextCheck(610.0, "idle")
    watch.item_closed("long", 500.0, tool=True)
    assert watch.next_check() == NextCheck(590.0, "quiet")


def test_while_a_person_is_asked_everything_stands_still() -> None:
    watch = after_tool()
    watch.person_asked(50.0)
    watch.person_asked(60.0)
    assert watch.next_check() is None
    assert watch.due(1e9) is None
    watch.person_answered(5000.0)
    assert watch.due(1e9) is None
    watch.person_answered(6050.0)
    assert watch.next_check() == NextCheck(6140.0, "quiet")
    watch.item_opened("other", 6060.0)
    for now in range(6060, 9550, 500):
        watch.activity(now)
    watch.activity(9550.0)
    assert watch.next_check() == NextCheck(9600.0, "turn"), "50 s before the question and 3,550 s after it"


def test_without_limits_nothing_is_ever_due() -> None:
    watch = after_tool(timeouts=Timeouts(idle=None, turn=None, quiet=None))
    assert watch.next_check() is None
    assert after_tool(timeouts=Timeouts(idle=math.inf, turn=math.inf, quiet=math.inf)).next_check() is None


# --- whatever happens ------------------------------------------------------------------------------------------------

SPANS = st.none() | st.integers(0, 50).map(float)
HAPPENINGS = st.lists(
    st.tuples(
        st.sampled_from(["activity", "open", "close", "tool", "asked", "answered", "handled"]),
        st.sampled_from("abc"),
        st.integers(0, 40).map(float),
    ),
    max_size=40,
)


class Model:
    """What happened, remembered naively."""

    def __init__(self) -> None:
        self.now = 0.0
        self.alive = 0.0
        self.handled = 0.0
        self.open: set[str] = set()
        self.asked = 0
        self.tool = False
        self.standing = 0.0

    def happen(self, watch: TurnWatch, what: str, item: str, wait: float) -> None:
        if self.asked:
            self.standing += wait
        self.now += wait
        if what == "handled":
            self.handled = self.now
            watch.quiet_handled(self.now)
            return
        if what == "answered" and not self.asked:
            return
        self.alive = self.now
        if what == "open":
            self.open.add(item)
            watch.item_opened(item, self.now)
        elif what in ("close", "tool"):
            self.open.discard(item)
            self.tool = self.tool or what == "tool"
            watch.item_closed(item, self.now, tool=what == "tool")
        elif what == "asked":
            self.asked += 1
            watch.person_asked(self.now)
        elif what == "answered":
            self.asked -= 1
            watch.person_answered(self.now)
        else:
            watch.activity(self.now)


def played(limits: dict[str, Any], happenings: list[tuple[str, str, float]]) -> tuple[TurnWatch, Model]:
    watch, model = TurnWatch(Timeouts(**limits), 0.0), Model()
    for what, item, wait in happenings:
        model.happen(watch, what, item, wait)
    return watch, model


LIMITS_OF = st.fixed_dictionaries({"idle": SPANS, "turn": SPANS, "quiet": SPANS})


@given(LIMITS_OF, HAPPENINGS, st.integers(0, 200).map(float))
def test_what_is_due_is_what_was_told_to_be_looked_at(
    limits: dict[str, Any], happenings: list[tuple[str, str, float]], later: float
) -> None:
    watch, model = played(limits, happenings)
    look = watch.next_check()
    now = model.now + later
    assert watch.due(now) == (None if look is None or now < look.at else look.limit)


@given(LIMITS_OF, HAPPENINGS, st.integers(0, 200).map(float))
def test_each_limit_is_reached_when_it_should_be(
    limits: dict[str, Any], happenings: list[tuple[str, str, float]], later: float
) -> None:
    watch, model = played(limits, happenings)
    now = model.now + later
    spans = {name: math.inf if span is None else span for name, span in limits.items()}
    idle = not model.asked and now - model.alive >= spans["idle"]
    turn = not model.asked and now - model.standing >= spans["turn"]
    silent = now - max(model.alive, model.handled) >= spans["quiet"]
    quiet = not model.asked and not model.open and model.tool and silent
    due = watch.due(now)
    assert (due is not None) == (idle or turn or quiet)
    assert due is None or {"idle": idle, "turn": turn, "quiet": quiet}[due]
    assert watch.working == bool(model.open or model.asked)
