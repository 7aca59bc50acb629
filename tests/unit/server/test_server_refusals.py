"""What requests are refused with: the words that clients know, and ids that are ids."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from treadle.agent import cursor_ahead
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app import ThreadReadParams, ThreadStartParams, decode
from treadle.server import ROUTES, routes

ID = "0199a213-81c0-7800-8aa1-bbab2a035a53"


@pytest.mark.parametrize(
    ("params", "wanted", "text"),
    [
        ("{}", ThreadReadParams, "Invalid request: missing field `threadId`"),
        ('{"sandbox":"nowhere"}', ThreadStartParams, "Invalid request: unknown variant `nowhere` - at `$.sandbox`"),
        ('{"cwd":7}', ThreadStartParams, "Invalid request: Expected `str | null`, got `int` - at `$.cwd`"),
    ],
)
def test_params_that_cannot_be_used(params: str, wanted: Any, text: str) -> None:
    with pytest.raises(msgspec.ValidationError) as found:
        decode(params.encode(), wanted)
    error = routes.bad_params(found.value)
    assert (error.code, error.message) == (INVALID_REQUEST, text)


def test_an_unknown_method_is_cut_and_the_known_ones_are_named() -> None:
    message = routes.unknown_method("x" * 10_000).message
    assert f"`{'x' * 200}`, expected one of" in message
    assert "x" * 201 not in message
    assert "`thread/start`" in message


@pytest.mark.parametrize("given", [ID, ID.upper(), ID.replace("-", "")])
def test_an_id_is_a_uuid_in_any_form(given: str) -> None:
    assert routes.check_thread_id(given) == given.lower()


@pytest.mark.parametrize("given", ["", "x", f"{ID}0", f" {ID}", f"{ID}\n", "../" + ID[3:], ID.replace("0", "g")])
def test_what_is_no_id(given: str) -> None:
    with pytest.raises(RpcError, match="invalid turn id: expected a UUID"):
        routes.check_thread_id(given, "turn")


def test_a_long_id_is_not_told_back_whole() -> None:
    with pytest.raises(RpcError) as found:
        routes.check_thread_id("y" * 10_000)
    assert len(found.value.message) < 300


def test_what_needs_the_capability() -> None:
    routes.refuse_experimental(ROUTES["thread/start"], ThreadStartParams(cwd="/"))
    routes.refuse_experimental(ROUTES["thread/start"], ThreadStartParams(approval_policy="never"))
    with pytest.raises(RpcError, match=r"^thread/settings/update requires experimentalApi"):
        routes.refuse_experimental(ROUTES["thread/settings/update"], None)
    with pytest.raises(RpcError, match=r"^thread/start\.dynamicTools requires experimentalApi"):
        routes.refuse_experimental(ROUTES["thread/start"], ThreadStartParams(dynamic_tools=()))
    granular = msgspec.structs.replace(ThreadStartParams(), approval_policy={"granular": {}})
    with pytest.raises(RpcError, match=r"^askForApproval\.granular requires"):
        routes.refuse_experimental(ROUTES["thread/start"], granular)


def test_a_cursor_from_the_future_says_where_the_end_is() -> None:
    assert cursor_ahead(9, 4).data == {"kind": "cursorAhead", "lastSeq": 4}
