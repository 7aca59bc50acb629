"""Finding files by a part of their name."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from treadle.protocol.app.base import Empty, Open, Params, Wire


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


# --- sessions: a search that follows what somebody types -------------------------------------------------------------


class FuzzyFileSearchSessionStartParams(Params, frozen=True, kw_only=True):
    session_id: str
    roots: tuple[str, ...]


FuzzyFileSearchSessionStartResponse = Empty


class FuzzyFileSearchSessionUpdateParams(Params, frozen=True, kw_only=True):
    session_id: str
    query: str


FuzzyFileSearchSessionUpdateResponse = Empty


class FuzzyFileSearchSessionStopParams(Params, frozen=True, kw_only=True):
    session_id: str


FuzzyFileSearchSessionStopResponse = Empty


class FuzzyFileSearchSessionUpdatedNotification(Wire, frozen=True, kw_only=True):
    session_id: str
    query: str
    files: tuple[FuzzyFileSearchResult, ...]


class FuzzyFileSearchSessionCompletedNotification(Wire, frozen=True, kw_only=True):
    session_id: str
