"""A thread as JSON is the protocol's own, and can be read back."""

from __future__ import annotations

import json

import msgspec

from thread_samples import hostile_thread, rich_thread, thread, turn, written
from treadle.pages import JsonPage
from treadle.protocol.app import Thread, decode


def test_it_is_the_thread_of_the_protocol() -> None:
    for whole in (rich_thread(), hostile_thread(), thread(), thread(turn(1), turn(2))):
        page = written(JsonPage(), whole)
        assert decode(page.encode(), Thread) == whole


def test_what_the_protocol_keeps_elsewhere_is_added() -> None:
    page = json.loads(written(JsonPage(), rich_thread()))
    assert page["usage"]["inputTokens"] == 54_000
    assert page["usage"]["costUsd"] == 0.0738
    first = page["turns"][0]
    assert [step["status"] for step in first["plan"]] == ["completed", "inProgress", "pending"]
    assert first["usage"] == {
        "inputTokens": 9000,
        "cachedInputTokens": 0,
        "outputTokens": 1900,
        "reasoningOutputTokens": 950,
        "totalTokens": 10900,
        "costUsd": 0.0123,
    }


class Item(msgspec.Struct):
    type: str


class Turn(msgspec.Struct):
    items: list[Item]


class Exported(msgspec.Struct):
    id: str
    turns: list[Turn]


def test_msgspec_alone_can_read_it() -> None:
    page = written(JsonPage(), rich_thread())
    read = msgspec.json.decode(page, type=Exported)
    assert [item.type for item in read.turns[1].items][:2] == ["userMessage", "webSearch"]
