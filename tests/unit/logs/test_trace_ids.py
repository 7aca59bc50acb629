"""The id that ties the lines of one request together, as W3C Trace Context has it."""

from __future__ import annotations

import pytest

from treadle.logs import IDS, outgoing, outside, trace_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.mark.parametrize("traceparent", [PARENT, f"cc-{TRACE}-00f067aa0ba902b7-09-more"])
def test_a_request_stays_in_its_trace(traceparent: str) -> None:
    assert trace_of(traceparent) == TRACE


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        TRACE,
        PARENT.upper(),
        PARENT + " ",
        f"ff-{TRACE}-00f067aa0ba902b7-01",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{TRACE}-{'0' * 16}-01",
        PARENT + "-" + "x" * 1000,
        PARENT + "-\n",
    ],
)
def test_what_is_no_trace_begins_a_new_one(traceparent: str) -> None:
    made = trace_of(traceparent)
    assert len(made) == 32
    assert made != TRACE
    assert int(made, 16)


def test_others_are_told_the_trace() -> None:
    assert outgoing() == ""
    before = IDS.set({"trace": TRACE})
    try:
        assert trace_of(outgoing()) == TRACE
        assert outgoing() != outgoing()  # each request is a span of its own
        assert outside().run(outgoing) == ""
    finally:
        IDS.reset(before)
