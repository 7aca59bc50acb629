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
    from treadle.execution.model import (
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
    from treadle.execution.process import EventStream, Process
    from treadle.protocol.exec import EnvPolicy, Sandbox

# Loaded when first used: the exec-server is in this package and starts without most of it.
_HOME = {
    "Closed": "treadle.execution.model",
    "CompletedRun": "treadle.execution.model",
    "EnvPolicy": "treadle.protocol.exec",
    "Environment": "treadle.execution.environment",
    "EventStream": "treadle.execution.process",
    "Evicted": "treadle.execution.model",
    "ExecError": "treadle.errors",
    "ExecParams": "treadle.execution.model",
    "ExecTimeout": "treadle.errors",
    "Exited": "treadle.execution.model",
    "Failed": "treadle.execution.model",
    "Output": "treadle.execution.model",
    "OutputChunk": "treadle.execution.model",
    "OutputStream": "treadle.execution.model",
    "Process": "treadle.execution.process",
    "ProcessEvent": "treadle.execution.model",
    "ProcessInfo": "treadle.execution.model",
    "ReadResponse": "treadle.execution.model",
    "Sandbox": "treadle.protocol.exec",
    "WriteResult": "treadle.execution.model",
    "WriteStatus": "treadle.execution.model",
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
