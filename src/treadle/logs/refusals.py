"""`RefusalLog`: who was refused and why; in a flood a few of them, so that strangers cannot fill the disk, or push the
lines about others out of the files that stay.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import Final

from treadle.logs import audit

# Logged one by one; of the others, the next line has the number.
REFUSALS_PER_MINUTE: Final = 20


class RefusalLog:
    """The refusals of one listener, or of one client."""

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
        if audit.log is not None:
            with contextlib.suppress(audit.AuditFailed):  # it is refused already
                audit.log.record(event, fields)
        self._logged.append(now)
        self._not_logged = 0
