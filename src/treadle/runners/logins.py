"""Whether an engine has a login, judged from its files and the environment.

Nothing is sent anywhere, so an expired login looks like a good one. Values are never kept or shown, only where they
are.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from treadle.config import ConfigError, find_home, load_config
from treadle.config.configuration import RUN_KEY_VARIABLE
from treadle.config.login import Login as Stored
from treadle.config.stored_keys import key_source
from treadle.llm import ModelError
from treadle.llm.known_providers import OPENAI_KEY_VARIABLE
from treadle.llm.provider import endpoint

# A file with a login is small; what is longer is not read to its end.
_MAX_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class LoginStatus:
    """What was found.

    Args:
        ok: Whether there is a login; None when nobody knows.
        where: The file or variable that has it, or what is missing.
    """

    ok: bool | None
    where: str = ""


HOW_TO_LOG_IN: Final[Mapping[str, str]] = {
    "codex": "codex login",
    "claude": "claude, and in it /login",
    "opencode": "opencode auth login",
    "pi": "pi, and in it /login",
    "treadle": "treadle login",
}


def find_login(engine: str, environ: Mapping[str, str]) -> LoginStatus:
    """The login of an engine of ours; of another one nothing is known.

    Args:
        engine: Its name.
        environ: The environment that it would run in.
    """
    look = _LOGINS.get(engine)
    return LoginStatus(None) if look is None else look(environ)


def _codex(environ: Mapping[str, str]) -> LoginStatus:
    home = _folder(environ, "CODEX_HOME", ".codex")
    provider = _codex_provider(home / "config.toml", environ)
    if provider is not None:
        return provider
    return _first(environ, ("CODEX_API_KEY", "OPENAI_API_KEY"), (home / "auth.json",))


def _codex_provider(file: Path, environ: Mapping[str, str]) -> LoginStatus | None:
    """A provider of the user's own has its own key, or needs none."""
    try:
        settings: dict[str, Any] = tomllib.loads(_text(file))
    except (OSError, tomllib.TOMLDecodeError):
        return None
    name = settings.get("model_provider")
    if not isinstance(name, str) or name == "openai":
        return None
    providers = settings.get("model_providers")
    provider = providers.get(name) if isinstance(providers, dict) else None
    key = provider.get("env_key") if isinstance(provider, dict) else None
    if isinstance(key, str) and not environ.get(key):
        return LoginStatus(False, f"{key} of the provider {name} is not set")
    return LoginStatus(True, f"the provider {name}")


def _claude(environ: Mapping[str, str]) -> LoginStatus:
    variables = (
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
        *("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"),
    )
    return _first(environ, variables, (_folder(environ, "CLAUDE_CONFIG_DIR", ".claude") / ".credentials.json",))


_PROVIDER_KEYS: Final = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY")


def _opencode(environ: Mapping[str, str]) -> LoginStatus:
    data = _folder(environ, "XDG_DATA_HOME", ".local/share")
    config = _folder(environ, "XDG_CONFIG_HOME", ".config")
    chosen = environ.get("OPENCODE_CONFIG")
    settings = Path(chosen) if chosen else config / "opencode" / "opencode.json"
    return _first(environ, _PROVIDER_KEYS, (data / "opencode" / "auth.json", settings))


def _pi(environ: Mapping[str, str]) -> LoginStatus:
    folder = _folder(environ, "PI_CODING_AGENT_DIR", ".pi/agent")
    return _first(environ, _PROVIDER_KEYS, (folder / "auth.json", folder / "models.json"))


def _treadle(environ: Mapping[str, str]) -> LoginStatus:
    try:
        config = load_config(find_home(environ)).config
        if config.is_offline:
            return LoginStatus(None, "offline model")
        choice = config.model_choice(None, None)
        provider = config.providers.get(choice.provider)
        if provider is not None:
            kept = key_source(provider, Stored(config.home), environ)
            given = environ.get(RUN_KEY_VARIABLE) if provider.requires_openai_auth else None
            endpoint(provider, "", {}, login_key=lambda: given or kept(), environ=environ)
        return LoginStatus(True, f"the provider {choice.provider}")
    except ModelError as error:
        if error.kind != "unauthorized" or provider is None:
            return LoginStatus(False, error.message)
        variable = provider.env_key or OPENAI_KEY_VARIABLE
        return LoginStatus(False, f"there is no key for the provider {choice.provider}, and {variable} is not set")
    except ConfigError as error:
        return LoginStatus(False, str(error).partition("\n")[0])


def _first(environ: Mapping[str, str], variables: tuple[str, ...], files: tuple[Path, ...]) -> LoginStatus:
    for name in variables:
        if environ.get(name, "").strip():
            return LoginStatus(True, name)
    for file in files:
        if _has_content(file):
            return LoginStatus(True, _short(file, environ))
    return LoginStatus(False, f"no {_short(files[0], environ)}")


def _has_content(file: Path) -> bool:
    """Whether there is more in it than brackets: who has logged out leaves an empty object."""
    try:
        return bool(_text(file).strip().strip("{}[] \t\r\n"))
    except OSError:
        return False


def _text(file: Path) -> str:
    with file.open("rb") as stream:
        return stream.read(_MAX_BYTES).decode("utf-8", "replace")


def _folder(environ: Mapping[str, str], variable: str, usual: str) -> Path:
    given = environ.get(variable)
    return Path(given) if given else Path(environ.get("HOME") or os.path.expanduser("~")) / usual


def _short(file: Path, environ: Mapping[str, str]) -> str:
    home = environ.get("HOME") or os.path.expanduser("~")
    return f"~/{file.relative_to(home)}" if file.is_relative_to(home) else str(file)


_LOGINS: Final[Mapping[str, Callable[[Mapping[str, str]], LoginStatus]]] = {
    "codex": _codex,
    "claude": _claude,
    "opencode": _opencode,
    "pi": _pi,
    "treadle": _treadle,
}
