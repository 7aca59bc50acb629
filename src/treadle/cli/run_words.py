"""The events of a run in words, one line each: for the live view, for plain lines and for the end. Pure.

Whatever an engine wrote goes through `visible` here, before it is shown anywhere.
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
    """The same for what may be short: ` · 0.4s`, and nothing for what took no time."""
    if seconds < 0.05:
        return ""
    return f" · {seconds:.1f}s" if seconds < 10 else f" · {elapsed(seconds)}"


def title(action: Action) -> str:
    """What it does, on one line; a command that failed says how it ended."""
    text = visible_line(action.title) or action.kind
    code = action.detail.get("exit_code")
    return f"{text} (exit {code})" if isinstance(code, int) and code != 0 else text


def mark(event: ActionEvent) -> str:
    """How it stands, as a sign."""
    kind = event.action.kind
    if kind == "warning" or event.level in ("warning", "error"):
        return WARNING
    if event.phase != "completed":
        return RUNNING
    if event.ok is False:
        return FAILED
    return NOTE if kind in ("note", "telemetry") else DONE


def session(started: StartedEvent) -> str:
    """Which engine runs, with what."""
    name = visible_line(started.title) if started.title else ""
    return f"{started.engine} · {name}" if name else started.engine


def usage(used: Mapping[str, Any] | None) -> str:
    """`1,200 tokens in (1,000 cached), 34 out · $0.0123`; empty when nothing was told."""
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
