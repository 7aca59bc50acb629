"""`unified`: the hunks of a unified diff between two versions of a file, without file headers.

Owns the format. Lines are those between line feeds; a carriage return stays at its line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

CONTEXT: Final = 3
MAX_PRODUCT: Final = 4_000_000  # lines × lines: beyond it, comparing takes seconds, and one large hunk says as much

Opcode: TypeAlias = tuple[str, int, int, int, int]


def text_of(data: bytes | None) -> str:
    """For showing: what is no UTF-8 becomes the replacement character."""
    return (data or b"").decode("utf-8", "replace")


def unified(old: bytes, new: bytes) -> str:
    """The hunks, empty when nothing changed."""
    before, after = _lines(text_of(old)), _lines(text_of(new))
    return "".join(_hunk(group, before, after) for group in _groups(_opcodes(before, after)))


def _lines(text: str) -> list[str]:
    *whole, rest = text.split("\n")
    lines = [f"{line}\n" for line in whole]
    return [*lines, rest] if rest else lines


def _opcodes(old: list[str], new: list[str]) -> list[Opcode]:
    """The differences in order, equal stretches left out. Equal ends are cut off first: edits are mostly small."""
    shortest = min(len(old), len(new))
    head = next((at for at in range(shortest) if old[at] != new[at]), shortest)
    tail = next((at for at in range(shortest - head) if old[-1 - at] != new[-1 - at]), shortest - head)
    left, right = old[head : len(old) - tail], new[head : len(new) - tail]
    if not left and not right:
        return []
    if not left or not right or len(left) * len(right) > MAX_PRODUCT:
        return [("replace", head, head + len(left), head, head + len(right))]
    from difflib import SequenceMatcher  # loaded with the first patch

    found = SequenceMatcher(None, left, right, autojunk=False).get_opcodes()
    return [(tag, head + a, head + b, head + c, head + d) for tag, a, b, c, d in found if tag != "equal"]


def _groups(opcodes: list[Opcode]) -> Iterator[list[Opcode]]:
    """Differences that are near enough to share a hunk."""
    group: list[Opcode] = []
    for opcode in opcodes:
        if group and opcode[1] - group[-1][2] > 2 * CONTEXT:
            yield group
            group = []
        group.append(opcode)
    if group:
        yield group


def _hunk(group: list[Opcode], old: list[str], new: list[str]) -> str:
    before = min(CONTEXT, group[0][1])
    after = min(CONTEXT, len(old) - group[-1][2])
    first, last = group[0][1] - before, group[-1][2] + after
    out = [f"@@ -{_range(first, last)} +{_range(group[0][3] - before, group[-1][4] + after)} @@\n"]
    at = first
    for _, start, stop, new_start, new_stop in group:
        out += [_marked(" ", line) for line in old[at:start]]
        out += [_marked("-", line) for line in old[start:stop]]
        out += [_marked("+", line) for line in new[new_start:new_stop]]
        at = stop
    out += [_marked(" ", line) for line in old[at:last]]
    return "".join(out)


def _range(start: int, stop: int) -> str:
    count = stop - start
    if count == 1:
        return str(start + 1)
    return f"{start + 1 if count else start},{count}"


def _marked(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"
