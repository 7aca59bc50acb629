"""Processes on another machine, through its exec-server."""

from treadle.execution.remote.backend import RemoteBackend
from treadle.execution.remote.process import RemoteProcess

__all__ = ["RemoteBackend", "RemoteProcess"]
