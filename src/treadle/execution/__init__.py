"""Run processes and work with files, on this machine or on another one.

from treadle.execution import Environment

async with await Environment.connect("ws://127.0.0.1:8765") as env:
    print((await env.run(["uname", "-a"])).text)
"""

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
