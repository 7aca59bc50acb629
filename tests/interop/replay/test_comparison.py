"""The instruments of the replay: masks, alignment, the list of differences. Needs no server: runs with every test."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from interop.replay.compare import Finding, compare
from interop.replay.differences import Difference, Differences
from interop.replay.mask import events_of
from interop.replay.model_script import ModelScript
from interop.replay.player import without
from interop.replay.recording import RECORDINGS, Json, Line, load
from interop.replay.scenario import Places, load_scenarios
from treadle.testing import RecordedRequest

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TEXT_TURN = load("02_text_turn")


def findings(live: list[Line], recorded: list[Line] = TEXT_TURN) -> list[Finding]:
    return compare(events_of(recorded, None), events_of(live, None))


def another_day(lines: list[Line]) -> list[Line]:
    """The same traffic with other ids and other times."""
    ids: dict[str, str] = {}

    def renamed(found: re.Match[str]) -> str:
        return ids.setdefault(found[0], str(uuid.uuid5(uuid.NAMESPACE_URL, found[0])))

    def moved(line: Line) -> Line:
        text = UUID.sub(renamed, json.dumps(line.message))
        return replace(line, message=json.loads(re.sub(r"17947\d{5}(\d{3})?\b", r"18\g<0>", text)))

    return [moved(line) for line in lines]


def changed(lines: list[Line], method: str, **params: object) -> list[Line]:
    """The same traffic with other members in the first message of a method."""
    index = place(lines, method)
    message: Json = {**lines[index].message, "params": {**lines[index].params, **params}}
    return [*lines[:index], replace(lines[index], message=message), *lines[index + 1 :]]


def place(lines: list[Line], method: str) -> int:
    return next(index for index, line in enumerate(lines) if line.method == method)


@pytest.mark.parametrize("name", sorted(path.stem for path in RECORDINGS.glob("*.jsonl")))
def test_ids_and_times_make_no_difference(name: str) -> None:
    recorded = load(name)
    assert findings(another_day(recorded), recorded) == []


def test_a_message_that_is_missing_is_found() -> None:
    index = place(TEXT_TURN, "turn/started")
    found = findings([*TEXT_TURN[:index], *TEXT_TURN[index + 1 :]])
    assert [(one.method, one.kind, one.path) for one in found] == [("turn/started", "missing", "")]


def test_a_message_too_many_is_found() -> None:
    extra = Line("", False, {"method": "thread/closed", "params": {"threadId": TEXT_TURN[6].params["threadId"]}})
    assert [(one.method, one.kind) for one in findings([*TEXT_TURN, extra])] == [("thread/closed", "extra")]


def test_the_wrong_order_is_found() -> None:
    index = place(TEXT_TURN, "turn/started")
    before, after = TEXT_TURN[index - 1], TEXT_TURN[index]
    found = findings([*TEXT_TURN[: index - 1], after, before, *TEXT_TURN[index + 1 :]])
    assert [one.kind for one in found] == ["moved"]


def test_members_are_compared_both_ways() -> None:
    live = changed(TEXT_TURN, "item/completed", turnId=None, news=1)
    kinds = {(one.kind, one.path) for one in findings(live)}
    assert kinds == {("changed", "params.turnId"), ("extra", "params.news")}


def test_null_and_a_time_are_not_the_same() -> None:
    found = findings(changed(TEXT_TURN, "item/completed", completedAtMs=None))
    assert [(one.path, one.recorded, one.live) for one in found] == [("params.completedAtMs", "<time>", None)]


def test_a_wrong_id_of_a_turn_is_found() -> None:
    other = str(uuid.uuid4())
    assert "params.turnId" in [
        one.path for one in findings(changed(TEXT_TURN, "item/agentMessage/delta", turnId=other))
    ]


def test_how_a_text_is_cut_into_deltas_makes_no_difference_but_the_text_does() -> None:
    index = place(TEXT_TURN, "item/agentMessage/delta")
    first, second = TEXT_TURN[index : index + 2]
    whole = first.params["delta"] + second.params["delta"]
    joined = [*TEXT_TURN[: index + 1], *TEXT_TURN[index + 2 :]]
    assert findings(changed(joined, "item/agentMessage/delta", delta=whole)) == []
    assert [one.path for one in findings(joined)] == ["params.delta"]


def test_settings_may_come_before_or_after_the_answer() -> None:
    recorded = load("05_exec_approval")
    index = place(recorded, "thread/settings/updated")
    swapped = [*recorded[:index], recorded[index + 1], recorded[index], *recorded[index + 2 :]]
    assert findings(swapped, recorded) == []


def test_streamed_output_may_be_missing_but_not_wrong() -> None:
    recorded = load("04_exec_no_approval")
    method = "item/commandExecution/outputDelta"
    assert findings([line for line in recorded if line.method != method], recorded) == []
    assert [one.method for one in findings(changed(recorded, method, delta="nonsense"), recorded)] == [method]


def test_a_request_out_of_scope_takes_its_consequences_along() -> None:
    recorded = load("17_misc")
    kept = without(recorded, frozenset({"review/start"}))
    assert not [line for line in kept if line.item.get("type") == "enteredReviewMode"]
    assert [line.method for line in kept if line.from_client][-1] == "fuzzyFileSearch"


def test_an_answer_out_of_scope_takes_its_question_along() -> None:
    recorded = load("06_apply_patch")
    kept = without(recorded, frozenset({"result 0"}))
    methods = [line.method for line in recorded if line not in kept]
    asked = ["thread/status/changed", "item/fileChange/requestApproval", ""]
    assert methods == [*asked, "serverRequest/resolved", "thread/status/changed"]


def test_members_of_a_list_are_compared_with_their_namesakes() -> None:
    def answer(*names: str) -> list[Line]:
        question = Line("", True, {"id": 1, "method": "thread/list"})
        data = [{"id": name, "preview": name} for name in names]
        return [question, Line("", False, {"id": 1, "result": {"data": data}})]

    def found(recorded: list[Line], live: list[Line]) -> list[tuple[str, str]]:
        return [(one.kind, one.path) for one in findings(live, recorded)]

    assert found(answer("a", "b"), answer("b")) == [("missing", "result.data.0")]
    assert found(answer("b"), answer("a", "b")) == [("extra", "result.data.0")]
    assert found(answer("a", "b"), answer("b", "a")) == [("moved", "result.data")]
    assert found(answer("a"), answer()) == [("changed", "result.data")]


def test_an_entry_with_a_number_explains_exactly_so_many() -> None:
    entry = Difference("m", ["02_text_turn"], ["item/*"], [""], "w", "r", kind=["missing"], times=2)
    live = [line for line in TEXT_TURN if line.item.get("type") != "reasoning"]
    found = [one for one in findings(live) if one.method in ("item/started", "item/completed")]
    assert len(found) == 2
    known = Differences([entry], [])
    assert known.unexplained("02_text_turn", found) == []
    assert known.unexplained("02_text_turn", [*found, found[0]]) == [found[0]]
    assert known.stale("02_text_turn", found) == []
    assert known.stale("02_text_turn", found[:1]) == ["m"]
    assert Differences([replace(entry, sometimes=True)], []).stale("02_text_turn", []) == []


def test_an_entry_explains_only_what_it_names() -> None:
    entry = Difference(
        "news", ["02_*"], ["item/*"], ["params.news"], "w", "r", kind=["extra"], seen_in=["02_text_turn"]
    )
    known = Differences([entry], [])
    found = findings(changed(TEXT_TURN, "item/completed", turnId=None, news=1))
    assert [one.path for one in known.unexplained("02_text_turn", found)] == ["params.turnId"]
    assert len(known.unexplained("03_interleave", found)) == 2
    assert known.stale("02_text_turn", found) == []
    assert known.stale("02_text_turn", []) == ["news"]
    assert known.stale("03_interleave", []) == []


def test_places_are_named_alike_in_both_directions(tmp_path: Path) -> None:
    places = Places(tmp_path)
    text = "<home>/config.toml <workspace>/a.txt <outside>/b.txt"
    assert places.recorded(places.live(text)) == text


@pytest.mark.parametrize("name", load_scenarios())
def test_every_script_of_the_model_can_be_played(name: str, tmp_path: Path) -> None:
    replies = load_scenarios()[name].replies
    script = ModelScript(replies, Places(tmp_path))
    texts = [step["when"] for reply in replies for step in reply if "when" in step]
    content = [{"type": "input_text", "text": text} for text in texts]
    body = json.dumps({"input": [{"type": "message", "role": "user", "content": content}]}).encode()
    for _ in replies:
        script(RecordedRequest("POST", "/v1/responses", {}, body))
    assert (script.unused, script.unscripted) == (0, 0)
