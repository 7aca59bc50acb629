"""Which function handles which method. Modules are loaded when one of their methods is first called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, Final

from treadle.protocol.app.registry import METHODS

# method -> module of treadle.server.methods and function in it
_HANDLERS: Final = {
    "initialize": "initialize.initialize",
    "thread/start": "thread_lifecycle.start",
    "thread/resume": "thread_lifecycle.resume",
    "thread/fork": "thread_lifecycle.fork",
    "thread/archive": "thread_lifecycle.archive",
    "thread/unarchive": "thread_lifecycle.unarchive",
    "thread/delete": "thread_lifecycle.delete",
    "thread/unsubscribe": "thread_lifecycle.unsubscribe",
    "thread/name/set": "thread_changes.set_name",
    "thread/metadata/update": "thread_changes.update_metadata",
    "thread/settings/update": "thread_changes.update_settings",
    "thread/list": "thread_listing.list_threads",
    "thread/loaded/list": "thread_listing.list_loaded",
    "thread/read": "thread_listing.read",
    "thread/turns/list": "thread_listing.list_turns",
    "thread/items/list": "thread_listing.list_items",
    "thread/events/list": "thread_listing.list_events",
    "thread/messages/search": "thread_listing.search",
    "thread/revert": "thread_changes.revert",
    "thread/rollback": "thread_changes.rollback",
    "thread/inject_items": "thread_changes.inject_items",
    "thread/compact/start": "turn_methods.compact",
    "thread/shellCommand": "turn_methods.shell_command",
    "thread/goal/set": "turn_methods.set_goal",
    "thread/goal/get": "turn_methods.get_goal",
    "thread/goal/clear": "turn_methods.clear_goal",
    "turn/start": "turn_methods.start",
    "turn/steer": "turn_methods.steer",
    "turn/interrupt": "turn_methods.interrupt",
    "model/list": "model_methods.list_models",
    "modelProvider/capabilities/read": "model_methods.read_capabilities",
    "account/read": "account_methods.read",
    "account/login/start": "account_methods.start_login",
    "account/login/cancel": "account_methods.cancel_login",
    "account/logout": "account_methods.logout",
    "config/read": "config_methods.read",
    "config/value/write": "config_methods.write_value",
    "config/batchWrite": "config_methods.write_batch",
    "configRequirements/read": "config_methods.read_requirements",
    "permissionProfile/list": "config_methods.list_permission_profiles",
    "experimentalFeature/list": "config_methods.list_features",
    "experimentalFeature/enablement/set": "config_methods.set_features",
    "command/exec": "command_exec.execute",
    "command/exec/write": "command_exec.write",
    "command/exec/resize": "command_exec.resize",
    "command/exec/terminate": "command_exec.terminate",
    "fs/readFile": "fs_methods.read_file",
    "fs/writeFile": "fs_methods.write_file",
    "fs/createDirectory": "fs_methods.create_directory",
    "fs/getMetadata": "fs_methods.get_metadata",
    "fs/readDirectory": "fs_methods.read_directory",
    "fs/remove": "fs_methods.remove",
    "fs/copy": "fs_methods.copy",
    "fs/watch": "fs_methods.watch",
    "fs/unwatch": "fs_methods.unwatch",
    "fuzzyFileSearch": "fuzzy_file_search.search_files",
    "skills/list": "skill_methods.list_skills",
    "skills/config/write": "skill_methods.write_config",
    "hooks/list": "skill_methods.list_hooks",
    "mcpServerStatus/list": "skill_methods.list_mcp_servers",
}

# Methods of ours, and their params, which the protocol package does not have.
_OURS: Final = {
    "thread/events/list": "treadle.protocol.app.ours:ThreadEventsListParams",
    "thread/messages/search": "treadle.protocol.app.ours:MessageSearchParams",
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
