"""Finding files by a part of their name."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from treadle.protocol.app.base import Open, Params, Wire


class FuzzyFileSearchParams(Params, frozen=True, kw_only=True):
    query: str
    roots: tuple[str, ...]
    cancellation_token: str | None = None


class FuzzyFileSearchResult(Wire, frozen=True, kw_only=True):
    root: str
    path: str
    match_type: Open[Literal["file", "directory"]] = field(name="match_type")
    file_name: str = field(name="file_name")
    score: int
    indices: tuple[int, ...] | None = None


class FuzzyFileSearchResponse(Wire, frozen=True, kw_only=True):
    files: tuple[FuzzyFileSearchResult, ...]
