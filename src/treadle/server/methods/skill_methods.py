"""`skills/*`, and hooks, of which this server has none yet.

It owns which skills are enabled, as `[[skills.config]]` of the configuration says. Finding them is `skill_files`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec import UNSET

from treadle.config import read_document
from treadle.errors import INVALID_PARAMS, INVALID_REQUEST, RpcError
from treadle.execution.bounded_reads import read_in_thread
from treadle.execution.project_files import ProjectFiles
from treadle.protocol.app.config import ConfigEdit
from treadle.protocol.app.extensions import (
    HooksListEntry,
    HooksListParams,
    HooksListResponse,
    SkillErrorInfo,
    SkillMetadata,
    SkillsConfigWriteParams,
    SkillsConfigWriteResponse,
    SkillsListEntry,
    SkillsListParams,
    SkillsListResponse,
)
from treadle.server.clients import ServerCall
from treadle.server.methods.config_methods import edit_file
from treadle.server.skill_files import BrokenSkill, SkillFile, find_skills

MAX_DIRECTORIES: Final = 100


def _directories(call: ServerCall[SkillsListParams] | ServerCall[HooksListParams]) -> list[str]:
    """The client's names for them; that of the server when it gives none."""
    given = call.params.cwds or (call.server.cwd,)
    if len(given) > MAX_DIRECTORIES:
        raise RpcError(
            INVALID_REQUEST, f"{len(given)} directories are too many at once; send at most {MAX_DIRECTORIES}"
        )
    return list(given)


# --- skills ----------------------------------------------------------------------------------------------------------


async def list_skills(call: ServerCall[SkillsListParams]) -> SkillsListResponse:
    """The disk is read for every request, so `forceReload` changes nothing."""
    server, rules = call.server, _rules(call.server.config.document)

    def look(cwd: str) -> tuple[list[SkillFile], list[BrokenSkill]]:
        folder = os.path.normpath(os.path.join(server.cwd, cwd))
        return find_skills(ProjectFiles(folder, server.home, server.config.permissions().sandbox))

    data = []
    for cwd in _directories(call):
        try:
            found, broken = await read_in_thread(partial(look, cwd))
        except TimeoutError:
            found, broken = [], [BrokenSkill(cwd, "its file system does not answer")]
        entry = SkillsListEntry(
            cwd=cwd,
            skills=tuple(_wire(skill, rules) for skill in found),
            errors=tuple(SkillErrorInfo(path=bad.path, message=bad.message) for bad in broken),
        )
        data.append(entry)
    return SkillsListResponse(data=tuple(data))


def _wire(skill: SkillFile, rules: Sequence[Mapping[str, Any]]) -> SkillMetadata:
    enabled = True
    for rule in rules:
        if rule.get("path") == skill.path or rule.get("name") == skill.name:
            enabled = rule.get("enabled") is not False
    return SkillMetadata(
        name=skill.name,
        description=skill.description,
        short_description=UNSET if skill.short_description is None else skill.short_description,
        path=skill.path,
        scope=skill.scope,
        enabled=enabled,
    )


def _rules(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """`[[skills.config]]`: each names a skill by `path` or `name` and says whether it is `enabled`."""
    table = document.get("skills")
    rules = table.get("config") if isinstance(table, Mapping) else None
    return [rule for rule in rules if isinstance(rule, Mapping)] if isinstance(rules, list) else []


async def write_config(call: ServerCall[SkillsConfigWriteParams]) -> SkillsConfigWriteResponse:
    params, server = call.params, call.server
    if (params.path is None) == (params.name is None):
        raise RpcError(INVALID_PARAMS, "skills/config/write requires exactly one of path or name")
    if params.path is not None and not os.path.isabs(params.path):
        raise RpcError(INVALID_REQUEST, "Invalid request: AbsolutePathBuf deserialized without a base path")
    key, value = "name", params.name
    if params.path is not None:  # skills are known by their paths without links
        key, value = "path", await asyncio.to_thread(os.path.realpath, params.path)
    document = await asyncio.to_thread(read_document, server.home_path)
    rules = [dict(rule) for rule in _rules(document.values) if rule.get(key) != value]
    if not params.enabled:
        rules.append({key: value, "enabled": False})
    edit = ConfigEdit(key_path="skills.config", merge_strategy="replace", value=rules or None)
    await edit_file(server, (edit,), document.version)
    return SkillsConfigWriteResponse(effective_enabled=params.enabled)


# --- what there is none of -------------------------------------------------------------------------------------------


def list_hooks(call: ServerCall[HooksListParams]) -> HooksListResponse:
    entries = (HooksListEntry(cwd=cwd, hooks=(), warnings=(), errors=()) for cwd in _directories(call))
    return HooksListResponse(data=tuple(entries))
