"""A small HTTP/1.1 client for many requests to one server: pooled connections, proxies, TLS.

It owns connections and framing, and knows nothing of models: what a request says, what the response means and whether
to retry is up to the caller. `http1`, `sse` and `target` are pure; `http_connection` opens sockets, sends requests over
them, and keeps idle ones alive in a pool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.internal_names import internal_name


def __getattr__(name: str) -> object:
    return internal_name(__name__, name)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.http.http1 import BadCoding, ContentDecoder, MAX_BLANK, MAX_HEAD, MAX_HEADERS, MAX_INTERIM, MAX_LINES
    from treadle.http.http1 import MAX_PIECE, ResponseHead, ResponseReader, UnknownCoding, decoder_for, encode_request
    from treadle.http.http_connection import HttpPool, HttpProtocol, MAX_UNREAD, PoolStats
    from treadle.http.http_errors import ConnectionLost, FailureReason, HttpUnusable, IdleTimeout, NotHttp
    from treadle.http.http_errors import connect_failure_of
    from treadle.http.public_address import NotPublic, is_public, public_addresses
    from treadle.http.sse import BodyReader, SseEvent, SseParser, SseTooLarge
    from treadle.http.target import BadUrl, HttpTarget, read_url
