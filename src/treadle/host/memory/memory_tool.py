"""The tool `memory`: how a model changes what is remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.client.tools import Tool, ToolCallError
from treadle.host.memory.entries import Action, MemoryChange, OnChange, Operation, Target
from treadle.host.refused import Refused

if TYPE_CHECKING:
    from treadle.host.memory.memory_files import MemoryStore


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
            change = store.change(_operations(action, content, old_text, operations), target)
        except Refused as error:
            raise ToolCallError(str(error)) from error
        if on_change is not None and change.added + change.replaced + change.removed:
            on_change(change)
        return _told(change)

    return Tool(memory)


def _operations(
    action: Action | None, content: str | None, old_text: str | None, operations: list[Operation] | None
) -> list[Operation]:
    if operations is not None:
        if action is not None or content is not None or old_text is not None:
            raise Refused("invalid", "give either `action` with its texts, or `operations`, not both.")
        return operations
    if action is None:
        raise Refused("invalid", "give an `action` (add, replace or remove), or `operations`.")
    return [Operation(action=action, content=content, old_text=old_text)]


def _told(change: MemoryChange) -> str:
    done = [
        f"{number} {word}"
        for number, word in ((change.added, "added"), (change.replaced, "replaced"), (change.removed, "removed"))
        if number
    ]
    number = f"{len(change.entries)} {'entry' if len(change.entries) == 1 else 'entries'}"
    return (
        f"Kept: {', '.join(done) or 'nothing new'}. {number} in `{change.target}`, "
        f"{change.used:,} of {change.limit:,} characters ({100 * change.used // change.limit} %). "
        "The next session will see it."
    )
