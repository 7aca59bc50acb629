"""The handshake that is answered before the server is loaded."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator

import pytest

from treadle.cli import answer_initialize
from treadle.cli.early_initialize import MAX_BYTES

HELLO = b'{"id":1,"method":"initialize","params":{"clientInfo":{"name":"me","version":"2"}}}\n'


class Pipes:
    def __init__(self) -> None:
        self.reader, self.to_server = os.pipe()
        self.from_server, self.writer = os.pipe()

    def close(self) -> None:
        for fd in (self.reader, self.to_server, self.from_server, self.writer):
            os.close(fd)


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    made.close()


def test_it_is_answered_and_the_rest_is_kept(pipes: Pipes) -> None:
    os.write(pipes.to_server, HELLO + b'{"id":2,"method":"thread/list"')
    opening = answer_initialize(pipes.reader, pipes.writer, "/the/home")
    answer = json.loads(os.read(pipes.from_server, 65536))
    assert answer["id"] == 1
    assert answer["result"]["codexHome"] == "/the/home"
    assert answer["result"]["userAgent"].startswith("me/0.166.0 (")
    assert opening.identity is not None
    assert (opening.identity.name, opening.identity.version) == ("me", "2")
    assert opening.unread == b'{"id":2,"method":"thread/list"'


def test_it_may_come_in_pieces(pipes: Pipes) -> None:
    os.write(pipes.to_server, HELLO[:30])
    rest = threading.Thread(target=os.write, args=(pipes.to_server, HELLO[30:]))
    rest.start()
    opening = answer_initialize(pipes.reader, pipes.writer, "/h")
    rest.join()
    assert opening.identity is not None
    assert opening.unread == b""


def test_a_descriptor_that_does_not_block_is_waited_for(pipes: Pipes) -> None:
    os.set_blocking(pipes.reader, False)
    late = threading.Thread(target=os.write, args=(pipes.to_server, HELLO))
    late.start()
    assert answer_initialize(pipes.reader, pipes.writer, "/h").identity is not None
    late.join()


@pytest.mark.parametrize(
    "first",
    [
        b'{"id":1,"method":"thread/list","params":{}}\n',
        b"no json\n",
        b"\n",
        b'{"id":1,"method":"initialize"}\n',
        b'{"id":1,"method":"initialize","params":{"clientInfo":{"name":"a\\u0001","version":"1"}}}\n',
        b'{"method":"initialize","params":{"clientInfo":{"name":"a","version":"1"}}}\n',
    ],
)
def test_everything_else_is_left_to_the_server(pipes: Pipes, first: bytes) -> None:
    os.write(pipes.to_server, first + HELLO)
    opening = answer_initialize(pipes.reader, pipes.writer, "/h")
    assert opening.identity is None
    assert opening.unread == first + HELLO
    os.set_blocking(pipes.from_server, False)
    with pytest.raises(BlockingIOError):
        os.read(pipes.from_server, 1)


def test_an_end_before_the_line_is_left_to_the_server() -> None:
    reader, to_server = os.pipe()
    os.write(to_server, b'{"id":1')
    os.close(to_server)
    opening = answer_initialize(reader, -1, "/h")
    os.close(reader)
    assert (opening.identity, opening.unread) == (None, b'{"id":1')


def test_a_line_without_end_is_not_read_for_ever(pipes: Pipes) -> None:
    flood = threading.Thread(target=os.write, args=(pipes.to_server, b"x" * MAX_BYTES))
    flood.start()
    opening = answer_initialize(pipes.reader, pipes.writer, "/h")
    flood.join()
    assert opening.identity is None
    assert opening.unread == b"x" * MAX_BYTES
