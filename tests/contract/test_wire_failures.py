"""Every provider says the same of the same failure: what it is, whether to ask again, and how long to wait before."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

import pytest

from contract.wire_plays import Answer, Call, Dialect, Refusal, heard
from contract.wire_stage import REQUEST, SECRET, Outcome, Stage, outcome, refused, stage_for, wire_bytes
from model_server import Reply, chunked
from treadle.http import SseParser
from treadle.llm import (
    KNOWN,
    Completed,
    ErrorKind,
    FunctionCallItem,
    ItemDone,
    ModelError,
    ModelEvent,
    find_wire_api,
)

pytestmark = pytest.mark.anyio
WORDS = "the server's own words"


@pytest.fixture(params=KNOWN)
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    async with stage_for(request.param) as stage:
        yield stage


@dataclass(frozen=True)
class Case:
    """A response with another status, and what has to become of it. `codes` are those of OpenAI and of Anthropic."""

    status: int
    kind: ErrorKind
    codes: tuple[str, str]
    message: str = WORDS
    headers: Mapping[str, str] = field(default_factory=dict)
    retryable: bool = False
    retry_after_s: float | None = None
    said: str = WORDS

    def refusal(self, wire_api: str) -> Refusal:
        return Refusal(self.codes[wire_api == "anthropic"], self.message)


_LIMIT = ("rate_limit_exceeded", "rate_limit_error")
_LONG = "prompt is too long: 250000 tokens > 200000 maximum"
CASES = {
    "400": Case(400, "refused", ("invalid_value", "invalid_request_error")),
    "401": Case(401, "unauthorized", ("invalid_api_key", "authentication_error")),
    "403": Case(403, "forbidden", ("permission_denied", "permission_error")),
    "404-model": Case(404, "not_found", ("model_not_found", "not_found_error")),
    "400-context": Case(
        400, "context_too_long", ("context_length_exceeded", "invalid_request_error"), _LONG, said="context window"
    ),
    "413": Case(413, "context_too_long", ("request_too_large", "request_too_large"), said=""),
    "429": Case(429, "rate_limited", _LIMIT, retryable=True),
    "429-header": Case(429, "rate_limited", _LIMIT, headers={"Retry-After": "7"}, retryable=True, retry_after_s=7.0),
    "429-ms": Case(429, "rate_limited", _LIMIT, headers={"Retry-After-Ms": "1500"}, retryable=True, retry_after_s=1.5),
    "429-tomorrow": Case(
        429, "rate_limited", _LIMIT, headers={"Retry-After": "86400"}, retry_after_s=86400.0, said="to wait 86400 s"
    ),
    "500": Case(500, "server_failed", ("server_error", "api_error"), retryable=True, said="500"),
    "502": Case(502, "server_failed", ("bad_gateway", "api_error"), retryable=True),
    "503": Case(503, "server_failed", ("unavailable", "api_error"), retryable=True),
    "529": Case(529, "overloaded", ("overloaded", "overloaded_error"), retryable=True, said=""),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_response_with_another_status(name: str, stage: Stage) -> None:
    case = CASES[name]
    body = stage.dialect.refusal(case.refusal(stage.dialect.wire_api))
    found = await stage.ask(refused(case.status, body, {"Content-Type": "application/json", **case.headers}))
    _check(found, case)
    assert len(stage.server.asked) == 1


@pytest.mark.parametrize("body", ["", "<html><h1>Bad Gateway</h1></html>", "null", "[]", '{"error":7}', '{"error":'])
@pytest.mark.parametrize("status", [400, 404, 429, 502])
async def test_a_body_that_says_nothing(status: int, body: str, stage: Stage) -> None:
    found = await stage.ask(refused(status, body))
    assert found.error is not None
    assert found.error.http_status == status
    assert found.error.retryable == (status in (429, 502))
    assert found.error.message


async def test_the_key_is_in_no_message(stage: Stage) -> None:
    body = stage.dialect.refusal(Refusal("invalid_api_key", f"the key {SECRET} is wrong"))
    found = await stage.ask(refused(401, body))
    assert found.error is not None
    assert SECRET not in found.error.message
    assert SECRET not in str(found.error)


async def test_a_5xx_is_asked_again(stage: Stage) -> None:
    body = stage.dialect.refusal(Refusal("api_error", WORDS))
    frames = stage.dialect.frames(Answer("at last"))
    answers = (refused(503, body, {"Retry-After": "0"}), refused(500, body, {"Retry-After": "0"}), chunked(frames))
    found = await stage.ask(*answers, request_max_retries=2)
    assert heard(found.events) == Answer("at last")
    assert len(stage.server.asked) == 3


async def test_an_error_inside_the_stream(stage: Stage) -> None:
    """Text came before it: it is delivered, and then the failure."""
    frames = stage.dialect.frames(Answer("hello"))
    code = "overloaded_error" if stage.dialect.wire_api == "anthropic" else "server_error"
    failure = stage.dialect.inner_failure(Refusal(code, WORDS))
    found = await stage.ask(chunked([*frames[:4], failure, *frames[4:]]))
    assert found.error is not None
    assert found.error.retryable
    assert any(getattr(event, "delta", "") for event in found.events)
    assert not any(isinstance(event, Completed) for event in found.events)


def _check(found: Outcome, case: Case) -> None:
    error = found.error
    assert error is not None
    assert found.events == []
    assert error.http_status == case.status
    assert error.kind == case.kind
    assert error.retryable == case.retryable
    assert error.retry_after_s == case.retry_after_s
    assert case.said in error.message


# --- streams that end too early --------------------------------------------------------------------------------------

SMALL = Answer("hi", calls=(Call("call_1", "look", '{"at":1}'),))
LARGER = Answer("hi", "hm", tuple(Call(f"call_{n}", "look", f'{{"at":{n}}}') for n in range(3)))


def check_cut(found: Outcome, said: Answer) -> None:
    """A stream that was cut is whole, or an error that may be tried again; a call is whole, or was never made."""
    whole = any(isinstance(event, Completed) for event in found.events)
    assert whole == (found.error is None)
    if found.error is None:
        assert heard(found.events) == said
        return
    assert found.error.retryable
    assert found.error.message
    assert set(_calls(found.events)) <= set(said.calls), "a half call"


def _calls(events: list[ModelEvent]) -> list[Call]:
    items = [event.item for event in events if isinstance(event, ItemDone)]
    return [Call(item.call_id, item.name, item.arguments) for item in items if isinstance(item, FunctionCallItem)]


def _read(dialect: Dialect, body: bytes) -> Outcome:
    """What the client makes of a body that ends here, without a connection: every byte of it would take seconds."""
    found, parser = Outcome(), SseParser()
    translator = find_wire_api(dialect.wire_api).translator(REQUEST)
    try:
        for event in parser.receive(body):
            if not translator.completed:
                found.events += translator.receive(event)
        if not translator.completed:
            found.events += translator.end()
    except ModelError as error:
        found.error = error
    return found


async def test_a_body_cut_at_every_byte(stage: Stage) -> None:
    frames = stage.dialect.frames(SMALL)
    body, whole = b"".join(frames), 0
    for end in range(len(body) + 1):
        found = _read(stage.dialect, body[:end])
        check_cut(found, SMALL)
        whole += found.error is None
    # Only what says nothing may be missing, such as `[DONE]`.
    assert 0 < whole <= 1 + sum(map(len, frames[len(frames) - stage.dialect.last :]))


async def test_a_connection_cut_anywhere(stage: Stage) -> None:
    """Inside the head, inside the framing, inside an event, between two."""
    raw = wire_bytes(stage.dialect.frames(SMALL))
    async with stage.model() as model:
        for end in range(0, len(raw), 11):
            stage.server.play(Reply([raw[:end]], "close"))
            check_cut(await outcome(model), SMALL)


async def test_a_body_that_ends_between_two_events(stage: Stage) -> None:
    """The framing is whole: only the API itself can tell that something is missing."""
    frames = stage.dialect.frames(LARGER)
    async with stage.model() as model:
        for end in range(len(frames)):
            stage.server.play(chunked(frames[:end]))
            check_cut(await outcome(model), LARGER)


async def test_silence_ends_a_stream(stage: Stage) -> None:
    frames = stage.dialect.frames(SMALL)
    found = await stage.ask(chunked(frames[:3], ended=False, then="hang"), stream_idle_timeout_ms=80)
    assert found.error is not None
    assert found.error.retryable
    assert "80 ms" in found.error.message
    await stage.server.gone.wait()


async def test_silence_instead_of_an_answer(stage: Stage) -> None:
    found = await stage.ask(Reply([], "hang"), stream_idle_timeout_ms=80)
    assert found.error is not None
    assert found.error.retryable
    assert "80 ms" in found.error.message
    await stage.server.gone.wait()


GARBAGE = {
    "html": [b"<!doctype html><html><body>Log in first</body></html>"],
    "binary": [bytes(range(256))],
    "broken-json": [b"data: {\n\n", b"event: x\ndata: {{{\n\n"],
    "other-json": [b"data: null\n\n", b"data: []\n\n", b"data: 7\n\n", b'data: "text"\n\n', b'data: {"a":1}\n\n'],
    "nothing": [],
    "deep": [b"data: " + b"[" * 5000 + b"]" * 5000 + b"\n\n"],
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_garbage_is_no_answer(name: str, stage: Stage) -> None:
    found = await stage.ask(chunked(GARBAGE[name]))
    assert found.error is not None
    assert not any(isinstance(event, Completed | ItemDone) for event in found.events)


@pytest.mark.parametrize("name", ["broken-json", "other-json", "deep"])
async def test_garbage_between_events_changes_nothing(name: str, stage: Stage) -> None:
    first, *rest = stage.dialect.frames(SMALL)
    found = await stage.ask(chunked([first, *GARBAGE[name], *rest]))
    assert found.error is None
    assert heard(found.events) == SMALL


async def test_what_is_no_http_is_an_error(stage: Stage) -> None:
    found = await stage.ask(Reply([b"SSH-2.0-OpenSSH_9.2p1\r\n"], "close"))
    assert found.error is not None
    assert found.error.http_status is None


async def test_a_failure_leaves_the_model_usable(stage: Stage) -> None:
    frames = stage.dialect.frames(Answer("hello"))
    stage.server.play(refused(500, "no"), Reply([b"nonsense"], "close"), chunked(frames[:2]), chunked(frames))
    async with stage.model() as model:
        failed = [await outcome(model) for _ in range(3)]
        last = await outcome(model)
    assert all(found.error is not None for found in failed)
    assert heard(last.events) == Answer("hello")
