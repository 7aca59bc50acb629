"""Why a command failed in its sandbox, and what allows it: read from what it said. Pure.

A hint is given only where the words fit the sandbox that the command ran in; nothing is guessed for a command that ran
without one.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import Final

from msgspec import Struct

# "Permission denied" alone has many other reasons.
_NO_WRITE: Final = re.compile(r"Read-only file system|EROFS|(?:create|touch|write|remove|open) .*Permission denied")
# The first repository that is named.
_GIT: Final = re.compile(r"((?:/[^\x27\":\n]+)?/?\.git)(?=[/\x27\":\s])")
_NO_NETWORK: Final = re.compile(
    r"Could not resolve host|Temporary failure in name resolution|Name or service not known|Network is unreachable|"
    r"getaddrinfo|EAI_AGAIN|ENETUNREACH"
)

# What is looked at: the end of the output, and not all of a line that is no message. Others wrote it, and it must not
# take long whatever it is.
_MOST: Final = 20_000
_MAX_LINE: Final = 500


class Hint(Struct, frozen=True):
    why: str
    do: str

    def lines(self) -> tuple[tuple[str, str], tuple[str, str]]:
        return ("why", self.why), ("try", self.do)


_READ_ONLY: Final = Hint("the sandbox is read-only", "--sandbox workspace-write")
_GIT_IS_KEPT: Final = (
    "the sandbox workspace-write keeps .git read-only, because hooks and settings in it run later without a sandbox"
)
_OUTSIDE: Final = Hint("the sandbox lets commands write in the working directory only", "--add-dir DIR")
_NETWORK: Final = Hint("the sandbox has no network", "-c sandbox_workspace_write.network_access=true")
_NETWORK_READ_ONLY: Final = Hint(
    "the sandbox has no network", "--sandbox workspace-write -c sandbox_workspace_write.network_access=true"
)


def hint_for(output: str, cwd: str, confinement: str | None, *, network: bool = False) -> Hint | None:
    """For a command that failed. `confinement` is the type of the sandbox policy that it ran in."""
    if confinement not in ("readOnly", "workspaceWrite"):
        return None
    output = "\n".join(line[:_MAX_LINE] for line in output[-_MOST:].splitlines())
    if not network and _NO_NETWORK.search(output):
        return _NETWORK_READ_ONLY if confinement == "readOnly" else _NETWORK
    if not _NO_WRITE.search(output):
        return None
    if confinement == "readOnly":
        return _READ_ONLY
    git = _GIT.search(output)
    return _OUTSIDE if git is None else Hint(_GIT_IS_KEPT, f"--add-dir {shlex.quote(_seen_from(cwd, git[1]))}")


def _seen_from(cwd: str, path: str) -> str:
    return os.path.basename(path) if os.path.dirname(path) in ("", cwd) else path


def patch_hint(confinement: str | None) -> Hint | None:
    """For a patch that was not applied. One that does not fit its files has no item: it was not allowed."""
    return {"readOnly": _READ_ONLY, "workspaceWrite": _OUTSIDE}.get(confinement or "")
