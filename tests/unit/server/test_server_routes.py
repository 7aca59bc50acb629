"""One record for each method: what it names is there, and handlers take and give what it says."""

from __future__ import annotations

import typing
from typing import Any

import pytest

from treadle.protocol.app import METHODS, RECORDS
from treadle.server import METHOD_NAMES, ROUTES


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_a_handler_takes_and_gives_what_its_record_says(method: str) -> None:
    """So that mypy, which checks the handlers, checks them against the protocol."""
    record, route = RECORDS[method], ROUTES[method]
    hints = typing.get_type_hints(route.handler)
    assert typing.get_args(hints["call"]) == (record.params,)
    assert _is_result(hints["return"], record.result)


def _is_result(given: Any, wanted: Any) -> bool:
    """The same struct or union, or one that adds members of ours."""
    return given == wanted or (isinstance(given, type) and isinstance(wanted, type) and issubclass(given, wanted))


def test_methods_that_our_server_does_not_have_have_no_route() -> None:
    missing = [name for name, record in RECORDS.items() if record.handler is None]
    assert missing
    for name in missing:
        with pytest.raises(KeyError):
            ROUTES[name]


def test_the_registry_of_the_protocol_has_every_method_but_ours() -> None:
    ours = {name for name, record in RECORDS.items() if record.ours}
    assert {"thread/events/list", "thread/messages/search"} <= ours
    assert {*METHODS} == {*RECORDS} - ours
