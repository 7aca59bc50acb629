"""The exec-server: sessions of processes, files and HTTP requests for clients elsewhere."""

from treadle.execution.server.exec_connections import ExecServer

__all__ = ["ExecServer"]
