"""The app-server: connections, subscriptions, routing a request to a thread, fan-out of notifications.

It knows who talks to whom. It does not know how a model is called or what a tool does: that is `treadle.agent`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.internal_names import internal_name

if TYPE_CHECKING:
    from treadle.server.app import AppServer

__all__ = ["AppServer"]


def __getattr__(name: str) -> object:
    if name == "AppServer":
        from treadle.server.app import AppServer

        return AppServer
    return internal_name(__name__, name)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.server.app import Tasks, Watch
    from treadle.server.clients import BY_CLIENT, Client, NONE, ServerCall, workarounds_for
    from treadle.server.executors import Executor, Executors, Introduction, MAX_EXECUTORS, MAX_LABELS
    from treadle.server.identity import shake_hands, user_agent
    from treadle.server.loaded_threads import LoadedThreads, ThreadSubscribers
    from treadle.server.methods.fs_methods import FileWatches
    from treadle.server.methods.search_files import Search
    from treadle.server.methods.search_methods import AFTER, BEFORE, cut, places, snippet
    from treadle.server.model_clients import FAILURE_KEPT_S, KEPT_S, MAX_LISTS, ModelLists
    from treadle.server.routes import METHOD_NAMES, ROUTES
