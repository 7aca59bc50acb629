"""Our framer against the `websockets` library's, in both roles, and against hand-made frames that break the rules."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State

from treadle.transport.websocket import MAX_FRAME, WebSocketFramer

ROLE = pytest.mark.parametrize("client", [False, True], ids=["server", "client"])
LONG = st.sampled_from([125, 126, 127, 65535, 65536, 70_000]).map(lambda size: b"x" * size)
PAYLOADS = st.binary(max_size=40) | LONG
TEXTS = st.text(max_size=40).map(str.encode) | LONG


def _library(*, client: bool) -> Protocol:
    """The other side of a framer with the role `client`."""
    return Protocol(Side.SERVER if client else Side.CLIENT, state=State.OPEN, max_size=None)


def _chunks(stream: bytes, sizes: Iterable[int]) -> list[bytes]:
    chunks, at = [], 0
    for size in sizes:
        chunks.append(stream[at : at + size])
        at += size
    return [chunk for chunk in (*chunks, stream[at:]) if chunk]


def _receive(framer: WebSocketFramer, chunks: Iterable[bytes]) -> list[bytes]:
    return [message for chunk in chunks for message in framer.receive(chunk)]


def _frame(opcode: int, payload: bytes = b"", *, masked: bool = True, final: bool = True, reserved: int = 0) -> bytes:
    """A frame by hand, masked with zeros, so that it can break rules that a library keeps."""
    first = (0x80 if final else 0) | reserved | opcode
    mask = 0x80 if masked else 0
    if len(payload) < 126:
        header = bytes((first, mask | len(payload)))
    elif len(payload) < 65536:
        header = struct.pack("!BBH", first, mask | 126, len(payload))
    else:
        header = struct.pack("!BBQ", first, mask | 127, len(payload))
    return header + (bytes(4) if masked else b"") + payload


def _close_code(framer: WebSocketFramer) -> int:
    """The code that the framer wants to close with, as the library reads it."""
    peer = _library(client=False)
    peer.receive_data(b"".join(framer.outgoing))
    assert peer.close_rcvd is not None
    return peer.close_rcvd.code


# --- against the library ---------------------------------------------------------------------------------------------


@ROLE
@settings(deadline=None)
@given(messages=st.lists(TEXTS, max_size=8), sizes=st.lists(st.integers(1, 50), max_size=60))
def test_library_reads_what_we_write(client: bool, messages: list[bytes], sizes: list[int]) -> None:
    framer, peer = WebSocketFramer(client=client), _library(client=client)
    stream = b"".join(b"".join(framer.message(message)) for message in messages)
    for chunk in _chunks(stream, sizes):
        peer.receive_data(chunk)
    frames = peer.events_received()
    assert peer.parser_exc is None
    assert [bytes(frame.data) for frame in frames if isinstance(frame, Frame)] == messages
    assert all(isinstance(frame, Frame) and frame.opcode is Opcode.TEXT and frame.fin for frame in frames)


@ROLE
@settings(deadline=None)
@given(data=st.data(), sizes=st.lists(st.integers(1, 50), max_size=60))
def test_we_read_what_the_library_writes(client: bool, data: st.DataObject, sizes: list[int]) -> None:
    framer, peer = WebSocketFramer(client=client), _library(client=client)
    messages: list[bytes] = []
    pings: list[bytes] = []
    for _ in range(data.draw(st.integers(0, 6))):
        pieces = data.draw(st.lists(PAYLOADS, min_size=1, max_size=4))
        messages.append(b"".join(pieces))
        for number, piece in enumerate(pieces):
            if data.draw(st.booleans()):
                pings.append(data.draw(st.binary(max_size=125)))
                peer.send_ping(pings[-1])
            final = number == len(pieces) - 1
            if number:
                peer.send_continuation(piece, final)
            elif data.draw(st.booleans()):
                peer.send_binary(piece, final)
            else:
                peer.send_text(piece, final)
    received = _receive(framer, _chunks(b"".join(peer.data_to_send()), sizes))
    assert received == messages
    assert not framer.ended

    peer.receive_data(b"".join(framer.outgoing))
    pongs = [frame for frame in peer.events_received() if isinstance(frame, Frame)]
    assert [(frame.opcode, bytes(frame.data)) for frame in pongs] == [(Opcode.PONG, ping) for ping in pings]


@ROLE
def test_our_ping_is_answered_by_the_library(client: bool) -> None:
    framer, peer = WebSocketFramer(client=client), _library(client=client)
    peer.receive_data(b"".join(framer.ping()))
    assert _receive(framer, peer.data_to_send()) == []
    assert not framer.ended
    assert framer.outgoing == []


@ROLE
def test_close_of_the_library_is_answered_once(client: bool) -> None:
    framer, peer = WebSocketFramer(client=client), _library(client=client)
    peer.send_text(b"last")
    peer.send_close(1001, "bye")
    assert _receive(framer, peer.data_to_send()) == [b"last"]
    assert framer.ended
    assert "1001" in framer.end_reason
    peer.receive_data(b"".join(framer.outgoing))
    assert peer.close_rcvd is not None
    assert peer.close_rcvd.code == 1000
    assert framer.close() == []


@ROLE
def test_close_without_a_code_is_a_close(client: bool) -> None:
    framer, peer = WebSocketFramer(client=client), _library(client=client)
    peer.send_close()
    _receive(framer, peer.data_to_send())
    assert framer.ended
    assert framer.outgoing


@ROLE
def test_our_close_is_understood_by_the_library(client: bool) -> None:
    framer, peer = WebSocketFramer(client=client), _library(client=client)
    peer.receive_data(b"".join(framer.close()))
    assert peer.close_rcvd is not None
    assert peer.close_rcvd.code == 1000
    assert framer.close() == []
    peer_reply = b"".join(peer.data_to_send())
    framer.receive(peer_reply)
    assert framer.ended
    assert framer.outgoing == []


@ROLE
def test_masking_follows_the_role(client: bool) -> None:
    frame = b"".join(WebSocketFramer(client=client).message(b"hello"))
    assert bool(frame[1] & 0x80) is client
    assert (b"hello" in frame) is not client


def test_masks_differ() -> None:
    framer = WebSocketFramer(client=True)
    assert len({b"".join(framer.message(b"same")) for _ in range(20)}) > 1


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
def test_own_fragments_are_read_by_the_library(client: bool, size: int) -> None:
    framer, peer = WebSocketFramer(client=client, max_frame=16), _library(client=client)
    peer.receive_data(b"".join(framer.message(b"x" * size)))
    frames = [frame for frame in peer.events_received() if isinstance(frame, Frame)]
    assert b"".join(bytes(frame.data) for frame in frames) == b"x" * size
    assert all(len(frame.data) <= 16 for frame in frames)
    assert [frame.fin for frame in frames] == [False] * (len(frames) - 1) + [True]


def test_frame_at_the_limit_passes_and_above_it_ends() -> None:
    assert WebSocketFramer(client=False, max_frame=1000).receive(_frame(1, b"x" * 1000)) == [b"x" * 1000]
    framer = WebSocketFramer(client=False, max_frame=1000)
    assert framer.receive(_frame(1, b"x" * 1001)) == []
    assert framer.ended
    assert "1001 bytes" in framer.end_reason
    assert _close_code(framer) == 1009


def test_frame_over_the_limit_is_refused_by_its_header() -> None:
    framer = WebSocketFramer(client=False)
    framer.receive(struct.pack("!BBQ", 0x81, 0xFF, 2**63) + bytes(4))
    assert framer.ended
    assert _close_code(framer) == 1009


def test_message_over_the_limit_ends() -> None:
    framer = WebSocketFramer(client=False, max_frame=100, max_message=250)
    assert framer.receive(_frame(1, b"x" * 100, final=False) + _frame(0, b"x" * 100, final=False)) == []
    assert not framer.ended
    assert framer.receive(_frame(0, b"x" * 51)) == []
    assert framer.ended
    assert _close_code(framer) == 1009


def test_message_size_counts_anew_for_each_message() -> None:
    framer = WebSocketFramer(client=False, max_frame=100, max_message=150)
    message = _frame(1, b"x" * 70, final=False) + _frame(0, b"x" * 70)
    assert len(framer.receive(message * 5)) == 5


def test_fragments_without_content_do_not_grow_memory() -> None:
    framer = WebSocketFramer(client=False)
    framer.receive(_frame(1, final=False))
    many = _frame(0, final=False) * 10_000
    framer.receive(many)
    tracemalloc.start()
    for _ in range(10):
        framer.receive(many)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 200_000
    assert framer.receive(_frame(0, b"end")) == [b"end"]


# --- broken rules ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (_frame(1, b"x", reserved=0x40), "reserved bits"),
        (_frame(1, b"x", reserved=0x10), "reserved bits"),
        (_frame(3), "unknown opcode 3"),
        (_frame(11), "unknown opcode 11"),
        (_frame(9, final=False), "control frame"),
        (_frame(9, b"x" * 126), "control frame"),
        (_frame(8, b"x" * 126), "control frame"),
        (_frame(0, b"x"), "continuation without"),
        (_frame(1, b"x") + _frame(0, b"x"), "continuation without"),
        (_frame(1, final=False) + _frame(1, b"x"), "before the last one was complete"),
        (_frame(2, final=False) + _frame(2, b"x", final=False), "before the last one was complete"),
        (_frame(1, b"x", masked=False), "not masked"),
    ],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_broken_rule_ends_with_a_protocol_error(stream: bytes, reason: str, step: int) -> None:
    framer = WebSocketFramer(client=False)
    _receive(framer, _chunks(stream, [step] * len(stream)))
    assert framer.ended
    assert reason in framer.end_reason
    assert _close_code(framer) == 1002


def test_client_refuses_masked_frames() -> None:
    framer = WebSocketFramer(client=True)
    assert framer.receive(_frame(1, b"x")) == []
    assert framer.ended
    assert framer.end_reason == "frame is masked"


def test_nothing_is_read_after_the_end() -> None:
    framer = WebSocketFramer(client=False)
    good = _frame(1, b"good")
    assert framer.receive(good + _frame(3) + good) == [b"good"]
    framer.outgoing.clear()
    assert framer.receive(good) == []
    assert framer.outgoing == []


def test_no_pong_after_our_close() -> None:
    framer = WebSocketFramer(client=False)
    framer.close()
    framer.receive(_frame(9, b"?"))
    assert framer.outgoing == []


def test_end_of_the_stream_is_told_unless_it_was_expected() -> None:
    cut = WebSocketFramer(client=False)
    cut.receive_eof()
    assert cut.ended
    assert "without a closing handshake" in cut.end_reason
    closed = WebSocketFramer(client=False)
    closed.receive(_frame(8, b"\x03\xe8"))
    closed.receive_eof()
    assert "code 1000" in closed.end_reason


@settings(deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_no_bytes_raise(stream: bytes, client: bool) -> None:
    framer = WebSocketFramer(client=client, max_frame=200, max_message=300)
    for chunk in _chunks(stream, [7] * 50):
        for message in framer.receive(chunk):
            assert len(message) <= 300
    framer.receive_eof()
    assert framer.ended


@settings(deadline=None)
@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=30))
def test_chunking_changes_nothing(stream: bytes, sizes: list[int]) -> None:
    whole, pieces = WebSocketFramer(client=False), WebSocketFramer(client=False)
    assert whole.receive(stream) == _receive(pieces, _chunks(stream, sizes))
    assert (whole.ended, whole.end_reason, whole.outgoing) == (pieces.ended, pieces.end_reason, pieces.outgoing)
