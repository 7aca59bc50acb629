"""`CodexConfig`: which server a client talks to, and how the client introduces itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

from treadle._version import __version__
from treadle.arguments import flag, folder, path, seconds, text, texts, variables, words
from treadle.client.sdk_errors import CodexError
from treadle.errors import ArgumentValueError, needs_linux
from treadle.secrets import HIDDEN, hides_secret, is_secret, kept_url, shown_argument, shown_setting

if TYPE_CHECKING:
    from treadle.hooks.python_hooks import PythonHooks

REQUEST_S: Final = 120.0
"""No request takes a server that is well so long: a turn is not one, and what runs something has no limit."""


@dataclass(slots=True, repr=False)
class CodexConfig:
    """Which server to use. With nothing set it is our own, in this process.

    Arguments are checked when it is made, and again when a client connects. Neither `repr` nor a pickle shows the token
    or what looks like a secret in the others; after unpickling these have to be set again.

    Args:
        codex_bin: A program to start as the server, `treadle` or the real `codex`: its path, or a name to be found in
            `PATH`. It speaks over the standard streams.
        launch_args_override: A whole command line to start instead, which speaks over its standard streams, such as
            `("ssh", "HOST", "treadle", "app-server")`. `codex_bin` and `config_overrides` are not used then.
        config_overrides: Settings as `key=value`, each as `--config` has it, for a server in this process and for
            `codex_bin`.
        cwd: The working directory of a server that is started here: the default for its threads. It must exist.
        env: Variables that are added to the environment of a server that is started here.
        client_name: The name of the client, which the server is sent.
        client_title: The same for people to read.
        client_version: The version of the client, which the server is sent.
        experimental_api: Whether the server may use parts of the protocol that are marked experimental.
        url: A server that runs already: `ws://HOST:PORT`, `wss://HOST` or `unix:///PATH`.
        token: What the server at `url` asks for as a bearer token; that of a server of the same user on this machine is
            found in the home.
        ca_file: A PEM file with the issuers of certificates to trust for `wss://`, in place of those of the system.
        cert_file: A PEM file with the certificate of this client, for a server that wants one.
        key_file: Its key as a PEM file, unless it is in `cert_file`.
        hooks: Python functions by the event that they are called for (see `treadle.hooks`), for a server in this
            process.
        request_timeout: Seconds that the handshake may take, and a request that is given no `timeout` of its own; None
            has no limit.
    """

    codex_bin: str | os.PathLike[str] | None = None
    launch_args_override: Sequence[str | os.PathLike[str]] | None = None
    config_overrides: Sequence[str] = ()
    cwd: str | os.PathLike[str] | None = None
    env: dict[str, str] | None = None
    client_name: str = "treadle_python_sdk"
    client_title: str = "Treadle Python SDK"
    client_version: str = __version__
    experimental_api: bool = True
    url: str | None = field(default=None, kw_only=True)
    token: str | None = field(default=None, kw_only=True)
    ca_file: str | None = field(default=None, kw_only=True)
    cert_file: str | None = field(default=None, kw_only=True)
    key_file: str | None = field(default=None, kw_only=True)
    hooks: PythonHooks | None = field(default=None, kw_only=True)
    request_timeout: float | None = field(default=REQUEST_S, kw_only=True)

    def __post_init__(self) -> None:
        self._check_types()

    def _check_types(self) -> None:
        """Paths become strings and lists tuples, so that two configs that mean the same are equal."""
        for name, kind in _KINDS.items():
            value = getattr(self, name)
            if value is not None or name in _REQUIRED:
                setattr(self, name, kind(name, value))

    def __repr__(self) -> str:
        shown = {name: value for name, value in self._members().items() if value is not None}
        if self.url is not None:
            # `import treadle` and a client of a child process need no transport.
            from treadle.transport.address import shown_url

            shown["url"] = shown_url(self.url)
        if self.token is not None:
            shown["token"] = HIDDEN
        if self.hooks is not None:
            shown["hooks"] = list(self.hooks)
        if self.env is not None:
            shown["env"] = dict.fromkeys(self.env, HIDDEN)
        shown["config_overrides"] = tuple(map(shown_setting, self.config_overrides))
        if self.launch_args_override is not None:
            shown["launch_args_override"] = tuple(map(shown_argument, self._arguments()))
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def __getstate__(self) -> dict[str, Any]:
        state = self._members()
        state["token"] = None
        state["hooks"] = None  # functions of this process
        state["url"] = None if self.url is None else kept_url(self.url)
        state["config_overrides"] = tuple(text for text in self.config_overrides if not hides_secret(text))
        if self.launch_args_override is not None:
            state["launch_args_override"] = tuple(map(shown_argument, self._arguments()))
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

    def _arguments(self) -> list[str]:
        return [os.fspath(word) for word in self.launch_args_override or ()]

    @property
    def is_on_this_machine(self) -> bool:
        """Whether the server certainly sees the files that we see. A command line may lead anywhere."""
        if self.url is not None:
            return self.url.startswith("unix:")
        return self.launch_args_override is None

    def check(self) -> None:
        """Raise `CodexError` when it names more than one server, and `ArgumentError` for what cannot be used."""
        self._check_types()
        named = [name for name in ("codex_bin", "launch_args_override", "url") if getattr(self, name) is not None]
        if len(named) > 1 and "url" in named:
            raise CodexError(f"CodexConfig names several servers ({', '.join(named)}): set one of them")
        if self.hooks is not None and named:
            problem = f"hooks are functions of this process, and the server is elsewhere ({named[0]})"
            raise ArgumentValueError("hooks", f"{problem}: leave one of them out, or put commands into hooks.json")
        if self.token is not None and self.url is None:
            raise CodexError("CodexConfig.token belongs to `url`, which is not set")
        for name in ("ca_file", "cert_file", "key_file"):
            if getattr(self, name) is not None and not (self.url or "").startswith("wss://"):
                raise CodexError(f"CodexConfig.{name} belongs to a `url` that begins with wss://")
        if self.key_file is not None and self.cert_file is None:
            raise CodexError("CodexConfig.key_file belongs to `cert_file`, which is not set")
        if self.url is None and (missing := needs_linux("a server that is started here")) is not None:
            raise CodexError(missing)
        if self.cwd is not None and self.url is None:
            folder("CodexConfig.cwd", self.cwd)


def _hooks(name: str, value: object) -> object:
    from treadle.hooks.python_hooks import read_python_hooks  # only where there are some

    read_python_hooks(value)
    return value


def _tuple(kind: Callable[[str, object], list[str]]) -> Callable[[str, object], tuple[str, ...]]:
    return lambda name, value: tuple(kind(name, value))


_REQUIRED: Final = ("config_overrides", "client_name", "client_title", "client_version", "experimental_api")
_KINDS: Final[Mapping[str, Callable[[str, object], Any]]] = {
    "codex_bin": path,
    "launch_args_override": _tuple(words),
    "config_overrides": _tuple(texts),
    "cwd": path,
    "env": lambda name, value: dict(variables(name, value)),
    "client_name": text,
    "client_title": text,
    "client_version": text,
    "experimental_api": flag,
    "url": text,
    "token": text,
    "ca_file": path,
    "cert_file": path,
    "key_file": path,
    "request_timeout": seconds,
    "hooks": _hooks,
}
