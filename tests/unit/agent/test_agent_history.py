from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from treadle.agent import ABORTED, History, repaired, with_origin
from treadle.store import HistoryRecord

KINDS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}

entries = st.lists(
    st.one_of(
        st.builds(lambda: {"type": "message", "role": "user", "content": "x"}),
        st.builds(
            lambda kind, call_id: {"type": kind, "call_id": call_id},
            st.sampled_from(sorted(KINDS)),
            st.sampled_from("abcdef"),
        ),
        st.builds(
            lambda kind, call_id: {"type": kind, "call_id": call_id, "output": "o"},
            st.sampled_from(sorted(KINDS.values())),
            st.sampled_from("abcdef"),
        ),
    ),
    max_size=12,
    unique_by=lambda entry: (entry["type"], entry.get("call_id"), id(entry) if entry["type"] == "message" else 0),
)


def _raw(entry: Any) -> Raw:
    return Raw(json.dumps(entry).encode())


def _plain(items: list[Raw]) -> list[Any]:
    return [json.loads(bytes(item)) for item in items]


@given(entries)
def test_every_call_has_an_output_and_every_output_a_call(given_entries: list[Any]) -> None:
    result = _plain(repaired([_raw(entry) for entry in given_entries]))
    calls = {entry["call_id"] for entry in result if entry["type"] in KINDS}
    outputs = {entry["call_id"] for entry in result if entry["type"] in KINDS.values()}
    assert calls == outputs
    assert [entry for entry in result if entry["type"] == "message"] == [
        entry for entry in given_entries if entry["type"] == "message"
    ]
    assert [entry for entry in result if entry["type"] in KINDS] == [
        entry for entry in given_entries if entry["type"] in KINDS
    ]


@given(entries)
def test_repairing_twice_changes_nothing_more(given_entries: list[Any]) -> None:
    once = repaired([_raw(entry) for entry in given_entries])
    assert _plain(repaired(once)) == _plain(once)


def test_a_missing_output_stands_behind_its_call() -> None:
    items = [{"type": "custom_tool_call", "call_id": "a"}, {"type": "message"}]
    result = _plain(repaired([_raw(item) for item in items]))
    assert result == [items[0], {"type": "custom_tool_call_output", "call_id": "a", "output": ABORTED}, items[1]]


def test_a_search_for_tools_that_was_cut_short_has_found_none_there_and_is_nothing_elsewhere() -> None:
    search = {"type": "tool_search_call", "call_id": "a", "execution": "client"}
    history = History(_kept((_raw(search), HERE)))
    found = {"type": "tool_search_output", "call_id": "a", "status": "completed", "execution": "client", "tools": []}
    assert _plain(list(history.items_for(HERE))) == [search, found]
    assert history.items_for(THERE) == []


def test_what_cannot_be_read_stays() -> None:
    odd = [
        Raw(b'{"type": 7}'),
        Raw(b'"text"'),
        _raw({"type": "function_call_output", "name": "program", "output": "x"}),
    ]
    assert [bytes(item) for item in repaired(odd)] == [bytes(item) for item in odd]


def test_tokens_are_estimated_from_the_bytes() -> None:
    history = History([HistoryRecord("t", 1, 1, b'{"type":"message"}')])
    assert history.tokens == 18 // 4
    history.add(Raw(b"x" * 400))
    assert history.tokens == 418 // 4
    assert len(history) == 2
    history.replace([Raw(b"x" * 40)])
    assert history.tokens == 10


# --- thoughts ---------------------------------------------------------------------------------------------------------

HERE, THERE = "responses a https://a/v1", "responses b https://b/v1"


def _thought(sealed: str) -> Raw:
    return _raw({"type": "reasoning", "summary": [], "encrypted_content": sealed})


def _kept(*items: tuple[Raw, str | None]) -> list[HistoryRecord]:
    return [HistoryRecord("t", n, 1, with_origin(item, origin)) for n, (item, origin) in enumerate(items)]


def test_a_thought_goes_back_only_to_who_had_it() -> None:
    said = _raw({"type": "message", "role": "user", "content": "x"})
    items = [(said, None), (_thought("mine"), HERE), (_thought("theirs"), THERE), (said, None)]
    added = History()
    for item, origin in items:
        added.add(item, origin)
    for history in (added, History(_kept(*items))):
        assert [bytes(item) for item in history.items_for(HERE)] == [bytes(items[n][0]) for n in (0, 1, 3)]
        assert [bytes(item) for item in history.items_for(THERE)] == [bytes(items[n][0]) for n in (0, 2, 3)]
        assert [bytes(item) for item in history.items_for("anthropic c https://c/v1")] == [bytes(said)] * 2


def test_the_origin_is_kept_and_never_seen() -> None:
    (record,) = _kept((_thought("mine"), HERE))
    assert json.loads(record.data)["treadle_origin"] == HERE
    assert b"treadle_origin" not in bytes(History([record]).items[0])


def test_the_places_of_thoughts_are_those_after_the_repair() -> None:
    call = _raw({"type": "function_call", "call_id": "c"})
    history = History(_kept((call, None), (_thought("mine"), HERE)))
    assert [json.loads(bytes(item))["type"] for item in history.items_for(THERE)] == [
        "function_call",
        "function_call_output",
    ]


def test_a_new_beginning_has_no_thoughts() -> None:
    history = History(_kept((_thought("mine"), HERE)))
    summary = _raw({"type": "message", "role": "assistant", "content": "so far"})
    history.replace([summary])
    assert list(history.items_for(THERE)) == [summary]


@pytest.mark.parametrize("origin", ['5,"a":1}', '"x" ,"a":1}', '"x"}', "[}"])
def test_what_only_looks_like_an_origin_is_left_alone(origin: str) -> None:
    item = Raw(b'{"treadle_origin":' + origin.encode())
    history = History([HistoryRecord("t", 1, 1, bytes(item))])
    assert [bytes(kept) for kept in history.items_for(HERE)] == [bytes(item)]
