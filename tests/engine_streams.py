"""`cases`: what the real agent programs printed, recorded once, for tests of what is made of it.

`python -m interop.engines.record` records them anew; `tests/data/engine_streams/README.md` tells how.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent / "data" / "engine_streams"
META: Final = FOLDER / "META.json"


@dataclass(frozen=True)
class Stream:
    """A recorded run: each line as it was printed, with its end, and the exit code (negative: by that signal).

    `meta` has `argv` (the engine's name, then the arguments), `stdin`, `rc` and `answer`.
    """

    engine: str
    name: str
    lines: list[bytes] = field(repr=False)
    rc: int
    meta: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        return f"{self.engine}_{self.name}"


def meta() -> dict[str, Any]:
    """What is known about the recorded runs, by the names of their files."""
    known: dict[str, Any] = json.loads(META.read_text(encoding="utf-8")) if META.exists() else {}
    return known


def cases(engine: str) -> list[Stream]:
    """The recorded runs of codex, claude, opencode or pi."""
    found = []
    for key, about in meta().items():
        recorded, _, name = key.partition("_")
        if recorded == engine:
            lines = (FOLDER / f"{key}.jsonl").read_bytes().splitlines(keepends=True)
            found.append(Stream(engine, name, lines, about["rc"], about))
    return found


def case(engine: str, name: str) -> Stream:
    """One of them."""
    return next(stream for stream in cases(engine) if stream.name == name)
