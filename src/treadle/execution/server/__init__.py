"""The exec-server: sessions of processes, files and HTTP requests for clients elsewhere."""

from treadle.execution.server.server import ExecServer

__all__ = ["ExecServer"]
