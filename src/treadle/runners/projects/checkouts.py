"""The checkouts of a repository on disk: what git lists, room for a new one, and the lock around changes.

It owns operations on folders, and the values and errors of `worktrees`, which owns the rules.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from treadle.errors import TreadleError
from treadle.runners.projects.git import CHANGE_S

# As long as somebody else's checkout may take.
LOCK_S: Final = CHANGE_S
_POLL_S: Final = 0.02

WorktreeProblem: TypeAlias = Literal[
    "bad_branch",  # no name of a branch
    "busy",  # somebody else works on the repository's worktrees, and does not end
    "dirty",  # there are changes that are not committed
    "half_made",  # whoever was making it was killed
    "locked",  # by `git worktree lock`
    "main",  # it is the main checkout
    "missing",  # there is no such worktree, or not such a folder in it
    "no_base",  # nothing to begin a branch from
    "not_a_repository",
    "occupied",  # something else is in its place
    "outside",  # it is not below the project's folder for worktrees
    "unpushed",  # there are commits that are nowhere else
]


class WorktreeError(TreadleError):
    """A branch cannot be checked out, or its folder not be removed.

    Args:
        message: What happened and what to type, for people.
        kind: Which of these it is.
        branch: The branch that was asked for.
        path: The folder that it is about.
    """

    def __init__(self, message: str, kind: WorktreeProblem, *, branch: str | None = None, path: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.branch = branch
        self.path = path


class Worktree(Struct, frozen=True, kw_only=True):
    """A checkout of a repository.

    Args:
        path: Its top folder.
        branch: What is checked out; None when it is no branch.
        head: The commit; None when there is none yet.
        main: Whether it is the main checkout, which is never removed.
        managed: Whether it is below the project's folder for worktrees: others are used, but never removed.
        locked: Why it must not be removed, if somebody said so; perhaps an empty text.
        vanished: Whether its folder is gone.
    """

    path: str
    branch: str | None
    head: str | None
    main: bool
    managed: bool
    locked: str | None = None
    vanished: bool = False


class Repository(Struct, frozen=True):
    """Where things are."""

    top: str
    shared: str  # the folder that all worktrees have in common
    root: str  # the folder for worktrees, without symbolic links


@asynccontextmanager
async def alone(shared: str) -> AsyncIterator[None]:
    """Only one at a time gets in here, of this process and of others. The lock is on git's folder: no file is left."""
    descriptor = os.open(shared, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            async with asyncio.timeout(LOCK_S):
                # The kernel has no wait for this lock with a deadline.
                while not _locked(descriptor):  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            message = f"somebody has been working on the worktrees of {shared} for {LOCK_S:.0f} s; try again later"
            raise WorktreeError(message, "busy", path=shared) from None
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def find_repository(top: str, shared: str, worktrees: str) -> Repository:
    """Raises `WorktreeError` when the folder for worktrees would hold the repository, or be a part of it."""
    root = os.path.realpath(os.path.join(top, os.path.expanduser(worktrees)))
    for held in (os.path.realpath(top), os.path.realpath(shared)):
        if held == root or _is_inside(held, root):
            raise WorktreeError(f"worktrees cannot be in {root}: {held} is there", "outside", path=root)
    if _is_inside(root, os.path.realpath(shared)):
        raise WorktreeError(f"worktrees cannot be in {root}: it belongs to git", "outside", path=root)
    return Repository(top, shared, root)


def parse_list(listed: str, root: str) -> tuple[Worktree, ...]:
    """The answer of `git worktree list --porcelain -z`: records of fields, the main checkout first."""
    found: list[Worktree] = []
    for record in listed.split("\0\0"):
        fields = dict(field.partition(" ")[::2] for field in record.split("\0") if field)
        if "worktree" not in fields:
            continue
        path = fields["worktree"]
        head = fields.get("HEAD", "").strip("0")
        worktree = Worktree(
            path=path,
            branch=fields["branch"].removeprefix("refs/heads/") if "branch" in fields else None,
            head=fields["HEAD"] if head else None,
            main=not found,
            managed=bool(found) and _is_inside(os.path.realpath(path), root),
            locked=fields.get("locked"),
            vanished=not os.path.lexists(path),
        )
        found.append(worktree)
    return tuple(found)


def _is_inside(path: str, folder: str) -> bool:
    return path.startswith(os.path.join(folder, ""))


def make_room(repository: Repository, branch: str) -> str:
    """The folder for a branch: checked, and what is above it made. It is not there yet, or is empty."""
    root, path = repository.root, os.path.join(repository.root, branch)
    if os.path.realpath(path) != path:
        message = f"{path} leads to {os.path.realpath(path)}: remove the symbolic link"
        raise WorktreeError(message, "outside", branch=branch, path=path)
    above = os.path.dirname(path)
    while _is_inside(above, root):
        if os.path.lexists(os.path.join(above, ".git")):
            message = f"{above} is the worktree of another branch: remove it, or choose a name that does not begin so"
            raise WorktreeError(message, "occupied", branch=branch, path=above)
        above = os.path.dirname(above)
    try:
        _make_root(repository)
        os.makedirs(path, exist_ok=True)
        occupied = bool(os.listdir(path))
    except OSError as error:
        raise WorktreeError(f"{path} cannot be made ({error.strerror})", "occupied", branch=branch, path=path) from None
    if occupied:
        message = f"{path} exists and is not the worktree of `{branch}`: move it away, or switch it to that branch"
        raise WorktreeError(message, "occupied", branch=branch, path=path)
    return path


def _make_root(repository: Repository) -> None:
    """A new one ignores itself, so that the main checkout's status stays as it was."""
    if os.path.isdir(repository.root):
        return
    os.makedirs(repository.root)
    with open(os.path.join(repository.root, ".gitignore"), "x", encoding="utf-8") as file:
        file.write("*\n")


def remove_empty(folder: str, root: str) -> None:
    """`feature/` when `feature/login` was the last one in it."""
    with suppress(OSError):  # not empty, or gone
        while _is_inside(folder, root):
            os.rmdir(folder)
            folder = os.path.dirname(folder)
