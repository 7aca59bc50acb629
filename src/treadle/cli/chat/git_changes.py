"""`GitChanges`: what git says of the repository that a session is in."""

from __future__ import annotations

from typing import Final

from treadle.cli.chat.chat_thread import ChatThread
from treadle.client import AsyncAppServerClient
from treadle.protocol.app.machine_methods import CommandExecResponse

MAX_NEW_FILES: Final = 50
MAX_COMMITS: Final = 100
MAX_BYTES: Final = 1 << 20
TIMEOUT_MS: Final = 15_000
_GIT: Final = ("git", "--no-pager", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
_DIFF: Final = ("diff", "--no-color", "--no-ext-diff", "--no-textconv")


class GitChanges:
    """What git says of a repository: its changes that are not committed, new files too, its branches and commits.

    git runs where the agent's commands run, through the server, and may only read, unless the agent may do anything: a
    container may have no sandbox. The repository may be a stranger's: what it names as diff or text programs is not
    run.
    """

    def __init__(self, client: AsyncAppServerClient, thread: ChatThread) -> None:
        self._client = client
        self._thread = thread

    async def has(self, path: str) -> bool:
        """Whether there is something at a path."""
        return (await self._run("test", "-e", path)).exit_code == 0

    async def read(self) -> str | None:
        """The changes as a diff; empty when nothing is changed, None outside of a repository."""
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

    async def branches(self) -> list[str]:
        """The local branches but that of now, the one committed to last first."""
        format = ("--sort=-committerdate", "--format=%(HEAD)%(refname:short)")
        lines = (await self._git("for-each-ref", *format, "refs/heads")).stdout.splitlines()
        return [line[1:] for line in lines if line.startswith(" ")]

    async def commits(self) -> list[tuple[str, str]]:
        """The last commits, by hash and subject."""
        listed = await self._git("log", f"--max-count={MAX_COMMITS}", "--no-show-signature", "--format=%H%x00%s")
        return [(sha, subject) for sha, _, subject in (line.partition("\0") for line in listed.stdout.splitlines())]

    async def _git(self, *words: str) -> CommandExecResponse:
        return await self._run(*_GIT, *words)

    async def _run(self, *command: str) -> CommandExecResponse:
        there = self._thread.elsewhere
        unconfined = there is not None and self._thread.confinement == "dangerFullAccess"
        return await self._client.command_exec(
            {
                "command": command,
                "cwd": self._thread.folder,
                "sandboxPolicy": {"type": "dangerFullAccess" if unconfined else "readOnly"},
                "outputBytesCap": MAX_BYTES,
                "timeoutMs": TIMEOUT_MS,
                **({} if there is None else {"environmentId": there.environment_id}),
            }
        )
