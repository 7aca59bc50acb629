"""`hooks/list`: the hooks of a thread, or of directories, with what the user has decided about each. Trust is given by
`config/batchWrite` of `hooks.state`.
"""

from __future__ import annotations

import os
from functools import partial

from msgspec import UNSET

from treadle.config import Config
from treadle.execution.bounded_reads import read_in_thread
from treadle.hooks.hook_events import camel_case
from treadle.hooks.hook_files import HookPlace, HookSet, read_hook_files, with_settings
from treadle.hooks.hook_settings import Hook
from treadle.protocol.app.extensions import (
    HookErrorInfo,
    HookMetadata,
    HooksListEntry,
    HooksListParams,
    HooksListResponse,
)
from treadle.server.clients import ServerCall
from treadle.server.methods.skill_methods import directories


async def list_hooks(call: ServerCall[HooksListParams]) -> HooksListResponse:
    """List the hooks of a thread, or of directories. The disk is read for every request."""
    server, config = call.server, call.server.shown_config
    places = []
    if call.params.thread_id is not None:
        settings = server.threads.find(call.params.thread_id).settings
        config = server.config_for(settings)
        cwd = settings.cwd if settings.is_local else None
        places.append((settings.cwd, HookPlace(cwd, settings.confinement, server.home)))
    if call.params.thread_id is None or call.params.cwds:
        confinement = config.permissions().sandbox
        named = directories(call)
        for each in named:
            folder = os.path.normpath(os.path.join(server.cwd, each))  # noqa: ASYNC240 (it looks at no file)
            places.append((each, HookPlace(folder, confinement, server.home)))
    return HooksListResponse(data=tuple([await _entry(named, place, config) for named, place in places]))


async def _entry(named: str, place: HookPlace, config: Config) -> HooksListEntry:
    errors: tuple[HookErrorInfo, ...] = ()
    try:
        found = with_settings(await read_in_thread(partial(read_hook_files, place)), config)
    except TimeoutError:
        found = HookSet()
        errors = (HookErrorInfo(message="its file system does not answer", path=named),)
    return HooksListEntry(cwd=named, hooks=tuple(map(metadata, found.hooks)), warnings=found.warnings, errors=errors)


def metadata(hook: Hook) -> HookMetadata:
    is_tool = bool(hook.server)
    return HookMetadata(
        key=hook.key,
        event_name=camel_case(hook.event),
        handler_type="mcpTool" if is_tool else "command",
        command=UNSET if is_tool else hook.command or hook.path,
        async_=UNSET if is_tool else hook.runs_async,
        server=hook.server if is_tool else UNSET,
        tool=hook.tool if is_tool else UNSET,
        matcher=hook.matcher,
        timeout_sec=int(hook.timeout_s),
        status_message=hook.status_message,
        additional_context_limit=hook.context_limit,
        source_path=hook.path,
        source=hook.source,
        display_order=hook.order,
        enabled=hook.enabled,
        is_managed=hook.trust == "managed",
        current_hash=hook.hash,
        trust_status=hook.trust,
    )
