"""`Git`: git commands in a repository, with a deadline and without interaction.

It owns how git is called: no prompt, no pager, no editor, no hooks, and without settings of another repository that
happen to be in the environment (as they are when Treadle runs in a hook).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import uuid
from typing import Final, NamedTuple

from treadle.errors import ExecError, TreadleError
from treadle.execution import Environment, EnvPolicy, ExecParams, Output, OutputStream, Process

logger: logging.Logger = logging.getLogger(__name__)

# A question is answered in milliseconds; on a cold network file system in seconds.
ASK_S: Final = 30.0
# A checkout of a very large repository.
CHANGE_S: Final = 300.0
# A checkout that is stopped is removed again; after that git is killed, which takes no time.
TIDY_S: Final = 10.0
END_S: Final = 5.0

# A hook is code of the repository that may ask, wait or fail; a monitor is a daemon that would outlive us.
_SETTINGS: Final = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "advice.detachedHead=false")
_ENV: Final = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
    # So that looking never makes somebody else's command fail.
    "GIT_OPTIONAL_LOCKS": "0",
    # Texts are compared nowhere but for the word `initializing`.
    "LC_ALL": "C",
}
# What ties a command to one repository: `git rev-parse --local-env-vars` lists them.
_TIES: Final = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_NAMESPACE", "GIT_CONFIG"),
    *("GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
    *("GIT_IMPLICIT_WORK_TREE", "GIT_GRAFT_FILE", "GIT_NO_REPLACE_OBJECTS", "GIT_REPLACE_REF_BASE"),
    *("GIT_SHALLOW_FILE", "GIT_INTERNAL_SUPER_PREFIX"),
)
_POLICY: Final = EnvPolicy(inherit="all", ignore_default_excludes=True, exclude=_TIES, set={}, include_only=())
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]+@")
MAX_SAID: Final = 2000
# Of each stream; a list of a thousand worktrees is a hundredth of it.
MAX_OUTPUT: Final = 16 << 20


class GitError(TreadleError):
    """git could not be run, or failed.

    Args:
        message: What happened, for people.
        command: What git was asked to do, without its settings.
        folder: Where.
        exit_code: How it ended; None when it did not start or took too long.
        said: What it wrote on its standard error, without passwords.
    """

    def __init__(
        self, message: str, *, command: tuple[str, ...], folder: str, exit_code: int | None = None, said: str = ""
    ) -> None:
        super().__init__(message)
        self.command = command
        self.folder = folder
        self.exit_code = exit_code
        self.said = said


class _Done(NamedTuple):
    exit_code: int | None
    stdout: bytes
    stderr: bytes


class Git:
    """git in one folder of this machine.

    Args:
        environment: Where its processes run; a local one.
        folder: Its working directory.
    """

    def __init__(self, environment: Environment, folder: str) -> None:
        self._environment = environment
        self.folder = folder

    def at(self, folder: str) -> Git:
        """The same in another folder."""
        return Git(self._environment, folder)

    async def ask(self, *words: str) -> str | None:
        """What git prints, without the line end; None when the answer is no."""
        done = await self._run(words, ASK_S)
        return _text(done.stdout) if done.exit_code == 0 else None

    async def tell(self, *words: str, timeout: float = ASK_S) -> str:
        """What git prints. Raises `GitError` when it fails."""
        done = await self._run(words, timeout)
        if done.exit_code == 0:
            return _text(done.stdout)
        said = _CREDENTIALS.sub("", done.stderr.decode("utf-8", "replace")).strip()[-MAX_SAID:]
        message = f"git {words[0]} failed in {self.folder} (exit {done.exit_code}): {said or 'it did not say why'}"
        raise GitError(message, command=words, folder=self.folder, exit_code=done.exit_code, said=said)

    async def _run(self, words: tuple[str, ...], timeout: float) -> _Done:
        params = ExecParams(
            process_id=f"git-{uuid.uuid4()}",
            argv=["git", *_SETTINGS, *words],
            cwd=self.folder,
            env=_ENV,
            env_policy=_POLICY,
        )
        try:
            process = await self._environment.start(params)
            return await _collect(process, timeout)
        except TimeoutError:
            message = f"git {words[0]} took longer than {timeout:g} s in {self.folder} and was stopped; try again"
        except ExecError as error:
            message = f"git cannot be run in {self.folder}: {error}; is git installed, and is the folder there?"
        raise GitError(message, command=words, folder=self.folder)


async def _collect(process: Process, timeout: float) -> _Done:
    """To its end, which is waited for also when it is stopped: git then tidies up what it had begun."""
    output = {OutputStream.STDOUT: bytearray(), OutputStream.STDERR: bytearray()}
    try:
        async with asyncio.timeout(timeout):
            async for event in process.events():
                if isinstance(event, Output) and len(output[event.stream]) < MAX_OUTPUT:
                    output[event.stream] += event.chunk
    finally:
        if not process.closed:
            await _stop(process)
    if process.failure is not None:
        raise ExecError(process.failure)
    return _Done(process.exit_code, bytes(output[OutputStream.STDOUT]), bytes(output[OutputStream.STDERR]))


async def _stop(process: Process) -> None:
    try:
        async with asyncio.timeout(TIDY_S + END_S):
            await process.terminate(TIDY_S)
            await process.wait()
    except (TimeoutError, ExecError) as error:
        logger.warning("%s may still run: %s", process.process_id, error or "it was stopped, and has not ended")


def _text(data: bytes) -> str:
    # As Python writes paths: what is no UTF-8 comes back as the same bytes.
    return os.fsdecode(data).removesuffix("\n")
