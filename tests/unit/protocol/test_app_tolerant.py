"""What is not known is kept, at any depth. That all readers give the same is tested in `test_app_schema`."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.protocol.app import (
    AgentMessageThreadItem,
    CommandExecutionThreadItem,
    ItemCompletedNotification,
    ItemStartedNotification,
    ListFilesCommandAction,
    ReadCommandAction,
    ThreadItem,
    ThreadReadResponse,
    Turn,
    TurnCompletedNotification,
    Unknown,
    UnknownItem,
    decode,
    encode,
)

MESSAGE: dict[str, Any] = {"type": "agentMessage", "id": "m", "text": "hello", "phase": "final_answer"}
READ: dict[str, Any] = {"type": "read", "command": "cat a", "name": "a", "path": "/a"}
LIST: dict[str, Any] = {"type": "listFiles", "command": "ls", "path": None}
HOLOGRAM: dict[str, Any] = {"type": "hologram", "id": "h", "depth": [1, {"of": None}]}
LEVITATE: dict[str, Any] = {"type": "levitate", "height": 3}


def command(*actions: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "commandExecution",
        "id": "c",
        "command": "cat a; ls",
        "commandActions": list(actions),
        "cwd": "/",
        "status": "completed",
        "exitCode": 0,
    }


def turn(*items: dict[str, Any]) -> dict[str, Any]:
    return {"id": "u", "status": "completed", "items": list(items)}


def thread(*turns: dict[str, Any]) -> dict[str, Any]:
    texts = dict.fromkeys(("id", "cliVersion", "cwd", "modelProvider", "preview", "sessionId"), "x")
    numbers = {"createdAt": 1, "updatedAt": 2}
    return {**texts, **numbers, "ephemeral": False, "source": "cli", "status": {"type": "idle"}, "turns": list(turns)}


def raw(value: object) -> bytes:
    return json.dumps(value).encode()


KNOWN = st.sampled_from([MESSAGE, command(), command(READ, LIST), {"type": "plan", "id": "p", "text": ""}])
NEW = st.sampled_from([HOLOGRAM, {"id": "no type"}, {"type": 5}, command(READ, LEVITATE), command({})])


@given(st.lists(KNOWN | NEW, max_size=5))
def test_known_items_are_the_same_beside_unknown_ones(items: list[dict[str, Any]]) -> None:
    told = decode(raw(turn(*items)), Turn)
    for item, value in zip(told.items, items, strict=True):
        assert item == decode(raw(value), ThreadItem)
        assert isinstance(item, UnknownItem) == (value.get("type") not in ("agentMessage", "commandExecution", "plan"))
    assert [each.get("type") for each in json.loads(encode(told))["items"]] == [each.get("type") for each in items]


def test_an_unknown_action_is_kept_in_its_known_item() -> None:
    item = decode(raw(command(READ, LEVITATE, LIST)), ThreadItem)
    assert item == CommandExecutionThreadItem(
        id="c",
        command="cat a; ls",
        command_actions=(
            ReadCommandAction(command="cat a", name="a", path="/a"),
            Unknown(LEVITATE),
            ListFilesCommandAction(command="ls"),
        ),
        cwd="/",
        status="completed",
        exit_code=0,
    )
    assert type(item) is CommandExecutionThreadItem
    assert type(item.command_actions[1]) is Unknown
    assert json.loads(encode(item))["commandActions"] == [READ, LEVITATE, LIST]


def test_unknown_parts_of_a_completed_turn() -> None:
    params = {"threadId": "t", "turn": turn(MESSAGE, HOLOGRAM, command(LEVITATE))}
    items = decode(raw(params), TurnCompletedNotification).turn.items
    assert items[0] == AgentMessageThreadItem(id="m", text="hello", phase="final_answer")
    assert items[1] == UnknownItem(HOLOGRAM)
    assert type(items[1]) is UnknownItem
    assert isinstance(items[2], CommandExecutionThreadItem)
    assert items[2].command_actions == (Unknown(LEVITATE),)


def test_unknown_parts_of_a_thread() -> None:
    value = {**thread(turn(MESSAGE), turn(HOLOGRAM)), "source": {"newest": {}}, "status": {"type": "asleep"}}
    told = decode(raw({"thread": value}), ThreadReadResponse).thread
    assert told.turns[0] == decode(raw(turn(MESSAGE)), Turn)
    assert told.turns[1].items == (UnknownItem(HOLOGRAM),)
    assert told.status == Unknown({"type": "asleep"})
    assert told.source == Unknown({"newest": {}})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (turn(HOLOGRAM, {**MESSAGE, "text": 5}), "Expected `str`, got `int` - at `$.items[1].text`"),
        (turn(HOLOGRAM, {"type": "plan", "id": "p"}), "Object missing required field `text` - at `$.items[1]`"),
        (turn(HOLOGRAM, command({**READ, "path": 1})), "got `int` - at `$.items[1].commandActions[0].path`"),
        (turn(HOLOGRAM, {"type": "commandExecution"}), "Object missing required field `id` - at `$.items[1]`"),
        ({**turn(HOLOGRAM), "status": 5}, "Expected `str`, got `int` - at `$.status`"),
        ({**turn(), "items": {}}, "Expected `array`, got `object` - at `$.items`"),
        ({"id": "u", "status": "completed"}, "Object missing required field `items`"),
        ([], "Expected `object`, got `array`"),
    ],
)
def test_what_is_wrong_is_refused_beside_what_is_unknown(value: object, text: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        decode(raw(value), Turn)
    assert str(caught.value).endswith(text)


def test_a_struct_of_another_tag_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"Invalid value 'plan' - at `\$\.type`"):
        decode(raw({**command(), "type": "plan"}), CommandExecutionThreadItem)


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(raw(turn(HOLOGRAM))[:-1], Turn)


def test_an_older_server_does_not_say_when() -> None:
    params = {"threadId": "t", "turnId": "u", "item": MESSAGE}
    assert decode(raw(params), ItemStartedNotification).started_at_ms == 0
    assert decode(raw(params), ItemCompletedNotification).completed_at_ms == 0


def test_instances_are_taken_as_they_are() -> None:
    message = AgentMessageThreadItem(id="m", text="hello")
    told = Turn.model_validate({"id": "u", "status": "completed", "items": [message, HOLOGRAM]})
    assert told.items[0] is message
    assert told.items[1] == UnknownItem(HOLOGRAM)
