"""What we have beyond the Codex protocol. It is announced in the result of `initialize`; other clients ignore it.

Every notification about a thread carries `seq` beside `emittedAtMs`. Numbered ones are told once each, without gaps;
deltas carry the number of the event that they follow. `thread/events/list` gives what a client has missed.
"""

from __future__ import annotations

from typing import Any, Final

from treadle.protocol.app.handshake import InitializeResponse

ANNOUNCED: Final = {"treadle/threadEvents": {"version": 1}, "treadle/messageSearch": {"version": 1}}


class OurInitializeResponse(InitializeResponse, frozen=True, kw_only=True):
    extensions: dict[str, Any]
