"""`plan`: what a patch will change, given the files as they are. Pure: it reads through a function and writes nothing.

Owns what each section may do, and how several sections on one file add up to one change:

- sections see what the sections before them did;
- *add* over an existing file replaces it, and is reported as an update, so that what goes away can be seen;
- *delete* and *update* need the file; *move* needs its destination to be free (delete it first, in the same patch);
- what was added and deleted again is no change; a file that was moved on and on is moved once;
- paths are resolved by text against `cwd`; absolute ones and ones that lead out of it are left to the sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from posixpath import isabs, join, normpath
from typing import Final

from treadle.tools.patch.diff import text_of, unified
from treadle.tools.patch.patch_values import AddFile, DeleteFile, FileChange, Patch, PatchError, Section, UpdateFile
from treadle.tools.patch.text_file import TextFile

MAX_FILE_BYTES: Final = 64 * 1024 * 1024  # a text file that large is no source that a model edits by hunks


def plan(patch: Patch, read: Callable[[str], bytes | None], cwd: str) -> list[FileChange]:
    """The net changes in the order in which the patch first names the files.

    `read` is given absolute paths and returns `None` for a file that does not exist; what it raises is passed on. It is
    called once for each of `paths(patch, cwd)`. `PatchError` (`mismatch`) when the patch does not fit.
    """
    state = _State(read)
    for section in patch.sections:
        _run(section, state, cwd)
    return list(state.changes())


def paths(patch: Patch, cwd: str) -> list[str]:
    """The absolute paths that a patch names, in order: those that it reads and may write."""
    found: dict[str, None] = {}
    for section in patch.sections:
        found[_resolve(section.path, cwd)] = None
        if isinstance(section, UpdateFile) and section.move_path is not None:
            found[_resolve(section.move_path, cwd)] = None
    return list(found)


def _resolve(path: str, cwd: str) -> str:
    if not isabs(cwd):
        raise ValueError(f"cwd must be absolute, not {cwd!r}")
    absolute = normpath(join(cwd, path))
    return absolute[1:] if absolute.startswith("//") else absolute


class _State:
    """The files as the sections so far leave them. `_origins` says which file a moved one was at first."""

    def __init__(self, read: Callable[[str], bytes | None]) -> None:
        self._read = read
        self._before: dict[str, bytes | None] = {}
        self._now: dict[str, bytes | None] = {}
        self._origins: dict[str, str] = {}

    def get(self, path: str) -> bytes | None:
        if path not in self._before:
            self._before[path] = self._now[path] = self._read(path)
        return self._now[path]

    def put(self, path: str, data: bytes) -> None:
        self.get(path)
        self._now[path] = data

    def drop(self, path: str) -> None:
        self._now[path] = None
        self._origins.pop(path, None)

    def move(self, path: str, target: str, data: bytes) -> None:
        origin = self._origins.get(path, path)
        self.drop(path)
        self.put(target, data)
        if self._before[origin] is not None:
            self._origins[target] = origin

    def changes(self) -> Iterator[FileChange]:
        moves = {origin: target for target, origin in self._origins.items() if self._now[origin] is None}
        arrived = set(moves.values())
        for path, old in self._before.items():
            if path in moves:
                yield self._moved(path, moves[path])
            elif path not in arrived and (change := _change(path, old, self._now[path])) is not None:
                yield change

    def _moved(self, path: str, target: str) -> FileChange:
        old, new = self._before[path], self._now[target]
        return FileChange(
            path=path,
            kind="update",
            old=old,
            new=new,
            diff=f"{unified(old or b'', new or b'')}\n\nMoved to: {target}",
            move_path=target,
            move_old=self._before[target],
        )


def _change(path: str, old: bytes | None, new: bytes | None) -> FileChange | None:
    if old is None and new is None:
        return None
    if old is None:
        return FileChange(path=path, kind="add", old=None, new=new, diff=text_of(new))
    if new is None:
        return FileChange(path=path, kind="delete", old=old, new=None, diff=text_of(old))
    return FileChange(path=path, kind="update", old=old, new=new, diff=unified(old, new))


# --- sections --------------------------------------------------------------------------------------------------------


def _run(section: Section, state: _State, cwd: str) -> None:
    path = _resolve(section.path, cwd)
    match section:
        case AddFile():
            state.put(path, section.content.encode())
        case DeleteFile():
            _existing(section, path, state, "delete")
            state.drop(path)
        case UpdateFile():
            _update(section, path, state, cwd)


def _update(section: UpdateFile, path: str, state: _State, cwd: str) -> None:
    data = _existing(section, path, state, "update")
    if len(data) > MAX_FILE_BYTES:
        raise _refused(section, path, f"{path} has {len(data)} bytes, more than {MAX_FILE_BYTES}: edit it by a command")
    new = TextFile(path, data).patched(section.hunks)
    target = path if section.move_path is None else _resolve(section.move_path, cwd)
    if target == path:
        state.put(path, new)
        return
    if state.get(target) is not None:
        raise _refused(
            section,
            target,
            f"cannot move {path} to {target}: there is a file; put *** Delete File before, or update it",
        )
    state.move(path, target, new)


def _existing(section: Section, path: str, state: _State, verb: str) -> bytes:
    data = state.get(path)
    if data is None:
        raise _refused(section, path, f"cannot {verb} {path}: there is no such file; check the path")
    return data


def _refused(section: Section, path: str, message: str) -> PatchError:
    return PatchError(f"{message} (line {section.line} of the patch)", "mismatch", line=section.line, path=path)
