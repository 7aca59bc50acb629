"""A model provider: its table in `config.toml`, and where and with which credentials its requests go.

It parses `[model_providers.x]` and builds the headers of a request. It sends nothing. Secrets are read when a request
is made and appear in no `repr`; `Endpoint.redact` removes them from what a server writes back.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Final, TypeAlias
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Meta, Struct

from treadle.errors import TreadleError
from treadle.llm.model import ModelError
from treadle.llm.wire_api import bearer, is_wire_api, wire_api_names
from treadle.secrets import KNOWN, learn

# A retry that was not useful a hundred times will not be.
_Retries: TypeAlias = Annotated[int, Meta(ge=0, le=100)]
_Milliseconds: TypeAlias = Annotated[int, Meta(ge=1, le=24 * 3600 * 1000)]
_AtATime: TypeAlias = Annotated[int, Meta(ge=1, le=1024)]
_PerMinute: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000_000)]
KeySource: TypeAlias = Callable[[], str | None]

HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
FORBIDDEN_IN_HEADER: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# Shorter "secrets" are words like `true` or `v2`: taking them out would only make a text unreadable.
_MIN_SECRET: Final = 6


OPENAI_HOST: Final = "api.openai.com"

_NO_OPENAI_KEY: Final = (
    "there is no key for OpenAI. Run `treadle login openai`, or set the environment variable OPENAI_API_KEY; or name "
    'another provider by model_provider in config.toml ("offline" tries Treadle without a model).'
)


class ProviderConfigError(TreadleError):
    """A provider's table is invalid: `problems` has the keys (None: the table itself) and what is wrong."""

    def __init__(self, provider: str, *problems: tuple[str | None, str]) -> None:
        said = "; ".join(problem if key is None else f"{key}: {problem}" for key, problem in problems)
        super().__init__(f"model_providers.{provider}: {said}")
        self.provider = provider
        self.problems = problems


class ProviderConfig(Struct, frozen=True, kw_only=True):
    """`[model_providers.<id>]`, key by key; `docs/configuration.md` is made from it."""

    id: str
    base_url: str
    """Where requests go: an `http` or `https` URL, to which the path of the wire API is added. A provider that is not
    built in needs one."""
    name: str = ""
    """How people call it."""
    wire_api: str = "responses"
    """The API that it speaks: Responses, Chat Completions, Messages, or one that a package of yours adds."""
    env_key: str | None = None
    """The environment variable that holds the key."""
    env_key_instructions: str | None = None
    """What is said when that variable is not set."""
    experimental_bearer_token: str | None = None
    """A token, in the file itself. `env_key` goes before it."""
    http_headers: dict[str, str] = {}
    """More headers."""
    env_http_headers: dict[str, str] = {}
    """More headers, whose values are in environment variables; one that is not set is left out."""
    query_params: dict[str, str] = {}
    """Added to every URL."""
    request_max_retries: _Retries = 4
    """How often a request without an answer is sent again."""
    stream_max_retries: _Retries = 5
    """How often an answer that broke off is asked for again."""
    stream_idle_timeout_ms: _Milliseconds = 300_000
    """How long the server may be silent, in milliseconds."""
    max_concurrent_requests: _AtATime | None = None
    """How many requests run at a time; others wait in a fair line."""
    requests_per_minute: _PerMinute | None = None
    """How many requests are begun in a minute. Without it, as the server says."""
    tokens_per_minute: _PerMinute | None = None
    """How many tokens the requests begun in a minute may have together. Without it, as the server says."""
    requires_openai_auth: bool = False
    """Whether the key of the login is taken where neither `env_key` nor a token is given."""
    namespaces: bool = True
    """Whether a server of the Responses API knows namespaces of tools. One that refuses them is found out; for one that
    silently leaves such tools out, write `false`: then they are plain functions."""
    supports_standalone_web_search: bool = False
    """Whether the provider searches the web itself, so that its tool for that is offered ([web search](web-search.md)).
    It is so for the built-in `openai` and `anthropic` where they are asked at their own addresses."""

    @property
    def origin(self) -> str:
        """Where its answers come from. What is encrypted or signed in them is for nobody else, whatever else changes:
        the same id with another URL is another server."""
        return f"{self.wire_api} {self.id} {shown_url(self.base_url)}"

    def __repr__(self) -> str:
        return f"ProviderConfig(id={self.id!r}, base_url={shown_url(self.base_url)!r}, wire_api={self.wire_api!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("id", self.id), ("base_url", shown_url(self.base_url))]


PROVIDER_KEYS: Final = frozenset(ProviderConfig.__struct_fields__) - {"id"}


ALLOWED: Final[dict[object, str]] = {
    str: "a text",
    str | None: "a text",
    bool: "true or false",
    dict[str, str]: "a table of texts",
    _Retries: "a whole number from 0 to 100",
    _Milliseconds: "a whole number from 1 to 86400000",
    _AtATime | None: "a whole number from 1 to 1024",
    _PerMinute | None: "a whole number from 1 to 1000000000",
}


def read_provider(provider_id: str, table: Mapping[str, object]) -> ProviderConfig:
    """The provider in a table of `config.toml`; raises `ProviderConfigError`, which names every key that is wrong. Keys
    that nobody knows are passed over."""
    known = {key: value for key, value in table.items() if key in PROVIDER_KEYS}
    problems = [*_problems(known)]
    if "base_url" not in known:
        problems.insert(0, (None, 'it has no base_url; add one, as in base_url = "https://HOST/v1"'))
    if problems:
        raise ProviderConfigError(provider_id, *problems)
    return msgspec.convert({**known, "id": provider_id}, ProviderConfig)


def _problems(table: Mapping[str, object]) -> Iterator[tuple[str | None, str]]:
    """What is wrong with a table, by key, without the value, which may be secret: first what has another type, then
    what has the right one and cannot be used all the same."""
    for field in msgspec.structs.fields(ProviderConfig):
        if field.name in table:
            try:
                msgspec.convert(table[field.name], field.type)
            except msgspec.ValidationError:
                yield field.name, f"allowed is {ALLOWED[field.type]}"
    base_url, wire_api = table.get("base_url"), table.get("wire_api")
    if isinstance(base_url, str) and not is_http_url(base_url):
        yield "base_url", "it is no http or https URL; write it as `https://HOST/v1` or `http://HOST:PORT/v1`"
    if isinstance(wire_api, str) and not is_wire_api(wire_api):
        words = ", ".join(f"`{word}`" for word in wire_api_names())
        yield "wire_api", f"found `{wire_api[:40]}`, allowed is one of {words}"
    for key in ("http_headers", "env_http_headers"):
        headers = table.get(key)
        for name in headers if isinstance(headers, Mapping) else ():
            if isinstance(name, str) and not HEADER_NAME.fullmatch(name):
                yield key, f"{name!r} is no name of an HTTP header"


def is_http_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0
    except ValueError:
        return False


@lru_cache(maxsize=256)
def shown_url(url: str) -> str:
    """A URL without what may be secret in it: credentials, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(a URL that cannot be read)"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class Endpoint:
    """Where a request goes. Headers and query may contain secrets, so neither is ever shown."""

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
    key_header: Callable[[str], tuple[str, str]] = bearer,
    *,
    login_key: KeySource | None = None,
    environ: Mapping[str, str] | None = None,
) -> Endpoint:
    """Where a request for `path` goes, with all its headers: `headers`, under those of the provider, under the key.

    `login_key` gives the key that the user has stored for this provider: whoever passes it must not pass another's.
    """
    environ = os.environ if environ is None else environ
    merged = {name.lower(): value for name, value in (*headers.items(), *config.http_headers.items())}
    for name, variable in config.env_http_headers.items():
        if environ.get(variable):
            merged[name.lower()] = environ[variable]
    key = _key(config, login_key, environ)
    if key is not None:
        as_bearer = config.env_key is None and config.experimental_bearer_token is not None
        name, value = (bearer if as_bearer else key_header)(key)
        merged[name] = value
    elif "authorization" not in merged and urlsplit(config.base_url).hostname == OPENAI_HOST:
        raise ModelError(_NO_OPENAI_KEY, kind="unauthorized")
    # All at once, since it is done for every request; one by one only to say which.
    names, values = "".join(merged), "".join(merged.values())
    if "" in merged or (names and not HEADER_NAME.fullmatch(names)) or FORBIDDEN_IN_HEADER.search(values):
        wrong = next(
            name
            for name, value in merged.items()
            if not HEADER_NAME.fullmatch(name) or FORBIDDEN_IN_HEADER.search(value)
        )
        raise ModelError(f"the HTTP header {wrong!r} for provider `{config.id}` holds characters that are not allowed")
    hidden = _secrets(config, key, environ)
    if not hidden <= KNOWN:
        learn(hidden)
    base, _, query = config.base_url.partition("?")
    given = "&".join(part for part in (query, urlencode(config.query_params)) if part)
    return Endpoint(base.rstrip("/") + path + ("?" + given if given else ""), merged, hidden)


def _key(config: ProviderConfig, login_key: KeySource | None, environ: Mapping[str, str]) -> str | None:
    if config.env_key is not None:
        key = environ.get(config.env_key, "").strip() or (login_key() if login_key is not None else None)
        if not key:
            hint = config.env_key_instructions or "Set it to the key for this provider and start again."
            raise ModelError(
                f"provider `{config.id}` needs the environment variable `{config.env_key}`, which is not set, or a key "
                f"that `treadle login {config.id}` stores. {hint}",
                kind="unauthorized",
            )
        return key
    if config.experimental_bearer_token is not None:
        return config.experimental_bearer_token
    return login_key() if login_key is not None else None


def _secrets(config: ProviderConfig, key: str | None, environ: Mapping[str, str]) -> frozenset[str]:
    values = {key or "", *config.http_headers.values(), *config.query_params.values()}
    values |= {environ.get(variable, "") for variable in config.env_http_headers.values()}
    values |= {value.partition(" ")[2] for value in values}  # of `Bearer …`, also the rest alone
    return frozenset(value for value in values if len(value) >= _MIN_SECRET)
