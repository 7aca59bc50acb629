"""What goes wrong before there is a response."""

from __future__ import annotations

from treadle.errors import TreadleError


class HttpUnusable(TreadleError):
    """The client cannot be used as it is set up, or no longer: the message says what to do."""
