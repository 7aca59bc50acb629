"""`Worktrees`: the branches of a project, each checked out in a folder of its own: created, found, listed, removed.

Three parts, each on top of the one before: `Git` calls git without interaction; the checkouts of a repository are what
git lists, folders for new ones, and the lock around changes, which works between processes and ends with them;
`Worktrees` has the rules: which branch is checked out where, what a new branch starts from, and what is never removed.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import re
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from shlex import quote
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import Struct, structs

from treadle.errors import ExecError, TreadleError
from treadle.execution.environment import Environment
from treadle.execution.process import Process
from treadle.execution.process_values import ExecParams, Output, OutputStream
from treadle.protocol.exec import INHERIT_ALL

WORKTREES: Final = ".worktrees"

logger: logging.Logger = logging.getLogger(__name__)

# --- git -------------------------------------------------------------------------------------------------------------

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
    # So that reading never makes another program's command fail.
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
_POLICY: Final = structs.replace(INHERIT_ALL, exclude=_TIES)
# git runs filters for these. The user's own (git-lfs, say) are wanted; those that a repository brings are not.
_FILTERING: Final = (("worktree", "add"), ("worktree", "remove"), ("status", "--porcelain"))
_FILTERS: Final = r"^filter\..*\.(clean|smudge|process|required)$"
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


class Git:
    """git in one folder: no prompt, no pager, no editor, and none of the code that the repository's own
    settings name (hooks, monitors, filters). Settings of another repository that happen to be in the environment, as
    they are when Treadle runs in a hook, do not count.

    Args:
        environment: Where its processes run.
        folder: Its working directory.
    """

    def __init__(self, environment: Environment, folder: str) -> None:
        self._environment = environment
        self.folder = folder

    def at(self, folder: str) -> Git:
        """The same in another folder."""
        return Git(self._environment, folder)

    async def ask(self, *words: str) -> str | None:
        """What git prints, without the line end; None when it fails, which means no."""
        exit_code, printed, _ = await self._collect(words, ASK_S)
        return printed if exit_code == 0 else None

    async def _users_filters(self) -> dict[str, str]:
        """Variables that put the user's own filters, or none, in the place of those in the repository's settings. As
        variables, because the name of a filter may have a `=` in it."""
        listed = (await self.ask("config", "--show-scope", "--null", "--get-regexp", _FILTERS) or "").split("\0")
        users: dict[str, str] = {}
        repositorys: set[str] = set()
        for scope, entry in zip(listed[::2], listed[1::2], strict=False):
            key, _, value = entry.partition("\n")
            if scope in ("system", "global"):
                users[key] = value
            else:
                repositorys.add(key)
        variables = {"GIT_CONFIG_COUNT": str(len(repositorys))}
        for number, key in enumerate(sorted(repositorys)):
            variables[f"GIT_CONFIG_KEY_{number}"] = key
            variables[f"GIT_CONFIG_VALUE_{number}"] = users.get(key, "false" if key.endswith(".required") else "")
        return variables

    async def run(self, *words: str, timeout: float = ASK_S) -> str:
        """What git prints, without the line end. Raises `GitError` when it fails."""
        exit_code, printed, complaint = await self._collect(words, timeout)
        if exit_code == 0:
            return printed
        said = _CREDENTIALS.sub("", complaint).strip()[-MAX_SAID:]
        message = f"git {words[0]} failed in {self.folder} (exit {exit_code}): {said or 'it did not say why'}"
        raise GitError(message, command=words, folder=self.folder, exit_code=exit_code, said=said)

    async def _collect(self, words: tuple[str, ...], timeout: float) -> tuple[int | None, str, str]:
        """Exit code, standard output and standard error of a command that is waited for to its end, also when it is
        stopped: git then tidies up what it had begun."""
        params = ExecParams(
            process_id=f"git-{uuid.uuid4()}",
            argv=["git", *_SETTINGS, *words],
            cwd=self.folder,
            env=_ENV | (await self._users_filters() if words[:2] in _FILTERING else {}),
            env_policy=_POLICY,
        )
        output = {OutputStream.STDOUT: bytearray(), OutputStream.STDERR: bytearray()}
        try:
            process = await self._environment.start(params)
            try:
                async with asyncio.timeout(timeout):
                    async for event in process.events():
                        if isinstance(event, Output) and len(output[event.stream]) < MAX_OUTPUT:
                            output[event.stream] += event.chunk
            finally:
                if not process.closed:
                    await self._stop(process)
            if process.failure is not None:
                raise ExecError(process.failure)
        except TimeoutError:
            message = f"git {words[0]} took longer than {timeout:g} s in {self.folder} and was stopped; try again"
            raise GitError(message, command=words, folder=self.folder) from None
        except ExecError as error:
            message = f"git cannot be run in {self.folder}: {error}; is git installed, and is the folder there?"
            raise GitError(message, command=words, folder=self.folder) from None
        # As Python writes paths: what is no UTF-8 comes back as the same bytes.
        printed = os.fsdecode(bytes(output[OutputStream.STDOUT])).removesuffix("\n")
        return process.exit_code, printed, output[OutputStream.STDERR].decode("utf-8", "replace")

    async def _stop(self, process: Process) -> None:
        try:
            async with asyncio.timeout(TIDY_S + END_S):
                await process.terminate(TIDY_S)
                await process.wait()
        except (TimeoutError, ExecError) as error:
            logger.warning("%s may still run: %s", process.process_id, error or "it was stopped, and has not ended")


# --- checkouts of a repository ---------------------------------------------------------------------------------------

# As long as another program's checkout may take.
LOCK_S: Final = CHANGE_S
_POLL_S: Final = 0.02
# What git writes into a worktree that it has begun to make, and takes away when it is done.
_HALF_MADE: Final = "initializing"

WorktreeProblem: TypeAlias = Literal[
    "bad_branch",  # no name of a branch
    "busy",  # another program works on the repository's worktrees, and does not end
    "dirty",  # there are changes that are not committed
    "half_made",  # git was killed while it made it
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
        locked: Why it must not be removed, if it is locked; perhaps an empty text.
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
    """Where a repository is, and the folder for its worktrees."""

    top: str
    shared: str  # the folder that all worktrees have in common
    root: str  # the folder for worktrees, without symbolic links


@asynccontextmanager
async def alone(shared: str) -> AsyncIterator[None]:
    """Exclude everybody else, of this process and of others. The lock is on git's own folder: no file stays behind."""
    descriptor = os.open(shared, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    deadline = asyncio.get_running_loop().time() + LOCK_S
    try:
        # The kernel has no wait for this lock with a deadline.
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if asyncio.get_running_loop().time() > deadline:
                    problem = f"somebody has been working on the worktrees of {shared} for {LOCK_S:.0f} s"
                    raise WorktreeError(f"{problem}; try again later", "busy", path=shared) from None
            await asyncio.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def find_repository(top: str, shared: str, worktrees: str) -> Repository:
    """Raises `WorktreeError` when the folder for worktrees would hold the repository, or be a part of git's own."""
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


def make_folder(repository: Repository, branch: str) -> str:
    """Make the folder for a branch, which is empty then. Raises `WorktreeError` when something else is there."""
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
        if not os.path.isdir(root):
            os.makedirs(root)
            # A new one ignores itself, so that the main checkout's status stays as it was.
            with open(os.path.join(root, ".gitignore"), "x", encoding="utf-8") as file:
                file.write("*\n")
        os.makedirs(path, exist_ok=True)
        occupied = bool(os.listdir(path))
    except OSError as error:
        raise WorktreeError(f"{path} cannot be made ({error.strerror})", "occupied", branch=branch, path=path) from None
    if occupied:
        message = f"{path} exists and is not the worktree of `{branch}`: move it away, or switch it to that branch"
        raise WorktreeError(message, "occupied", branch=branch, path=path)
    return path


def remove_empty(folder: str, root: str) -> None:
    """Remove a folder and those above it that are empty: `feature/` when `feature/login` was the last one in it."""
    with suppress(OSError):  # not empty, or gone
        while _is_inside(folder, root):
            os.rmdir(folder)
            folder = os.path.dirname(folder)


# --- names of branches ---------------------------------------------------------------------------------------------

# A part becomes the name of a folder, and of a file with `.lock` behind it: 255 bytes is what file systems take.
MAX_PART: Final = 240
MAX_NAME: Final = 1000

_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]")


def branch_problem(name: str) -> str | None:
    """Why a text is no name of a branch; None when it is one.

    The rules are those of `git check-ref-format --branch`, and no invisible characters: the name becomes an argument of
    git and a path.
    """
    if name in ("", "@", "HEAD"):
        return f"{name!r} cannot be the name of a branch"
    if name.startswith(("-", "/")):
        return f"it begins with `{name[0]}`"
    if name.endswith(("/", ".")):
        return f"it ends with `{name[-1]}`"
    for piece in ("..", "//", "@{"):
        if piece in name:
            return f"it has `{piece}` in it"
    if found := _FORBIDDEN.search(name):
        return f"it has {found[0]!r} in it"
    if not name.isprintable():
        return "it has letters in it that cannot be seen"
    for part in name.split("/"):
        if part.startswith("."):
            return f"`{part}` begins with a dot"
        if part.endswith(".lock"):
            return f"`{part}` ends with `.lock`"
        if len(part.encode()) > MAX_PART:
            return f"a part of it is longer than {MAX_PART} bytes"
    return f"it is longer than {MAX_NAME} bytes" if len(name.encode()) > MAX_NAME else None


# --- rules ----------------------------------------------------------------------------------------------------------


class WorktreePlace(Protocol):
    """A folder whose branches are checked out in folders of their own: `treadle.runners.Project` is one."""

    @property
    def path(self) -> str: ...
    @property
    def worktrees(self) -> str:
        """Where they are checked out, seen from the top of the repository."""

    @property
    def base(self) -> str | None:
        """What new branches begin from."""


class Worktrees:
    """The worktrees of a project.

    Args:
        project: Whose they are. `Project(alias="…", path="…")` does for a folder that has no name.
        environment: Where git runs; a local one.
    """

    def __init__(self, project: WorktreePlace, environment: Environment) -> None:
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
        inside = await self._git.run("rev-parse", "--show-prefix")
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
                # The options of `git worktree add`, and then what is checked out.
                if await self._commit(f"refs/heads/{branch}"):
                    start: tuple[str, ...] = (branch,)
                elif await self._commit(f"refs/remotes/origin/{branch}"):
                    start = ("--track", "-b", branch, f"refs/remotes/origin/{branch}")
                else:
                    start = ("-b", branch, await self._base(branch))
                path = await asyncio.to_thread(make_folder, repository, branch)
                await self._git.run("worktree", "add", "--quiet", *start[:-1], path, start[-1], timeout=CHANGE_S)
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
                await self._check_stored_elsewhere(found, branch)
            options = ("--force",) if force else ()
            await self._git.run("worktree", "remove", *options, found.path, timeout=CHANGE_S)
            await asyncio.to_thread(remove_empty, os.path.dirname(found.path), repository.root)
        return found

    async def prune(self) -> tuple[Worktree, ...]:
        """Remove the entries of worktrees below our folder that are gone, and return them. Locked ones stay."""
        repository = await self._repository()
        async with alone(repository.shared):
            gone = [each for each in await self._all(repository) if each.managed and each.vanished]
            gone = [each for each in gone if each.locked is None]
            for each in gone:
                await self._git.run("worktree", "remove", each.path)
        return tuple(gone)

    async def _repository(self) -> Repository:
        try:
            top = await self._git.run("rev-parse", "--show-toplevel")
            shared = await self._git.run("rev-parse", "--path-format=absolute", "--git-common-dir")
        except GitError as error:
            if error.exit_code is None:
                raise
            path = self._project.path
            message = f"{path} cannot be used with a branch: git says {error.said!r}. Run `git init` there if it is new"
            raise WorktreeError(message, "not_a_repository", path=path) from None
        return await asyncio.to_thread(find_repository, top, shared, self._project.worktrees)

    async def _all(self, repository: Repository) -> tuple[Worktree, ...]:
        listed = await self._git.run("worktree", "list", "--porcelain", "-z")
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
        await self._git.run("worktree", "remove", found.path)
        return None

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

    async def _check_stored_elsewhere(self, found: Worktree, branch: str) -> None:
        git = self._git.at(found.path)
        status = await git.run("status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=none")
        if status:
            message = (
                f"{found.path} has changes that are not committed: commit them (git -C {quote(found.path)} commit -a), "
                "or force the removal"
            )
            raise WorktreeError(message, "dirty", branch=branch, path=found.path)
        others = (
            ("--remotes", f"--exclude={found.branch}", "--branches") if found.branch else ("--remotes", "--branches")
        )
        count = await git.run("rev-list", "--count", "HEAD", "--not", *others) if found.head else "0"
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
