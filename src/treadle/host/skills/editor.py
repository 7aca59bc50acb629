"""`SkillEditor`: what one session reads and changes of the skills.

It remembers what it has read, so that nothing is overwritten that someone else has changed since. All changes are made
under the store's lock, and each replaces one file, or moves one thing to the trash.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from treadle.host.guarded_folder import GuardedFolder
from treadle.host.refused import Refused, said_clearly
from treadle.host.skills.skill import (
    MARKERS,
    MAX_DOCUMENT_BYTES,
    MAX_FILE_BYTES,
    SkillChange,
    check_document,
    check_text,
    checked_name,
    file_parts,
)
from treadle.host.skills.skill_folders import (
    MAX_FILES,
    MAX_SKILLS,
    Place,
    files_of,
    find_place,
    folders_of,
    marker_of,
    places,
    text_of,
)
from treadle.server.skill_files import FILE_NAME

if TYPE_CHECKING:
    from treadle.host.skills.skill_store import SkillStore

TRASH: Final = ".trash"
# What was deleted can be taken back from there; the oldest go first.
MAX_TRASH: Final = 50
MAX_READS: Final = 1000

_TRASHED: Final = re.compile(r"\d{8}T\d{6}\.[0-9a-f]{8}\..+")
_Key = tuple[Place, str]


class SkillEditor:
    """Reads and changes skills, from any thread. It raises `Refused` for what it does not do."""

    def __init__(self, store: SkillStore, *, must_read: bool = False) -> None:
        self._store = store
        self._must_read = must_read
        self._reads: dict[_Key, str] = {}
        self._guard = threading.Lock()

    def view(self, name: str, file: str | None = None) -> str:
        """The `SKILL.md` of a skill with a list of its files, or one of those."""
        with self._store.reading() as root:
            place = find_place(root, name)
            assert root is not None  # it had the skill
            parts = _parts(file)
            with root.below([*folders_of(place), *parts[:-1]]) as folder:
                text = _text(folder, parts)
            self._remember((place, "/".join(parts)), text)
            if parts != (FILE_NAME,):
                return text
            with root.below(folders_of(place)) as folder:
                files = [] if folder is None else files_of(folder)
        return text if not files else f"{text.rstrip()}\n\n---\nFiles of this skill: {', '.join(files)}\n"

    def create(self, name: str, content: str, category: str | None = None) -> SkillChange:
        """A new skill; `content` is its whole `SKILL.md`."""
        checked_name("the name", name)
        place: Place = (None if not category else checked_name("the category", category), name)
        check_document(content, name)
        with self._store.writing() as root:
            known = places(root)
            if any(other[1] == name for other in known):
                raise Refused("duplicate", f"there is a skill called {name} already; read it and patch it")
            if (None, category) in known:
                raise Refused("invalid", f"{category} is a skill, so it cannot be a category; take another one")
            if len(known) >= MAX_SKILLS:
                raise Refused("full", f"there are {MAX_SKILLS:,} skills already; delete some that are of no use")
            self._make(root, place, content)
        self._remember((place, FILE_NAME), content)
        return SkillChange(action="create", name=name)

    def _make(self, root: GuardedFolder, place: Place, content: str) -> None:
        parts = folders_of(place)
        with root.below(parts[:-1], create=True) as around:
            if around is None:
                raise Refused("unwritable", f"{root.place(parts[0])} was removed a moment ago; try again")
            fresh = not around.has(place[1])
            with around.inner(place[1], create=True) as folder:
                if folder is None or folder.names():
                    raise Refused("duplicate", f"{around.place(place[1])} has something else in it; take another name")
                try:
                    folder.replace(FILE_NAME, content.encode())
                except BaseException:
                    if fresh:
                        with suppress(OSError):
                            os.rmdir(place[1], dir_fd=around.descriptor)
                    raise

    def edit(self, name: str, content: str) -> SkillChange:
        """Put a new `SKILL.md` in the place of the one that was read."""
        with self._changing(name) as (place, folder):
            check_document(content, place[1])
            self._check((place, FILE_NAME), text_of(folder, FILE_NAME, MAX_DOCUMENT_BYTES), overwrites=True)
            folder.replace(FILE_NAME, content.encode())
            self._remember((place, FILE_NAME), content)
        return SkillChange(action="edit", name=name)

    def patch(
        self, name: str, old_text: str, new_text: str, file: str | None = None, *, replace_all: bool = False
    ) -> SkillChange:
        """Replace a part of a file, `SKILL.md` without one, that is in it once."""
        parts = _parts(file)
        with self._changing(name) as (place, skill), skill.below(parts[:-1]) as folder:
            text = _text(folder, parts)
            assert folder is not None  # it had the file
            self._check((place, "/".join(parts)), text)
            new = _patched(text, old_text, new_text, replace_all=replace_all)
            if parts == (FILE_NAME,):
                check_document(new, place[1])
            else:
                _check_file(new)
            folder.replace(parts[-1], new.encode())
            self._remember((place, "/".join(parts)), new)
        return SkillChange(action="patch", name=name, file=file)

    def write_file(self, name: str, file: str, content: str) -> SkillChange:
        """A file beside the `SKILL.md`: a new one, or in the place of one that was read."""
        parts = file_parts(file)
        _check_file(content)
        with self._changing(name) as (place, skill):
            if self._must_read:
                self._check((place, FILE_NAME), text_of(skill, FILE_NAME, MAX_DOCUMENT_BYTES))
            with skill.below(parts[:-1]) as folder:
                old = None if folder is None else folder.read(parts[-1], MAX_FILE_BYTES)
            if old is not None:
                self._check((place, file), old, overwrites=True)
            elif len(files_of(skill)) >= MAX_FILES:
                raise Refused("full", f"{name} has {MAX_FILES} files already; remove some that are of no use")
            with skill.below(parts[:-1], create=True) as folder:
                if folder is None:
                    raise Refused("unwritable", f"{skill.path} was removed a moment ago; try again")
                folder.replace(parts[-1], content.encode())
            self._remember((place, file), content)
        return SkillChange(action="write_file", name=name, file=file)

    def remove_file(self, name: str, file: str) -> SkillChange:
        """Move a file beside the `SKILL.md` to the trash."""
        parts = file_parts(file)
        with self._store.writing() as root, self._changing(name, root) as (place, skill):
            with skill.below(parts[:-1]) as folder:
                data = None if folder is None else folder.read(parts[-1], MAX_FILE_BYTES)
                if folder is None or data is None:
                    raise Refused("not_found", f"there is no {file} in {name}")
                self._check((place, file), data)
                _discard(root, folder, parts[-1])
            self._forget(place, file)
        return SkillChange(action="remove_file", name=name, file=file)

    def delete(self, name: str) -> SkillChange:
        """Move a whole skill to the trash."""
        with self._store.writing() as root, self._changing(name, root) as (place, skill):
            self._check((place, FILE_NAME), text_of(skill, FILE_NAME, MAX_DOCUMENT_BYTES))
            with root.below(folders_of(place)[:-1]) as around:
                if around is None:
                    raise Refused("not_found", f"{name} was removed a moment ago")
                _discard(root, around, place[1])
            self._forget(place)
        return SkillChange(action="delete", name=name)

    @contextmanager
    def _changing(self, name: str, root: GuardedFolder | None = None) -> Iterator[tuple[Place, GuardedFolder]]:
        """The place and the folder of a skill that may be changed, under the lock."""
        if root is None:
            with self._store.writing() as root, self._changing(name, root) as found:
                yield found
            return
        place = find_place(root, name)
        with root.below(folders_of(place)) as folder:
            if folder is None:
                raise Refused("not_found", f"{name} was removed a moment ago")
            marker = marker_of(folder)
            if marker is not None:
                problem = (
                    f"{name} cannot be changed: {MARKERS[marker]}. Create another skill with a name of its own, or ask "
                    f"the user to remove {folder.place(marker)}"
                )
                raise Refused("protected", problem)
            yield place, folder

    # --- what was read -----------------------------------------------------------------------------------------------

    def _check(self, key: _Key, now: str | bytes, *, overwrites: bool = False) -> None:
        place, file = key
        with self._guard:
            seen = self._reads.get(key)
        which = f"`skill_view` with name={place[1]}" + ("" if file == FILE_NAME else f" and file={file}")
        if seen is None and (self._must_read or overwrites):
            raise Refused("unread", f"read it before you change it: {which}")
        if seen is not None and seen != _digest(now):
            raise Refused("changed", f"somebody else changed {file} since you read it; read it again: {which}")

    def _remember(self, key: _Key, data: str | bytes) -> None:
        with self._guard:
            self._reads.pop(key, None)
            self._reads[key] = _digest(data)
            if len(self._reads) > MAX_READS:
                del self._reads[next(iter(self._reads))]

    def _forget(self, place: Place, file: str | None = None) -> None:
        with self._guard:
            for key in [key for key in self._reads if key[0] == place and file in (None, key[1])]:
                del self._reads[key]


def _digest(data: str | bytes) -> str:
    return sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def _parts(file: str | None) -> tuple[str, ...]:
    return (FILE_NAME,) if not file or file == FILE_NAME else file_parts(file)


def _text(folder: GuardedFolder | None, parts: tuple[str, ...]) -> str:
    if folder is None:
        raise Refused("not_found", f"there is no {'/'.join(parts)} in this skill")
    return text_of(folder, parts[-1], MAX_DOCUMENT_BYTES if parts == (FILE_NAME,) else MAX_FILE_BYTES)


def _check_file(content: str) -> None:
    try:
        length = len(content.encode())
    except UnicodeEncodeError:
        raise Refused("invalid", "it has half a character in it, which cannot be written") from None
    if length > MAX_FILE_BYTES:
        raise Refused("full", f"it has {length:,} bytes, and {MAX_FILE_BYTES:,} fit into a file")
    check_text(content)


def _patched(text: str, old: str, new: str, *, replace_all: bool) -> str:
    if "\r\n" in text and old not in text:
        old, new = (part.replace("\r\n", "\n").replace("\n", "\r\n") for part in (old, new))
    if not old:
        raise Refused("invalid", "`old_text` cannot be empty: give the part that is to be replaced")
    number = text.count(old)
    if number == 0:
        raise Refused("not_found", "`old_text` is not in the file; read it again and copy the part exactly")
    if number > 1 and not replace_all:
        problem = f"`old_text` is in the file {number} times; give more of the text around it, or set `replace_all`"
        raise Refused("ambiguous", problem)
    if old == new:
        raise Refused("duplicate", "`new_text` is what is there already")
    length = len(text) + number * (len(new) - len(old))
    if length > MAX_FILE_BYTES:  # before it is made: it may be more than the memory
        raise Refused("full", f"it would have {length:,} characters, and {MAX_FILE_BYTES:,} bytes fit into a file")
    return text.replace(old, new)


# --- trash -----------------------------------------------------------------------------------------------------------


def _discard(root: GuardedFolder, folder: GuardedFolder, name: str) -> None:
    with root.inner(TRASH, create=True) as trash:
        if trash is None:
            raise Refused("unwritable", f"{root.place(TRASH)} was removed a moment ago; try again")
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        folder.move(name, trash, f"{stamp}.{os.urandom(4).hex()}.{name}")
        for old in [found for found in trash.names() if _TRASHED.fullmatch(found)][:-MAX_TRASH]:
            _erase(trash, old)


def _erase(trash: GuardedFolder, name: str) -> None:
    """The only place where something is erased: an old thing of ours in the trash, without following links."""
    with suppress(Refused), said_clearly(trash.place(name), "unwritable"):
        if trash.is_folder(name):
            shutil.rmtree(name, dir_fd=trash.descriptor)
        else:
            trash.remove(name)
