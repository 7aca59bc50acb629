"""The audit log: who did what, for those who have to show it. Off unless the environment names a file.

JSON lines, one for each request of a client, each approval, and each command with its arguments, before it is done: a
line that stands there was at least tried. Secrets that this process knows, or that look like keys, are taken out;
what was said to a model, and what came back, is not in it.

A line that cannot be written is logged as an error. Where the log is `required`, what it was about is refused instead.
`RefusalLog` writes who was refused, here and into the usual log.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from treadle import secrets
from treadle.errors import TreadleError
from treadle.logs.trace import IDS

logger: logging.Logger = logging.getLogger(__name__)

FILES: Final = 100
# Of one value: a command line may be a whole script.
MAX_TEXT: Final = 4096
_LOG_AGAIN_S: Final = 60.0
# Logged one by one; of the others, the next line has the number.
REFUSALS_PER_MINUTE: Final = 20


class AuditFailed(TreadleError):
    """A request was refused, because it could not be written to the audit log."""


class AuditLog:
    """Raises `OSError` when the file cannot be opened."""

    def __init__(self, path: str, *, required: bool, files: int = FILES, hidden: tuple[str, ...] = ()) -> None:
        from treadle.logs.log_setup import RotatedFile  # most processes have no audit log, and look at `log` only

        self._file = RotatedFile(path, files=files)
        self._required = required
        self._hidden = hidden
        self._logged_at = -_LOG_AGAIN_S

    def record(self, event: str, fields: Mapping[str, object]) -> None:
        """Write a line, with the ids of the request that the running code works for. Raises `AuditFailed` when that is
        not possible and the log is required."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        # Servers that share the file number their clients each for itself.
        line: dict[str, object] = {"ts": now, "event": event, "pid": os.getpid()}
        hidden = (*self._hidden, *secrets.known())
        for name, value in {**IDS.get(), **fields}.items():
            if isinstance(value, bool | int | float):
                line[name] = value
            elif value is not None:
                line[name] = secrets.redact(str(value), hidden)[:MAX_TEXT].encode("utf-8", "replace").decode()
        try:
            self._file.write(msgspec.json.encode(line) + b"\n")
        except OSError as error:
            if self._required:
                raise AuditFailed(
                    f"the audit log {self._file.path} cannot be written ({error.strerror}): nothing is done without it"
                ) from None
            if time.monotonic() - self._logged_at >= _LOG_AGAIN_S:
                self._logged_at = time.monotonic()
                logger.error("the audit log %s cannot be written, lines are lost: %s", self._file.path, error.strerror)

    def close(self) -> None:
        self._file.close()


log: AuditLog | None = None
"""The audit log of this process. Look first whether there is one: most processes have none."""


def set_up_audit(environ: Mapping[str, str]) -> None:
    """Write an audit log if the environment names a file. Raises `AuditFailed` when it cannot be opened."""
    global log
    path = environ.get("TREADLE_AUDIT_FILE", "")
    if not path or log is not None:
        return
    from treadle.logs.log_setup import number_of

    required = environ.get("TREADLE_AUDIT_REQUIRED", "") not in ("", "0")
    problems: list[str] = []
    files = number_of(environ, "TREADLE_AUDIT_FILES", FILES, problems)
    if problems:
        raise AuditFailed(problems[0])
    try:
        log = AuditLog(path, required=required, files=files, hidden=tuple(secrets.secrets_in(environ, ())))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise AuditFailed(f"the audit log {path} cannot be opened: {why}") from None


def subject(params: object) -> dict[str, object]:
    """What a request is about, by the members of its params that say so in both protocols."""
    return {
        "thread": getattr(params, "thread_id", None),
        "machine": getattr(params, "environment_id", None),
        "path": getattr(params, "path", None) or getattr(params, "source_path", None),
        "to": getattr(params, "destination_path", None),
    }


def fingerprint(token: str | None) -> str | None:
    """What stands for a token in the log."""
    import hashlib  # only for an audit log

    return None if token is None else hashlib.sha256(token.encode()).hexdigest()[:12]


class RefusalLog:
    """The refusals of one listener, or of one client: who was refused and why. In a flood it has a few of them, so that
    strangers cannot fill the disk, or push the lines about others out of the files that stay."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._logged: deque[float] = deque(maxlen=REFUSALS_PER_MINUTE)
        self._not_logged = 0

    def add(self, message: str, event: str, fields: Mapping[str, object]) -> None:
        """Log it as a warning, and as an event in the audit log."""
        now = time.monotonic()
        if len(self._logged) == REFUSALS_PER_MINUTE and now - self._logged[0] < 60:
            self._not_logged += 1
            return
        fields = {**fields, "not_logged": self._not_logged or None}
        self._logger.warning(message, fields)
        if log is not None:
            with contextlib.suppress(AuditFailed):  # it is refused already
                log.record(event, fields)
        self._logged.append(now)
        self._not_logged = 0
