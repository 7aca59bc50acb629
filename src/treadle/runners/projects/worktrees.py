"""`Worktrees`: the branches of a project, each checked out in a folder of its own: created, found, listed, removed.

It owns the rules: which branch is checked out where, what a new branch starts from, and what is never removed. It holds
one lock per repository meanwhile, which works between processes and ends with them.
"""

from __future__ import annotations

import asyncio
import os
from shlex import quote
from typing import Final

from treadle.execution import Environment
from treadle.runners.projects.branches import branch_problem
from treadle.runners.projects.checkouts import (
    Repository,
    Worktree,
    WorktreeError,
    alone,
    find_repository,
    make_room,
    parse_list,
    remove_empty,
)
from treadle.runners.projects.git import CHANGE_S, Git, GitError
from treadle.runners.projects.projects import Project

# What git writes into a worktree that it has begun to make, and takes away when it is done.
_HALF_MADE: Final = "initializing"


class Worktrees:
    """The worktrees of a project.

    Args:
        project: Whose they are. `Project(alias="…", path="…")` does for a folder that has no name.
        environment: Where git runs; a local one.
    """

    def __init__(self, project: Project, environment: Environment) -> None:
        self._project = project
        self._git = Git(environment, project.path)

    async def folder(self, branch: str | None = None) -> str:
        """Where to work on a branch: its worktree is made when there is none. Without a branch, the project's folder.

        A project that is a folder inside a repository is the same folder there.

        Args:
            branch: The branch.
        """
        if branch is None:
            return self._project.path
        worktree = await self.open(branch)
        inside = await self._git.tell("rev-parse", "--show-prefix")
        path = os.path.join(worktree.path, inside).rstrip("/")
        if not await asyncio.to_thread(os.path.isdir, path):
            message = f"the branch `{branch}` has no folder {inside} ({path}): choose another branch, or make it there"
            raise WorktreeError(message, "missing", branch=branch, path=path)
        return path

    async def open(self, branch: str) -> Worktree:
        """The worktree of a branch. One that exists is used; else it is made: from the local branch, else from that of
        origin (as it was last fetched), else as a new branch. What the main checkout has checked out is used there.

        Args:
            branch: The branch.
        """
        _check_name(branch)
        repository = await self._repository()
        async with alone(repository.shared):
            found = await self._existing(repository, branch)
            if found is None:
                await self._add(repository, branch)
                found = await self._existing(repository, branch)
        if found is None:
            raise WorktreeError(f"git has made no worktree for `{branch}`; try again", "missing", branch=branch)
        return found

    async def list(self) -> tuple[Worktree, ...]:
        """All of the repository's, the main checkout first."""
        return await self._all(await self._repository())

    async def remove(self, branch: str, *, force: bool = False) -> Worktree:
        """Remove the folder of a branch; the branch itself stays. Refused while something in it is nowhere else.

        Files that git ignores go with it.

        Args:
            branch: The branch.
            force: Remove it with changes that are not committed, and with commits that are not pushed or merged.
        """
        _check_name(branch)
        repository = await self._repository()
        async with alone(repository.shared):
            found = await self._removable(repository, branch)
            if not (force or found.vanished):
                await self._check_kept(found, branch)
            options = ("--force",) if force else ()
            await self._git.tell("worktree", "remove", *options, found.path, timeout=CHANGE_S)
            await asyncio.to_thread(remove_empty, os.path.dirname(found.path), repository.root)
        return found

    async def prune(self) -> tuple[Worktree, ...]:
        """Make git forget those of our folder that are gone; gives them back. Locked ones stay."""
        repository = await self._repository()
        async with alone(repository.shared):
            gone = [each for each in await self._all(repository) if each.managed and each.vanished]
            gone = [each for each in gone if each.locked is None]
            for each in gone:
                await self._git.tell("worktree", "remove", each.path)
        return tuple(gone)

    # --- what is there ---

    async def _repository(self) -> Repository:
        try:
            top = await self._git.tell("rev-parse", "--show-toplevel")
            shared = await self._git.tell("rev-parse", "--path-format=absolute", "--git-common-dir")
        except GitError as error:
            if error.exit_code is None:
                raise
            path = self._project.path
            message = f"{path} cannot be used with a branch: git says {error.said!r}. Run `git init` there if it is new"
            raise WorktreeError(message, "not_a_repository", path=path) from None
        return await asyncio.to_thread(find_repository, top, shared, self._project.worktrees)

    async def _all(self, repository: Repository) -> tuple[Worktree, ...]:
        listed = await self._git.tell("worktree", "list", "--porcelain", "-z")
        return await asyncio.to_thread(parse_list, listed, repository.root)

    async def _existing(self, repository: Repository, branch: str) -> Worktree | None:
        found = next((each for each in await self._all(repository) if each.branch == branch), None)
        if found is None:
            return None
        if found.locked == _HALF_MADE:
            message = (
                f"{found.path} was not made to its end. If nobody is making it now, remove it: "
                f"git worktree remove -f -f {quote(found.path)}"
            )
            raise WorktreeError(message, "half_made", branch=branch, path=found.path)
        if not found.vanished:
            return found
        if not found.managed or found.locked is not None:
            message = f"git has `{branch}` checked out in {found.path}, which is gone: run `git worktree prune`"
            raise WorktreeError(message, "missing", branch=branch, path=found.path)
        await self._git.tell("worktree", "remove", found.path)
        return None

    # --- making one ---

    async def _add(self, repository: Repository, branch: str) -> None:
        start = await self._start(branch)
        path = await asyncio.to_thread(make_room, repository, branch)
        await self._git.tell("worktree", "add", "--quiet", *start[:-1], path, start[-1], timeout=CHANGE_S)

    async def _start(self, branch: str) -> tuple[str, ...]:
        """The options of `git worktree add`, and then what is checked out."""
        if await self._commit(f"refs/heads/{branch}"):
            return (branch,)
        if await self._commit(f"refs/remotes/origin/{branch}"):
            return ("--track", "-b", branch, f"refs/remotes/origin/{branch}")
        return ("-b", branch, await self._base(branch))

    async def _base(self, branch: str) -> str:
        configured = self._project.base
        if configured is not None:
            commit = await self._commit(configured)
            if commit is None:
                message = f"`{branch}` is new and should begin from `{configured}`, which is not there: correct base"
                raise WorktreeError(message, "no_base", branch=branch)
            return commit
        for name in ("refs/remotes/origin/HEAD", "HEAD", "refs/heads/master", "refs/heads/main"):
            if commit := await self._commit(name):
                return commit
        message = f"`{branch}` cannot be made: {self._project.path} has no commit to begin from; make one first"
        raise WorktreeError(message, "no_base", branch=branch)

    async def _commit(self, name: str) -> str | None:
        return await self._git.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")

    # --- removing one ---

    async def _removable(self, repository: Repository, branch: str) -> Worktree:
        worktrees = await self._all(repository)
        place = os.path.join(repository.root, branch)
        found = next((each for each in worktrees if each.branch == branch), None)
        # In the middle of a rebase no branch is checked out, and it is still the folder of that branch.
        found = found or next((each for each in worktrees if each.path == place and each.branch is None), None)
        if found is None:
            known = ", ".join(sorted(each.branch for each in worktrees if each.managed and each.branch)) or "none"
            raise WorktreeError(f"no worktree has `{branch}`; there are: {known}", "missing", branch=branch)
        if found.main:
            message = f"`{branch}` is checked out in the main checkout {found.path}, which is never removed"
            raise WorktreeError(message, "main", branch=branch, path=found.path)
        if not found.managed:
            message = (
                f"{found.path} is not below {repository.root}, so it is not removed here; "
                f"to do it yourself: git worktree remove {quote(found.path)}"
            )
            raise WorktreeError(message, "outside", branch=branch, path=found.path)
        if found.locked is not None:
            message = (
                f"{found.path} is locked ({found.locked or 'no reason given'}): git worktree unlock {quote(found.path)}"
            )
            raise WorktreeError(message, "locked", branch=branch, path=found.path)
        return found

    async def _check_kept(self, found: Worktree, branch: str) -> None:
        git = self._git.at(found.path)
        status = await git.tell("status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=none")
        if status:
            message = (
                f"{found.path} has changes that are not committed: commit them (git -C {quote(found.path)} commit -a), "
                "or force the removal"
            )
            raise WorktreeError(message, "dirty", branch=branch, path=found.path)
        others = (
            ("--remotes", f"--exclude={found.branch}", "--branches") if found.branch else ("--remotes", "--branches")
        )
        count = await git.tell("rev-list", "--count", "HEAD", "--not", *others) if found.head else "0"
        if count != "0":
            message = (
                f"{count} commit(s) of `{branch}` are in no other branch and on no remote: push them "
                f"(git -C {quote(found.path)} push -u origin HEAD), merge them, or force the removal"
            )
            raise WorktreeError(message, "unpushed", branch=branch, path=found.path)


def _check_name(branch: str) -> None:
    problem = branch_problem(branch)
    if problem is not None:
        message = f"{branch!r} is no name of a branch: {problem}; a name is like feature/login"
        raise WorktreeError(message, "bad_branch", branch=branch)
