"""The home in use, which commands must not see, whatever else they may do; and the entries that say so.

Owns what of the home stays readable. How a sandbox is put together is said in `sandbox_modes`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from typing import Final

from treadle.execution.sandbox.policy import contains, refused, resolve_path
from treadle.execution.uris import uri_from_path
from treadle.protocol.exec import SandboxEntry, SandboxPath, SandboxPathValue

# What models are meant to read in the home. It carries authority, so it is never writable.
INSTRUCTIONS: Final = ("skills", "prompts", "AGENTS.md", "AGENTS.override.md")


class HiddenHome:
    """The home in use. It is made when it is missing, so that there is something to cover."""

    def __init__(self, home: str) -> None:
        with contextlib.suppress(OSError):  # where we cannot make it, no command can
            os.makedirs(home, mode=0o700, exist_ok=True)
        found = resolve_path(os.path.abspath(home))
        self._path, self._links = found.canonical, found.links

    def has(self, path: str) -> bool:
        return contains(self._path, path)

    def is_in(self, root: str) -> bool:
        return contains(root, self._path)

    def reserves(self, root: str) -> bool:
        """Whether the root is the home itself, or is in a part of it that nobody may write."""
        name = os.path.relpath(root, self._path).split("/")[0]
        return self.has(root) and name in (".", *INSTRUCTIONS, "config.toml", "auth.json", "keys.json")

    def check_links(self, writable: Iterable[str]) -> None:
        """A link that a command could replace would decide what the next server takes for its home."""
        for link in self._links:
            if any(contains(root, os.path.dirname(link)) for root in writable):
                raise refused(
                    f"the home of Treadle is found through the symbolic link {link!a}, which a command could "
                    f"replace; set TREADLE_HOME to {self._path!a}"
                )

    def check_outside(self, cwd: str) -> None:
        if cwd == self._path:
            raise refused(
                f"the working directory {cwd!a} is the home of Treadle itself, with its settings and its "
                "login, which commands must not see; choose another"
            )

    def entries(self, may_read: Callable[[str], bool] = lambda path: True) -> Iterable[SandboxEntry]:
        """The instructions are left out where the rest of the sandbox does not let them be read."""
        yield path_entry(self._path, "none")
        for path in (os.path.realpath(os.path.join(self._path, name)) for name in INSTRUCTIONS):
            if may_read(path):
                yield path_entry(path, "read", "skip")


def root_entry() -> SandboxEntry:
    return SandboxEntry(path=SandboxPath(type="special", value=SandboxPathValue(kind="root")), access="read")


def minimal_entry() -> SandboxEntry:
    return SandboxEntry(path=SandboxPath(type="special", value=SandboxPathValue(kind="minimal")), access="read")


def path_entry(path: str, access: str, missing: str | None = None) -> SandboxEntry:
    return SandboxEntry(
        path=SandboxPath(type="path", path=uri_from_path(path)), access=access, missing_path_behavior=missing
    )
