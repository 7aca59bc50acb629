"""`patch_summary`: which files a patch changes and how, in one line. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from treadle.protocol.app.actions import FileUpdateChange

_NAMED: Final = 3
_WORDS: Final = {"update": "updated", "add": "added", "delete": "deleted"}


def patch_summary(changes: Sequence[FileUpdateChange]) -> str:
    """`2 updated, 1 added: a, b, c, +1 more`."""
    if not changes:
        return "changes that are not known yet"
    counts = Counter(change_kind(change) for change in changes)
    kinds = [*_WORDS, *sorted(counts.keys() - _WORDS.keys())]
    counted = ", ".join(f"{counts[kind]} {_WORDS.get(kind, kind)}" for kind in kinds if counts[kind])
    paths = [change.path for change in changes]
    more = [f"+{len(paths) - _NAMED} more"] if len(paths) > _NAMED else []
    return f"{counted}: {', '.join([*paths[:_NAMED], *more])}"


def change_kind(change: FileUpdateChange) -> str:
    """`update`, `add` or `delete`, or the word of a newer server."""
    return change.kind.type or "changed"
