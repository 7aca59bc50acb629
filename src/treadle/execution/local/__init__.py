"""Processes on this machine, started and ended through the supervisor."""

from treadle.execution.local.backend import LocalBackend
from treadle.execution.local.process import LocalProcess

__all__ = ["LocalBackend", "LocalProcess"]
