"""HTTP/1.1 without I/O: any cut of the bytes gives the same response, and h11 reads it the same way."""

from __future__ import annotations

from typing import NamedTuple

import h11
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from treadle.http import (
    MAX_BLANK,
    MAX_HEAD,
    MAX_HEADERS,
    MAX_INTERIM,
    MAX_LINES,
    NotHttp,
    ResponseHead,
    ResponseReader,
    encode_request,
)

OK = b"HTTP/1.1 200 OK\r\n"
FRAMING = ("content-length", "transfer-encoding")
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


class Seen(NamedTuple):
    """All that a reader shows at the end."""

    head: ResponseHead | None
    body: bytes
    ended: bool
    reusable: bool
    failed: bool


def read(pieces: list[bytes], *, eof: bool = True, tunnel: bool = False) -> Seen:
    reader = ResponseReader(tunnel=tunnel)
    body = bytearray()
    failed = False
    try:
        for piece in pieces:
            reader.receive_data(piece)
            body += reader.take_body()
        ended, reusable = reader.ended, reader.reusable
        if eof:
            reader.receive_eof()
    except NotHttp:
        failed, ended, reusable = True, reader.ended, reader.reusable
    body += reader.take_body()
    return Seen(reader.head, bytes(body), reader.ended, reusable and ended, failed)


def read_with_h11(data: bytes) -> Seen:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
    connection.send(h11.Request(method="POST", target="/", headers=[("Host", "h"), ("Content-Length", "0")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(data)
    head, body, failed, closed = None, bytearray(), False, False
    try:
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA and not closed:
                closed = True
                connection.receive_data(b"")
            elif isinstance(event, h11.Response):
                head = ResponseHead(event.status_code, _joined(list(event.headers)))
            elif isinstance(event, h11.Data):
                body += event.data
            elif not isinstance(event, h11.InformationalResponse):
                break
    except h11.RemoteProtocolError:
        failed = True
    done = connection.their_state is h11.DONE
    whole = done or connection.their_state is h11.MUST_CLOSE or connection.their_state is h11.CLOSED
    return Seen(head, bytes(body), whole, done and not closed and not connection.trailing_data[0], failed)


def _joined(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in headers:
        key = name.decode()
        joined[key] = f"{joined[key]}, {value.decode('latin-1')}" if key in joined else value.decode("latin-1")
    return joined


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = sorted({place % (len(data) + 1) for place in places})
    return [data[start:end] for start, end in zip([0, *at], [*at, len(data)], strict=True)]


# --- responses -------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from([b"X-A", b"x-a", b"Retry-After", b"Content-Type", b"Set-Cookie"])
VALUES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f\x85\xa0")).map(
    lambda text: text.strip().encode("latin-1")
)
EXTENSIONS = st.sampled_from([b"", b";a", b";a=b", b'; a="b;c"'])
LINE_ENDS = st.sampled_from([b"\r\n", b"\n"])


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    """Well formed, and all there."""
    end = draw(LINE_ENDS)
    interim = b"".join(b"HTTP/1.1 10%d Wait" % code + end + end for code in draw(st.lists(st.sampled_from([0, 2, 3]))))
    status = draw(st.sampled_from([200, 200, 200, 204, 304, 307, 400, 429, 503, 599]))
    version = draw(st.sampled_from([b"1.1", b"1.1", b"1.1", b"1.0"]))
    headers = draw(st.lists(st.tuples(NAMES, VALUES), max_size=5))
    if draw(st.booleans()):
        headers.append((b"Connection", draw(st.sampled_from([b"close", b"keep-alive", b"x, Close"]))))
    framing, body = draw(st.one_of(with_length(), chunks(), to_eof()))
    headers.insert(draw(st.integers(0, len(headers))), framing)
    lines = [b"HTTP/%b %d%b" % (version, status, draw(st.sampled_from([b"", b" ", b" Because"])))]
    lines += [name + b":" + draw(st.sampled_from([b"", b" ", b" \t"])) + value for name, value in headers]
    return interim + end.join(lines) + end + end + (body if status not in (204, 304) else b"")


def with_length() -> st.SearchStrategy[tuple[tuple[bytes, bytes], bytes]]:
    return st.tuples(st.binary(), st.integers(1, 2)).map(
        lambda drawn: ((b"Content-Length", b", ".join([b"%d" % len(drawn[0])] * drawn[1])), drawn[0])
    )


@st.composite
def chunks(draw: st.DrawFn) -> tuple[tuple[bytes, bytes], bytes]:
    pieces = draw(st.lists(st.binary(min_size=1)))
    extension = draw(EXTENSIONS)  # servers that write them do so from the first chunk on
    written = [b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces]
    trailers = b"".join(b"X-T: %b\r\n" % value for value in draw(st.lists(VALUES, max_size=2)))
    last = draw(st.sampled_from([b"0", b"000"])) + extension + b"\r\n" + trailers + b"\r\n"
    return (b"Transfer-Encoding", draw(st.sampled_from([b"chunked", b"Chunked"]))), b"".join([*written, last])


def to_eof() -> st.SearchStrategy[tuple[tuple[bytes, bytes], bytes]]:
    return st.binary().map(lambda body: ((b"X-Framing", b"none"), body))


PLACES = st.lists(st.integers(0, 10_000), max_size=30)


@settings(deadline=None)
@given(responses(), PLACES)
def test_well_formed_responses_are_read_as_h11_reads_them(data: bytes, places: list[int]) -> None:
    seen, expected = read(cut(data, places)), read_with_h11(data)
    assert _others(seen.head) == _others(expected.head)
    assert seen[1:] == expected[1:]
    assert not seen.failed


def _others(head: ResponseHead | None) -> tuple[int, dict[str, str]]:
    """h11 tidies the headers about framing."""
    assert head is not None
    return head.status, {name: value for name, value in head.headers.items() if name not in FRAMING}


@settings(deadline=None)
@given(responses(), PLACES, st.integers(0, 10_000), st.binary(max_size=3), st.integers(0, 3), st.booleans())
@example(CHUNKED + b"5\r\nhello\r\n0\r\n\r\n", [40, 50], 60, b"x", 0, True)
def test_spoilt_responses_fail_the_same_way_however_they_are_cut(
    data: bytes, places: list[int], at: int, put: bytes, taken: int, eof: bool
) -> None:
    at %= len(data) + 1
    spoilt = data[:at] + put + data[at + taken :]
    assert read(cut(spoilt, places), eof=eof) == read([spoilt], eof=eof)
    assert read([spoilt[n : n + 1] for n in range(len(spoilt))], eof=eof) == read([spoilt], eof=eof)


@settings(deadline=None)
@given(responses(), st.integers(0, 10_000))
def test_a_response_that_is_cut_short_is_not_taken_for_a_whole_one(data: bytes, at: int) -> None:
    short = data[: at % len(data)] if data else b""
    whole, seen = read_with_h11(short), read([short])
    assert (seen.failed, seen.body) == (whole.failed or not whole.ended, whole.body)


# --- framing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "body", "reusable"),
    [
        (OK + b"Content-Length: 3\r\n\r\nabc", b"abc", True),
        (OK + b"Content-Length: 3, 3\r\n\r\nabc", b"abc", True),
        (OK + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", b"abc", True),
        (OK + b"Content-Length: 0\r\n\r\n", b"", True),
        (OK + b"Content-Length: 1\r\nConnection: close\r\n\r\na", b"a", False),
        (OK + b"Content-Length: 1\r\nConnection: a, Close\r\n\r\na", b"a", False),
        (OK + b"Content-Length: 1\r\n\r\na!", b"a", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\na", b"a", False),
        (CHUNKED + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", b"abcde", True),
        (CHUNKED + b"3 \r\nabc\r\n0 ;x\r\nTrailer: x\r\n\r\n", b"abc", True),
        (OK + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", b"a", False),
        (OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", b"a", True),
        (OK + b"Transfer-Encoding: chunked, Chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", b"a", True),
        (CHUNKED + b"2\n\na\n3;x\n\nb\n\n0\n\n", b"\na\nb\n", True),
        (CHUNKED + b"2\n\na\r\n0\nTrailer: x\n\n", b"\na", True),
        (CHUNKED + b"2\r\n\na\n2\r\n\nb\n0\r\n\r\n", b"\na\nb", True),
        (CHUNKED + b"3\r\nabc\r\n0  \r\n\r\n", b"abc", True),
        (b"\r\n" + CHUNKED + b"0\r\n\r\n", b"", True),
        (b"\r\n\n" + OK + b"Content-Length: 1\r\n\r\na", b"a", True),
        (OK + b"Content-Length: 1\r\n\r\na\r\n", b"a", True),
        (CHUNKED + b"1\r\na\r\n0\r\n\r\n" + b"\r\n", b"a", True),
        (CHUNKED + b"1\r\na\r\n0\r\n\r\n" + CHUNKED + b"1\r\nb\r\n", b"a", False),
        (CHUNKED + b"1\na\n0\n\n" + CHUNKED + b"1\r\nb\r\n", b"a", False),
        (b"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n", b"", True),
        (b"HTTP/1.1 304 No\r\n\r\n", b"", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No\r\n\r\n", b"", True),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", b"", False),
    ],
)
def test_where_a_body_ends(data: bytes, body: bytes, reusable: bool) -> None:
    for pieces in ([data], [data[n : n + 1] for n in range(len(data))]):
        seen = read(pieces, eof=False)
        assert (seen.body, seen.ended, seen.reusable, seen.failed) == (body, True, reusable, False)


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_body_without_a_length_ends_with_the_connection(version: bytes) -> None:
    data = b"HTTP/" + version + b" 200 OK\r\n\r\nabc"
    assert not read([data], eof=False).ended
    seen = read([data, b"def"])
    assert (seen.body, seen.ended, seen.reusable, seen.failed) == (b"abcdef", True, False, False)


def test_the_answer_of_a_proxy_has_no_body_when_it_is_a_yes() -> None:
    yes, no = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"HTTP/1.1 407 No\r\nContent-Length: 1\r\n\r\n"
    assert read([yes], eof=False, tunnel=True).ended
    assert not read([no], eof=False, tunnel=True).ended


def test_headers_are_found_in_lower_case_and_joined() -> None:
    seen = read([OK + b"X-A:  1 \r\nx-a: 2\r\nContent-Length: 0\r\nEmpty:\r\n\r\n"])
    assert seen.head == ResponseHead(200, {"x-a": "1, 2", "content-length": "0", "empty": ""})


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x15\x03\x03\x00\x02\x02\x50",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"HTTP/1.1 200 O\x00K\r\n\r\n",
        OK + b"A: b\r\n folded\r\n\r\n",
        OK + b" A: b\r\n\r\n",
        OK + b"A : b\r\n\r\n",
        OK + b": b\r\n\r\n",
        OK + b"no colon\r\n\r\n",
        OK + b"A: b\x00c\r\n\r\n",
        OK + b"A: b\rc\r\n\r\n",
        OK + b"A: b\x7f\r\n\r\n",
        OK + b"Content-Length: x\r\n\r\n",
        OK + b"Content-Length:\r\n\r\n",
        OK + b"Content-Length: -1\r\n\r\n",
        OK + b"Content-Length: +1\r\n\r\n",
        OK + b"Content-Length: 1_0\r\n\r\n",
        OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        OK + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\n",
        CHUNKED + b"x\r\n",
        CHUNKED + b"\r\n",
        CHUNKED + b"0x1\r\n",
        CHUNKED + b"-1\r\n",
        CHUNKED + b"1;\x00\r\n",
        CHUNKED + b"1\r\nxx\r\n",
        CHUNKED + b"f" * 17 + b"\r\n",
        CHUNKED + b"1\nxx\n",
        CHUNKED + b"0\r\nno trailer\r\n\r\n",
        CHUNKED + b"0\nno trailer\n\n",
    ],
)
def test_what_is_no_http_is_refused_as_soon_as_it_is_seen(data: bytes) -> None:
    assert read([data], eof=False).failed


@pytest.mark.parametrize(
    ("below", "above"),
    [
        (OK + b"A: " + b"x" * 60_000, OK + b"A: " + b"x" * MAX_HEAD),
        (OK + b"A: 1\r\n" * MAX_HEADERS + b"\r\n", OK + b"A: 1\r\n" * (MAX_HEADERS + 1) + b"\r\n"),
        (CHUNKED + b"1;" + b"x" * 60_000, CHUNKED + b"1;" + b"x" * MAX_LINES),
        (CHUNKED + b"1\r\nx\r\n2;" + b"x" * 60_000, CHUNKED + b"1\r\nx\r\n2;" + b"x" * 3 * MAX_LINES),
        (CHUNKED + b"0\r\nA: " + b"x" * 60_000, CHUNKED + b"0\r\nA: " + b"x" * MAX_LINES),
        (CHUNKED + b"0\nA: " + b"x" * 60_000, CHUNKED + b"0\n" + b"A: 1\n" * MAX_LINES),
        (b"\r\n" * (MAX_BLANK // 2), b"\r\n" * (MAX_BLANK // 2 + 1)),
        (b"HTTP/1.1 100 C\r\n\r\n" * MAX_INTERIM, b"HTTP/1.1 100 C\r\n\r\n" * (MAX_INTERIM + 1)),
    ],
    ids=[
        "head",
        "headers",
        "first line of a chunk",
        "line of a chunk",
        "trailers",
        "trailers by lines",
        "empty lines",
        "interim responses",
    ],
)
def test_limits(below: bytes, above: bytes) -> None:
    assert not read([below], eof=False).failed
    assert read([above[:100_000], above[100_000:]], eof=False).failed
    assert read([above[n : n + 1000] for n in range(0, len(above), 1000)], eof=False).failed


def test_a_body_is_handed_over_as_it_comes_also_inside_a_chunk() -> None:
    reader = ResponseReader()
    reader.receive_data(CHUNKED + b"ff\r\nabc")
    assert reader.take_body() == b"abc"
    reader.receive_data(b"de")
    assert (reader.unread, reader.take_body(), reader.unread) == (2, b"de", 0)


# --- requests --------------------------------------------------------------------------------------------------------


def test_a_request() -> None:
    sent = encode_request(b"POST", b"/a?b", [(b"Host", b"h"), (b"x", b"\xff y")], b"body")
    assert sent == b"POST /a?b HTTP/1.1\r\nHost: h\r\nx: \xff y\r\n\r\nbody"


@pytest.mark.parametrize("bad", [b"a\r\nb: c", b"a\nb", b"a\rb", b"a\0b"])
def test_a_request_cannot_be_split_by_what_is_in_it(bad: bytes) -> None:
    for target, headers in ((bad, []), (b"/", [(bad, b"v")]), (b"/", [(b"n", bad)])):
        with pytest.raises(ValueError, match="line end"):
            encode_request(b"POST", target, headers)
