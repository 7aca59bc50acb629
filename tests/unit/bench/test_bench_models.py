"""The benchmark of model clients in small, on our side alone; and that what goes wrong does not look like a result."""

from __future__ import annotations

import pytest
from bench.models import wire
from bench.models.__main__ import ROWS, Scale, beside, lines, take
from bench.models.player import measure
from bench.report import OURS, Samples

from contract.wire_plays import heard
from treadle.http import SseParser
from treadle.llm import ModelEvent, ModelRequest, find_wire_api

TINY = Scale(rounds=1, runs=1, short=2, long=20)


def test_every_api_gives_all_its_rows_for_ours() -> None:
    shown = lines(take({}, 1, TINY))
    assert [(line.measure, line.row.key) for line in shown] == [(api, row.key) for api in wire.PATHS for row in ROWS]
    assert all(line.real is None and not line.ratios for line in shown)


@pytest.mark.parametrize("api", wire.PATHS)
def test_the_bytes_say_what_they_are_said_to(api: str) -> None:
    translator = find_wire_api(api).translator(ModelRequest(model="m", input=[]))
    events: list[ModelEvent] = []
    for event in SseParser().receive(b"".join(wire.FRAMES[api](12))):
        if not translator.completed:
            events += translator.receive(event)
    if not translator.completed:
        events += translator.end()
    assert heard(events).text == wire.text(12)


@pytest.mark.anyio
async def test_another_text_is_no_result() -> None:
    async def ask(url: str) -> str:
        return "something else"

    with pytest.raises(SystemExit, match="the text is another one"):
        await measure(ask, "http://127.0.0.1:1", 1, 2, 1)


def test_our_apis_are_compared_with_our_responses() -> None:
    samples = Samples()
    for api, value in (("responses", 2.0), ("chat", 2.5), ("anthropic", 4.0)):
        for row in ROWS:
            samples.values[api, row.key, OURS] = [value]
    told = beside(samples)
    assert "| Chat Completions: CPU time of a delta | 1.25 | ≤ 1.5 | reached |" in told
    assert "| Anthropic Messages: CPU time of a delta | 2.00 | ≤ 1.5 | missed |" in told
