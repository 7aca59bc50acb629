"""`skills/*`, and what else a client lists beside them: hooks and MCP servers, of which this server has none yet.

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
from treadle.protocol.app.config import ConfigEdit
from treadle.protocol.app.hooks import HooksListEntry, HooksListParams, HooksListResponse
from treadle.protocol.app.mcp import ListMcpServerStatusParams, ListMcpServerStatusResponse, McpServerStatus
from treadle.protocol.app.skills import (
    SkillErrorInfo,
    SkillMetadata,
    SkillsConfigWriteParams,
    SkillsConfigWriteResponse,
    SkillsListEntry,
    SkillsListParams,
    SkillsListResponse,
)
from treadle.server.app import AppServer
from treadle.server.client_base import Call
from treadle.server.methods.config_methods import edit_file, page
from treadle.server.skill_files import Skill, find_skills

MAX_DIRECTORIES: Final = 100


def _directories(call: Call[SkillsListParams] | Call[HooksListParams]) -> list[str]:
    """The client's names for them; that of the server when it gives none."""
    given = call.params.cwds or (call.server.cwd,)
    if len(given) > MAX_DIRECTORIES:
        raise RpcError(
            INVALID_REQUEST, f"{len(given)} directories are too many at once; send at most {MAX_DIRECTORIES}"
        )
    return list(given)


# --- skills ----------------------------------------------------------------------------------------------------------


async def list_skills(call: Call[SkillsListParams]) -> SkillsListResponse:
    """The disk is read for every request, so `forceReload` changes nothing."""
    rules = _rules(call.server.config.document)
    data = [await _looked_at(call.server, cwd, rules) for cwd in _directories(call)]
    return SkillsListResponse(data=tuple(data))


async def _looked_at(server: AppServer, cwd: str, rules: Sequence[Mapping[str, Any]]) -> SkillsListEntry:
    try:
        return await read_in_thread(partial(_entry, server, cwd, rules))
    except TimeoutError:
        error = SkillErrorInfo(path=cwd, message="its file system does not answer")
        return SkillsListEntry(cwd=cwd, skills=(), errors=(error,))


def _entry(server: AppServer, cwd: str, rules: Sequence[Mapping[str, Any]]) -> SkillsListEntry:
    found, broken = find_skills(os.path.normpath(os.path.join(server.cwd, cwd)), server.home_path)
    return SkillsListEntry(
        cwd=cwd,
        skills=tuple(_wire(skill, rules) for skill in found),
        errors=tuple(SkillErrorInfo(path=bad.path, message=bad.message) for bad in broken),
    )


def _wire(skill: Skill, rules: Sequence[Mapping[str, Any]]) -> SkillMetadata:
    return SkillMetadata(
        name=skill.name,
        description=skill.description,
        short_description=UNSET if skill.short_description is None else skill.short_description,
        path=skill.path,
        scope=skill.scope,
        enabled=_enabled(skill, rules),
    )


def _rules(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """`[[skills.config]]`: each names a skill by `path` or `name` and says whether it is `enabled`."""
    table = document.get("skills")
    rules = table.get("config") if isinstance(table, Mapping) else None
    return [rule for rule in rules if isinstance(rule, Mapping)] if isinstance(rules, list) else []


def _enabled(skill: Skill, rules: Sequence[Mapping[str, Any]]) -> bool:
    enabled = True
    for rule in rules:
        if rule.get("path") == skill.path or rule.get("name") == skill.name:
            enabled = rule.get("enabled") is not False
    return enabled


async def write_config(call: Call[SkillsConfigWriteParams]) -> SkillsConfigWriteResponse:
    params, server = call.params, call.server
    if (params.path is None) == (params.name is None):
        raise RpcError(INVALID_PARAMS, "skills/config/write requires exactly one of path or name")
    if params.path is not None and not os.path.isabs(params.path):
        raise RpcError(INVALID_REQUEST, "Invalid request: AbsolutePathBuf deserialized without a base path")
    key, value = ("name", params.name) if params.path is None else ("path", await _real(params.path))
    document = await asyncio.to_thread(read_document, server.home_path)
    rules = [dict(rule) for rule in _rules(document.values) if rule.get(key) != value]
    if not params.enabled:
        rules.append({key: value, "enabled": False})
    edit = ConfigEdit(key_path="skills.config", merge_strategy="replace", value=rules or None)
    await edit_file(server, (edit,), document.version)
    return SkillsConfigWriteResponse(effective_enabled=params.enabled)


async def _real(path: str) -> str:
    """Skills are known by their paths without links."""
    return await asyncio.to_thread(os.path.realpath, path)


# --- what there is none of -------------------------------------------------------------------------------------------


def list_hooks(call: Call[HooksListParams]) -> HooksListResponse:
    entries = (HooksListEntry(cwd=cwd, hooks=(), warnings=(), errors=()) for cwd in _directories(call))
    return HooksListResponse(data=tuple(entries))


def list_mcp_servers(call: Call[ListMcpServerStatusParams]) -> ListMcpServerStatusResponse:
    servers: tuple[McpServerStatus, ...] = ()
    data, following = page(servers, call.params, "MCP servers")
    return ListMcpServerStatusResponse(data=data, next_cursor=following)
