"""The app-server: connections, subscriptions, routing a request to a thread, fan-out of notifications.

It knows who talks to whom. It does not know how a model is called or what a tool does: that is `treadle.agent`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.server.app import AppServer

__all__ = ["AppServer"]


def __getattr__(name: str) -> object:
    if name == "AppServer":
        from treadle.server.app import AppServer

        return AppServer
    raise AttributeError(f"module 'treadle.server' has no attribute {name!r}")
