"""Which runtime an agent uses, by the name or the object that was passed to it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from treadle.arguments import one_of, wrong_type
from treadle.config.home_files import find_home
from treadle.errors import TreadleError

if TYPE_CHECKING:
    from treadle.host.local_runtime import LocalRuntime
    from treadle.host.runtime import Runtime

RuntimeLike: TypeAlias = "str | Runtime | Callable[[], Runtime]"

APP_SERVER: Final = "app_server"
AUTO: Final = "auto"
_DEFAULT_PROVIDER: Final = "openai"
_METHODS: Final = ("open", "start_turn", "next_event", "interrupt", "steer", "probe", "compact", "close")


# What hosts call a wire API, where that is not its name in the registry.
_ALIASES: Final = {"chat_completions": "chat"}


def wire_api_of(name: str) -> str:
    """The wire API that a local runtime is called after."""
    return _ALIASES.get(name, name)


def local_name(wire_api: str) -> str:
    """What a local runtime is called that speaks this wire API."""
    return next((alias for alias, wire in _ALIASES.items() if wire == wire_api), wire_api)


def is_local_name(name: str) -> bool:
    """Whether a runtime of this name is local: named after a wire API, a built-in or an added one."""
    from treadle.llm.wire_api import is_wire_api  # the wire APIs are loaded for who names one

    return name not in (APP_SERVER, AUTO) and is_wire_api(wire_api_of(name))


def local_names() -> list[str]:
    """What local runtimes are called, one for each wire API."""
    from treadle.llm.wire_api import wire_api_names  # likewise

    return list(map(local_name, wire_api_names()))


class RuntimeUsedUp(TreadleError):
    """A runtime was passed as an object, and that one must be replaced."""


@dataclass(slots=True)
class RuntimeChoice:
    """How to make the runtimes of an agent, one after the other.

    Args:
        given: What was passed to the agent.
        provider: Whose models are asked.
        api_key: The key for them.
        base_url: Where they are.
    """

    given: Any
    provider: str
    api_key: str | None = field(default=None, repr=False)
    base_url: str | None = field(default=None, repr=False)
    _used: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if isinstance(self.given, str):
            if self.given not in (APP_SERVER, AUTO) and not is_local_name(self.given):
                from treadle.runners.engine_registry import engine_names  # it reads the entry points

                one_of("runtime", self.given, [APP_SERVER, AUTO, *local_names(), *engine_names()])
        elif not _is_runtime(self.given) and not callable(self.given):
            raise wrong_type("runtime", "a name, a Runtime or a function that makes one", self.given)

    @property
    def name(self) -> str:
        """What it is called. What a function makes has no name before it is made."""
        if isinstance(self.given, str):
            return self.given
        return str(self.given.name) if _is_runtime(self.given) else "custom"

    def make(self, model: str | None, tool_timeout: float | None) -> Runtime:
        """The next one; `tool_timeout` is for the host's tools."""
        match self.given:
            case "app_server":
                from treadle.host.app_server.runtime import AppServerRuntime  # a runtime is loaded when it is chosen

                return AppServerRuntime(
                    provider=self._named, api_key=self.api_key, base_url=self.base_url, tool_timeout=tool_timeout
                )
            case "auto":
                return self._local(self._wire(), model, tool_timeout)
            case str(wire) if is_local_name(wire):
                return self._local(wire, model, tool_timeout)
            case str(engine):
                from treadle.host.engine_runtime import EngineRuntime  # loaded when it is chosen

                return EngineRuntime(engine, tool_timeout=tool_timeout)
        if not _is_runtime(self.given):
            made: Runtime = self.given()
            return made
        if self._used:
            raise RuntimeUsedUp(
                f"The runtime {self.name} was closed, and it cannot be made again because the agent was given an "
                "object: give a function that makes one, as HostAgent(runtime=lambda: …)."
            )
        self._used = True
        return cast("Runtime", self.given)

    def review_name(self) -> str:
        """Where a review runs: it needs the host's own loop, so never on an app-server or an engine."""
        return self.name if is_local_name(self.name) else self._wire()

    def make_reviewing(self, model: str | None, tool_timeout: float | None) -> Runtime:
        """One for a review."""
        from treadle.host.reviewer import MAX_ITERATIONS  # loaded with the first review

        return self._local(self.review_name(), model, tool_timeout, max_iterations=MAX_ITERATIONS)

    @property
    def _named(self) -> str | None:
        """The provider, unless it is only the default: then what is configured counts."""
        is_named = self.provider != _DEFAULT_PROVIDER or self.api_key is not None or self.base_url is not None
        return self.provider if is_named else None

    def _local(
        self, wire: str, model: str | None, tool_timeout: float | None, max_iterations: int | None = None
    ) -> LocalRuntime:
        from treadle.host.local_runtime import LocalRuntime  # a runtime is loaded when it is chosen

        return LocalRuntime(
            wire,
            provider=self._named,
            api_key=self.api_key,
            base_url=self.base_url,
            model=model,
            max_iterations=max_iterations,
            tool_timeout=tool_timeout,
        )

    def _wire(self) -> str:
        """The wire API of the provider: the named one, else the configured one."""
        from treadle.config.configuration import load_config  # only when the configuration decides

        config = load_config(find_home(os.environ)).config
        found = config.providers.get(self._named or config.model_provider)
        return "responses" if found is None else local_name(found.wire_api)


def _is_runtime(value: object) -> bool:
    if isinstance(value, type) or not isinstance(getattr(value, "name", None), str):
        return False
    return all(callable(getattr(value, name, None)) for name in _METHODS)
