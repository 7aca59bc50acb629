"""From model events to items, history and retries, with a model in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from treadle.agent import ModelCall, Sampling, Turn, sample, web_search_item
from treadle.llm import (
    MAX_ASKED_S,
    Completed,
    FunctionCallItem,
    ItemDone,
    ItemStarted,
    MessageItem,
    ModelError,
    ModelEvent,
    ModelRequest,
    OtherItem,
    ReasoningItem,
    ReasoningSummaryDelta,
    ReasoningSummaryPart,
    TextDelta,
    TokenUsage,
    WebSearchItem,
    failure,
    read_item,
)
from unit.agent.bare_thread import RETRIES, Ears, PlayedModel, bare_thread

pytestmark = pytest.mark.anyio

REQUEST = ModelRequest(model="m", input=[])
USAGE = TokenUsage(input_tokens=3, output_tokens=2, total_tokens=5)
END = Completed("r", USAGE)
CUT = ModelError("cut", retryable=True)


def _raw(**members: Any) -> Raw:
    return Raw(json.dumps(members).encode())


def _message(item_id: str, text: str) -> list[ModelEvent]:
    raw = _raw(type="message", id=item_id, content=[{"type": "output_text", "text": text}])
    begun = MessageItem(id=item_id, raw=raw, role="assistant", text="")
    deltas: list[ModelEvent] = [TextDelta(item_id, letter) for letter in text]
    done = MessageItem(id=item_id, raw=raw, role="assistant", text=text)
    return [ItemStarted(begun), *deltas, ItemDone(done)]


def _call(call_id: str) -> list[ModelEvent]:
    raw = _raw(type="function_call", call_id=call_id, name="x", arguments="{}")
    item = FunctionCallItem(id=f"f_{call_id}", raw=raw, call_id=call_id, name="x", namespace=None, arguments="{}")
    return [ItemStarted(item), ItemDone(item)]


async def _nothing(turn: Turn) -> None: ...


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure, "pause", lambda attempt, asked_s: 0.0)


class Bench:
    """A turn that was begun by hand, and a model with these responses."""

    def __init__(self, tmp_path: Path, *responses: list[ModelEvent | ModelError]) -> None:
        self.model = PlayedModel(*responses)
        self.calls: list[ModelCall] = []
        self._made = bare_thread(tmp_path, self.model)

    async def __aenter__(self) -> Bench:
        self.thread, self.ears = await self._made.__aenter__()
        await self.thread.load_history()
        self.turn = Turn(self.thread, _nothing)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._made.__aexit__(*error)

    async def sample(self, *, silent: bool = False) -> Sampling:
        async def request() -> ModelRequest:
            return REQUEST

        try:
            return await sample(self.turn, request, lambda: Sampling(self.turn, self.calls.append, silent=silent))
        finally:
            await self.thread.journal.flush()

    @property
    def history(self) -> list[Any]:
        assert self.thread.history is not None
        return [json.loads(bytes(item)) for item in self.thread.history.items]


def _told(ears: Ears) -> list[str]:
    return [event["method"] for event in ears.told]


async def test_a_message_is_an_item_with_deltas(tmp_path: Path) -> None:
    async with Bench(tmp_path, [*_message("m1", "ab"), END]) as bench:
        done = await bench.sample()
        assert done.usage == USAGE
        assert done.text == "ab"
        assert _told(bench.ears) == [
            "item/started",
            "item/agentMessage/delta",
            "item/agentMessage/delta",
            "item/completed",
        ]
        assert bench.ears.told[-1]["params"]["item"]["text"] == "ab"
        assert [item["id"] for item in bench.history] == ["m1"]


async def test_a_silent_one_shows_and_remembers_nothing(tmp_path: Path) -> None:
    async with Bench(tmp_path, [*_message("m1", "summary"), *_call("c1"), END]) as bench:
        assert (await bench.sample(silent=True)).text == "summary"
        assert bench.ears.told == []
        assert bench.history == []
        assert bench.calls == []


async def test_calls_are_handed_on_and_not_shown(tmp_path: Path) -> None:
    async with Bench(tmp_path, [*_call("c1"), *_call("c2"), END]) as bench:
        await bench.sample()
        assert [call.call_id for call in bench.calls] == ["c1", "c2"]
        assert bench.turn.calls == {"c1": "function_call", "c2": "function_call"}
        assert bench.ears.told == []
        assert len(bench.history) == 2


async def test_reasoning_has_parts(tmp_path: Path) -> None:
    raw = _raw(type="reasoning", id="r1")
    events: list[ModelEvent | ModelError] = [
        ItemStarted(ReasoningItem(id="r1", raw=raw)),
        ReasoningSummaryPart("r1", 0),
        ReasoningSummaryDelta("r1", 0, "a"),
        ReasoningSummaryPart("r1", 1),
        ReasoningSummaryDelta("r1", 1, "b"),
        ItemDone(ReasoningItem(id="r1", raw=raw, summary=("a", "b"))),
        END,
    ]
    async with Bench(tmp_path, events) as bench:
        await bench.sample()
        deltas = [event["params"] for event in bench.ears.told if event["method"] == "item/reasoning/summaryTextDelta"]
        assert [(delta["summaryIndex"], delta["delta"]) for delta in deltas] == [(0, "a"), (1, "b")]
        assert bench.ears.told[-1]["params"]["item"]["summary"] == ["a", "b"]


async def test_items_of_other_types_are_kept_for_the_model(tmp_path: Path) -> None:
    search = read_item(_raw(type="web_search_call", id="w1", action={"type": "search", "query": "treadles"}), "w1")
    strange = OtherItem(id="s1", type="strange", raw=_raw(type="strange", id="s1", x=1))
    events: list[ModelEvent | ModelError] = [
        ItemStarted(search),
        ItemDone(search),
        ItemStarted(strange),
        ItemDone(strange),
        END,
    ]
    async with Bench(tmp_path, events) as bench:
        await bench.sample()
        assert _told(bench.ears) == ["item/started", "item/completed"]
        assert bench.ears.told[-1]["params"]["item"]["query"] == "treadles"
        assert [item["id"] for item in bench.history] == ["w1", "s1"]


async def test_a_cut_gives_up_what_was_begun_and_tries_again(tmp_path: Path) -> None:
    first = [*_message("m1", "kept"), *_message("m2", "half")[:-1], CUT]
    async with Bench(tmp_path, first, [*_message("m3", "whole"), END]) as bench:
        assert (await bench.sample()).usage == USAGE
        assert [item["id"] for item in bench.history] == ["m1", "m3"]
        assert bench.turn.items.open() == []
        assert [record.id for record in await bench.thread.store.items(bench.thread.id)] == ["m1", "m3"]
        (notice,) = (event for event in bench.ears.told if event["method"] == "error")
        assert notice["params"]["error"]["message"] == f"Reconnecting... 1/{RETRIES}"


async def test_the_last_failure_is_raised(tmp_path: Path) -> None:
    async with Bench(tmp_path, [CUT], [CUT], [CUT]) as bench:
        with pytest.raises(ModelError, match="cut"):
            await bench.sample()
        assert len(bench.model.asked) == RETRIES + 1
        assert _told(bench.ears) == ["error"] * RETRIES


async def test_a_server_that_asks_for_too_long_a_wait_is_not_asked_again(tmp_path: Path) -> None:
    asks = ModelError("later", retryable=True, retry_after_s=MAX_ASKED_S + 1)
    async with Bench(tmp_path, [asks]) as bench:
        with pytest.raises(ModelError, match="later"):
            await bench.sample()
        assert len(bench.model.asked) == 1


async def test_what_makes_no_sense_again_is_not_tried_again(tmp_path: Path) -> None:
    async with Bench(tmp_path, [ModelError("no such model")]) as bench:
        with pytest.raises(ModelError, match="no such model"):
            await bench.sample()
        assert len(bench.model.asked) == 1
        assert bench.ears.told == []


async def test_a_server_that_is_not_there_from_the_start_is_not_asked_again(tmp_path: Path) -> None:
    async with Bench(tmp_path, [ModelError("gone", kind="absent", retryable=True)]) as bench:
        with pytest.raises(ModelError, match="gone"):
            await bench.sample()
        assert len(bench.model.asked) == 1
        assert bench.ears.told == []


async def test_a_server_that_was_there_a_moment_ago_is_asked_again(tmp_path: Path) -> None:
    cut, gone = ModelError("cut", kind="cut", retryable=True), ModelError("gone", kind="absent", retryable=True)
    async with Bench(tmp_path, [*_message("m1", "a")[:2], cut], [gone], [*_message("m2", "b"), END]) as bench:
        assert (await bench.sample()).text == "b"
        assert len(bench.model.asked) == 3


@pytest.mark.parametrize(
    ("action", "query"),
    [
        ({"type": "search", "queries": ["first", "second"]}, "first"),
        ({"type": "open_page", "url": "http://x"}, "http://x"),
        ({"type": "find_in_page", "url": "http://x", "pattern": "word"}, "'word' in http://x"),
        ({"type": "find_in_page", "pattern": "word"}, "'word'"),
        ({}, ""),
    ],
)
def test_what_was_searched_for(action: dict[str, Any], query: str) -> None:
    raw = _raw(type="web_search_call", id="w1", action=action)
    item = read_item(raw, "w1")
    assert isinstance(item, WebSearchItem)
    assert web_search_item(item).query == query
