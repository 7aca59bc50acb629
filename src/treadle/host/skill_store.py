"""`SkillStore`: the skills in a folder: `[category/]name/SKILL.md`, with files beside it.

The store owns where they are and their part of the prompt. `SkillEditor` reads and changes them for a session: it
remembers what it has read, so that nothing is overwritten that someone else has changed since. All changes are made
under the store's lock, and each replaces one file, or moves one thing to the trash. The tools are how a model does it.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Final, TypeAlias

from treadle.arguments import path, seconds
from treadle.client.tools import Tool, ToolCallError
from treadle.host.chat_messages import one_line
from treadle.host.guarded_folder import LOCK_S, GuardedFolder, Refused, locked, opened, said_clearly
from treadle.host.injection import find_injection
from treadle.host.skill_folders import (
    MARKERS,
    MAX_DOCUMENT_BYTES,
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_SKILLS,
    Place,
    SkillAction,
    SkillChange,
    StoredSkill,
    check_document,
    check_text,
    checked_name,
    file_parts,
    files_of,
    find_place,
    folders_of,
    marker_of,
    places,
    read_skill,
    read_text,
)
from treadle.skills.skill_files import FILE_NAME

# What all of them may take of the prompt, and one of them.
MAX_PROMPT: Final = 8000
MAX_PROMPT_LINE: Final = 300


class SkillStore:
    """What an agent knows how to do. Any thread may use it, and any number of processes the same folder.

    Args:
        folder: Where the skills are; it is made at the first write.
        lock_wait_s: How long to wait for another writer.
    """

    def __init__(self, folder: str | os.PathLike[str], *, lock_wait_s: float = LOCK_S) -> None:
        # Links on the way to it are the user's; one that comes to lie in its place later is not followed.
        self.folder: str = os.path.realpath(os.path.expanduser(path("folder", folder)))
        self._lock_wait_s = seconds("lock_wait_s", lock_wait_s)

    @contextmanager
    def reading(self) -> Iterator[GuardedFolder | None]:
        """The folder, open for reading."""
        with opened(self.folder) as root:
            yield root

    @contextmanager
    def writing(self) -> Iterator[GuardedFolder]:
        """The folder, for one writer at a time."""
        with locked(self.folder, self._lock_wait_s) as root:
            yield root

    def skills(self) -> list[StoredSkill]:
        """The skills by category and name. One that cannot be used is there too, with its problem."""
        with opened(self.folder) as root:
            return [] if root is None else [read_skill(root, place) for place in places(root)]

    def prompt(self) -> str:
        """The part of the prompt at the start of a session; empty when there are no skills."""
        lines, left_out, used = list[str](), dict[str, int](), 0
        try:
            found = self.skills()
        except Refused as error:
            return f"# Skills\n(Not shown: {error}.)"
        for skill in found:
            line = f"- {skill.path}: {one_line(skill.description, MAX_PROMPT_LINE)}"
            reason = skill.problem or find_injection(skill.description)
            if reason is None and used + len(line) > MAX_PROMPT:
                reason = "there are too many; `skills_list` has them all"
            if reason is None:
                lines.append(line)
                used += len(line) + 1
            else:
                left_out[reason] = left_out.get(reason, 0) + 1
        if not found:
            return ""
        notes = [f"({number} not shown: {reason}.)" for reason, number in sorted(left_out.items())[:10]]
        return "\n".join(
            ["# Skills: what you learned to do; read one with `skill_view` before you use it", *lines, *notes]
        )

    def editor(self, *, must_read: bool = False) -> SkillEditor:
        """What reads and changes skills, and remembers what it has read. With `must_read` nothing is changed unread."""
        return SkillEditor(self, must_read=must_read)

    def tools(self, *, on_change: OnChange | None = None, must_read: bool = False) -> list[Tool]:
        """`skills_list`, `skill_view` and `skill_manage`; `on_change` is called with every change."""
        return skill_tools(self, on_change, must_read)


# --- reading and changing --------------------------------------------------------------------------------------------

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
            self._check((place, FILE_NAME), read_text(folder, FILE_NAME, MAX_DOCUMENT_BYTES), overwrites=True)
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
            if "\r\n" in text and old_text not in text:
                old_text = old_text.replace("\r\n", "\n").replace("\n", "\r\n")
                new_text = new_text.replace("\r\n", "\n").replace("\n", "\r\n")
            if not old_text:
                raise Refused("invalid", "`old_text` cannot be empty: give the part that is to be replaced")
            number = text.count(old_text)
            if number == 0:
                raise Refused("not_found", "`old_text` is not in the file; read it again and copy the part exactly")
            if number > 1 and not replace_all:
                problem = (
                    f"`old_text` is in the file {number} times; give more of the text around it, or set `replace_all`"
                )
                raise Refused("ambiguous", problem)
            if old_text == new_text:
                raise Refused("duplicate", "`new_text` is what is there already")
            length = len(text) + number * (len(new_text) - len(old_text))
            if length > MAX_FILE_BYTES:  # before it is made: it may be more than the memory
                problem = f"it would have {length:,} characters, and {MAX_FILE_BYTES:,} bytes fit into a file"
                raise Refused("full", problem)
            new = text.replace(old_text, new_text)
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
                self._check((place, FILE_NAME), read_text(skill, FILE_NAME, MAX_DOCUMENT_BYTES))
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
            self._check((place, FILE_NAME), read_text(skill, FILE_NAME, MAX_DOCUMENT_BYTES))
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
    return read_text(folder, parts[-1], MAX_DOCUMENT_BYTES if parts == (FILE_NAME,) else MAX_FILE_BYTES)


def _check_file(content: str) -> None:
    try:
        length = len(content.encode())
    except UnicodeEncodeError:
        raise Refused("invalid", "it has half a character in it, which cannot be written") from None
    if length > MAX_FILE_BYTES:
        raise Refused("full", f"it has {length:,} bytes, and {MAX_FILE_BYTES:,} fit into a file")
    check_text(content)


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


# --- the tools -------------------------------------------------------------------------------------------------------

OnChange: TypeAlias = Callable[[SkillChange], None]


def skill_tools(store: SkillStore, on_change: OnChange | None, must_read: bool) -> list[Tool]:
    editor = store.editor(must_read=must_read)

    def skills_list(category: str | None = None) -> str:
        """All skills by name, with what each is for. Read one with `skill_view` before you use it.

        Args:
            category: Only those of this category.
        """
        try:
            found = [skill for skill in store.skills() if not category or skill.category == category]
        except Refused as error:
            raise ToolCallError(str(error)) from error
        lines: list[str] = []
        for skill in found:
            reason = skill.problem or find_injection(skill.description)
            mark = "" if skill.marker is None else f" (not to be changed: {MARKERS[skill.marker]})"
            usable = f"- {skill.path}{mark}: {skill.description}"
            lines.append(usable if reason is None else f"- {skill.path}: cannot be used: {reason}")
        return "\n".join(lines) or "There are no skills."

    def skill_view(name: str, file: str | None = None) -> str:
        """Read a skill: how something is done, learned from doing it. Read it before you do that, or change the skill.

        Args:
            name: The skill's name, or `category/name` where two have the same.
            file: One of its files, such as `references/notes.md`; its SKILL.md without it.
        """
        try:
            return editor.view(name, file)
        except Refused as error:
            raise ToolCallError(str(error)) from error

    def skill_manage(
        action: SkillAction,
        name: str,
        content: str | None = None,
        category: str | None = None,
        file: str | None = None,
        old_text: str | None = None,
        new_text: str | None = None,
        replace_all: bool = False,
    ) -> str:
        """Keep how something is done as a skill, or improve one. What exists has to be read with `skill_view` first.

        A skill is worth keeping when a task took effort, will come again, and is not obvious: the steps that worked,
        the traps, how to check the result. One skill is for one kind of task; prefer to patch a skill over creating one
        beside it. Files beside it hold what is long: `references`, `templates`, `scripts`, `assets`. Never put secrets
        in. Some skills are protected or pinned by the user and cannot be changed.

        Args:
            action: `create` a skill, `patch` a part of a file, `edit` the whole SKILL.md, `delete` a skill,
                `write_file` or `remove_file` beside the SKILL.md.
            name: The skill's name: lower-case letters, digits, `.`, `_` and `-`.
            content: For `create` and `edit` the whole SKILL.md, which begins with front matter: a line `---`, `name:`,
                `description:` (when to use it), a line `---`. For `write_file` the text of the file.
            category: For `create`: a folder to put it into.
            file: A path such as `references/notes.md`, for `write_file`, `remove_file` and `patch` (else SKILL.md).
            old_text: For `patch`: the part to replace, exactly, and only once in the file.
            new_text: For `patch`: what to put there; empty to remove it.
            replace_all: For `patch`: replace it wherever it is.
        """
        try:
            match action:
                case "create":
                    change = editor.create(name, _given("content", content, action), category)
                case "edit":
                    change = editor.edit(name, _given("content", content, action))
                case "patch":
                    old, new = _given("old_text", old_text, action), _given("new_text", new_text, action)
                    change = editor.patch(name, old, new, file, replace_all=replace_all)
                case "delete":
                    change = editor.delete(name)
                case "write_file":
                    change = editor.write_file(name, _given("file", file, action), _given("content", content, action))
                case "remove_file":
                    change = editor.remove_file(name, _given("file", file, action))
        except Refused as error:
            raise ToolCallError(str(error)) from error
        if on_change is not None:
            on_change(change)
        return f"Done: {change_line(change)}."

    return [Tool(skills_list), Tool(skill_view), Tool(skill_manage)]


def _given(parameter: str, value: str | None, action: SkillAction) -> str:
    if value is None:
        raise Refused("invalid", f"`{action}` needs `{parameter}`")
    return value


def change_line(change: SkillChange) -> str:
    """What was done, for a line to a person: `patched skill deploy-checks`."""
    past = {"create": "created", "patch": "patched", "edit": "rewrote", "delete": "deleted"}
    if change.action in past and change.file is None:
        return f"{past[change.action]} skill {change.name}"
    verb = {"write_file": "wrote", "remove_file": "removed", "patch": "patched"}[change.action]
    return f"{verb} {change.file} of skill {change.name}"
