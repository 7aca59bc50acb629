"""What `/diff` shows: what is changed in a repository and not committed, new files too.

git runs where the agent's commands run, through the server, and may only read. The repository may be a stranger's: what
it names as diff or text programs is not run.
"""

from __future__ import annotations

from typing import Final

from treadle.client import AsyncAppServerClient
from treadle.protocol.app.commands import CommandExecResponse

MAX_NEW_FILES: Final = 50
MAX_BYTES: Final = 1 << 20
TIMEOUT_MS: Final = 15_000
_GIT: Final = ("git", "--no-pager", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
_DIFF: Final = ("diff", "--no-color", "--no-ext-diff", "--no-textconv")


class GitChanges:
    def __init__(self, client: AsyncAppServerClient, cwd: str) -> None:
        self._client = client
        self._cwd = cwd

    async def read(self) -> str | None:
        """As a diff; empty when nothing is changed, None outside of a repository."""
        if (await self._git("rev-parse", "--is-inside-work-tree")).exit_code != 0:
            return None
        tracked = await self._git(*_DIFF, "HEAD", "--")
        if tracked.exit_code != 0:  # there is no commit yet
            tracked = await self._git(*_DIFF, "--cached", "--")
        listed = await self._git("ls-files", "--others", "--exclude-standard", "-z")
        new = [path for path in listed.stdout.split("\0") if path]
        parts = [tracked.stdout]
        parts += [
            (await self._git(*_DIFF, "--no-index", "--", "/dev/null", path)).stdout for path in new[:MAX_NEW_FILES]
        ]
        if len(new) > MAX_NEW_FILES:
            parts.append(f"… and {len(new) - MAX_NEW_FILES} more new files\n")
        return "".join(parts)

    async def _git(self, *words: str) -> CommandExecResponse:
        return await self._client.command_exec(
            {
                "command": [*_GIT, *words],
                "cwd": self._cwd,
                "sandboxPolicy": {"type": "readOnly"},
                "outputBytesCap": MAX_BYTES,
                "timeoutMs": TIMEOUT_MS,
            }
        )
