"""Taking back what turns have changed in files: `TurnFiles` notes it, an `Undo` carries it out.

A turn looks at the files of its workspace before the first call that may change some, and again at its end; what
differs is stored in the home, with the contents that were there before:

    undo/workspaces/…             copies of the files of a workspace, for all threads (`FileCopies`)
    undo/threads/THREAD/TURN      what a turn has changed (`Changes`); empty when that was removed to make room
    undo/threads/THREAD/TURN.begun    while the turn runs; left behind by a server that was killed

A file is put back only when it is as the turn left it: what somebody has changed since stays, and is named. Nothing is
lost by a kill in the middle: what is done already is no work when it is done again. What others change while a turn
runs counts as changed by it, because nobody can tell.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import Struct

from treadle.errors import INVALID_REQUEST, ExecError, RpcError
from treadle.execution.bounded_reads import READER, Readers, read_in_thread
from treadle.execution.file_versions import (
    FileCopies,
    NotCopied,
    Version,
    VersionChange,
    Versions,
    changed_repositories,
    differences,
    list_files,
    new_folders,
    newest,
    put_back,
    read_version,
    remove_empty,
    write_whole,
)
from treadle.execution.sandbox.policy import contains
from treadle.protocol.app.thread_history import RevertedFile, RevertedFiles

if TYPE_CHECKING:
    from treadle.agent.thread.thread import Thread
    from treadle.store.contract import Store

logger: logging.Logger = logging.getLogger(__name__)
# Threads, and turns of a thread, whose changes are stored.
MAX_THREADS: Final = 200
MAX_TURNS: Final = 100
# Everything together that a turn waits for, at its begin and at its end.
WAIT_S: Final = 30.0
_WORKERS: Final = Readers(8, READER)
# A folder that is too large is not looked at by every turn: when it is looked at again, and why it was not copied.
REFUSED_S: Final = 600.0
_refused: Final[dict[str, tuple[float, str]]] = {}
_SHOWN: Final = 20
_NO_ROOM: Final = "what was stored of its changes was removed to make room for others"
_REPOSITORY: Final = "it is a repository of its own, in which something was changed; its files are not copied"
_ELSEWHERE: Final = "its commands ran on another machine, whose files are not stored here"
_KILLED: Final = "the server ended during that turn, so nobody knows what it has changed"


class Changes(Struct, frozen=True):
    """What a turn has changed, by path, and the contents of before by their hash. `folders` are those that it has made,
    the deepest first; `repositories` are others in the workspace in which something has changed, nobody knows what. A
    `problem` is why nothing of it is known."""

    roots: tuple[bytes, ...] = ()
    files: dict[bytes, VersionChange] = {}
    contents: dict[bytes, bytes] = {}
    folders: tuple[bytes, ...] = ()
    repositories: tuple[bytes, ...] = ()
    problem: str = ""


def _place(home: str, thread_id: str, *turn_id: str) -> str:
    return os.path.join(home, "undo", "threads", thread_id, *turn_id)


# --- while a turn runs ------------------------------------------------------------------------------------------------


class TurnFiles:
    """The files of the workspace of one turn, as they were before it changed some."""

    def __init__(self, thread: Thread, turn_id: str) -> None:
        self._thread = thread
        self._home = thread.services.home
        self._place = _place(self._home, thread.id, turn_id)
        self._lock = asyncio.Lock()
        self._begun = False
        self._problem = ""
        self._held: list[FileCopies] = []
        self._before: list[tuple[FileCopies, str, Versions]] = []

    async def begin(self) -> None:
        """Look at the files, once. Whatever goes wrong, the turn goes on, and cannot be undone."""
        async with self._lock:
            if self._begun:
                return
            self._begun = True
            try:
                async with asyncio.timeout(WAIT_S):
                    await self._look()
            except (NotCopied, ExecError, OSError, TimeoutError) as error:
                self._problem = _reason(error)

    async def _look(self) -> None:
        settings = self._thread.settings
        roots = await read_in_thread(lambda: _roots(settings.workspace))
        await read_in_thread(self._mark, readers=_WORKERS)
        if not settings.is_local:
            raise NotCopied(_ELSEWHERE)
        for root in roots:
            until, problem = _refused.get(root, (0.0, ""))
            if time.monotonic() < until:
                raise NotCopied(problem)
            copies = FileCopies(os.path.join(self._home, "undo", "workspaces"), root)
            try:
                listing = await list_files(await self._thread.services.environment(), root, self._home)
                self._held.append(copies)
                await read_in_thread(copies.hold, readers=_WORKERS)
                before = await read_in_thread(partial(copies.look, listing), WAIT_S, _WORKERS)
            except NotCopied as error:
                _refused[root] = time.monotonic() + REFUSED_S, str(error)
                raise
            self._before.append((copies, root, before))

    def _mark(self) -> None:
        folder = os.path.dirname(self._place)
        if not os.path.isdir(folder):
            os.makedirs(folder, mode=0o700)
            _make_room(os.path.dirname(folder), MAX_THREADS)
        with open(f"{self._place}.begun", "wb"):
            pass

    async def end(self) -> None:
        """Store what has changed. Whatever goes wrong, the turn ends."""
        found: list[_Found] = []
        try:
            async with asyncio.timeout(WAIT_S):
                for copies, root, before in self._before if not self._problem else ():
                    listing = await list_files(await self._thread.services.environment(), root, self._home)
                    after = await read_in_thread(partial(copies.look, listing), WAIT_S, _WORKERS)
                    changes = await read_in_thread(partial(differences, before, after), WAIT_S, _WORKERS)
                    repositories = await read_in_thread(partial(changed_repositories, before), WAIT_S, _WORKERS)
                    found.append(_Found(copies, root, changes, new_folders(before, changes, root), repositories))
        except (NotCopied, ExecError, OSError, TimeoutError) as error:
            self._problem = _reason(error)
        except Exception as error:
            logger.exception("what a turn has changed in files is not known")
            self._problem = f"internal error: {type(error).__name__}"
        try:
            await read_in_thread(lambda: self._store(found), WAIT_S, _WORKERS)
        except (OSError, TimeoutError) as error:  # the mark stays, and says that nobody knows
            logger.warning("what a turn has changed in files is not stored: %s", _reason(error))

    def _store(self, found: Sequence[_Found]) -> None:
        try:
            if self._problem or any(each.changes or each.repositories for each in found):
                contents = {
                    change.before.content: each.copies.content(change.before)
                    for each in found
                    for change in each.changes.values()
                    if change.before is not None and change.before.kind == "file"
                }
                record = Changes(
                    roots=tuple(os.fsencode(each.root) for each in found),
                    files={os.fsencode(path): change for each in found for path, change in each.changes.items()},
                    contents=contents,
                    folders=tuple(os.fsencode(path) for each in found for path in each.folders),
                    repositories=tuple(os.fsencode(path) for each in found for path in each.repositories),
                    problem=self._problem,
                )
                write_whole(self._place, msgspec.msgpack.encode(record))
                _make_room(os.path.dirname(self._place), MAX_TURNS)
            with suppress(FileNotFoundError):  # the turn was stopped before anything could be changed
                os.unlink(f"{self._place}.begun")
        finally:
            for copies in self._held:
                copies.close()


class _Found(NamedTuple):
    """What has changed below one root; `folders` were made."""

    copies: FileCopies
    root: str
    changes: dict[str, VersionChange]
    folders: list[str]
    repositories: list[str]


def _roots(workspace: Sequence[str]) -> list[str]:
    """The folders of a workspace without links, and without those that are in others."""
    real = [path for path in dict.fromkeys(map(os.path.realpath, workspace)) if os.path.isdir(path)]
    return [path for path in real if not any(path != other and contains(other, path) for other in real)]


def _make_room(folder: str, most: int) -> None:
    """Of what is removed an empty file stays: there was something."""
    for path in newest(folder)[most:]:
        if os.path.isdir(path):
            shutil.rmtree(path)
        with open(path, "wb"):
            os.utime(path, (0, 0))


def _reason(error: BaseException) -> str:
    return "the file system does not answer, or is too slow" if isinstance(error, TimeoutError) else str(error)


# --- afterwards -------------------------------------------------------------------------------------------------------


class _Step(NamedTuple):
    """One file that becomes what it was; `now` is what it is."""

    path: str
    root: str
    now: Version | None
    version: Version | None
    content: bytes
    shown: RevertedFile


class Undo:
    """What becomes of the files when turns are taken back. `problem` is why that cannot be done."""

    def __init__(
        self,
        problem: str | None,
        turns: Sequence[str] = (),
        steps: Sequence[_Step | RevertedFile] = (),
        folders: Sequence[str] = (),
    ) -> None:
        self.problem = problem
        self.turns = turns
        self._steps = steps
        self._folders = folders

    @property
    def shown(self) -> RevertedFiles:
        files = tuple(step.shown if isinstance(step, _Step) else step for step in self._steps)
        return RevertedFiles(changes=files, unavailable=self.problem)

    async def carry_out(self) -> RevertedFiles:
        """Raises `RpcError` when it cannot be done, or not all of it; it can be tried again then."""
        if self.problem is not None:
            text = f"The files cannot be put back: {self.problem}. Without `files` the conversation alone is reverted."
            raise RpcError(INVALID_REQUEST, text, {"kind": "filesUnavailable"})
        failed = await asyncio.to_thread(lambda: list(self._carry_out()))
        if failed:
            text = f"These files could not be put back, and nothing else was reverted: {'; '.join(failed[:_SHOWN])}"
            raise RpcError(INVALID_REQUEST, text, {"kind": "filesFailed"})
        return self.shown

    def _carry_out(self) -> Iterator[str]:
        """What goes wrong. Files are removed first: a folder may be where a file was."""
        steps = [step for step in self._steps if isinstance(step, _Step)]
        for step in sorted(steps, key=lambda step: step.version is not None):
            if step.version is not None and self._folders:
                for folder in self._folders:
                    remove_empty(folder)
                self._folders = ()
            try:
                if read_version(step.path)[0] != step.now:
                    yield f"{step.shown.path} has just been changed"
                else:
                    put_back(step.path, step.root, step.version, step.content)
            except (OSError, ExecError) as error:
                yield f"{step.shown.path}: {getattr(error, 'strerror', None) or error}"
        for folder in self._folders:
            remove_empty(folder)


async def plan_undo(thread: Thread, first: int) -> Undo:
    """What becomes of the files when the turns from `first` on are taken back. Under the thread's lock."""
    if thread.ephemeral:
        return Undo("an ephemeral thread stores nothing")
    if not thread.services.config_for(thread.settings).features.undo:
        return Undo("features.undo is off")
    turns = [turn.id for turn in await thread.store.turns(thread.id, after=first - 1)]
    if thread.record.forked_from_id is not None and min(turns) < thread.id:
        return Undo("a turn is of the thread that this one was forked from; revert it there")
    try:
        return await read_in_thread(partial(_plan, thread, turns[::-1]), WAIT_S, _WORKERS)
    except (ExecError, TimeoutError) as error:
        return Undo(_reason(error))


async def forget(thread: Thread, turns: Iterable[str]) -> None:
    """These turns are no more."""
    for turn in turns:
        with suppress(FileNotFoundError):
            await asyncio.to_thread(os.unlink, _place(thread.services.home, thread.id, turn))


def forget_threads(home: str, ids: Iterable[str]) -> None:
    """These threads are no more. Blocking."""
    for place in (_place(home, thread_id) for thread_id in ids):
        shutil.rmtree(place, ignore_errors=True)
        with suppress(OSError):
            os.unlink(place)


async def forget_missing(home: str, store: Store) -> None:
    """Whatever is not in the store is no more."""
    with suppress(FileNotFoundError):
        known = await asyncio.to_thread(os.listdir, _place(home, ""))
        gone = [each for each in known if await store.load(each) is None]
        await asyncio.to_thread(forget_threads, home, gone)


def _plan(thread: Thread, turns: Sequence[str]) -> Undo:
    """`turns` are the newest first. Raises `ExecError`."""
    settings = thread.settings
    if thread.pins.covers(settings.confinement, settings.cwd):
        thread.pins.check(settings.confinement, settings.cwd)
    roots = _roots(settings.workspace)
    chains: dict[str, list[VersionChange]] = {}
    contents: dict[bytes, bytes] = {}
    folders: dict[str, None] = {}
    repositories: set[bytes] = set()
    for turn in turns:
        changes = _read(_place(thread.services.home, thread.id, turn))
        if changes.problem:
            return Undo(changes.problem)
        if any(os.fsdecode(root) not in roots for root in changes.roots):
            return Undo(f"the thread works in another folder now than in {os.fsdecode(changes.roots[0])}")
        contents |= changes.contents
        folders |= dict.fromkeys(map(os.fsdecode, changes.folders))
        repositories |= {*changes.repositories}
        for path, change in changes.files.items():
            chains.setdefault(os.fsdecode(path), []).append(change)
    planned = (_step(path, chain, contents, roots) for path, chain in sorted(chains.items()))
    steps = [step for step in planned if step is not None]
    steps += (RevertedFile(path=_shown(path), action="skip", reason=_REPOSITORY) for path in sorted(repositories))
    return Undo(None, turns, steps, sorted(folders, key=len, reverse=True))


def _read(place: str) -> Changes:
    try:
        with open(place, "rb") as file:
            data = file.read()
        return msgspec.msgpack.decode(data, type=Changes) if data else Changes(problem=_NO_ROOM)
    except NotADirectoryError:
        return Changes(problem=_NO_ROOM)
    except FileNotFoundError:
        return Changes(problem=_KILLED if os.path.exists(f"{place}.begun") else "")
    except (OSError, msgspec.DecodeError) as error:
        return Changes(problem=f"what was stored of its changes cannot be read ({error})")


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "replace")


def _step(
    path: str, chain: Sequence[VersionChange], contents: Mapping[bytes, bytes], roots: Sequence[str]
) -> _Step | RevertedFile | None:
    """What becomes of a file; None when it is what it was. `chain` are its changes, the newest first."""
    shown = _shown(os.fsencode(path))
    now = wanted = read_version(path)[0]
    reason = None
    for change in chain:
        if wanted != change.after:
            reason = "it was changed since"
            break
        if change.before is not None and change.before.kind == "unknown":
            reason = "what it was is not stored: it was too large, could not be read, or was ignored"
            break
        wanted = change.before
    if wanted == now:
        is_back = now == chain[-1].before
        return None if is_back else RevertedFile(path=shown, action="skip", reason=reason)
    root = next((each for each in roots if contains(each, path)), None)
    if root is None:
        return RevertedFile(path=shown, action="skip", reason="it is not in the workspace")
    action = "delete" if wanted is None else "recreate" if now is None else "restore"
    if reason is not None:
        reason = f"only what was changed last: before, {reason.replace('since', 'between the turns')}"
    content = contents[wanted.content] if wanted is not None and wanted.kind == "file" else b""
    return _Step(path, root, now, wanted, content, RevertedFile(path=shown, action=action, reason=reason))
