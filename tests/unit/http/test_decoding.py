"""Content codings without I/O: any cut of the bytes gives the same body, and little does not become much at once."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.http import MAX_PIECE, BadCoding, ContentDecoder, UnknownCoding, decoder_for


def raw_deflate(data: bytes) -> bytes:
    coder = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return coder.compress(data) + coder.flush()


Coding: TypeAlias = tuple[str, Callable[[bytes], bytes]]

CODINGS: list[Coding] = [
    ("gzip", gzip.compress),
    ("X-GZIP", gzip.compress),
    ("deflate", zlib.compress),
    ("Deflate", raw_deflate),
    ("identity, gzip", gzip.compress),
]


def made(coding: str) -> ContentDecoder:
    decoder = decoder_for({"content-encoding": coding})
    assert decoder is not None
    return decoder


def decode(coding: str, pieces: list[bytes]) -> bytes:
    decoder, body = made(coding), bytearray()
    for piece in pieces:
        decoder.receive(piece)
        while part := decoder.take():
            assert len(part) <= MAX_PIECE
            body += part
    decoder.end()
    return bytes(body)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = sorted({place % (len(data) + 1) for place in places})
    return [data[start:end] for start, end in zip([0, *at], [*at, len(data)], strict=True)]


PLACES = st.lists(st.integers(0, 10_000), max_size=20)


@settings(deadline=None)
@given(st.sampled_from(CODINGS), st.binary(max_size=500), PLACES)
def test_any_cut_gives_the_same_body(coded: Coding, body: bytes, places: list[int]) -> None:
    name, encode = coded
    assert decode(name, cut(encode(body), places)) == body


@settings(deadline=None)
@given(st.sampled_from(CODINGS), st.binary(min_size=1, max_size=100), st.integers(1, 10_000))
def test_a_body_that_is_not_all_there_is_not_taken_for_a_whole_one(coded: Coding, body: bytes, at: int) -> None:
    name, encode = coded
    whole = encode(body)
    short = whole[: 1 + at % (len(whole) - 1)]
    with pytest.raises(BadCoding):
        decode(name, [short])


@settings(deadline=None)
@given(st.sampled_from(CODINGS), st.binary(max_size=200), PLACES)
def test_garbage_is_refused_or_decoded_but_nothing_else(coded: Coding, data: bytes, places: list[int]) -> None:
    def outcome(pieces: list[bytes]) -> bytes | None:
        try:
            return decode(coded[0], pieces)
        except BadCoding:
            return None

    assert outcome(cut(data, places)) == outcome([data])


def test_what_was_flushed_is_had_at_once() -> None:
    coder, decoder = zlib.compressobj(wbits=31), made("gzip")
    for event in (b"data: one\n\n", b"data: two\n\n"):
        decoder.receive(coder.compress(event) + coder.flush(zlib.Z_SYNC_FLUSH))
        assert (decoder.take(), decoder.take()) == (event, b"")


def test_a_bomb_comes_out_in_pieces() -> None:
    size = 64 * MAX_PIECE + 1
    decoder = made("gzip")
    decoder.receive(gzip.compress(bytes(size)))
    sizes = []
    while part := decoder.take():
        sizes.append(len(part))
    assert (max(sizes), sum(sizes)) == (MAX_PIECE, size)
    decoder.end()


def test_gzip_in_several_members_and_what_follows() -> None:
    assert decode("gzip", [gzip.compress(b"a") + gzip.compress(b"b")]) == b"ab"
    assert decode("gzip", [gzip.compress(b"a") + bytes(8)]) == b"a"
    assert decode("deflate", [zlib.compress(b"a") + b"more"]) == b"a"


def test_an_empty_body_is_one() -> None:
    assert decode("gzip", []) == b""


@pytest.mark.parametrize("coding", ["", "identity", " Identity , "])
def test_no_coding(coding: str) -> None:
    assert decoder_for({"content-encoding": coding}) is None
    assert decoder_for({}) is None


@pytest.mark.parametrize(("coding", "name"), [("br", "br"), ("ZSTD", "zstd"), ("gzip, br", "gzip, br"), ("a b", "a b")])
def test_codings_that_are_not_read(coding: str, name: str) -> None:
    with pytest.raises(UnknownCoding) as caught:
        decoder_for({"content-encoding": coding})
    assert caught.value.name == name


def test_nothing_is_held_back_until_more_comes() -> None:
    coded = gzip.compress(bytes(4 * MAX_PIECE))
    for end in range(1, len(coded), 41):
        decoder, size = made("gzip"), 0
        decoder.receive(coded[:end])
        while part := decoder.take():
            size += len(part)
        assert size == len(zlib.decompressobj(31).decompress(coded[:end]))
