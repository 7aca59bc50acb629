"""`feedback/save`: what somebody wants to say of a thread, into a file on this machine. Nothing is sent."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime
from typing import Any

from treadle._version import PROTOCOL_VERSION, __version__
from treadle.agent import thread_reading
from treadle.agent.ids import new_id
from treadle.config.secret_variables import secret_values, secret_variables
from treadle.errors import INTERNAL_ERROR, INVALID_REQUEST, RpcError
from treadle.protocol.app.base import encode
from treadle.protocol.app.feedback import FeedbackSaveParams, FeedbackSaveResponse
from treadle.protocol.app.thread_history import ThreadTurnsListParams
from treadle.secrets import secrets_in
from treadle.server.app import AppServer
from treadle.server.client_base import Call
from treadle.server.feedback_archive import FeedbackArchive, FeedbackError
from treadle.server.refusals import check_thread_id

# The newest ones.
MAX_TURNS = 100


async def save(call: Call[FeedbackSaveParams]) -> FeedbackSaveResponse:
    params, server = call.params, call.server
    if not os.path.isabs(params.save_path):
        raise RpcError(INVALID_REQUEST, "feedback savePath must be an absolute host path")
    thread_id = None if params.thread_id is None else check_thread_id(params.thread_id)
    archive = FeedbackArchive(_secrets(server))
    archive.add_report(_report(call, thread_id))
    if thread_id is not None and params.include_logs:
        archive.attach("turns.json", await _turns(server, thread_id), "application/json")
    try:
        await asyncio.to_thread(_finish, archive, params)
    except FeedbackError as error:
        raise RpcError(INTERNAL_ERROR, f"failed to save feedback: {error}") from None
    return FeedbackSaveResponse(saved_path=params.save_path, thread_id=thread_id or f"no-active-thread-{new_id()}")


def _secrets(server: AppServer) -> list[str]:
    document = server.config.document
    named = (server.environ.get(name) for name in secret_variables(document))
    kept = (server.key_source(provider)() for provider in server.config.providers.values())
    known = (server.given_key, server.login.api_key(), *kept, *named, *secret_values(document))
    return [*(value for value in known if value), *secrets_in(server.environ)]


def _report(call: Call[FeedbackSaveParams], thread_id: str | None) -> dict[str, Any]:
    params, system = call.params, os.uname()
    return {
        "classification": params.classification,
        "reason": params.reason,
        "tags": params.tags or {},
        "threadId": thread_id,
        "savedAt": datetime.now(UTC).isoformat(timespec="seconds"),
        "client": {"name": call.client.name, "version": call.client.version},
        "treadle": __version__,
        "protocol": PROTOCOL_VERSION,
        "python": sys.version.split()[0],
        "system": f"{system.sysname} {system.release} {system.machine}",
    }


async def _turns(server: AppServer, thread_id: str) -> bytes:
    """Of a thread that is not known here, none."""
    try:
        store = await server.threads.store_of(thread_id)
    except RpcError:
        return b"[]"
    asked = ThreadTurnsListParams(thread_id=thread_id, limit=MAX_TURNS, items_view="full")
    found = await thread_reading.list_turns(store, asked, server.threads.running_items(thread_id))
    return encode(found.data[::-1])


def _finish(archive: FeedbackArchive, params: FeedbackSaveParams) -> None:
    for path in params.extra_log_files or ():
        archive.attach_file(path)
    archive.save(params.save_path)
