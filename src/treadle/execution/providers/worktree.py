"""`worktree`: a branch in a folder of its own, on this machine, as a place of its own.

    [environments.try]
    provider = "worktree"
    options = { folder = "/home/me/project", branch = "try-it" }

The folder is made by git beside the others of the project (`.worktrees/BRANCH`). Commands there run in an exec-server
of this machine, which ends with the program that has asked for it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from msgspec import Struct

from treadle.errors import ExecError
from treadle.execution.environment import Environment
from treadle.execution.environment_provider import EnvironmentProvider, OpenedMachine
from treadle.execution.providers import find_program, read_options
from treadle.execution.worktrees import WORKTREES, GitError, WorktreeError, Worktrees
from treadle.own_python import treadle_command

T = TypeVar("T")


class WorktreeOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    folder: str
    """The project, or a folder in it."""
    branch: str
    """What is checked out; a new one where there is none."""
    base: str | None = None
    """What a new branch begins from."""
    worktrees: str = WORKTREES
    """Where its folder is made, seen from the top of the repository."""
    force: bool = False
    """Whether `stop` removes it with changes that are nowhere else."""

    @property
    def path(self) -> str:
        return os.path.abspath(os.path.expanduser(self.folder))


class WorktreeProvider:
    name = "worktree"

    async def open(self, environment_id: str, options: Mapping[str, Any], state: str) -> OpenedMachine:
        given = read_options(WorktreeOptions, options, self.name)
        folder = await _with(given, lambda worktrees: worktrees.folder(given.branch))
        return OpenedMachine(command=tuple(treadle_command("exec-server", "--listen", "stdio://")), workdir=folder)

    async def stop(self, environment_id: str, options: Mapping[str, Any], state: str) -> bool:
        given = read_options(WorktreeOptions, options, self.name)

        async def remove(worktrees: Worktrees) -> bool:
            if all(each.branch != given.branch for each in await worktrees.list()):
                return False
            await worktrees.remove(given.branch, force=given.force)
            return True

        return await _with(given, remove)


PROVIDERS: Final[Mapping[str, EnvironmentProvider]] = {"worktree": WorktreeProvider()}


async def _with(given: WorktreeOptions, work: Callable[[Worktrees], Awaitable[T]]) -> T:
    """Do something with the worktrees of the project. Raises `ExecError`."""
    find_program("git", "git")
    if not await asyncio.to_thread(os.path.isdir, given.path):
        raise ExecError(f"the `folder` {given.folder} is not there")
    async with await Environment.connect() as environment:
        try:
            return await work(Worktrees(given, environment))
        except (WorktreeError, GitError) as error:
            raise ExecError(f"the worktree of `{given.branch}` cannot be used: {error}") from None
