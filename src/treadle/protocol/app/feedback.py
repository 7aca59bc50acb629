"""Params and results of feedback/save."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.protocol.app.base import Params, Wire


class FeedbackSaveParams(Params, frozen=True, kw_only=True):
    """`save_path` is absolute, and nothing is there yet."""

    classification: str
    save_path: str
    extra_log_files: tuple[str, ...] | None = None
    include_logs: bool = False
    reason: str | None = None
    tags: Mapping[str, str] | None = None
    thread_id: str | None = None


class FeedbackSaveResponse(Wire, frozen=True, kw_only=True):
    saved_path: str
    thread_id: str
    prompt_hash: str | None = None
