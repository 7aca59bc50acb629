"""Where our server is meant to behave differently from the real one, and why. Every other expectation is the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

Server = Literal["real", "treadle"]


@dataclass(frozen=True, slots=True)
class Difference:
    """What each server may answer: several values where the real one leaves it to chance."""

    real: tuple[Any, ...]
    treadle: tuple[Any, ...]
    reason: str

    def of(self, server: Server) -> tuple[Any, ...]:
        return self.real if server == "real" else self.treadle


DIFFERENCES: Final = {
    "steering": Difference(
        real=(
            {"items": ["userMessage", "userMessage", "agentMessage"], "answered": []},
            {"items": ["userMessage", "agentMessage", "userMessage", "agentMessage"], "answered": ["first half"]},
        ),
        treadle=(
            {"items": ["userMessage", "agentMessage", "userMessage", "agentMessage"], "answered": ["first half"]},
        ),
        reason="ours lets the running response finish and keeps it; since 0.163 the real one drops it if it can",
    ),
    "interrupt right after turn/start": Difference(
        real=(
            {"refusal": "no active turn to interrupt", "status": "completed"},
            {"refusal": "", "status": "interrupted"},
        ),
        treadle=({"refusal": "", "status": "interrupted"},),
        reason="with ours a turn is active from the answer to turn/start on; with the real one it is a race",
    ),
    "remote image": Difference(
        real=({"refusal": "remote image URLs are not supported; use an inline data URL instead"},),
        treadle=({"answer": "Seen.", "sent": ["https://example.invalid/a.png"]},),
        reason="models can fetch images; ours passes the URL on",
    ),
    "notes of the server": Difference(
        real=(["user"],),
        treadle=(["developer"],),
        reason="what the server tells the model (that a turn was interrupted) is not put into the mouth of the user",
    ),
    "summary": Difference(
        real=(["user"],),
        treadle=(["assistant"],),
        reason="a model wrote it, maybe from what a file or a page said: it is neither the user's word nor an order",
    ),
    "pages by creation": Difference(
        real=([[2, 1], [0]], [[2, 1], []]),
        treadle=([[2, 1], [0]],),
        reason="a cursor of the real one is a second, and threads created in that same second are lost",
    ),
    "sandbox of a fork": Difference(
        real=("readOnly",),
        treadle=("dangerFullAccess",),
        reason="a fork inherits the settings of its source; the real one forgets the sandbox and takes the file's",
    ),
    "browser login": Difference(
        real=({"cancelled": "canceled", "success": False},),
        treadle=({"refusal": -32600}, {"refusal": -32601}),
        reason="ours has logins with a key only",
    ),
}
