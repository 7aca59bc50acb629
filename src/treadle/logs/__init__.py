"""Logs and metrics for operators: who asked for what, how long it took and how it ended. Never what a conversation
contains, and never a secret.

`trace` owns the ids that tie lines together, `log_setup` how a line looks, where it goes, and what the environment asks
for; `metrics` has what is counted, `audit` who did what. Code that logs uses `logging`, with fields as one mapping:
`logger.info("turn ended", {"status": status, "duration_ms": duration})`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.internal_names import internal_name


def __getattr__(name: str) -> object:
    return internal_name(__name__, name)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.logs.audit import AuditFailed, AuditLog, REFUSALS_PER_MINUTE, fingerprint, set_up_audit
    from treadle.logs.log_setup import JsonLine, LogFile, LogStream, RotatedFile, TextLine, set_up_logging
    from treadle.logs.metrics import Counter, Gauge, Histogram, MAX_SERIES, count_tokens, render
    from treadle.logs.trace import IDS, new_trace, outgoing, outside, trace_of
