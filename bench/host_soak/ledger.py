"""`Ledger`: what the store must have, turn by turn, and what it has, read by a connection of its own."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.host_soak.model import answer

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Turn:
    """What is known of a turn from its result."""

    number: int
    said: str
    completed: bool
    steered: str | None = None
    """What was said in the middle of it, and taken."""


def rows_of(path: Path, session_id: str) -> list[tuple[str, Row]]:
    """The state and the message of every row, in order."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        found = connection.execute(
            "SELECT state, data FROM messages WHERE session_id = ? ORDER BY number", (session_id,)
        )
        return [(state, json.loads(data)) for state, data in found]


class Ledger:
    def __init__(self) -> None:
        self.turns: list[Turn] = []

    def check(self, rows: Sequence[tuple[str, Row]], shown: Sequence[Row]) -> list[str]:
        """Everything in the store that is missing, doubled, or has no business there; empty when all is well."""
        messages = [row for _, row in rows]
        problems = [f"message {at} is still open" for at, (state, _) in enumerate(rows) if state == "open"]
        if messages != list(shown):
            problems.append(f"the store has {len(messages)} messages, the agent shows {len(shown)}, or others")
        parts = list(_parts(messages, {turn.said for turn in self.turns}))
        if [part[0].get("content") for part in parts] != [turn.said for turn in self.turns]:
            counted = Counter(str(row.get("content")) for row in messages if row.get("role") == "user")
            wrong = [f"{turn.said!r} is there {counted[turn.said]} times" for turn in self.turns]
            problems.append("; ".join(["the user's messages", *(each for each in wrong if "1 times" not in each)]))
            return problems
        for turn, part in zip(self.turns, parts, strict=True):
            problems += [f"turn {turn.number}: {problem}" for problem in _of_turn(turn, part[1:])]
        return problems + _calls_of(messages)


def _parts(messages: Sequence[Row], begins: set[str]) -> Iterator[list[Row]]:
    """The messages turn by turn; what comes before the first is a turn of its own."""
    part: list[Row] = []
    for row in messages:
        if row.get("role") == "user" and row.get("content") in begins:
            if part:
                yield part
            part = []
        part.append(row)
    if part:
        yield part


def _of_turn(turn: Turn, rows: Sequence[Row]) -> Iterator[str]:
    words = answer(turn.number)
    texts = [row["content"] for row in rows if row.get("role") == "assistant" and row.get("content")]
    whole = sum(text == words for text in texts)
    if turn.completed and (whole != 1 or not rows or rows[-1].get("content") != words):
        yield f"the answer is there {whole} times, after {[row.get('role') for row in rows]}"
    for text in texts:
        if not words.startswith(text):
            yield f"{text!r} is not of this turn"
    users = [row.get("content") for row in rows if row.get("role") == "user"]
    if users != ([] if turn.steered is None else [turn.steered]):
        yield f"the user is said to have said {users} in the middle of it"


def _calls_of(messages: Sequence[Row]) -> list[str]:
    calls = [call["id"] for row in messages for call in row.get("tool_calls") or ()]
    results = [row.get("tool_call_id") for row in messages if row.get("role") == "tool"]
    problems = [f"the call {call} is there {count} times" for call, count in Counter(calls).items() if count != 1]
    if calls != results:
        problems.append(f"{len(calls)} calls have {len(results)} results, or not in this order")
    return problems
