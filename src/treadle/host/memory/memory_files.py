"""`MemoryStore`: two small files of entries, written by many, included in the prompt at the start of a session.

`MEMORY.md` is what the agent noted about its work, `USER.md` what it knows about its user. A person may edit both. The
store owns the files: locking, replacing, and backing up what a person wrote. `entries` owns their format. At the end
stands the tool by which a model changes them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from textwrap import indent
from typing import Final

from treadle.arguments import count, one_of, path, seconds
from treadle.client.tools import Tool, ToolCallError
from treadle.errors import ArgumentValueError
from treadle.host.guarded_folder import LOCK_S, GuardedFolder, Refused, locked, opened
from treadle.host.injection import find_injection
from treadle.host.memory.entries import (
    Action,
    Entries,
    MemoryChange,
    OnChange,
    Operation,
    Target,
    changed,
    parse,
    render,
    size,
)

FILES: Final[dict[Target, str]] = {"memory": "MEMORY.md", "user": "USER.md"}
BACKUPS: Final = "backups"
# A person's versions that were written over; the oldest go first.
MAX_BACKUPS: Final = 200
# All of it may go into every prompt.
MAX_LIMIT: Final = 100_000
# More is no memory; somebody put another file there.
MAX_BYTES: Final = 1 << 20

_TITLES: Final[dict[Target, str]] = {
    "memory": "Memory: your notes from earlier sessions",
    "user": "User: what you know about the user",
}


class MemoryStore:
    """What an agent remembers. Any thread may use it, and any number of processes the same folder.

    Args:
        folder: Where the files are; it is made at the first write.
        memory_limit: How many characters fit into `MEMORY.md`.
        user_limit: How many fit into `USER.md`.
        lock_wait_s: How long to wait for another writer.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        memory_limit: int = 2200,
        user_limit: int = 1375,
        lock_wait_s: float = LOCK_S,
    ) -> None:
        # Links on the way to it are the user's; one that comes to lie in its place later is not followed.
        self.folder: str = os.path.realpath(os.path.expanduser(path("folder", folder)))
        self.limits: dict[Target, int] = {
            "memory": _limit("memory_limit", memory_limit),
            "user": _limit("user_limit", user_limit),
        }
        self._lock_wait_s = seconds("lock_wait_s", lock_wait_s)

    def entries(self, target: Target = "memory") -> Entries:
        """What is there now. Raises `Refused` when the file cannot be read."""
        name = FILES[_target(target)]
        with opened(self.folder) as folder:
            return () if folder is None else parse(_read(folder, name)[1])

    def add(self, content: str, target: Target = "memory") -> MemoryChange:
        """Add an entry."""
        return self.change([Operation(action="add", content=content)], target)

    def replace(self, old_text: str, content: str, target: Target = "memory") -> MemoryChange:
        """Replace the entry that has this text in it."""
        return self.change([Operation(action="replace", content=content, old_text=old_text)], target)

    def remove(self, old_text: str, target: Target = "memory") -> MemoryChange:
        """Remove the entry that has this text in it."""
        return self.change([Operation(action="remove", old_text=old_text)], target)

    def change(self, operations: Sequence[Operation], target: Target = "memory") -> MemoryChange:
        """Do all of the operations, or none: then it raises `Refused`, which says why."""
        name, limit = FILES[_target(target)], self.limits[target]
        with locked(self.folder, self._lock_wait_s) as folder:
            old, text = _read(folder, name)
            before = parse(text)
            after = changed(before, operations, limit)
            if after != before:
                _write(folder, name, old, render(after).encode())
        tally = [operation.action for operation in operations] if after != before else []
        return MemoryChange(
            target=target,
            added=tally.count("add"),
            replaced=tally.count("replace"),
            removed=tally.count("remove"),
            entries=after,
            used=size(after),
            limit=limit,
        )

    def prompt(self) -> str:
        """The part of the prompt at the start of a session; empty when nothing is remembered.

        What reads like an attack, does not fit, or cannot be read is left out, and the text says so.
        """
        blocks = [self._block(target) for target in FILES]
        return "\n\n".join(block for block in blocks if block)

    def _block(self, target: Target) -> str:
        limit, title = self.limits[target], _TITLES[target]
        try:
            entries = self.entries(target)
        except Refused as error:
            return f"# {title}\n(Not shown: {error}.)"
        if not entries:
            return ""
        kept: list[str] = []
        left_out: dict[str, int] = {}  # how many, for which reason
        shown = 0
        for entry in entries:
            with_it = shown + size((entry,) if not kept else ("", entry))
            # First what costs nothing: a file may have any number of entries, of any length.
            reason = f"more than the {limit:,} characters that fit" if with_it > limit else find_injection(entry)
            if reason is None:
                kept.append(entry)
                shown = with_it
            else:
                left_out[reason] = left_out.get(reason, 0) + 1
        used = size(entries)
        head = f"# {title} ({used:,} of {limit:,} characters, {100 * used // max(1, limit)} %)"
        notes = [f"({number} not shown: {reason}.)" for reason, number in left_out.items()]
        # Indented: an entry with a heading in it must not look like the end of the entries.
        return "\n".join([head, *([indent(render(tuple(kept)).rstrip("\n"), "  ")] if kept else []), *notes])

    def tool(self, *, on_change: OnChange | None = None) -> Tool:
        """The tool `memory`; `on_change` is called with every change."""
        return memory_tool(self, on_change)


def _limit(name: str, value: int) -> int:
    if not 0 < count(name, value) <= MAX_LIMIT:
        raise ArgumentValueError(name, f"{name} must be from 1 to {MAX_LIMIT:,} characters, not {value}")
    return value


def _target(target: Target) -> Target:
    one_of("target", target, FILES)
    return target


# --- files -----------------------------------------------------------------------------------------------------------


def _read(folder: GuardedFolder, name: str) -> tuple[bytes | None, str]:
    data = folder.read(name, MAX_BYTES)
    try:
        return data, (data or b"").decode("utf-8-sig")
    except UnicodeDecodeError:
        problem = f"{folder.place(name)} is not a text in UTF-8; save it as UTF-8, or move it away"
        raise Refused("unreadable", problem) from None


def _write(folder: GuardedFolder, name: str, old: bytes | None, new: bytes) -> None:
    """Replace a file; what a person wrote into it and is not in it any more goes to the backups first.

    Beside the file is the digest of what we wrote last; without it there is a backup too many, and nothing is lost.
    """
    note = f".{name}.sha256"
    if old and not new.startswith(old.rstrip(b"\n")) and folder.read(note, 1000) != _digest(old):
        with folder.inner(BACKUPS, create=True) as backups:
            if backups is None:
                raise Refused("unwritable", f"{folder.place(BACKUPS)} was removed a moment ago; try again")
            mine = [found for found in backups.names() if found.startswith(f"{name}.")]
            stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
            backups.replace(f"{name}.{stamp}.{_digest(old).decode()[:12]}", old)
            for oldest in mine[: max(0, len(mine) + 1 - MAX_BACKUPS)]:
                backups.remove(oldest)
    folder.replace(name, new)
    with suppress(Refused):
        folder.replace(note, _digest(new))


def _digest(data: bytes) -> bytes:
    return sha256(data).hexdigest().encode()


# --- the tool --------------------------------------------------------------------------------------------------------


def memory_tool(store: MemoryStore, on_change: OnChange | None) -> Tool:
    def memory(
        target: Target,
        action: Action | None = None,
        content: str | None = None,
        old_text: str | None = None,
        operations: list[Operation] | None = None,
    ) -> str:
        """Change what you remember. You see it at the start of every later session, so keep it short and lasting.

        Keep what will be true and useful in another session: how the user wants things done, corrections they made,
        facts about their machine, projects and conventions that cost effort to find out. Do not keep what was done
        today, what is in the repository anyway, passing errors, guesses, or secrets of any kind. Write statements ("The
        user prefers pytest"), not orders. An entry that is out of date is better replaced than kept beside a new one.
        Space is small: when it is full, remove or merge something in the same call, with `operations`.

        Args:
            target: `user` for the user (who they are, what they prefer), `memory` for everything else.
            action: `add` an entry, `replace` one, or `remove` one. Leave it out when you give `operations`.
            content: The text of the new entry, or the one to replace with.
            old_text: A part of the entry to replace or to remove that no other entry has.
            operations: Several changes at once, all or none; only their sizes at the end must fit.
        """
        try:
            if operations is None:
                if action is None:
                    raise Refused("invalid", "give an `action` (add, replace or remove), or `operations`.")
                operations = [Operation(action=action, content=content, old_text=old_text)]
            elif action is not None or content is not None or old_text is not None:
                raise Refused("invalid", "give either `action` with its texts, or `operations`, not both.")
            change = store.change(operations, target)
        except Refused as error:
            raise ToolCallError(str(error)) from error
        if on_change is not None and change.added + change.replaced + change.removed:
            on_change(change)
        tally = ((change.added, "added"), (change.replaced, "replaced"), (change.removed, "removed"))
        done = ", ".join(f"{number} {word}" for number, word in tally if number)
        entries = f"{len(change.entries)} {'entry' if len(change.entries) == 1 else 'entries'}"
        return (
            f"Kept: {done or 'nothing new'}. {entries} in `{change.target}`, "
            f"{change.used:,} of {change.limit:,} characters ({100 * change.used // change.limit} %). "
            "The next session will see it."
        )

    return Tool(memory)
