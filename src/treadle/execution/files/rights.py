"""What a sandbox policy lets file operations do, and where a path really leads under it.

Owns the check. A right is asked for the canonical location, and the operation then opens exactly that location without
following links (`place`): a link that is swapped in after the check makes the operation fail, never go elsewhere.
Without a policy everything is allowed and links are the kernel's business.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from treadle.execution.files.failures import denied_read, denied_write
from treadle.execution.files.place import Place, at

if TYPE_CHECKING:
    from treadle.execution.sandbox.policy import Policy


class Rights:
    """The rights of one request."""

    __slots__ = ("_policy",)

    def __init__(self, policy: Policy | None) -> None:
        self._policy = policy

    @property
    def confined(self) -> bool:
        return self._policy is not None

    def may_read(self, path: str) -> bool:
        return self._policy is None or self._policy.access(path) != "none"

    def may_write(self, path: str) -> bool:
        return self._policy is None or self._policy.access(path) == "write"

    def require_read(self, path: str) -> None:
        if not self.may_read(path):
            raise denied_read(path)

    def require_write(self, path: str) -> None:
        if not self.may_write(path):
            raise denied_write(path)

    def unreadable_below(self, path: str) -> list[str]:
        """Where rules take the right to read away, inside a directory that may be read."""
        return [rule for rule in self._rules_below(path) if not self.may_read(rule)]

    def unwritable_below(self, path: str) -> list[str]:
        return [rule for rule in self._rules_below(path) if not self.may_write(rule)]

    def location(self, path: str, *, link: bool = False) -> str:
        """Where the path leads, as far as rights depend on it. `link`: to a link at the path, not to its target."""
        if self._policy is None:
            return path
        if not link:
            return os.path.realpath(path)
        parent, name = os.path.split(path)
        return os.path.join(os.path.realpath(parent), name)

    @contextmanager
    def place(self, path: str, *, write: bool, follow: bool = True, link: bool = False) -> Iterator[Place]:
        """Check the right to the path and open its place. Without `follow` no component may be a link."""
        target = self.location(path, link=link) if follow else path
        if write:
            self.require_write(target)
        else:
            self.require_read(target)
        with at(target, plain=self.confined or not follow) as place:
            yield place

    def _rules_below(self, path: str) -> Iterator[str]:
        if self._policy is None:
            return
        prefix = path.rstrip("/") + "/"
        for rule in self._policy.rules:
            if rule.path.startswith(prefix) and rule.path != path:
                yield rule.path
