"""The names of the official SDK and how they are called, compared with ours. `scenarios/shapes.py` describes both.

Ours may have more: names, keyword-only parameters with defaults, fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import pytest

from interop.sdk.interpreter import SdkInterpreter
from interop.sdk.package import OFFICIAL, OURS, Package

pytestmark = pytest.mark.interop

Shape = dict[str, Any]

_ANOTHER: Final = "a client says who it is, and ours is another one"
_GOALS: Final = "the streams of a goal are private there; ours has `thread_goal_set` and the turns that follow"
_NOTHING_TO_REGISTER: Final = "what comes before anyone registered is kept, so that there is nothing to register"
_INPUT: Final = "`input`, as everywhere else; the other options of a turn are given by name"
_BOTH_IDS: Final = "a turn is named by its thread and its id, as in all other calls about it"
_BY_PARTS: Final = "a result can be made of the parts that one wants to compare"
_ANSWERING: Final = "the client for asyncio answers a server too"

CALLS: Final = {
    "CodexConfig: client_name='codex_python_sdk' is client_name='treadle_python_sdk'": _ANOTHER,
    "CodexConfig: client_title='Codex Python SDK' is client_title='Treadle Python SDK'": _ANOTHER,
    "TurnResult: id is id=''": _BY_PARTS,
    "TurnResult: status is status='completed'": _BY_PARTS,
    "TurnResult: error is error=None": _BY_PARTS,
    "TurnResult: started_at is started_at=None": _BY_PARTS,
    "TurnResult: completed_at is completed_at=None": _BY_PARTS,
    "TurnResult: duration_ms is duration_ms=None": _BY_PARTS,
    "TurnResult: final_response is final_response=None": _BY_PARTS,
    "TurnResult: items is items=<factory>": _BY_PARTS,
    "TurnResult: usage is usage=None": _BY_PARTS,
    "AsyncClient: nothing is approval_handler=None": _ANSWERING,
    "Client.reserve_goal_operation is missing": _GOALS,
    **{
        complaint.format(client): reason
        for client in ("Client", "AsyncClient")
        for complaint, reason in (
            ("{}.next_turn_notification: turn_id is thread_id", _BOTH_IDS),
            ("{}.next_turn_notification: nothing is turn_id", _BOTH_IDS),
            ("{}.turn_start: input_items is input", _INPUT),
            ("{}.turn_start: params=None is nothing", _INPUT),
            ("{}.turn_steer: input_items is input", _INPUT),
            ("{}.cancel_goal_operation is missing", _GOALS),
            ("{}.next_goal_notification is missing", _GOALS),
            ("{}.register_goal_operation is missing", _GOALS),
            ("{}.start_goal_operation is missing", _GOALS),
            ("{}.unregister_goal_operation is missing", _GOALS),
            ("{}.register_login_notifications is missing", _NOTHING_TO_REGISTER),
            ("{}.register_turn_notifications is missing", _NOTHING_TO_REGISTER),
            ("{}.unregister_login_notifications is missing", _NOTHING_TO_REGISTER),
            ("{}.unregister_turn_notifications is missing", _NOTHING_TO_REGISTER),
        )
    },
}
"""How ours is called differently, and why."""

_STR: Final = "a str, which needs no model around it"
_WORD: Final = "its words are members of the union itself"
_PLAIN: Final = "a variant that ours does not know, read as the plain object that it is"
_INSIDE: Final = "a struct inside of a variant, with a name of its own"

FIELDS: Final = {
    "AbsolutePathBuf is missing": _STR,
    "AgentPath is missing": _STR,
    "LegacyAppPathString is missing": _STR,
    "ThreadId is missing": _STR,
    "CodexErrorInfoValue is missing": _WORD,
    "ReasoningSummaryValue is missing": _WORD,
    "SessionSourceValue is missing": _WORD,
    "SubAgentSourceValue is missing": _WORD,
    "FileIdFunctionCallOutputContentItem is missing": _PLAIN,
    "FileIdUserInput is missing": _PLAIN,
    "HttpConnectionFailed is missing": _INSIDE,
    "ResponseStreamConnectionFailed is missing": _INSIDE,
    "ResponseStreamDisconnected is missing": _INSIDE,
    "ResponseTooManyFailedAttempts is missing": _INSIDE,
    "ThreadSpawn is missing": _INSIDE,
    "McpToolCallResult.field_meta is missing": "called `meta`, as `_meta` is on the wire",
}
"""What ours does not have of the models behind the public types, and why. None of them is public itself."""


@pytest.fixture(scope="module")
def shapes(sdk: SdkInterpreter, tmp_path_factory: pytest.TempPathFactory) -> tuple[Shape, Shape]:
    def described(package: Package) -> Shape:
        folder = tmp_path_factory.mktemp(package)
        answer = sdk.play("shapes.described", program=Path("no-server"), folder=folder, face="sync", package=package)
        shape: Shape = answer["seen"]
        return shape

    return described(OFFICIAL), described(OURS)


def _parameter_complaints(name: str, official: list[list[str]], ours: list[list[str]]) -> Iterator[str]:
    """What a caller of the official one would notice. A parameter with a leading underscore is called by position."""
    plain, named = _split(official)
    our_plain, our_named = _split(ours)
    for wanted, found in zip_longest(plain, our_plain):
        if _shown(wanted) != _shown(found):
            yield f"{name}: {_shown(wanted)} is {_shown(found)}"
    in_common = [each for each in our_named if each[0] in {wanted[0] for wanted in named}]
    for wanted, found in zip_longest(named, in_common):
        if _shown(wanted) != _shown(found):
            yield f"{name}: *, {_shown(wanted)} is *, {_shown(found)}"
    for each in our_named:
        if each not in in_common and each[2] == "required":
            yield f"{name}: *, {_shown(each)} is required"


def _split(parameters: list[list[str]]) -> tuple[list[list[str]], list[list[str]]]:
    plain = [[name.lstrip("_"), kind, default] for name, kind, default in parameters if kind != "keyword-only"]
    named = [each for each in parameters if each[1] == "keyword-only" and not each[0].startswith("_")]
    return plain, named


def _shown(parameter: list[str] | None) -> str:
    if parameter is None:
        return "nothing"
    name, kind, default = parameter
    stars = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
    return f"{stars}{name}" if default == "required" else f"{stars}{name}={default}"


def test_every_name_is_there(shapes: tuple[Shape, Shape]) -> None:
    official, ours = shapes
    assert set(official["names"]) <= set(ours["names"])
    assert set(official["types"]) <= set(ours["types"])


def test_what_is_called_is_called_the_same_way(shapes: tuple[Shape, Shape]) -> None:
    official, ours = (shape["parameters"] for shape in shapes)
    complaints: list[str] = []
    for name, parameters in official.items():
        if name in ours:
            complaints += _parameter_complaints(name, parameters, ours[name])
        else:
            complaints.append(f"{name} is missing")
    assert sorted(complaints) == sorted(CALLS)


def test_what_is_awaited_or_iterated_or_read_is_so_with_ours(shapes: tuple[Shape, Shape]) -> None:
    official, ours = (shape["kinds"] for shape in shapes)
    assert {name: ours[name] for name in official if name in ours} == {
        name: kind for name, kind in official.items() if f"{name} is missing" not in CALLS
    }


def test_words_are_the_same(shapes: tuple[Shape, Shape]) -> None:
    official, ours = shapes
    assert set(official["words"]) == {"ApprovalMode", "Sandbox"}
    assert {name: ours["words"][name] for name in official["words"]} == official["words"]


def test_an_error_is_caught_by_what_would_catch_the_official_one(shapes: tuple[Shape, Shape]) -> None:
    official, ours = (shape["bases"] for shape in shapes)
    assert "CodexRpcError" in official["ServerBusyError"]
    missing = {name: set(bases) - set(ours[name]) for name, bases in official.items()}
    assert {name: bases for name, bases in missing.items() if bases} == {}


def test_objects_have_the_same_attributes(shapes: tuple[Shape, Shape]) -> None:
    official, ours = (shape["attributes"] for shape in shapes)
    assert official["TurnHandle"] == ["id", "thread_id"]
    missing = {name: set(attributes) - set(ours[name]) for name, attributes in official.items()}
    assert {name: attributes for name, attributes in missing.items() if attributes} == {}


def test_models_have_the_same_fields(shapes: tuple[Shape, Shape]) -> None:
    official, ours = (shape["fields"] for shape in shapes)
    complaints: list[str] = []
    for name, fields in official.items():
        if name in ours:
            complaints += [f"{name}.{field} is missing" for field in fields if field not in ours[name]]
        else:
            complaints.append(f"{name} is missing")
    assert sorted(complaints) == sorted(FIELDS)
    assert not {complaint.removesuffix(" is missing") for complaint in complaints} & set(shapes[0]["types"])
