"""`check_wire_api` passes what is right, and finds what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from contract.wire_plays import DIALECTS, Answer, Call, Dialect
from treadle.http import SseEvent
from treadle.llm import (
    Completed,
    HttpFailure,
    ItemDone,
    ModelError,
    ModelRequest,
    ResponsesTranslator,
    WireApi,
    find_wire_api,
)
from treadle.llm.responses import WIRE_API
from treadle.testing import check_wire_api

SAID = Answer("hello, wörld", "hm", tuple(Call(f"call_{n}", "look", f'{{"at":{n}}}') for n in range(2)))
CALLS = [(call.name, call.arguments) for call in SAID.calls]
RECORDED = b"".join(DIALECTS[0].frames(SAID))


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.wire_api)
def test_those_of_the_package_hold(dialect: Dialect) -> None:
    wire = find_wire_api(dialect.wire_api)
    check_wire_api(wire, recorded=b"".join(dialect.frames(SAID)), text=SAID.text, calls=CALLS)


class _Hasty(ResponsesTranslator):
    """Thinks that a response is whole whenever the stream ends."""

    def end(self) -> list[Any]:
        self.completed = True
        return [Completed("")]


class _Nervous(ResponsesTranslator):
    """Cannot stand what it does not know."""

    def receive(self, sse: SseEvent) -> list[Any]:
        if '"type":"response.' not in sse.data:
            raise ModelError("what is this?")
        return super().receive(sse)


class _Forgetful(ResponsesTranslator):
    """Tells of the end of items and not of their beginning."""

    def receive(self, sse: SseEvent) -> list[Any]:
        return [event for event in super().receive(sse) if isinstance(event, ItemDone | Completed)]


class _Resigned(ResponsesTranslator):
    """Would not ask again for a stream that was cut."""

    def end(self) -> list[Any]:
        raise ModelError("it ended")


class _Mute(ResponsesTranslator):
    """Says nothing on the way."""

    def receive(self, sse: SseEvent) -> list[Any]:
        return [event for event in super().receive(sse) if not hasattr(event, "delta")]


def _reading(made: Callable[[], ResponsesTranslator]) -> WireApi:
    return replace(WIRE_API, translator=lambda request: made())


def _picky(request: ModelRequest, asking: Any) -> bytes:
    if any(b"something_new" in str(item).encode() for item in request.input):
        raise ValueError("an item of a type that is not known")
    return WIRE_API.encode(request, asking)


def _hopeful(answer: HttpFailure) -> ModelError:
    return ModelError("no", http_status=answer.status, retryable=True)


BROKEN = {
    "neither whole nor|is a whole response": _reading(_Hasty),
    "breaks a stream": _reading(_Nervous),
    "was not started": _reading(_Forgetful),
    "not to be asked for again": _reading(_Resigned),
    "deltas of msg_1 say something else": _reading(_Mute),
    "cannot be written": replace(WIRE_API, encode=_picky),
    "what the user said is not in": replace(WIRE_API, encode=lambda request, asking: b"{}"),
    "no key in it": replace(WIRE_API, key_header=lambda key: ("authorization", "Bearer")),
    "begin with a slash": replace(WIRE_API, path="responses"),
    "is to be asked again": replace(
        WIRE_API, failure=lambda answer: ModelError("no", http_status=answer.status, retryable=True)
    ),
    "has the status None": replace(WIRE_API, failure=lambda answer: ModelError("no")),
    "no end to the other ways": replace(WIRE_API, other_way=lambda answer, quirks: quirks | {str(len(quirks))}),
}


@pytest.mark.parametrize("complaint", BROKEN)
def test_what_is_wrong_is_found(complaint: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_wire_api(BROKEN[complaint], recorded=RECORDED, text=SAID.text, calls=CALLS)
    assert re.search(complaint, str(caught.value))


def test_another_text_or_call_is_found() -> None:
    with pytest.raises(AssertionError, match="understood to say"):
        check_wire_api(WIRE_API, recorded=RECORDED, text="something else", calls=CALLS)
    with pytest.raises(AssertionError, match="understood to call"):
        check_wire_api(WIRE_API, recorded=RECORDED, text=SAID.text)
