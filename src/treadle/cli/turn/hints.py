"""Why a command failed in its sandbox, and what allows it: read from what it said. Pure.

A hint is given only where the words fit the sandbox that the command ran in; nothing is guessed for a command that ran
without one.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

# "Permission denied" alone has many other reasons.
_NO_WRITE: Final = re.compile(r"Read-only file system|EROFS|(?:create|touch|write|remove|open) .*Permission denied")
_GIT: Final = re.compile(r"\.git\b")
_NO_NETWORK: Final = re.compile(
    r"Could not resolve host|Temporary failure in name resolution|Name or service not known|Network is unreachable|"
    r"getaddrinfo|EAI_AGAIN|ENETUNREACH"
)


class Hint(Struct, frozen=True):
    why: str
    do: str

    def lines(self) -> tuple[tuple[str, str], tuple[str, str]]:
        return ("why", self.why), ("try", self.do)


_READ_ONLY: Final = Hint("the sandbox is read-only", "--sandbox workspace-write")
_GIT_DIRECTORY: Final = Hint(
    "the sandbox workspace-write keeps .git read-only, because hooks and settings in it run later without a sandbox",
    "--add-dir .git",
)
_OUTSIDE: Final = Hint("the sandbox lets commands write in the working directory only", "--add-dir DIR")
_NETWORK: Final = Hint("the sandbox has no network", "-c sandbox_workspace_write.network_access=true")
_NETWORK_READ_ONLY: Final = Hint(
    "the sandbox has no network", "--sandbox workspace-write -c sandbox_workspace_write.network_access=true"
)


def hint_for(output: str, confinement: str | None, *, network: bool = False) -> Hint | None:
    """For a command that failed. `confinement` is the type of the sandbox policy that it ran in."""
    if confinement not in ("readOnly", "workspaceWrite"):
        return None
    if not network and _NO_NETWORK.search(output):
        return _NETWORK_READ_ONLY if confinement == "readOnly" else _NETWORK
    if not _NO_WRITE.search(output):
        return None
    if confinement == "readOnly":
        return _READ_ONLY
    return _GIT_DIRECTORY if _GIT.search(output) else _OUTSIDE


def patch_hint(confinement: str | None) -> Hint | None:
    """For a patch that was not applied. One that does not fit its files has no item: it was not allowed."""
    return {"readOnly": _READ_ONLY, "workspaceWrite": _OUTSIDE}.get(confinement or "")
