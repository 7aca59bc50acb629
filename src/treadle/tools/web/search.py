"""A search by SearXNG: the URL of a search, and its results in JSON. Pure.

Results are counted and cut here, and those of other domains than the allowed ones left out: SearXNG knows no such
filter.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct

from treadle.tools.web.readable import plain

MAX_QUERY: Final = 2000
MAX_RESULTS_BYTES: Final = 4 * 1024 * 1024
_MAX_TITLE: Final = 200
_MAX_SNIPPET: Final = 600
_MAX_URL: Final = 2000
COUNTS: Final = {"low": 5, "medium": 10, "high": 20}


class SearchResult(Struct, frozen=True):
    url: str
    title: str
    snippet: str


class _Result(Struct):
    url: str | None = None
    title: str | None = None
    content: str | None = None


class _Results(Struct):
    results: list[msgspec.Raw]


def search_url(endpoint: str, query: str) -> str:
    """The URL of a search: at `/search` of the server, unless the endpoint names another path."""
    base = endpoint.rstrip("/")
    path = "" if urlsplit(base).path else "/search"
    return f"{base}{path}?{urlencode({'q': query, 'format': 'json'}, errors='replace')}"


def read_results(body: bytes, *, count: int, domains: Collection[str] = ()) -> list[SearchResult] | None:
    """The first results of these domains; None for what is no answer to a search. Odd ones are left out."""
    try:
        given = msgspec.json.decode(body, type=_Results).results
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    found: dict[str, SearchResult] = {}
    for raw in given:
        try:
            result = msgspec.json.decode(raw, type=_Result)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        url = result.url or ""
        if len(found) >= count:
            break
        if len(url) > _MAX_URL or url != plain(url) or " " in url or not _is_wanted(url, domains):
            continue
        title, snippet = (" ".join(plain(text or "").split()) for text in (result.title, result.content))
        found.setdefault(url, SearchResult(url, title[:_MAX_TITLE], snippet[:_MAX_SNIPPET]))
    return list(found.values())


def _is_wanted(url: str, domains: Collection[str]) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not host:
        return False
    return not domains or any(is_within(host, domain) for domain in domains)


def is_within(host: str, domain: str) -> bool:
    """Whether a host is the domain, or below it."""
    host, domain = host.lower().rstrip("."), domain.lower().strip(".")
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def results_text(results: list[SearchResult]) -> str:
    return "\n\n".join(f"{number}. {one.title}\n{one.url}\n{one.snippet}" for number, one in enumerate(results, 1))
