"""`Fault`: what went wrong with a runtime, in fields for programs and words that a person can act on."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from treadle.errors import TreadleError

FaultKind: TypeAlias = Literal[
    "auth",  # nobody is logged in, or the login is not accepted any more
    "usage_limit",  # the plan or the quota is used up
    "rate_limited",  # too much at once
    "overloaded",  # the provider, or the runtime, has too much to do
    "context_window",  # the thread does not fit any more
    "model_not_found",
    "policy",  # refused for what it is about
    "sandbox",  # the sandbox could not be set up
    "missing",  # the runtime's program is not there
    "startup",  # it is there and did not start
    "refused",  # the runtime does not take the request
    "dead",  # its process has ended, or the connection
    "stuck",  # it is there and does not answer
    "deadline",  # the turn took too long
    "aborted",  # the runtime gave the turn up
    "network",  # the provider cannot be reached
    "other",
]


class Fault(Struct, frozen=True, kw_only=True):
    """What went wrong.

    Args:
        kind: What it was, for programs.
        message: What happened, for people; no secrets.
        advice: What to do about it; may be empty.
        retire: Whether the runtime is of no use any more.
        retryable: Whether the same turn may succeed a moment later.
        retry_after_s: How long to wait before that, if the provider said so.
        resets_at: When a limit ends, in seconds since 1970, if that is known.
        exit_code: Of a runtime whose process has ended.
        stderr_tail: The last lines that it wrote there, without secrets.
    """

    kind: FaultKind
    message: str
    advice: str = ""
    retire: bool = False
    retryable: bool = False
    retry_after_s: float | None = None
    resets_at: float | None = None
    exit_code: int | None = None
    stderr_tail: str = ""

    def __str__(self) -> str:
        ends = not self.advice or self.message.endswith((".", "!", "?", "…"))
        said = f"{self.message if ends else self.message + '.'} {self.advice}".strip()
        return f"{said}\nstderr (last lines):\n{self.stderr_tail}" if self.stderr_tail else said


class RuntimeFault(TreadleError):
    """What a runtime raises when it cannot do what it was asked for."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class ResumeFailed(RuntimeFault):
    """The thread that was to be resumed cannot be: a new one may be opened on the same runtime."""


class SessionClosed(TreadleError):
    """A session was used after its `close`."""


class SessionBusy(TreadleError):
    """A session was to run a turn while another one runs."""
