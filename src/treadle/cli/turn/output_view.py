"""The output of commands: `OutputLines` makes lines of its pieces, `hint_for` finds what a sandbox has stopped. Pure.

A hint is given only where the words of the output fit the sandbox that the command ran in; nothing is guessed for a
command that ran without one.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import Final

from msgspec import Struct

# A line without an end is taken for one when it is this long, and a line is shown up to here.
MAX_LINE: Final = 2000
# A carriage return at the very end may be the first half of a line end.
_LINE_END: Final = re.compile(r"\r\n|\n|\r(?=.)", re.DOTALL)

# "Permission denied" alone has many other reasons.
_NO_WRITE: Final = re.compile(r"Read-only file system|EROFS|(?:create|touch|write|remove|open) .*Permission denied")
# The first repository that is named.
_GIT: Final = re.compile(r"((?:/[^\x27\":\n]+)?/?\.git)(?=[/\x27\":\s])")
_NO_NETWORK: Final = re.compile(
    r"Could not resolve host|Temporary failure in name resolution|Name or service not known|Network is unreachable|"
    r"getaddrinfo|EAI_AGAIN|ENETUNREACH"
)
# What is searched: the end of the output, and the beginning of each line. Others wrote it, and these expressions must
# not take long whatever it is.
_SEARCHED: Final = 20_000
_SEARCHED_LINE: Final = 500


class OutputLines:
    def __init__(self) -> None:
        self.count: int = 0
        """How many have come."""
        self.rest: str = ""
        """A line that has not ended."""

    def add(self, delta: str) -> list[str]:
        """The lines that have ended with this."""
        *lines, self.rest = _LINE_END.split(self.rest + delta)
        while len(self.rest) > MAX_LINE:
            lines.append(self.rest[:MAX_LINE])
            self.rest = self.rest[MAX_LINE:]
        self.count += len(lines)
        return lines

    def end(self, whole: str | None) -> list[str]:
        """The last lines: `whole` is all of the output, which is used when nothing has come before."""
        lines = self.add(whole) if whole and not self.count and not self.rest else []
        if self.rest:
            lines.append(self.rest)
            self.rest = ""
            self.count += 1
        return lines


class Hint(Struct, frozen=True):
    why: str
    do: str

    def lines(self) -> tuple[tuple[str, str], tuple[str, str]]:
        return ("why", self.why), ("try", self.do)


_READ_ONLY: Final = Hint("the sandbox is read-only", "--sandbox workspace-write")
_GIT_IS_READ_ONLY: Final = (
    "the sandbox workspace-write keeps .git read-only, because hooks and settings in it run later without a sandbox"
)
_OUTSIDE: Final = Hint("the sandbox lets commands write in the working directory only", "--add-dir DIR")
_NETWORK: Final = Hint("the sandbox has no network", "-c sandbox_workspace_write.network_access=true")
_NETWORK_READ_ONLY: Final = Hint(
    "the sandbox has no network", "--sandbox workspace-write -c sandbox_workspace_write.network_access=true"
)


def hint_for(output: str, cwd: str, confinement: str | None, *, network: bool = False) -> Hint | None:
    """Why a command failed in its sandbox, and what allows it.

    Args:
        output: What it wrote.
        cwd: Where it ran.
        confinement: The type of the sandbox policy that it ran in.
        network: Whether that policy allows the network.
    """
    if confinement not in ("readOnly", "workspaceWrite"):
        return None
    output = "\n".join(line[:_SEARCHED_LINE] for line in output[-_SEARCHED:].splitlines())
    if not network and _NO_NETWORK.search(output):
        return _NETWORK_READ_ONLY if confinement == "readOnly" else _NETWORK
    if not _NO_WRITE.search(output):
        return None
    if confinement == "readOnly":
        return _READ_ONLY
    git = _GIT.search(output)
    if git is None:
        return _OUTSIDE
    folder = os.path.basename(git[1]) if os.path.dirname(git[1]) in ("", cwd) else git[1]
    return Hint(_GIT_IS_READ_ONLY, f"--add-dir {shlex.quote(folder)}")


def patch_hint(confinement: str | None) -> Hint | None:
    """The hint for a patch that was not applied because it was not allowed: one that does not fit its files has no
    item."""
    return {"readOnly": _READ_ONLY, "workspaceWrite": _OUTSIDE}.get(confinement or "")
