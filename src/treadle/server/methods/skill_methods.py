"""`skills/*`.

It owns what clients hear of skills, and when. Finding them is `treadle.skills`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from treadle.agent.event import Event, now_ms
from treadle.config import ConfigError, read_document
from treadle.config.config_access import skill_edit
from treadle.config.file_settings import SkillRule
from treadle.errors import INVALID_PARAMS, INVALID_REQUEST, RpcError
from treadle.execution.bounded_reads import read_in_thread
from treadle.protocol.app.base import Empty
from treadle.protocol.app.extensions import (
    HooksListParams,
    SkillDependencies,
    SkillErrorInfo,
    SkillMetadata,
    SkillsChangedNotification,
    SkillsConfigWriteParams,
    SkillsConfigWriteResponse,
    SkillsExtraRootsSetParams,
    SkillsListEntry,
    SkillsListParams,
    SkillsListResponse,
)
from treadle.server.clients import ServerCall
from treadle.server.methods.config_methods import edit_file
from treadle.server.methods.fs_methods import FileWatches
from treadle.skills.skill_files import (
    BrokenSkill,
    Skill,
    SkillPlace,
    SkillSet,
    is_enabled,
    known_skills,
    look_for_skills,
)

if TYPE_CHECKING:
    from treadle.server.app import AppServer

logger: logging.Logger = logging.getLogger(__name__)

_SCOPES: Final = ("repo", "user", "admin")
# Folders, of all directories that were listed. A system allows a user some thousands, for all programs.
MAX_WATCHED: Final = 1000
MAX_DIRECTORIES: Final = 100


def directories(call: ServerCall[SkillsListParams] | ServerCall[HooksListParams]) -> list[str]:
    """The client's names for them; that of the server when it gives none."""
    given = call.params.cwds or (call.server.cwd,)
    if len(given) > MAX_DIRECTORIES:
        raise RpcError(
            INVALID_REQUEST, f"{len(given)} directories are too many at once; send at most {MAX_DIRECTORIES}"
        )
    return list(given)


async def list_skills(call: ServerCall[SkillsListParams]) -> SkillsListResponse:
    """List the skills of directories, or of a thread. Directories are watched from then on, so that clients hear when
    their skills change."""
    server = call.server
    rules = server.shown_config.skills.config
    if call.params.thread_id is not None:
        try:
            return SkillsListResponse(data=(_entry(*await server.threads.find(call.params.thread_id).skills(), rules),))
        except TimeoutError:
            raise RpcError(INVALID_REQUEST, "the skills of the thread cannot be read: nothing answers there") from None
    if server.watched_skills is None:
        server.watched_skills = WatchedSkills(server)
    skills = server.watched_skills
    data = []
    for cwd in directories(call):
        try:
            found = await skills.look(cwd, anew=call.params.force_reload)
        except TimeoutError:
            found = SkillSet(broken=(BrokenSkill(cwd, "its file system does not answer"),))
        data.append(_entry(cwd, found, rules))
    return SkillsListResponse(data=tuple(data))


def _entry(cwd: str, found: SkillSet, rules: Sequence[SkillRule]) -> SkillsListEntry:
    return SkillsListEntry(
        cwd=cwd,
        skills=tuple(_wire(skill, rules) for skill in sorted(found.skills, key=_in_list)),
        errors=tuple(SkillErrorInfo(path=bad.path, message=bad.message) for bad in found.broken),
    )


def _in_list(skill: Skill) -> tuple[int, str, str]:
    return _SCOPES.index(skill.scope), skill.name, skill.path


def _wire(skill: Skill, rules: Sequence[SkillRule]) -> SkillMetadata:
    return SkillMetadata(
        name=skill.name,
        description=skill.description,
        short_description=UNSET if skill.short_description is None else skill.short_description,
        interface=skill.interface,
        dependencies=SkillDependencies(tools=skill.tools) if skill.tools else UNSET,
        path=skill.path,
        scope=skill.scope,
        enabled=is_enabled(skill, rules),
    )


async def write_config(call: ServerCall[SkillsConfigWriteParams]) -> SkillsConfigWriteResponse:
    """Turn a skill on or off, by its path or by its name."""
    params, server = call.params, call.server
    if (params.path is None) == (params.name is None):
        raise RpcError(INVALID_PARAMS, "skills/config/write requires exactly one of path or name")
    if params.path is not None:
        _check_absolute(params.path)
    document = await asyncio.to_thread(read_document, server.home_path)
    edit = await asyncio.to_thread(
        skill_edit, document.values, path=params.path, name=params.name, enabled=params.enabled
    )
    await edit_file(server, (edit,), document.version)
    server.broadcast(_changed())
    return SkillsConfigWriteResponse(effective_enabled=params.enabled)


def set_extra_roots(call: ServerCall[SkillsExtraRootsSetParams]) -> Empty:
    """Name more folders with skills, in place of those named before; for as long as the server runs."""
    roots = call.params.extra_roots
    if len(roots) > MAX_DIRECTORIES:
        raise RpcError(INVALID_REQUEST, f"{len(roots)} roots are too many; send at most {MAX_DIRECTORIES}")
    for root in roots:
        _check_absolute(root)
    call.server.skill_roots = tuple(dict.fromkeys(map(os.path.normpath, roots)))
    call.server.broadcast(_changed())
    return Empty()


def _check_absolute(path: str) -> None:
    if not os.path.isabs(path) or "\0" in path:
        raise RpcError(INVALID_REQUEST, "Invalid request: AbsolutePathBuf deserialized without a base path")


def _changed() -> Event:
    return Event("skills/changed", SkillsChangedNotification(), None, now_ms())


# --- watching --------------------------------------------------------------------------------------------------------


class WatchedSkills:
    """The skills that clients have listed, by working directory. When they change, all clients are notified.

    The folders whose names decide what there is are watched. After a change the directory is looked at again, which
    also watches the folders that are new. Whoever looks, all clients are notified when the answer is another one.
    """

    def __init__(self, server: AppServer) -> None:
        self._server = server
        self._lists: dict[str, SkillSet] = {}
        self._watches = FileWatches(self._noticed)
        self._due: set[str] = set()
        self._is_looking = False

    def close(self) -> None:
        self._watches.cancel()

    async def look(self, cwd: str, *, anew: bool = False) -> SkillSet:
        """What there is now. Raises `TimeoutError`."""
        server = self._server
        config = server.shown_config
        sandbox = config.permissions().sandbox
        folder = os.path.normpath(os.path.join(server.cwd, cwd))  # noqa: ASYNC240 (it looks at no file)
        place = SkillPlace(folder, sandbox, str(config.home), config.skills, server.skill_roots)
        before = self._lists.get(cwd)
        known = None if anew else known_skills.current(place)
        if known is not None and before is known:
            return known
        found, snapshot = await read_in_thread(lambda: look_for_skills(place))
        if self._watch(cwd, found) and not await read_in_thread(snapshot.looks_same):
            found, _ = await read_in_thread(lambda: look_for_skills(place))  # it changed before it was watched
            self._watch(cwd, found)
        if before is not None and (found.skills, found.broken) != (before.skills, before.broken):
            server.broadcast(_changed())
        return found

    def _watch(self, cwd: str, found: SkillSet) -> bool:
        """Whether folders are watched that were not before."""
        self._lists.pop(cwd, None)
        if len(self._lists) >= MAX_DIRECTORIES:
            del self._lists[next(iter(self._lists))]
        self._lists[cwd] = found
        wanted = {folder for listed in self._lists.values() for folder in listed.folders}
        for folder in self._watches.names() - wanted:
            self._watches.remove(folder)
        new = sorted(wanted - self._watches.names())[: MAX_WATCHED - len(self._watches)]
        for folder in new:
            try:
                self._watches.add(folder, folder)
            except OSError as error:  # the system has none left, or the folder may not be read
                logger.info("skills cannot be watched", {"folder": folder, "reason": error.strerror})
                return False
        return bool(new)

    def _noticed(self, event: Event) -> None:
        """A folder has changed, in any of the listed directories."""
        self._due.update(self._lists)
        if not self._is_looking:
            self._is_looking = True
            self._server.spawn(self._look_again(), "looking for changed skills")

    async def _look_again(self) -> None:
        try:
            while self._due:
                await self.look(self._due.pop(), anew=True)
        except (TimeoutError, ConfigError) as error:
            logger.info("skills were not looked for again", {"reason": str(error)})
        finally:
            self._is_looking = False
