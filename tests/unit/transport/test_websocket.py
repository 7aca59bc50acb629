"""The framer without sockets: what we write, the limits, and that the cuts of a stream change nothing.

The rules of RFC 6455 are checked over sockets, in `contract/test_websocket_rules.py`.
"""

from __future__ import annotations

import logging
import struct
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.transport import MAX_FRAME, WebSocketFramer
from websocket_wire import CLOSE, PING, PONG, TEXT, close_frame, frame, frames_in

ROLE = pytest.mark.parametrize("client", [False, True], ids=["server", "client"])
LONG = st.sampled_from([125, 126, 127, 65535, 65536, 70_000]).map(lambda size: b"x" * size)
TEXTS = st.text(max_size=40).map(str.encode) | LONG


def _chunks(stream: bytes, sizes: Iterable[int]) -> list[bytes]:
    chunks, at = [], 0
    for size in sizes:
        chunks.append(stream[at : at + size])
        at += size
    return [chunk for chunk in (*chunks, stream[at:]) if chunk]


def _receive(framer: WebSocketFramer, chunks: Iterable[bytes]) -> list[bytes]:
    return [message for chunk in chunks for message in framer.receive(chunk)]


def _frame(opcode: int, payload: bytes = b"", *, final: bool = True) -> bytes:
    """From a client."""
    return frame(opcode, payload, masked=True, final=final)


def _close_code(framer: WebSocketFramer) -> int:
    closing = frames_in(b"".join(framer.outgoing))[-1]
    assert closing.opcode == CLOSE
    return int.from_bytes(closing.payload[:2], "big")


# --- what we write ---------------------------------------------------------------------------------------------------


@ROLE
@settings(deadline=None)
@given(messages=st.lists(TEXTS, max_size=8))
def test_what_we_write_is_whole_frames_masked_by_role(client: bool, messages: list[bytes]) -> None:
    framer = WebSocketFramer(client=client)
    stream = b"".join(b"".join(framer.message(message)) for message in messages)
    assert frames_in(stream) == [(TEXT, message, client, True) for message in messages]


@ROLE
def test_ping_and_close_and_no_second_close(client: bool) -> None:
    framer = WebSocketFramer(client=client)
    stream = b"".join((*framer.ping(), *framer.close(), *framer.close()))
    assert frames_in(stream) == [(PING, b"", client, True), (CLOSE, b"\x03\xe8", client, True)]


def test_masks_differ() -> None:
    framer = WebSocketFramer(client=True)
    assert len({b"".join(framer.message(b"same")) for _ in range(20)}) > 1


def test_what_is_written_does_not_touch_what_is_owed() -> None:
    """One thread may write while another reads."""
    framer = WebSocketFramer(client=True)
    framer.receive(frame(PING, b"?", masked=False))
    framer.message(b"x")
    framer.ping()
    assert frames_in(b"".join(framer.outgoing)) == [(PONG, b"?", True, True)]


@ROLE
def test_nothing_is_owed_after_our_close(client: bool) -> None:
    framer = WebSocketFramer(client=client)
    framer.close()
    framer.receive(frame(PING, b"?", masked=not client) + frame(TEXT, b"late", masked=not client))
    framer.receive(close_frame(1000, masked=not client))
    assert framer.outgoing == []
    assert framer.ended


def test_after_an_answered_close_there_is_no_other() -> None:
    framer = WebSocketFramer(client=False)
    framer.receive(close_frame(1001, masked=True))
    assert _close_code(framer) == 1001
    assert framer.close() == []


@pytest.mark.parametrize("client", [False, True])
def test_frames_are_not_logged(client: bool, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        framer = WebSocketFramer(client=client)
        framer.receive(frame(TEXT, b"secret", masked=not client, final=False) + frame(0, b"x", masked=not client))
        framer.message(b"secret")
        framer.receive(close_frame(1000, masked=not client))
    assert caplog.records == []


# --- limits ----------------------------------------------------------------------------------------------------------


def test_message_over_the_frame_limit_goes_in_fragments_that_the_other_side_accepts() -> None:
    """A file of 20 MiB in one answer must not end the connection."""
    message = b"0123456789abcdef" * (MAX_FRAME // 16) + b"tail"
    for client in (False, True):
        sender, receiver = WebSocketFramer(client=client), WebSocketFramer(client=not client)
        assert receiver.receive(b"".join(sender.message(message))) == [message]
        assert not receiver.ended


@ROLE
@given(st.integers(0, 100))
def test_a_long_message_goes_in_fragments(client: bool, size: int) -> None:
    framer = WebSocketFramer(client=client, max_frame=16)
    seen = frames_in(b"".join(framer.message(b"x" * size)))
    assert b"".join(piece.payload for piece in seen) == b"x" * size
    assert all(len(piece.payload) <= 16 for piece in seen)
    assert [piece.opcode for piece in seen] == [TEXT] + [0] * (len(seen) - 1)
    assert [piece.final for piece in seen] == [False] * (len(seen) - 1) + [True]


def test_frame_at_the_limit_passes_and_above_it_ends() -> None:
    assert WebSocketFramer(client=False, max_frame=1000).receive(_frame(1, b"x" * 1000)) == [b"x" * 1000]
    framer = WebSocketFramer(client=False, max_frame=1000)
    assert framer.receive(_frame(1, b"x" * 1001)) == []
    assert framer.ended
    assert "1001 bytes" in framer.end_reason
    assert _close_code(framer) == 1009


def test_frame_over_the_limit_is_refused_by_its_header() -> None:
    framer = WebSocketFramer(client=False)
    framer.receive(struct.pack("!BBQ", 0x81, 0xFF, 2**62) + bytes(4))
    assert framer.ended
    assert _close_code(framer) == 1009


def test_message_over_the_limit_ends() -> None:
    framer = WebSocketFramer(client=False, max_frame=100, max_message=250)
    assert framer.receive(_frame(1, b"x" * 100, final=False) + _frame(0, b"x" * 100, final=False)) == []
    assert not framer.ended
    assert framer.receive(_frame(0, b"x" * 51)) == []
    assert framer.ended
    assert framer.end_reason == "message is over the limit of 250 bytes"
    assert _close_code(framer) == 1009


def test_message_size_counts_anew_for_each_message() -> None:
    framer = WebSocketFramer(client=False, max_frame=100, max_message=150)
    message = _frame(1, b"x" * 70, final=False) + _frame(0, b"x" * 70)
    assert len(framer.receive(message * 5)) == 5


def test_fragments_without_content_do_not_grow_memory() -> None:
    framer = WebSocketFramer(client=False)
    framer.receive(_frame(1, final=False))
    many = _frame(0, final=False) * 1_000
    framer.receive(many)
    tracemalloc.start()
    for _ in range(10):
        framer.receive(many)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 20_000
    assert framer.receive(_frame(0, b"end")) == [b"end"]


# --- cuts ------------------------------------------------------------------------------------------------------------

PIECES = st.one_of(
    st.builds(lambda text: (TEXT, text, True), TEXTS),
    st.builds(
        lambda opcode, payload, final: (opcode, payload, final), st.sampled_from([0, 1, 2]), TEXTS, st.booleans()
    ),
    st.builds(lambda payload: (PING, payload, True), st.binary(max_size=125)),
    st.just((TEXT, b"\xff", True)),
    st.just((CLOSE, b"\x03\xe8", True)),
)


def _story(client: bool, chunks: Iterable[bytes]) -> object:
    framer = WebSocketFramer(client=client, max_frame=66_000, max_message=100_000)
    messages = _receive(framer, chunks)
    answers = [(seen.opcode, seen.payload) for seen in frames_in(b"".join(framer.outgoing))]
    return messages, answers, framer.ended, framer.end_reason


@ROLE
@settings(deadline=None)
@given(
    pieces=st.lists(PIECES, max_size=8), junk=st.binary(max_size=6), sizes=st.lists(st.integers(1, 300), max_size=60)
)
def test_cuts_of_a_stream_of_frames_change_nothing(
    client: bool, pieces: list[tuple[int, bytes, bool]], junk: bytes, sizes: list[int]
) -> None:
    frames = (frame(opcode, payload, masked=not client, final=final) for opcode, payload, final in pieces)
    stream = b"".join((*frames, junk))
    assert _story(client, [stream] if stream else []) == _story(client, _chunks(stream, sizes))


@ROLE
@settings(deadline=None)
@given(messages=st.lists(st.lists(TEXTS, min_size=1, max_size=3), max_size=5), sizes=st.lists(st.integers(1, 50)))
def test_messages_arrive_whole_and_in_order(client: bool, messages: list[list[bytes]], sizes: list[int]) -> None:
    stream = b"".join(
        frame(0 if number else TEXT, piece, masked=not client, final=number == len(pieces) - 1)
        for pieces in messages
        for number, piece in enumerate(pieces)
    )
    framer = WebSocketFramer(client=client)
    assert _receive(framer, _chunks(stream, sizes)) == [b"".join(pieces) for pieces in messages]
    assert not framer.ended


@ROLE
@settings(deadline=None)
@given(stream=st.binary(max_size=300), sizes=st.lists(st.integers(1, 40), max_size=30))
def test_no_bytes_raise_and_their_cuts_change_nothing(client: bool, stream: bytes, sizes: list[int]) -> None:
    assert _story(client, [stream]) == _story(client, _chunks(stream, sizes))


def test_text_only_skips_binary_whole_or_in_fragments() -> None:
    framer = WebSocketFramer(client=False, text_only=True)
    stream = _frame(2, b"no") + _frame(2, b"n", final=False) + _frame(0, b"o") + _frame(1, b"yes")
    assert framer.receive(stream) == [b"yes"]


def test_nothing_is_read_after_the_end() -> None:
    framer = WebSocketFramer(client=False)
    good = _frame(1, b"good")
    assert framer.receive(good + _frame(3) + good) == [b"good"]
    framer.outgoing.clear()
    assert framer.receive(good) == []
    assert framer.outgoing == []


def test_end_of_the_stream_is_told_unless_it_was_expected() -> None:
    cut = WebSocketFramer(client=False)
    cut.receive_eof()
    assert cut.ended
    assert "without a closing handshake" in cut.end_reason
    closed = WebSocketFramer(client=False)
    closed.receive(close_frame(1000, masked=True))
    closed.receive_eof()
    assert "code 1000" in closed.end_reason


def test_a_close_without_a_code_is_a_normal_one() -> None:
    framer = WebSocketFramer(client=False)
    framer.receive(_frame(CLOSE))
    assert framer.end_reason == "the peer closed the connection (code 1000)"
    assert frames_in(b"".join(framer.outgoing)) == [(CLOSE, b"", False, True)]
