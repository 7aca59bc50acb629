"""`CodexConfig`: which server a client talks to, and as whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from treadle._version import __version__
from treadle.client.errors import CodexError
from treadle.client.secrets import HIDDEN, hides_secret, is_secret, shown_argument, shown_setting

REQUEST_S: Final = 120.0
"""No request takes a server that is well so long: a turn is not one, and what runs something has no limit."""


@dataclass(slots=True, repr=False)
class CodexConfig:
    """Which server to use. With nothing set it is our own, in this process.

    `codex_bin` starts a program (`treadle`, or the real `codex`) and `launch_args_override` a whole command line; both
    speak over the standard streams. `url` connects to a server that runs already: `ws://HOST:PORT`, `wss://…` or
    `unix:///PATH`, with `token` if it asks for one. `config_overrides` are settings as `key=value` and `env` adds to
    the environment: for a server in this process and for a program. `request_timeout` is the limit, in seconds, of
    the handshake and of requests that are given none of their own; None is none.

    Neither `repr` nor a pickle shows the token or what looks like a secret in the others; after unpickling these have
    to be set again.
    """

    codex_bin: str | None = None
    launch_args_override: tuple[str, ...] | None = None
    config_overrides: tuple[str, ...] = ()
    cwd: str | None = None
    env: dict[str, str] | None = None
    client_name: str = "treadle_python_sdk"
    client_title: str = "Treadle Python SDK"
    client_version: str = __version__
    experimental_api: bool = True
    url: str | None = field(default=None, kw_only=True)
    token: str | None = field(default=None, kw_only=True)
    request_timeout: float | None = field(default=REQUEST_S, kw_only=True)

    def __repr__(self) -> str:
        shown = {name: value for name, value in self._members().items() if value is not None}
        if self.token is not None:
            shown["token"] = HIDDEN
        if self.env is not None:
            shown["env"] = dict.fromkeys(self.env, HIDDEN)
        if self.url is not None:
            from treadle.transport.address import shown_url

            shown["url"] = shown_url(self.url)
        shown["config_overrides"] = tuple(map(shown_setting, self.config_overrides))
        if self.launch_args_override is not None:
            shown["launch_args_override"] = tuple(map(shown_argument, self.launch_args_override))
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def __getstate__(self) -> dict[str, Any]:
        state = self._members()
        state["token"] = None
        state["config_overrides"] = tuple(text for text in self.config_overrides if not hides_secret(text))
        if self.launch_args_override is not None:
            state["launch_args_override"] = tuple(map(shown_argument, self.launch_args_override))
        if self.env is not None:
            state["env"] = {name: value for name, value in self.env.items() if not is_secret(name, value)}
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def __copy__(self) -> CodexConfig:
        return replace(self)

    def __deepcopy__(self, _: object) -> CodexConfig:
        return replace(self, env=None if self.env is None else dict(self.env))

    def _members(self) -> dict[str, Any]:
        return {member.name: getattr(self, member.name) for member in fields(self)}

    def check(self) -> None:
        """Raise `CodexError` when it names more than one server."""
        named = [name for name in ("codex_bin", "launch_args_override", "url") if getattr(self, name) is not None]
        if len(named) > 1 and "url" in named:
            raise CodexError(f"CodexConfig names several servers ({', '.join(named)}): set one of them")
        if self.token is not None and self.url is None:
            raise CodexError("CodexConfig.token belongs to `url`, which is not set")
