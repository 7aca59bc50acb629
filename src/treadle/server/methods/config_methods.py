"""`config/*`, and the lists that clients show beside the settings: permission profiles and feature flags.

It owns how an edit is answered. What the file may say and how it is edited is the business of `treadle.config`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from msgspec import UNSET, structs

from treadle.config import ConfigWriteError, Written, config_view, read_document, write_values
from treadle.config.file_settings import Features
from treadle.config.layers import lookup, split_key
from treadle.config.permission_profiles import BUILT_IN, user_profiles
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.config import (
    ConfigBatchWriteParams,
    ConfigEdit,
    ConfigLayerMetadata,
    ConfigReadParams,
    ConfigReadResponse,
    ConfigRequirementsReadParams,
    ConfigRequirementsReadResponse,
    ConfigValueWriteParams,
    ConfigWriteResponse,
    ExperimentalFeature,
    ExperimentalFeatureEnablementSetParams,
    ExperimentalFeatureEnablementSetResponse,
    ExperimentalFeatureListParams,
    ExperimentalFeatureListResponse,
    OverriddenMetadata,
    PermissionProfileListParams,
    PermissionProfileListResponse,
    PermissionProfileSummary,
    SessionFlagsConfigLayerSource,
)
from treadle.server.app import AppServer
from treadle.server.clients import ServerCall

MAX_EDITS: Final = 1000

T = TypeVar("T")


# --- the settings ----------------------------------------------------------------------------------------------------


async def read(call: ServerCall[ConfigReadParams]) -> ConfigReadResponse:
    document = await asyncio.to_thread(read_document, call.server.home_path)
    view = config_view(call.server.config, document, include_layers=call.params.include_layers)
    return view if call.params.include_layers else structs.replace(view, layers=UNSET)


async def write_value(call: ServerCall[ConfigValueWriteParams]) -> ConfigWriteResponse:
    params = call.params
    edit = ConfigEdit(key_path=params.key_path, merge_strategy=params.merge_strategy, value=params.value)
    return await _write(call, (edit,))


async def write_batch(call: ServerCall[ConfigBatchWriteParams]) -> ConfigWriteResponse:
    edits = call.params.edits
    if len(edits) > MAX_EDITS:
        text = f"{len(edits)} edits are too many at once; send at most {MAX_EDITS}"
        raise _refused(text, "configValidationError")
    return await _write(call, edits)


async def _write(
    call: ServerCall[ConfigValueWriteParams] | ServerCall[ConfigBatchWriteParams], edits: Sequence[ConfigEdit]
) -> ConfigWriteResponse:
    params, server = call.params, call.server
    if params.file_path is not None:
        own, given = server.home_path / "config.toml", params.file_path
        same = await asyncio.to_thread(lambda: os.path.realpath(given) == os.path.realpath(own))
        if not os.path.isabs(given) or not same:
            raise _refused(f"only {own} can be edited; leave filePath out", "configLayerReadonly")
    written = await edit_file(server, edits, params.expected_version)
    overridden = await _overridden(server, edits)
    return ConfigWriteResponse(
        file_path=written.path,
        status="ok" if overridden is None else "okOverridden",
        version=written.version,
        overridden_metadata=overridden,
    )


async def edit_file(server: AppServer, edits: Sequence[ConfigEdit], expected_version: str | None = None) -> Written:
    """Edit the file of the home and put it in force. Raises `RpcError`."""
    try:
        written = await asyncio.to_thread(write_values, server.home_path, edits, expected_version)
    except ConfigWriteError as error:
        raise _refused(str(error), error.code) from None
    server.refresh_config()
    return written


def _refused(text: str, code: str) -> RpcError:
    return RpcError(INVALID_REQUEST, text, {"config_write_error_code": code})


async def _overridden(server: AppServer, edits: Sequence[ConfigEdit]) -> OverriddenMetadata | None:
    """The first edit that has no effect, because the command line or the environment says otherwise."""
    if server.config_error is not None:
        return None  # nothing is in force
    document = await asyncio.to_thread(read_document, server.home_path)
    layers = config_view(server.config, document, include_layers=True).layers
    assert isinstance(layers, tuple)
    session = next((layer for layer in layers if isinstance(layer.name, SessionFlagsConfigLayerSource)), None)
    if session is None:
        return None
    for edit in edits:
        said = lookup(session.config, split_key(edit.key_path))
        if said is not None and said != edit.value:
            return OverriddenMetadata(
                effective_value=said,
                message=f"`{edit.key_path}` is written, but the command line or the environment overrides it",
                overriding_layer=ConfigLayerMetadata(name=session.name, version=session.version),
            )
    return None


def read_requirements(call: ServerCall[ConfigRequirementsReadParams]) -> ConfigRequirementsReadResponse:
    """Nobody manages this server, so nothing is required."""
    return ConfigRequirementsReadResponse()


# --- lists -----------------------------------------------------------------------------------------------------------


def list_permission_profiles(call: ServerCall[PermissionProfileListParams]) -> PermissionProfileListResponse:
    """List the permission profiles, also those that cannot be used: choosing one says what is wrong with it."""
    built_in = [PermissionProfileSummary(id=name, allowed=True) for name in BUILT_IN]
    own = [
        PermissionProfileSummary(id=name, description=description, allowed=usable)
        for name, description, usable in user_profiles(call.server.shown_config.permission_tables)
    ]
    data, following = page((*built_in, *own), call.params, "permission profiles")
    return PermissionProfileListResponse(data=data, next_cursor=following)


def list_features(call: ServerCall[ExperimentalFeatureListParams]) -> ExperimentalFeatureListResponse:
    """The flags that change something here, as they are for new threads or for the one that is named."""
    server, thread_id = call.server, call.params.thread_id
    thread = None if thread_id is None else server.threads.find(thread_id)
    features = (server.shown_config if thread is None else server.config_for(thread.settings)).features
    flags = [
        ExperimentalFeature(
            name=name,
            stage="stable" if default else "underDevelopment",
            default_enabled=default,
            enabled=getattr(features, name),
        )
        for name, default in structs.asdict(Features()).items()
    ]
    data, following = page(flags, call.params, "feature flags")
    return ExperimentalFeatureListResponse(data=data, next_cursor=following)


def set_features(call: ServerCall[ExperimentalFeatureEnablementSetParams]) -> ExperimentalFeatureEnablementSetResponse:
    """The answer names the flags that were set; here they are set in config.toml or for a thread, so none is."""
    return ExperimentalFeatureEnablementSetResponse(enablement={})


def page(items: Sequence[T], params: Any, noun: str) -> tuple[tuple[T, ...], str | None]:
    """The part of a list that is asked for, and the cursor of the next part. Cursors are plain offsets."""
    cursor = "0" if params.cursor is None else params.cursor
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise RpcError(INVALID_REQUEST, f"invalid cursor: {cursor[:200]}")
    start = int(cursor)
    if start > len(items):
        raise RpcError(INVALID_REQUEST, f"cursor {start} exceeds total {noun} {len(items)}")
    end = len(items) if params.limit is None else start + max(params.limit, 1)
    return tuple(items[start:end]), str(end) if end < len(items) else None
