"""The entries of a memory file: how they are written, and what an operation makes of them. Pure: no files here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from treadle.host.chat_messages import one_line
from treadle.host.guarded_folder import Refused
from treadle.host.injection import find_injection

SEPARATOR: Final = "§"
Target: TypeAlias = Literal["memory", "user"]
Action: TypeAlias = Literal["add", "replace", "remove"]
Entries: TypeAlias = tuple[str, ...]

MAX_OPERATIONS: Final = 100

# Enough to tell entries apart, when a model is to choose.
_SHOWN: Final = 100
_MOST: Final = 20


class Operation(Struct, frozen=True, kw_only=True):
    """One change of the entries.

    Args:
        action: `add` a new entry, `replace` one by another, or `remove` one.
        content: The new text, to add or to replace with.
        old_text: A part of the entry to replace or to remove that no other entry has.
    """

    action: Action
    content: str | None = None
    old_text: str | None = None


class MemoryChange(Struct, frozen=True, kw_only=True):
    """What came of a change. `entries` are those that are there now; sizes are in characters."""

    target: Target
    added: int
    replaced: int
    removed: int
    entries: Entries
    used: int
    limit: int


OnChange: TypeAlias = Callable[[MemoryChange], None]


def parse(text: str) -> Entries:
    """What is between lines with nothing but `§`; blank entries are none."""
    groups: list[list[str]] = [[]]
    for line in _unified(text).split("\n"):
        if line.strip() == SEPARATOR:
            groups.append([])
        else:
            groups[-1].append(line)
    return tuple(entry for group in groups if (entry := "\n".join(group).strip()))


def render(entries: Entries) -> str:
    return f"\n{SEPARATOR}\n".join(entries) + "\n" * bool(entries)


def size(entries: Entries) -> int:
    """In characters, with the separators between them."""
    return len(f"\n{SEPARATOR}\n".join(entries))


def changed(entries: Entries, operations: Sequence[Operation], limit: int) -> Entries:
    """The entries after all of the operations. Raises `Refused`: then none of them counts.

    What matters is how large they are at the end. A file that somebody else made too large may become smaller.
    """
    if not 0 < len(operations) <= MAX_OPERATIONS:
        raise Refused("invalid", f"give 1 to {MAX_OPERATIONS} operations, not {len(operations)}.")
    found = list(entries)
    longest = max(len(operation.content or "") for operation in operations)
    if longest > limit:
        raise Refused(
            "full", f"no entry can have more than {limit:,} characters, and this one has {longest:,}. Shorten it."
        )
    for number, operation in enumerate(operations, 1):
        try:
            match operation.action:
                case "add":
                    found.append(_new(operation, found))
                case "replace":
                    at = _find(found, operation)
                    found[at] = _new(operation, found[:at] + found[at + 1 :])
                case "remove":
                    if operation.content:
                        raise Refused("invalid", "`remove` takes `old_text` and no `content`.")
                    del found[_find(found, operation)]
        except Refused as error:
            if len(operations) == 1:
                raise
            problem = f"operation {number} of {len(operations)} cannot be done, so nothing was changed: {error}"
            raise Refused(error.kind, problem) from None
    after, before = size(tuple(found)), size(entries)
    if after > max(limit, before):
        problem = (
            f"it does not fit: {before:,} of {limit:,} characters are used, {max(0, limit - before):,} are free, and "
            f"this would make it {after:,}. Shorten it, or replace or remove something in the same call, with "
            f"`operations`. The entries are:\n{_listed(entries) or '(none)'}"
        )
        raise Refused("full", problem)
    return tuple(found)


def _new(operation: Operation, others: Sequence[str]) -> str:
    content = _unified(operation.content or "").strip()
    if not content:
        raise Refused("invalid", f"`{operation.action}` needs `content`, and it cannot be blank.")
    if operation.action == "add" and operation.old_text:
        raise Refused("invalid", "`add` takes `content` and no `old_text`; to change an entry, use `replace`.")
    if any(line.strip() == SEPARATOR for line in content.split("\n")):
        problem = f"a line with nothing but {SEPARATOR} separates entries: add them one by one, with `operations`."
        raise Refused("invalid", problem)
    reason = find_injection(content)
    if reason is not None:
        raise Refused("injection", f"this is not stored: {reason}. Say in other words what is worth knowing.")
    same = _comparable(content)
    if any(_comparable(other) == same for other in others):
        raise Refused("duplicate", "there is an entry that says the same already.")
    return content


def _find(entries: Sequence[str], operation: Operation) -> int:
    old = _unified(operation.old_text or "").strip()
    if not old:
        problem = f"`{operation.action}` needs `old_text`: a part of the entry that no other one has."
        raise Refused("invalid", problem)
    found = [index for index, entry in enumerate(entries) if old in entry]
    exact = [index for index in found if entries[index] == old]
    if len(exact) == 1 or len(found) == 1:
        return (exact or found)[0]
    if found:
        listed = _listed([entries[index] for index in found])
        raise Refused("ambiguous", f"`old_text` is in {len(found)} entries; give a part that only one has:\n{listed}")
    listed = _listed(entries) if entries else "(none)"
    raise Refused("not_found", f"no entry has `old_text` in it. The entries are:\n{listed}")


def _listed(entries: Sequence[str]) -> str:
    """Entries for somebody to choose from, each cut to a line; what a model should not see is not among them."""
    lines: list[str] = []
    for entry in entries[:_MOST]:
        reason = find_injection(entry)
        text = one_line(entry, _SHOWN) if reason is None else f"(one that is not shown, because {reason})"
        lines.append(f"- {text}")
    if len(entries) > _MOST:
        lines.append(f"- and {len(entries) - _MOST} more")
    return "\n".join(lines)


def _unified(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _comparable(text: str) -> str:
    return " ".join(text.casefold().split())
