"""The events of a run as text, one line each: for the live view, for plain lines and for the summary. Pure.

Everything that an engine wrote is made `visible` here before it is shown anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from treadle.cli.visible import visible_line
from treadle.runners.progress import elapsed
from treadle.runners.run_events import Action, ActionEvent, StartedEvent

RUNNING: Final = "▸"
DONE: Final = "✓"
FAILED: Final = "✗"
WARNING: Final = "!"
NOTE: Final = "·"
UNFINISHED: Final = "–"


def took(seconds: float) -> str:
    """A duration, also a short one: ` · 0.4s`; empty if it took no time."""
    if seconds < 0.05:
        return ""
    return f" · {seconds:.1f}s" if seconds < 10 else f" · {elapsed(seconds)}"


def title(action: Action) -> str:
    """What it does, on one line; a command that failed says how it ended."""
    text = visible_line(action.title) or action.kind
    code = action.detail.get("exit_code")
    return f"{text} (exit {code})" if isinstance(code, int) and code != 0 else text


def mark(event: ActionEvent) -> str:
    """The state of an action as a symbol."""
    kind = event.action.kind
    if kind == "warning" or event.level in ("warning", "error"):
        return WARNING
    if event.phase != "completed":
        return RUNNING
    if event.ok is False:
        return FAILED
    return NOTE if kind in ("note", "telemetry") else DONE


def session(started: StartedEvent) -> str:
    """Which engine runs, and with what."""
    name = visible_line(started.title) if started.title else ""
    return f"{started.engine} · {name}" if name else started.engine


def usage(used: Mapping[str, Any] | None) -> str:
    """`1,200 tokens in (1,000 cached), 34 out · $0.0123`; empty if nothing was reported."""
    if not used:
        return ""
    words: list[str] = []
    if isinstance(used.get("input_tokens"), int):
        cached = used.get("cached_input_tokens")
        more = f" ({cached:,} cached)" if isinstance(cached, int) and cached else ""
        words.append(f"{used['input_tokens']:,} tokens in{more}, {used.get('output_tokens') or 0:,} out")
    cost = used.get("cost_usd")
    if isinstance(cost, int | float) and cost:
        words.append(f"${cost:.4f}")
    if words and used.get("scope") == "session":
        words.append("in the whole session")
    return " · ".join(words)
