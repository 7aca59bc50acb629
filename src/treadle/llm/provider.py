"""A provider of models: its table in `config.toml`, and where and with which credentials its requests go.

It owns the reading of `[model_providers.x]` and the headers of a request. It sends nothing. Secrets are read when a
request is made, are in no `repr`, and `Endpoint.redact` takes them out of what a server writes back.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Final, TypeAlias
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Meta, Struct

from treadle.errors import TreadleError
from treadle.llm.model import ModelError

# A retry that was not useful a hundred times will not be.
_Retries: TypeAlias = Annotated[int, Meta(ge=0, le=100)]
_Milliseconds: TypeAlias = Annotated[int, Meta(ge=1, le=24 * 3600 * 1000)]
KeySource: TypeAlias = Callable[[], str | None]

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FORBIDDEN_IN_VALUE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# Shorter "secrets" are words like `true` or `v2`: taking them out would only make a text unreadable.
_MIN_SECRET: Final = 6


class ProviderConfigError(TreadleError):
    """The table of a provider cannot be used."""

    def __init__(self, provider: str, problem: str) -> None:
        super().__init__(f"model_providers.{provider}: {problem}")
        self.provider = provider


class ProviderConfig(Struct, frozen=True, kw_only=True):
    """`[model_providers.<id>]`. Keys that are not known are listed in `unknown_keys`, for a warning."""

    id: str
    base_url: str
    name: str = ""
    wire_api: str = "responses"
    env_key: str | None = None
    env_key_instructions: str | None = None
    experimental_bearer_token: str | None = None
    http_headers: dict[str, str] = {}
    env_http_headers: dict[str, str] = {}
    query_params: dict[str, str] = {}
    request_max_retries: _Retries = 4
    stream_max_retries: _Retries = 5
    stream_idle_timeout_ms: _Milliseconds = 300_000
    requires_openai_auth: bool = False
    supports_websockets: bool = False
    unknown_keys: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"ProviderConfig(id={self.id!r}, base_url={shown_url(self.base_url)!r}, wire_api={self.wire_api!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("id", self.id), ("base_url", shown_url(self.base_url))]


_OURS: Final = frozenset({"id", "unknown_keys"})
_KEYS: Final = frozenset(ProviderConfig.__struct_fields__) - _OURS


def read_provider(provider_id: str, table: Mapping[str, object]) -> ProviderConfig:
    """The provider in a table of `config.toml`; raises `ProviderConfigError`, which names the key."""
    known = {key: value for key, value in table.items() if key in _KEYS}
    unknown = tuple(sorted(set(table) - _KEYS))
    try:
        config = msgspec.convert({**known, "id": provider_id, "unknown_keys": unknown}, ProviderConfig)
    except msgspec.ValidationError as error:
        raise ProviderConfigError(provider_id, f"{error}; correct it in config.toml") from None
    _check_url(config)
    for name in (*config.http_headers, *config.env_http_headers):
        if not _TOKEN.fullmatch(name):
            raise ProviderConfigError(provider_id, f"{name!r} is no name of an HTTP header; correct it in config.toml")
    return config


def _check_url(config: ProviderConfig) -> None:
    try:
        url = urlsplit(config.base_url)
        usable = url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise ProviderConfigError(config.id, "base_url is no http or https URL; correct it in config.toml")


def shown_url(url: str) -> str:
    """A URL without what may be secret in it: credentials, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(a URL that cannot be read)"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class Endpoint:
    """Where one request goes. Headers and query may hold secrets, so neither is ever shown."""

    __slots__ = ("_secrets", "headers", "shown", "url")

    def __init__(self, url: str, headers: dict[str, str], secrets: frozenset[str]) -> None:
        self.url: str = url
        self.shown: str = shown_url(url)
        self.headers: dict[str, str] = headers
        self._secrets = secrets

    def __repr__(self) -> str:
        return f"Endpoint({self.shown!r})"

    def redact(self, text: str) -> str:
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, "[redacted]")
        return text


def endpoint(
    config: ProviderConfig,
    path: str,
    headers: Mapping[str, str],
    *,
    login_key: KeySource | None = None,
    environ: Mapping[str, str] | None = None,
) -> Endpoint:
    """Where a request for `path` goes, with all its headers: `headers`, under those of the provider, under the key.

    `login_key` gives the key of the user's login; only a provider with `requires_openai_auth` gets it.
    """
    environ = os.environ if environ is None else environ
    merged = {name.lower(): value for name, value in (*headers.items(), *config.http_headers.items())}
    for name, variable in config.env_http_headers.items():
        if environ.get(variable):
            merged[name.lower()] = environ[variable]
    key = _key(config, login_key, environ)
    if key is not None:
        merged["authorization"] = f"Bearer {key}"
    for name, value in merged.items():
        if not _TOKEN.fullmatch(name) or _FORBIDDEN_IN_VALUE.search(value):
            raise ModelError(
                f"the HTTP header {name!r} for provider `{config.id}` holds characters that are not allowed"
            )
    return Endpoint(_url(config, path), merged, _secrets(config, key, environ))


def _url(config: ProviderConfig, path: str) -> str:
    base, _, query = config.base_url.partition("?")
    given = "&".join(part for part in (query, urlencode(config.query_params)) if part)
    return base.rstrip("/") + path + ("?" + given if given else "")


def _key(config: ProviderConfig, login_key: KeySource | None, environ: Mapping[str, str]) -> str | None:
    if config.env_key is not None:
        key = environ.get(config.env_key, "").strip()
        if not key:
            hint = config.env_key_instructions or "Set it to the key for this provider and start again."
            raise ModelError(
                f"provider `{config.id}` needs the environment variable `{config.env_key}`, which is not set. {hint}",
                kind="unauthorized",
            )
        return key
    if config.experimental_bearer_token is not None:
        return config.experimental_bearer_token
    if config.requires_openai_auth and login_key is not None:
        return login_key()
    return None


def _secrets(config: ProviderConfig, key: str | None, environ: Mapping[str, str]) -> frozenset[str]:
    values = {key or "", *config.http_headers.values(), *config.query_params.values()}
    values |= {environ.get(variable, "") for variable in config.env_http_headers.values()}
    values |= {value.partition(" ")[2] for value in values}  # of `Bearer …`, also the rest alone
    return frozenset(value for value in values if len(value) >= _MIN_SECRET)
