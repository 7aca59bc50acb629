"""The clients of the earlier shapes of the SDK: how a turn is read, and the private names that programs' tests use."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from importlib import import_module, resources
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from treadle import TransportClosedError
from treadle.client import Notification, UnknownNotification, make
from treadle.types import ThreadTokenUsage, TokenUsageBreakdown, WarningNotification


@pytest.fixture(params=["codex_app_server", "openai_codex_0_131"])
def sdk(request: pytest.FixtureRequest) -> str:
    return f"treadle.compat.{request.param}"


@pytest.fixture
def client(sdk: str) -> Any:
    return import_module(f"{sdk}.client").AppServerClient()


@pytest.fixture
def async_client(sdk: str) -> Any:
    return import_module(f"{sdk}.async_client").AsyncAppServerClient()


def _delta(turn_id: str, text: str) -> Notification:
    return make("item/agentMessage/delta", {"threadId": "t", "turnId": turn_id, "itemId": "i", "delta": text})


def _ended(turn_id: str) -> Notification:
    return make("turn/completed", {"threadId": "t", "turn": {"id": turn_id, "items": [], "status": "completed"}})


def _texts(client: Any, turn_id: str, count: int) -> list[str]:
    return [client.next_turn_notification(turn_id).payload.delta for _ in range(count)]


def _ids(sdk: str, turn_id: str = "u", thread_id: str = "t") -> tuple[str, ...]:
    """What names a turn where it is read."""
    return (thread_id, turn_id) if sdk.endswith("codex_app_server") else (turn_id,)


def _started(*_: Any, **__: Any) -> Any:
    return SimpleNamespace(turn=SimpleNamespace(id="u"))


class Recorded:
    """Blocking functions in the place of those that a stream is made of, which write down who was called."""

    def __init__(self, *events: Notification) -> None:
        self.calls: list[tuple[str, ...]] = []
        self._events = list(events)

    def put_into(self, target: Any) -> None:
        target.turn_start = _started
        target.register_turn_notifications = lambda turn_id: self.calls.append(("register", turn_id))
        target.next_turn_notification = self._next
        target.unregister_turn_notifications = lambda turn_id: self.calls.append(("unregister", turn_id))

    def _next(self, *ids: str) -> Notification:
        self.calls.append(("next", *ids))
        return self._events.pop(0)


def test_which_turn_a_payload_belongs_to(sdk: str) -> None:
    turn_of = import_module(f"{sdk}.generated.notification_registry").notification_turn_id
    payloads = [_delta("u", "x").payload, _ended("v").payload, WarningNotification(message="careful")]
    assert [turn_of(payload) for payload in payloads] == ["u", "v", None]
    assert turn_of(UnknownNotification({"turn": {"id": "w"}})) == "w"


def test_the_package_says_that_it_is_typed(sdk: str) -> None:
    assert resources.files(sdk).joinpath("py.typed").is_file()


def test_the_stream_of_a_turn_is_read_with_the_ids_of_the_release(client: Any, sdk: str) -> None:
    """Programs put functions of their own there, which take those."""
    recorded = Recorded(_delta("u", "a"), _ended("u"))
    recorded.put_into(client)
    assert [event.method for event in _api(sdk).TurnHandle(client, "t", "u").stream()][-1] == "turn/completed"
    assert [call for call in recorded.calls if call[0] == "next"] == [("next", *_ids(sdk))] * 2


def test_text_is_streamed_over_the_calls_for_one_turn(client: Any, sdk: str) -> None:
    recorded = Recorded(_delta("u", "a"), _delta("u", "b"), _ended("u"))
    recorded.put_into(client)
    assert [piece.delta for piece in client.stream_text("t", "hi")] == ["a", "b"]
    assert [call for call in recorded.calls if call[0] == "next"] == [("next", *_ids(sdk))] * 3


def test_a_stream_of_the_later_release_is_registered() -> None:
    client: Any = import_module("treadle.compat.openai_codex_0_131.client").AppServerClient()
    recorded = Recorded(_delta("u", "a"), _ended("u"))
    recorded.put_into(client)
    assert [piece.delta for piece in client.stream_text("t", "hi")] == ["a"]
    assert recorded.calls == [("register", "u"), *[("next", "u")] * 2, ("unregister", "u")]


def test_a_turn_is_read_to_its_end_over_them_too(client: Any, sdk: str) -> None:
    recorded = Recorded(_delta("u", "a"), _ended("u"))
    recorded.put_into(client)
    assert client.wait_for_turn_completed("u").turn.id == "u"
    assert recorded.calls == [("next", *_ids(sdk, thread_id=""))] * 2


def test_the_last_id_names_the_turn(client: Any) -> None:
    for text in ("a", "b"):
        client._dispatch_notification(_delta("u", text))
    assert client.next_turn_notification("u").payload.delta == "a"
    assert client.next_turn_notification("t", "u").payload.delta == "b"


# --- the router ---


def test_a_test_can_tell_a_client_something(client: Any) -> None:
    client.register_turn_notifications("u")
    for turn_id, text in (("v", "v1"), ("u", "u1"), ("v", "v2"), ("u", "u2")):
        client._router.route_notification(_delta(turn_id, text))
    client.register_turn_notifications("v")  # what came before is not lost
    assert (_texts(client, "u", 2), _texts(client, "v", 2)) == (["u1", "u2"], ["v1", "v2"])


def test_whoever_waits_hears_what_a_test_tells(client: Any) -> None:
    client.register_turn_notifications("u")
    stream, heard = client._router.streams.get("u"), threading.Event()
    stream.waiter = heard
    client._router.route_notification(_delta("u", "now"))
    assert heard.is_set()


def test_notifications_of_turns_that_nobody_reads(client: Any) -> None:
    early = _delta("u", "early")
    client._router.route_notification(early)
    client._router.route_notification(_delta("v", "of another"))
    assert client._router._pending_turn_notifications["u"] == [early]
    client.register_turn_notifications("v")
    client._router.route_notification(_ended("u"))
    assert client._router._pending_turn_notifications == {}


def test_a_test_can_take_the_place_of_a_server(client: Any) -> None:
    client.register_turn_notifications("u")
    params = {"threadId": "t", "turnId": "u", "itemId": "i"}
    told = [{"method": "item/agentMessage/delta", "params": {**params, "delta": text}} for text in ("a", "b")]

    def read() -> Any:
        if told:
            return told.pop(0)
        raise EOFError

    client._read_message = read
    client._reader_loop()
    assert _texts(client, "u", 2) == ["a", "b"]
    with pytest.raises(TransportClosedError, match="no more messages"):
        client.next_turn_notification("u")


# --- the blocking client that was inside the one for asyncio ---


def test_functions_for_the_client_inside_run_on_threads(async_client: Any) -> None:
    together = threading.Barrier(2)  # passes only if both calls are under way at the same time

    def models(include_hidden: bool = False) -> bool:
        together.wait(10)
        return include_hidden

    async def both() -> list[bool]:
        return list(await asyncio.gather(async_client.model_list(), async_client.model_list(include_hidden=True)))

    async_client._sync.model_list = models
    assert asyncio.run(both()) == [False, True]


def test_the_client_inside_gives_a_stream_piece_by_piece(async_client: Any) -> None:
    going_on = threading.Event()

    def pieces(thread_id: str, text: str) -> Iterator[str]:
        yield text
        assert going_on.wait(10)
        yield thread_id

    async def read() -> list[str]:
        stream = async_client.stream_text("t", "hi")
        first = await anext(stream)
        going_on.set()
        return [first, *[piece async for piece in stream]]

    async_client._sync.stream_text = pieces
    assert asyncio.run(read()) == ["hi", "t"]


def test_the_calls_for_a_turn_go_through_the_client_inside(async_client: Any, sdk: str) -> None:
    async def read() -> tuple[list[str], str]:
        texts = [piece.delta async for piece in async_client.stream_text("t", "hi")]
        return texts, (await async_client.wait_for_turn_completed("u")).turn.id

    recorded = Recorded(_delta("u", "a"), _ended("u"), _ended("u"))
    recorded.put_into(async_client._sync)
    assert asyncio.run(read()) == (["a"], "u")
    asked = [call[1:] for call in recorded.calls if call[0] == "next"]
    assert asked == [_ids(sdk), _ids(sdk), _ids(sdk, thread_id="")]


def test_a_replaced_call_can_be_put_back(async_client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before, inside = async_client.model_list, async_client._sync
    with monkeypatch.context() as replacing:
        replacing.setattr(inside, "model_list", lambda: "ours")
        assert asyncio.run(async_client.model_list()) == "ours"
    assert async_client.model_list == before
    inside.model_list, kept = (lambda: "ours"), inside.model_list
    inside.model_list = kept
    assert async_client.model_list == before


@pytest.mark.parametrize("place", [lambda client: client, lambda client: client._sync], ids=["client", "inside"])
def test_who_answers_the_server_can_be_changed(async_client: Any, client: Any, place: Callable[[Any], Any]) -> None:
    def answer(method: str, params: Any) -> dict[str, Any]:
        return {"decision": "decline"}

    client._approval_handler = answer
    place(async_client)._approval_handler = answer
    assert client._approval_handler is client.handlers.raw is answer
    assert place(async_client)._approval_handler is async_client.handlers.raw is answer


# --- values ---


def test_tokens_are_counted_with_the_members_of_the_time(client: Any, sdk: str) -> None:
    count = TokenUsageBreakdown(
        cached_input_tokens=3,
        input_tokens=11,
        output_tokens=7,
        reasoning_output_tokens=5,
        total_tokens=18,
        cache_write_input_tokens=2,
    )
    usage = ThreadTokenUsage(last=count, total=count)
    told = [make("thread/tokenUsage/updated", {"threadId": "t", "turnId": "u", "tokenUsage": usage}), _ended("u")]
    recorded = Recorded(*told)
    recorded.put_into(client)
    found = _api(sdk).Thread(client, "t").run("hi").usage
    expected = {"cachedInputTokens": 3, "inputTokens": 11, "outputTokens": 7, "reasoningOutputTokens": 5}
    assert found.model_dump(by_alias=True, mode="json")["last"] == {**expected, "totalTokens": 18}
    assert found.model_dump()["total"].keys() == set(count.__struct_fields__) - {"cache_write_input_tokens"}
    assert (found, usage, {found}) == (usage, found, {usage})
    assert found.total.cache_write_input_tokens == 2


def _api(sdk: str) -> ModuleType:
    return import_module(f"{sdk}.api")


def test_what_an_approval_mode_stands_for() -> None:
    from treadle.compat.openai_codex_0_131 import ApprovalMode, api

    settings: Callable[[Any], tuple[Any, Any]] = vars(api)["_approval_mode_settings"]
    assert settings(ApprovalMode.deny_all) == ("never", None)
    assert settings(ApprovalMode.auto_review) == ("on-request", "auto_review")
    with pytest.raises(ValueError, match=r"\(deny_all, auto_review\), not 'allow_all'"):
        settings("allow_all")


def test_where_later_builds_had_the_check_of_a_server() -> None:
    from treadle.compat.openai_codex_0_131 import Codex
    from treadle.compat.openai_codex_0_131._initialize_metadata import validate_initialize_metadata

    assert Codex._validate_initialize is validate_initialize_metadata
