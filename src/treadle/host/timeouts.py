"""`Timeouts`: every wait of a session, in seconds, in one place."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, TypeAlias, get_args

from treadle.arguments import seconds
from treadle.errors import ArgumentValueError

QuietAction: TypeAlias = Literal["probe", "warn", "retire"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long a session waits for what. None has no limit.

    Args:
        startup: For a runtime to be there, with its thread opened.
        request: For the answer to any other request.
        interrupt: For a turn to end after it was told to.
        idle: For any sign of life of a turn. Everything that the runtime tells renews it; while a person is asked
            something, it stands still.
        turn: For a whole turn, however lively it is. It stands still while a person is asked.
        quiet: For the next sign of life after a tool has ended; then `quiet_action` is done.
        quiet_action: `probe` asks the runtime something cheap and goes on waiting if it answers; `warn` only says so;
            `retire` ends the turn and the runtime.
        probe: For the answer to that.
        approval: For a person to decide; then the answer is no.
        tool: For one of the host's own tools.
        close: For a runtime to end in order.
        review: For a review in the background.
    """

    startup: float | None = 60.0
    request: float | None = 30.0
    interrupt: float | None = 5.0
    idle: float | None = 600.0
    turn: float | None = None
    quiet: float | None = 90.0
    quiet_action: QuietAction = "probe"
    probe: float | None = 5.0
    approval: float | None = 300.0
    tool: float | None = 90.0
    close: float | None = 10.0
    review: float | None = 600.0

    def __post_init__(self) -> None:
        if self.quiet_action not in get_args(QuietAction):
            allowed = ", ".join(get_args(QuietAction))
            raise ArgumentValueError("quiet_action", f"{self.quiet_action!r} is none of {allowed}")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "quiet_action" and value is not None:
                seconds(field.name, value)
