"""Run processes and work with files, on this machine or on another one.

from treadle.execution import Environment

async with await Environment.connect("ws://127.0.0.1:8765") as env:
    print((await env.run(["uname", "-a"])).text)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.errors import ExecError, ExecTimeout
    from treadle.execution.environment import Environment
    from treadle.execution.process import EventStream, Process
    from treadle.execution.process_values import (
        Closed,
        CompletedRun,
        Evicted,
        ExecParams,
        Exited,
        Failed,
        Output,
        OutputChunk,
        OutputStream,
        ProcessEvent,
        ProcessInfo,
        ReadResponse,
        WriteResult,
        WriteStatus,
    )
    from treadle.protocol.exec import EnvPolicy, Sandbox

# Loaded when first used: the exec-server is in this package and starts without most of it.
_HOME = {
    "Closed": "treadle.execution.process_values",
    "CompletedRun": "treadle.execution.process_values",
    "EnvPolicy": "treadle.protocol.exec",
    "Environment": "treadle.execution.environment",
    "EventStream": "treadle.execution.process",
    "Evicted": "treadle.execution.process_values",
    "ExecError": "treadle.errors",
    "ExecParams": "treadle.execution.process_values",
    "ExecTimeout": "treadle.errors",
    "Exited": "treadle.execution.process_values",
    "Failed": "treadle.execution.process_values",
    "Output": "treadle.execution.process_values",
    "OutputChunk": "treadle.execution.process_values",
    "OutputStream": "treadle.execution.process_values",
    "Process": "treadle.execution.process",
    "ProcessEvent": "treadle.execution.process_values",
    "ProcessInfo": "treadle.execution.process_values",
    "ReadResponse": "treadle.execution.process_values",
    "Sandbox": "treadle.protocol.exec",
    "WriteResult": "treadle.execution.process_values",
    "WriteStatus": "treadle.execution.process_values",
}

__all__ = [
    "Closed",
    "CompletedRun",
    "EnvPolicy",
    "Environment",
    "EventStream",
    "Evicted",
    "ExecError",
    "ExecParams",
    "ExecTimeout",
    "Exited",
    "Failed",
    "Output",
    "OutputChunk",
    "OutputStream",
    "Process",
    "ProcessEvent",
    "ProcessInfo",
    "ReadResponse",
    "Sandbox",
    "WriteResult",
    "WriteStatus",
]


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
