"""`FeedbackArchive`: a ZIP file with what somebody wants to tell the makers of a program, for its user to look through.

It owns the form of the file, its limits, and that no secret is in it. Nothing is sent anywhere.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import msgspec

from treadle.execution.user_files import read_regular
from treadle.secrets import redact

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

    def save(self, path: str) -> None:
        """Where nothing is yet, readable for its owner alone. Blocking. Raises `FeedbackError`."""
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
