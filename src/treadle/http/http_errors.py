"""What goes wrong below the responses: a client that cannot be used, bytes that are no response."""

from __future__ import annotations

from treadle.errors import TreadleError


class HttpUnusable(TreadleError):
    """The client cannot be used as it is set up, or no longer: the message says what to do."""


class NotHttp(Exception):
    """What came is no response, or one that cannot be read. The text names no content: it may be secret."""
