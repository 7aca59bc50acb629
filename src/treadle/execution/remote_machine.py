"""`RemoteMachine`: all that an agent knows of another machine. It is connected when it is first needed, and again when
a connection was lost for good.

Owns what is asked there, and by which sandbox: where directories lead, what a project says (`RemoteProject`), the files
of a patch (`RemotePatchFiles`). Nothing here looks at the disk of this machine, and nothing that the other one answers
is believed about this one: an answer decides about the requests that go back there, and what the model reads.

What of a project is read by functions that block, in threads: they run unchanged. A `RemoteProject` passes what they
ask on to the event loop, and it is remembered what they were told and what they made of it. Before the next time all of
it is asked again at a time, which is one round trip, whatever the number of files; when the answers are the same, no
function is run.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from msgspec import UNSET, structs

from treadle.errors import INVALID_REQUEST, NOT_FOUND, ExecError, SandboxRefused
from treadle.execution.bounded_reads import READ_S, FileSnapshot, Readers
from treadle.execution.files.files_interface import Files, FileStat
from treadle.execution.files.remote_files import RemoteFiles
from treadle.execution.files.remote_patch_files import RemotePatchFiles
from treadle.execution.project_files import ProjectFiles
from treadle.execution.sandbox.policy import Policy, contains, policy_from_wire
from treadle.execution.sandbox.profile_sandbox import Confinement, ProfileSandbox, without_writing
from treadle.execution.sandbox.remote_sandbox import OF, remote_roots, unresolved_sandbox
from treadle.execution.uris import native_path, path_from_uri
from treadle.logs.trace import outside
from treadle.protocol.exec import Sandbox

if TYPE_CHECKING:
    from treadle.execution.environment import Environment

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_SEEN: Final = 2048  # files that are remembered
MAX_BYTES_SEEN: Final = 8 << 20
MAX_QUESTIONS: Final = 256  # each with what was read: some ten kilobytes
MAX_READERS: Final = 8
TRIAL_S: Final = 60.0
MAX_READ: Final = 32 << 20  # of a file there, into the memory of whoever serves all threads


class RemoteMachine:
    """`connect` opens a connection, in a session that there is already when it is given one; `id` is the
    environment's."""

    def __init__(self, environment_id: str, connect: Callable[[str | None], Coroutine[Any, Any, Environment]]) -> None:
        self.id: str = environment_id
        self.readers: Final = Readers(MAX_READERS, f"read of {environment_id}"[:60])
        self.seen: Final = SeenFiles()
        self._connect = connect
        self._opening: asyncio.Task[Environment] | None = None
        self._name = uuid.uuid4().hex
        self._found: dict[str, Environment] = {}
        self._users: Counter[Environment] = Counter()
        self._finding = asyncio.Lock()

    async def take_up(self, session_id: str) -> Environment:
        """A connection that goes on in the session of a program that has ended: one for all whose commands are in it.
        Each of them leaves it. Raises `ExecError`."""
        async with self._finding:
            found = self._found.get(session_id)
            if found is None or found.failure is not None:
                found = self._found[session_id] = await self._connect(session_id)
            self._users[found] += 1
            return found

    async def leave(self, session_id: str, found: Environment) -> None:
        """The last one ends the session, unless there are commands in it that nobody has come for."""
        async with self._finding:  # who comes meanwhile finds it closed, and not in use
            self._users[found] -= 1
            if self._users[found]:
                return
            del self._users[found]
            if self._found.get(session_id) is found:
                del self._found[session_id]
            await found.close()

    @property
    def connected(self) -> Environment | None:
        """The connection that there is, lost for the moment or not."""
        opening = self._opening
        if opening is None or not opening.done() or opening.cancelled() or opening.exception() is not None:
            return None
        opened = opening.result()
        return opened if opened.failure is None else None

    @property
    def last_failure(self) -> str | None:
        """Why there is no connection, as far as that was tried."""
        opening = self._opening
        if opening is None or not opening.done() or opening.cancelled():
            return None
        error = opening.exception()
        return str(error) if error is not None else opening.result().failure

    async def environment(self) -> Environment:
        """The connection. Raises `ExecError` when there is none to be had."""
        if self._opening is None or (self._opening.done() and self.connected is None):
            # In a context of its own: the connection is no part of the request that is the first to need it.
            self._opening = asyncio.get_running_loop().create_task(self._connect(None), context=outside())
        return await asyncio.shield(self._opening)

    async def close(self) -> None:
        opening, self._opening = self._opening, None
        if opening is None:
            return
        if not opening.done():
            opening.cancel()
        await asyncio.wait({opening})
        if not opening.cancelled() and opening.exception() is None:
            await opening.result().close()

    async def shell(self) -> str:
        """The shell of commands. Raises `ExecError`."""
        path = (await self.environment()).info.shell.path
        if not path.startswith("/"):
            raise ExecError(f"the machine `{self.id}` says that its shell is {path!a}, which is no absolute path")
        return path

    async def directory(self) -> str:
        """Where those work who name no directory. Raises `ExecError`."""
        uri = (await self.environment()).info.cwd
        if uri is None:
            raise ExecError(f"the machine `{self.id}` does not tell its working directory: pass cwd", INVALID_REQUEST)
        return path_from_uri(uri)

    # --- the sandbox ---

    async def roots(self, confinement: Confinement, cwd: str, known: Mapping[str, str]) -> dict[str, str]:
        """Where the directories of a thread lead there. One that is missing is what it is called, and one that is known
        to the thread keeps its meaning: a command may have put something else there."""
        files = (await self.environment()).files

        async def real(path: str) -> str:
            if path in known:
                return known[path]
            try:
                return native_path(await files.canonicalize(path))
            except ExecError as error:
                if error.code == NOT_FOUND:
                    return native_path(path)
                raise

        paths = remote_roots(confinement, cwd)
        roots = dict(zip(paths, await asyncio.gather(*map(real, paths)), strict=True))
        # Not the same for a later server, which need not find what was there for this one.
        roots[OF] = known.get(OF) or uuid.uuid4().hex
        await self._show(confinement, cwd, roots)
        return roots

    async def _show(self, confinement: Confinement, cwd: str, roots: Mapping[str, str]) -> None:
        """Have the executor see which folders the roots are, before a command can put others there. Raises
        `SandboxRefused` for a permission profile that it cannot enforce, as is done on this machine."""
        environment, sandbox = await self.environment(), await self.sandbox(confinement, cwd, roots)
        try:
            if isinstance(confinement, ProfileSandbox) and sandbox is not None:
                trial = structs.replace(sandbox, roots_of=UNSET)
                await environment.run(["true"], cwd=cwd, sandbox=trial, timeout=TRIAL_S)
        except SandboxRefused:
            raise
        except ExecError as error:  # of a directory that is missing, and the like: commands say so
            logger.debug("%s: a permission profile could not be tried: %s", self.id, error)
        if sandbox is None or sandbox.roots_of is UNSET or not environment.info.capabilities.fs_look:
            return
        assert isinstance(environment.files, RemoteFiles)
        try:
            await environment.files.confined(sandbox).look(())
        except SandboxRefused as error:  # as commands will be
            logger.debug("%s: %s", self.id, error)

    async def sandbox(self, confinement: Confinement, cwd: str, roots: Mapping[str, str]) -> Sandbox | None:
        """The sandbox to send; None asks for no confinement. Raises `ExecError` for one that cannot be had there."""
        ours = (await self.environment()).info.capabilities.sandbox_orders
        if OF in roots:
            roots = {**roots, OF: f"{roots[OF]}-{self._name}"}
        return unresolved_sandbox(confinement, cwd, roots, ours=ours)

    async def can_protect(self) -> bool:
        """Whether something read-only below a writable root can be enforced there; so it counts where nobody says."""
        return await (await self.environment()).confines_by() not in ("landlock", "none")

    async def files(self, sandbox: Sandbox | None) -> Files:
        """The files there, by what a sandbox allows."""
        files = (await self.environment()).files
        return files.confined(sandbox, max_read=MAX_READ) if isinstance(files, RemoteFiles) else files

    async def project(
        self, cwd: str, home: str | None, confinement: Confinement, roots: Mapping[str, str]
    ) -> RemoteProject:
        """What a thread may read of its project there."""
        capabilities = (await self.environment()).info.capabilities
        files = await self.files(await self.sandbox(without_writing(confinement), cwd, roots))
        return RemoteProject(self, files, cwd, home, roots.get(cwd, cwd), looks=capabilities.fs_look)


def policy_there(sandbox: Sandbox | None) -> Policy | None:
    """What another machine will make of a sandbox, as far as its paths tell; None is everything. Which its temporary
    directory is, it knows alone: here that counts as none."""
    known = None if sandbox is None else structs.replace(sandbox, temporary_directories=())
    return policy_from_wire(known, as_written=True)


async def patch_files(
    machine: RemoteMachine, names: Iterable[str], sandbox: Sandbox | None, policy: Policy | None
) -> RemotePatchFiles:
    """The files of a patch for a thread in this sandbox; `policy` is what that will come to there."""
    files = (await machine.environment()).files
    assert isinstance(files, RemoteFiles)
    return await RemotePatchFiles.resolve(names, files, sandbox, policy)


# --- the project ------------------------------------------------------------------------------------------------------


class ProjectLook(NamedTuple):
    """One thing that is asked of a project: what is at a path, where it leads, or which files of a name are below."""

    what: Literal["look", "real", "below"]
    path: str
    name: str = ""
    depth: int = 0
    most: int = 0


Answer: TypeAlias = FileStat | str | tuple[str, ...] | None
Question: TypeAlias = tuple[object, ...]


class Known(NamedTuple):
    """What a function was told, and what it made of it: that holds while the answers and the snapshot are the same."""

    answers: Mapping[ProjectLook, Answer]
    value: Any
    snapshot: FileSnapshot


class SeenFiles:
    """What was read on another machine, by path, with how it looked; the oldest is forgotten first."""

    def __init__(self) -> None:
        self._contents: dict[str, tuple[FileStat, int, bytes]] = {}
        self._size = 0
        self.known: dict[Question, Known] = {}

    def content(self, path: str, look: FileStat, limit: int) -> bytes | None:
        found = self._contents.get(path)
        return found[2] if found is not None and found[:2] == (look, limit) else None

    def add(self, path: str, look: FileStat, limit: int, data: bytes) -> None:
        before = self._contents.pop(path, None)
        self._size += len(data) - (0 if before is None else len(before[2]))
        self._contents[path] = look, limit, data
        while self._size > MAX_BYTES_SEEN or len(self._contents) > MAX_SEEN:
            self._size -= len(self._contents.pop(next(iter(self._contents)))[2])

    def note(self, question: Question, known: Known) -> None:
        if len(self.known) >= MAX_QUESTIONS:
            self.known.clear()
        self.known[question] = known


class HomeSnapshot(FileSnapshot):
    """How the files look that are in the home, which is on this machine; what is elsewhere is asked there."""

    def __init__(self, home: str | None) -> None:
        super().__init__()
        self._home = home

    def note(self, path: str) -> None:
        if os.path.dirname(path) == self._home:
            if not self._looks:
                self._cover(self._home)
            super().note(path)

    def note_mark(self, path: str) -> bool:
        raise NotImplementedError("a project on another machine is asked itself")

    def note_root(self, path: str) -> str | None:
        raise NotImplementedError("a project on another machine is asked itself")


class RemoteProject(ProjectFiles):
    """`ProjectFiles` of another machine, for a thread of a `RemoteMachine`'s reader.

    Whose the files are cannot be asked for: they count as those of the user whose executor it is. What a sandbox does
    not let be read is refused there. The home is the one of this machine, with the user's own instructions.
    """

    def __init__(
        self,
        machine: RemoteMachine,
        files: Files,
        cwd: str,
        home: str | None,
        real_cwd: str,
        *,
        looks: bool,
    ) -> None:
        super().__init__(cwd, home, None, HomeSnapshot(home))
        self._looks = looks  # whether one request can ask for many paths
        self.readers: Readers | None = machine.readers
        self._machine = machine
        self._files = files
        self._real_cwd = real_cwd
        self._loop = asyncio.get_running_loop()
        self._deadline = time.monotonic() + READ_S
        self._answers: dict[ProjectLook, Answer] = {}
        self._used: dict[ProjectLook, Answer] = {}

    async def readable(self) -> Files:
        return self._files

    async def look_again(self, question: Question) -> Known | None:
        """Ask again, at a time, all that the question was answered from before: what it led to, if that is the same."""
        known = self._machine.seen.known.get(question)
        if known is None:
            return None
        self._answers = await self._answers_to(list(known.answers))
        return known if self._answers == known.answers and known.snapshot.is_current() else None

    def note_answer(self, question: Question, value: object) -> None:
        """What the question led to."""
        self._machine.seen.note(question, Known(self._used, value, self.snapshot))

    async def _answers_to(self, asked: Sequence[ProjectLook]) -> dict[ProjectLook, Answer]:
        """All at a time."""
        looks = [one for one in asked if one.what == "look"] if self._looks else []
        others = [one for one in asked if one not in set(looks)]
        found, answers = await asyncio.gather(self._look_at(looks), asyncio.gather(*map(self._answer, others)))
        return {**dict(zip(looks, found, strict=True)), **dict(zip(others, answers, strict=True))}

    async def _look_at(self, asked: Sequence[ProjectLook]) -> Sequence[FileStat | None]:
        assert isinstance(self._files, RemoteFiles)
        return await self._files.look([one.path for one in asked]) if asked else ()

    async def _answer(self, asked: ProjectLook) -> Answer:
        """None where there is nothing, or nothing that may be seen."""
        try:
            if asked.what == "look":
                return await self._files.stat(asked.path)
            if asked.what == "real":
                return native_path(await self._files.canonicalize(asked.path))
            found = await self._files.walk(
                asked.path,
                max_depth=asked.depth,
                max_directories=asked.most,
                max_entries=10 * asked.most,
                follow_directory_symlinks=True,
                prune_hidden_directories=True,
            )
        except ExecError as error:
            if error.code in (NOT_FOUND, INVALID_REQUEST):
                return None
            raise
        return tuple(entry.path for entry in found.entries if os.path.basename(entry.path) == asked.name)

    def _told(self, *asked: ProjectLook) -> list[Answer]:
        """The answers, from a reader's thread; what has to be asked for is asked at a time."""
        missing = [one for one in asked if one not in self._answers]
        if missing:
            self._answers |= self._ask(self._answers_to(missing))
        self._used |= {one: self._answers[one] for one in asked}
        return [self._answers[one] for one in asked]

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the event loop do something, from a reader's thread."""
        asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return asked.result(max(self._deadline - time.monotonic(), 0))
        except TimeoutError:
            asked.cancel()
            raise ExecError(f"the machine `{self._machine.id}` does not answer") from None

    def look(self, path: str) -> FileStat | None:
        """What is at a path; None for nothing."""
        (found,) = self._told(ProjectLook("look", path))
        assert found is None or isinstance(found, FileStat)
        return found

    def has(self, path: str) -> bool:
        return self.look(path) is not None

    def is_folder(self, path: str) -> bool:
        found = self.look(path)
        return found is not None and found.is_directory

    def real(self, path: str) -> str | None:
        """Where something leads; None when it leads nowhere."""
        (found,) = self._told(ProjectLook("real", path))
        assert found is None or isinstance(found, str)
        return found

    def files_below(self, folder: str, name: str, *, depth: int, most: int) -> tuple[str, ...]:
        """The files of a name below a folder, the nearest first; hidden folders are passed over."""
        (found,) = self._told(ProjectLook("below", folder, name, depth, most))
        assert isinstance(found, tuple | None)
        self._told(*(ProjectLook("look", path) for path in found or ()))  # they will be read
        return found or ()

    def _find_folders(self) -> tuple[str | None, list[str]]:
        folders = [os.path.normpath(self.cwd)]
        while (parent := os.path.dirname(folders[-1])) != folders[-1]:
            folders.append(parent)
        marks = self._told(*(ProjectLook("look", os.path.join(folder, ".git")) for folder in folders))
        root = next((number for number, mark in enumerate(marks) if mark is not None), None)
        return (None, folders[:1]) if root is None else (folders[root], folders[root::-1])

    def encloses(self, real: str) -> bool:
        top = self.folders[0]
        if top == os.path.normpath(self.cwd):
            return contains(self._real_cwd, real)
        return contains(self.real(top) or top, real)

    def may_read(self, real: str) -> bool:
        return True  # the executor says no otherwise

    def read(
        self, path: str, limit: int, *, inside: bool = False, owned: bool = True
    ) -> tuple[bytes, os.stat_result] | None:
        found = self.look(path)
        if found is None or not found.is_file:
            return None
        data = self._machine.seen.content(path, found, limit)
        if data is None:
            # Where it leads is no part of the answer: what is read again is another file.
            real = self._ask(self._answer(ProjectLook("real", path))) if inside else None
            if isinstance(real, str) and not self.encloses(real):
                self._leave_out(path, f"it leads to {real}, which is not in the project")
                return None
            try:
                data = self._ask(_beginning(self._files, path, limit))
            except ExecError as error:
                self._leave_out(path, error.message)
                return None
            self._machine.seen.add(path, found, limit, data)
        # The identity of a file is its path here: nothing else of it is known.
        number = hash(path) & 0x7FFFFFFFFFFFFFFF
        return data, os.stat_result((0o100644, number, 0, 1, 0, 0, len(data), 0, 0, 0))


async def _beginning(files: Files, path: str, limit: int) -> bytes:
    """At most `limit` bytes, however long the file says that it is."""
    parts: list[bytes] = []
    left = limit
    async for block in files.read_blocks(path, block_size=min(max(limit, 1), 1 << 20)):
        parts.append(block[:left])
        left -= len(parts[-1])
        if left <= 0:
            break
    return b"".join(parts)
