"""The faults that a session detects by itself: a runtime that does not start, hangs, or takes too long. Pure."""

from __future__ import annotations

from treadle.host.fault_text import clean, duration
from treadle.host.faults import Fault


def startup(runtime: str, reason: str) -> Fault:
    """The program is there and did not start.

    Args:
        runtime: What people call it.
        reason: Why, as a sentence.
    """
    advice = "Try once more; `treadle doctor` looks for the cause."
    return Fault(kind="startup", message=f"{runtime} did not start: {clean(reason)}", advice=advice, retire=True)


def stuck(runtime: str, seconds: float, doing: str = "") -> Fault:
    """It is there and does not answer.

    Args:
        runtime: What people call it.
        seconds: How long it was waited for.
        doing: What it should have done: `start the turn`.
    """
    what = f"did not {doing} within {duration(seconds)}" if doing else f"has not answered for {duration(seconds)}"
    return Fault(kind="stuck", message=f"{runtime} {what}.", advice="The next message starts a new one.", retire=True)


def quiet(runtime: str, seconds: float) -> Fault:
    """Nothing came after a tool had ended, and the settings say that this is the end.

    Args:
        runtime: What people call it.
        seconds: How long nothing came.
    """
    message = f"{runtime} went silent for {duration(seconds)} after the result of a tool; it is not used any more."
    advice = 'The next message starts a new one. `quiet_action="probe"` asks it first.'
    return Fault(kind="stuck", message=message, advice=advice, retire=True)


def deadline(seconds: float, limit: str) -> Fault:
    """The turn took too long.

    Args:
        seconds: The limit that it exceeded.
        limit: Which one: `idle` or `turn`.
    """
    how = "gave no sign of life for" if limit == "idle" else "was not done within"
    message = f"The turn {how} {duration(seconds)} and was ended."
    return Fault(kind="deadline", message=message, advice=f"A longer limit: Timeouts({limit}=…).", retire=True)


def aborted(reason: str, *, retire: bool = False) -> Fault:
    """The turn was given up.

    Args:
        reason: A whole sentence.
        retire: Whether the runtime is of no use any more.
    """
    return Fault(
        kind="aborted", message=clean(reason), advice="Send the message again if it still matters.", retire=retire
    )


def refused(runtime: str, doing: str) -> Fault:
    """The runtime cannot do what it was asked for.

    Args:
        runtime: What people call it.
        doing: What was asked for: `sum up threads`.
    """
    return Fault(kind="refused", message=f"{runtime} does not {doing}.")


def unexplained() -> Fault:
    """A turn that failed without a word."""
    return Fault(kind="other", message="The turn failed, and the runtime did not say why.", advice="Try again.")
