"""`feedback/save`: what somebody wants to say about a thread, into a file on this machine. Nothing is sent.

`FeedbackArchive` owns the form of the file, its limits, and that no secret is in it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from treadle._version import PROTOCOL_VERSION, __version__
from treadle.agent.event import new_id
from treadle.agent.thread import thread_reading
from treadle.config.configuration import secret_values, secret_variables
from treadle.errors import INTERNAL_ERROR, INVALID_REQUEST, RpcError
from treadle.execution.user_files import read_regular
from treadle.protocol.app.base import encode
from treadle.protocol.app.config import FeedbackSaveParams, FeedbackSaveResponse
from treadle.protocol.app.thread_history import ThreadTurnsListParams
from treadle.secrets import redact, secrets_in
from treadle.server.app import AppServer
from treadle.server.clients import ServerCall
from treadle.server.routes import check_thread_id

# The newest ones.
MAX_TURNS = 100


async def save(call: ServerCall[FeedbackSaveParams]) -> FeedbackSaveResponse:
    params, server = call.params, call.server
    if not os.path.isabs(params.save_path):
        raise RpcError(INVALID_REQUEST, "feedback savePath must be an absolute host path")
    thread_id = None if params.thread_id is None else check_thread_id(params.thread_id)
    archive = FeedbackArchive(_secrets(server))
    system = os.uname()
    archive.add_report(
        {
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
    )
    if thread_id is not None and params.include_logs:
        archive.attach("turns.json", await _turns(server, thread_id), "application/json")
    try:
        await asyncio.to_thread(archive.save, params.save_path, params.extra_log_files or ())
    except FeedbackError as error:
        raise RpcError(INTERNAL_ERROR, f"failed to save feedback: {error}") from None
    return FeedbackSaveResponse(saved_path=params.save_path, thread_id=thread_id or f"no-active-thread-{new_id()}")


def _secrets(server: AppServer) -> list[str]:
    document = server.config.document
    named = (server.environ.get(name) for name in secret_variables(document))
    kept = (server.key_source(provider)() for provider in server.config.providers.values())
    known = (server.given_key, server.login.api_key(), *kept, *named, *secret_values(document))
    return [*(value for value in known if value), *secrets_in(server.environ)]


async def _turns(server: AppServer, thread_id: str) -> bytes:
    """The turns of a thread; none of one that is not known here."""
    try:
        store = await server.threads.store_of(thread_id)
    except RpcError:
        return b"[]"
    asked = ThreadTurnsListParams(thread_id=thread_id, limit=MAX_TURNS, items_view="full")
    found = await thread_reading.list_turns(store, asked, server.threads.running_items(thread_id))
    return encode(found.data[::-1])


# --- the archive ------------------------------------------------------------------------------------------------------


# The largest file, and how many: more than that nobody looks through.
MAX_FILE: Final = 8 << 20
MAX_FILES: Final = 32
# Shorter values are words that occur elsewhere.
LEAST_SECRET: Final = 8


class FeedbackError(Exception):
    """Why there is no archive; the message is for the client."""


class FeedbackArchive:
    """`secrets` are values that must not be in it."""

    def __init__(self, secrets: Iterable[str]) -> None:
        # As they are, and as they are inside of JSON.
        known = {
            form
            for secret in secrets
            if len(secret) >= LEAST_SECRET
            for form in (secret, json.dumps(secret, ensure_ascii=False)[1:-1])
        }
        self._secrets = sorted(known, key=len, reverse=True)
        self._entries: list[tuple[str, bytes]] = []
        self._manifest: list[dict[str, str]] = []

    def add_report(self, report: dict[str, Any]) -> None:
        self._entries.append(("report.json", self._clean(_json(report))))

    def attach(self, name: str, data: bytes, content_type: str) -> None:
        entry = f"attachments/{len(self._manifest):04}/{name}"
        self._manifest.append({"entry": entry, "filename": name, "contentType": content_type})
        self._entries.append((entry, self._clean(data)))

    def attach_file(self, path: str) -> None:
        """A file of the user's choice. Blocking. Raises `FeedbackError`."""
        if len(self._manifest) >= MAX_FILES:
            raise FeedbackError(f"more than {MAX_FILES} files")
        if not os.path.isabs(path):
            raise FeedbackError(f"{path[:200]!r} is not an absolute path")
        found = read_regular(path, MAX_FILE + 1)
        if found is None:
            raise FeedbackError(f"{path[:200]!r} cannot be read, or is no regular file")
        if len(found[0]) > MAX_FILE:
            raise FeedbackError(f"{path[:200]!r} is larger than {MAX_FILE >> 20} MiB")
        self.attach(os.path.basename(path), found[0], "text/plain")

    def save(self, path: str, files: Iterable[str] = ()) -> None:
        """With these files, where nothing is yet, readable for its owner alone. Blocking. Raises `FeedbackError`."""
        for extra in files:
            self.attach_file(extra)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise FeedbackError(f"{path[:200]!r} exists already: give the name of a new file") from None
        except (OSError, ValueError) as error:
            raise FeedbackError(f"{path[:200]!r} cannot be made: {_why(error)}") from None
        try:
            with open(descriptor, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, data in (*self._entries, ("manifest.json", self._clean(_json(self._manifest)))):
                    archive.writestr(name, data)
        except OSError as error:
            with suppress(OSError):
                os.unlink(path)
            raise FeedbackError(f"{path[:200]!r} cannot be written: {_why(error)}") from None

    def _clean(self, data: bytes) -> bytes:
        """Bytes that are no text stay as they are."""
        return redact(data.decode("utf-8", "surrogateescape"), self._secrets).encode("utf-8", "surrogateescape")


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2)


def _why(error: OSError | ValueError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
