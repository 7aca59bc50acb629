"""`Client` towards a peer that does not read: what waits is joined, counted, and has an end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.agent import Event
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app import (
    AgentMessageDeltaNotification,
    CommandExecutionOutputDeltaNotification,
    ReasoningSummaryTextDeltaNotification,
    WarningNotification,
)
from treadle.server import AppServer, Client
from treadle.server import clients as connection
from treadle.transport import Channel

pytestmark = pytest.mark.anyio


class Valve(Channel):
    """A channel that takes frames while it is open."""

    def __init__(self) -> None:
        super().__init__("valve")
        self.open = True
        self.reading = True
        self.sent: list[dict[str, Any]] = []

    @property
    def writable(self) -> bool:
        return self.open

    @property
    def pending(self) -> int:
        return 0

    def send(self, frame: bytes) -> None:
        self.sent.append(json.loads(frame))

    def pause(self) -> None:
        self.reading = False

    def resume(self) -> None:
        self.reading = True

    def close(self) -> None:
        self._end("closed")

    def abort(self) -> None:
        self._end("aborted")


def delta(text: str, item: str = "i", seq: int = 1) -> Event:
    params = AgentMessageDeltaNotification(thread_id="t", turn_id="u", item_id=item, delta=text)
    return Event("item/agentMessage/delta", params, seq, 1)


def output(text: str, item: str = "i", seq: int = 1) -> Event:
    params = CommandExecutionOutputDeltaNotification(thread_id="t", turn_id="u", item_id=item, delta=text)
    return Event("item/commandExecution/outputDelta", params, seq, 1)


def summary(text: str, index: int) -> Event:
    params = ReasoningSummaryTextDeltaNotification(
        thread_id="t", turn_id="u", item_id="i", delta=text, summary_index=index
    )
    return Event("item/reasoning/summaryTextDelta", params, 1, 1)


def warning(text: str) -> Event:
    return Event("warning", WarningNotification(message=text, thread_id="t"), 2, 1)


def answer(client: Client, request_id: int, text: str = "no") -> None:
    client.send_failure(request_id, RpcError(INVALID_REQUEST, text))


def served(home: Path, *, must_not_lose: bool = False) -> tuple[Client, Valve]:
    valve = Valve()
    client = AppServer(home=home).accept(valve, must_not_lose=must_not_lose)
    client.initialized = True
    return client, valve


async def test_deltas_that_wait_are_joined_by_item_and_kind(tmp_path: Path) -> None:
    client, valve = served(tmp_path)
    valve.open = False
    for event in (
        *(delta("a"), delta("b", seq=2), delta("c", seq=2)),
        *(delta("d", "other"), output("e", "other"), output("f", "other")),
        *(warning("w"), output("g", "other"), summary("h", 0), summary("i", 0), summary("j", 1)),
    ):
        client.notify(event)
    answer(client, 7)
    client.notify(summary("k", 1))
    assert valve.sent == []
    valve.open = True
    client.channel_writable()
    said = [
        each["params"].get("delta", each["params"].get("message")) if "params" in each else "reply"
        for each in valve.sent
    ]
    assert said == ["abc", "d", "ef", "w", "g", "hi", "j", "reply", "k"]
    assert valve.sent[0]["seq"] == 2  # the number of the last one
    assert client._waiting_bytes == 0


@settings(max_examples=100)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from("ab"), st.text(max_size=5)), st.sampled_from(["open", "shut", "warn", "reply"])
        ),
        max_size=40,
    )
)
async def test_nothing_is_lost_and_the_order_stays(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str] | str]
) -> None:
    client, valve = served(tmp_path_factory.getbasetemp())
    told: list[tuple[str, str]] = []
    for number, step in enumerate(steps):
        match step:
            case "open":
                valve.open = True
                client.channel_writable()
            case "shut":
                valve.open = False
            case "warn":
                client.notify(warning(str(number)))
                told.append(("warning", str(number)))
            case "reply":
                answer(client, number)
                told.append(("reply", str(number)))
            case (str(item), str(text)):
                client.notify(delta(text, item))
                told.append((item, text))
    valve.open = True
    client.channel_writable()
    assert _joined([_short(message) for message in valve.sent]) == _joined(told)
    assert client._waiting_bytes == 0


def _short(message: dict[str, Any]) -> tuple[str, str]:
    if "error" in message:
        return "reply", str(message["id"])
    params = message["params"]
    return ("warning", params["message"]) if "message" in params else (params["itemId"], params["delta"])


def _joined(told: list[tuple[str, str]]) -> list[tuple[str, str]]:
    joined: list[tuple[str, str]] = []
    for who, text in told:
        if joined and joined[-1][0] == who and who in "ab":
            joined[-1] = (who, joined[-1][1] + text)
        else:
            joined.append((who, text))
    return joined


async def test_joined_deltas_do_not_grow_without_end(tmp_path: Path) -> None:
    client, valve = served(tmp_path)
    valve.open = False
    pieces = [f"{index:05}" * 20 for index in range(20_000)]  # 2 MB
    for piece in pieces:
        client.notify(delta(piece))
    assert len(client._waiting) < 20
    valve.open = True
    client.channel_writable()
    texts = [each["params"]["delta"] for each in valve.sent]
    assert "".join(texts) == "".join(pieces)
    assert max(map(len, texts)) <= connection.MAX_JOINED + 100


@pytest.mark.parametrize("kind", ["deltas", "messages", "replies"])
async def test_too_much_that_waits_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(connection, "MAX_BYTES", 100_000)
    client, valve = served(tmp_path)
    valve.open = False
    for _ in range(200):
        if kind == "deltas":
            client.notify(delta("x" * 1_000))
        elif kind == "messages":
            client.notify(warning("x" * 1_000))
        else:
            answer(client, 1, "x" * 1_000)
        assert client._waiting_bytes < 102_000
    assert valve.closed
    assert client.closed
    assert client not in client.server.clients
    assert len(client._waiting) == 0


async def test_many_small_ones_end_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_WAITING", 100)
    client, valve = served(tmp_path)
    valve.open = False
    for _ in range(101):
        answer(client, 1)
    assert valve.closed


async def test_a_client_that_must_not_lose_is_not_read_until_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_WAITING", 100)
    client, valve = served(tmp_path, must_not_lose=True)
    valve.open = False
    for number in range(150):
        answer(client, number)
    assert not valve.closed
    assert not valve.reading
    valve.open = True
    client.channel_writable()
    assert valve.reading
    assert [message["id"] for message in valve.sent] == list(range(150))
