"""Which function handles which method. Modules are loaded when one of their methods is first called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, Final

from treadle.protocol.app.registry import METHODS

# method -> module of treadle.server.methods and function in it
_HANDLERS: Final = {
    "initialize": "handshake.initialize",
    "thread/start": "threads.start",
    "thread/resume": "threads.resume",
    "thread/fork": "threads.fork",
    "thread/archive": "thread_changes.archive",
    "thread/unarchive": "thread_changes.unarchive",
    "thread/delete": "thread_changes.delete",
    "thread/unsubscribe": "thread_changes.unsubscribe",
    "thread/name/set": "thread_changes.set_name",
    "thread/metadata/update": "thread_changes.update_metadata",
    "thread/settings/update": "thread_changes.update_settings",
    "thread/list": "listing.list_threads",
    "thread/loaded/list": "listing.list_loaded",
    "thread/read": "listing.read",
    "thread/turns/list": "history.list_turns",
    "thread/items/list": "history.list_items",
    "thread/events/list": "history.list_events",
    "thread/messages/search": "history.search",
    "thread/revert": "history.revert",
    "thread/rollback": "history.rollback",
    "thread/inject_items": "history.inject_items",
    "thread/compact/start": "turns.compact",
    "thread/shellCommand": "turns.shell_command",
    "thread/goal/set": "goals.set_goal",
    "thread/goal/get": "goals.get_goal",
    "thread/goal/clear": "goals.clear_goal",
    "turn/start": "turns.start",
    "turn/steer": "turns.steer",
    "turn/interrupt": "turns.interrupt",
    "model/list": "models.list_models",
    "modelProvider/capabilities/read": "models.read_capabilities",
    "account/read": "accounts.read",
    "account/login/start": "accounts.start_login",
    "account/login/cancel": "accounts.cancel_login",
    "account/logout": "accounts.logout",
    "config/read": "configuration.read",
    "config/value/write": "configuration.write_value",
    "config/batchWrite": "configuration.write_batch",
    "configRequirements/read": "configuration.read_requirements",
    "permissionProfile/list": "configuration.list_permission_profiles",
    "experimentalFeature/list": "configuration.list_features",
    "experimentalFeature/enablement/set": "configuration.set_features",
    "command/exec": "commands.execute",
    "command/exec/write": "commands.write",
    "command/exec/resize": "commands.resize",
    "command/exec/terminate": "commands.terminate",
    "fs/readFile": "files.read_file",
    "fs/writeFile": "files.write_file",
    "fs/createDirectory": "files.create_directory",
    "fs/getMetadata": "files.get_metadata",
    "fs/readDirectory": "files.read_directory",
    "fs/remove": "files.remove",
    "fs/copy": "files.copy",
    "fs/watch": "files.watch",
    "fs/unwatch": "files.unwatch",
    "fuzzyFileSearch": "search.search_files",
    "skills/list": "skills.list_skills",
    "skills/config/write": "skills.write_config",
    "hooks/list": "skills.list_hooks",
    "mcpServerStatus/list": "skills.list_mcp_servers",
}

# Methods of ours, and their params, which the protocol package does not have.
_OURS: Final = {
    "thread/events/list": "treadle.server.thread_events:ThreadEventsListParams",
    "thread/messages/search": "treadle.server.thread_events:MessageSearchParams",
}
_PARAMS_OPTIONAL: Final = frozenset({"account/logout", "configRequirements/read"})
EXPERIMENTAL_METHODS: Final = frozenset({"thread/settings/update"})
EXPERIMENTAL_NOTIFICATIONS: Final = frozenset({"thread/settings/updated"})


class Route:
    __slots__ = ("handler", "is_async", "method", "params", "params_optional")

    def __init__(self, method: str) -> None:
        module, _, name = _HANDLERS[method].partition(".")
        self.method: str = method
        self.handler: Any = getattr(import_module(f"treadle.server.methods.{module}"), name)
        self.is_async: bool = iscoroutinefunction(self.handler)
        self.params: Any = _params(method)
        self.params_optional: bool = method in _PARAMS_OPTIONAL


def _params(method: str) -> Any:
    if method not in _OURS:
        return METHODS[method].params
    module, _, name = _OURS[method].partition(":")
    return getattr(import_module(module), name)


class _Routes(Mapping[str, Route]):
    def __init__(self) -> None:
        self._made: dict[str, Route] = {}

    def __getitem__(self, method: str) -> Route:
        route = self._made.get(method)
        if route is None:
            if method not in _HANDLERS:
                raise KeyError(method)
            route = self._made[method] = Route(method)
        return route

    def __iter__(self) -> Iterator[str]:
        return iter(_HANDLERS)

    def __len__(self) -> int:
        return len(_HANDLERS)


ROUTES: Final = _Routes()
