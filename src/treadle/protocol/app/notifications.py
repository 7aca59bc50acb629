"""Notifications that belong to no other module: errors, warnings, answered requests, rerouted models."""

from __future__ import annotations

from typing import Literal

from treadle.protocol.app.base import Open, Wire
from treadle.protocol.app.turn_errors import TurnError

ModelRerouteReason = Literal["highRiskCyberActivity"]


class TextPosition(Wire, frozen=True, kw_only=True):
    column: int
    line: int


class TextRange(Wire, frozen=True, kw_only=True):
    end: TextPosition
    start: TextPosition


class ErrorNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    error: TurnError
    will_retry: bool


class ServerRequestResolvedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    request_id: int | str


class ModelReroutedNotification(Wire, frozen=True, kw_only=True):
    thread_id: str
    turn_id: str
    from_model: str
    reason: Open[ModelRerouteReason]
    to_model: str


class WarningNotification(Wire, frozen=True, kw_only=True):
    message: str
    thread_id: str | None = None


class DeprecationNoticeNotification(Wire, frozen=True, kw_only=True):
    summary: str
    details: str | None = None


class ConfigWarningNotification(Wire, frozen=True, kw_only=True):
    summary: str
    details: str | None = None
    path: str | None = None
    range: TextRange | None = None
