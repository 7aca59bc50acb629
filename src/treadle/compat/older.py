"""What both earlier SDKs have in common: their config and their results. Their clients are in `clients`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.client.codex_config import CodexConfig
from treadle.client.modes import ApprovalMode, approval_settings
from treadle.client.notification import Notification, turn_of
from treadle.client.request_values import wire_object
from treadle.client.result import Collector
from treadle.client.sdk_errors import CodexError
from treadle.errors import ArgumentValueError
from treadle.protocol.app.threads import ThreadTokenUsage

if TYPE_CHECKING:
    from treadle.protocol.app.items import ThreadItem
    from treadle.protocol.app.turns import Turn


@dataclass(slots=True, repr=False)
class AppServerConfig(CodexConfig):
    """`CodexConfig` under its earlier name; it introduces itself as the SDK did."""

    client_name: str = "codex_python_sdk"
    client_title: str = "Codex Python SDK"


@dataclass(slots=True)
class RunResult:
    """What `Thread.run` gives: the answer, or None when there is none, all items of the turn, and the tokens."""

    final_response: str | None
    items: list[ThreadItem]
    usage: ThreadTokenUsage | None


class Usage(ThreadTokenUsage, frozen=True, kw_only=True, eq=False):
    """`ThreadTokenUsage` that is dumped with the members of its time: programs compare what they get, or store it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ThreadTokenUsage) and msgspec.structs.asdict(self) == msgspec.structs.asdict(other)

    def __hash__(self) -> int:
        return hash(ThreadTokenUsage(**msgspec.structs.asdict(self)))

    def model_dump(self, *, by_alias: bool = False, mode: str = "python", exclude_none: bool = False) -> dict[str, Any]:
        dumped = super().model_dump(by_alias=by_alias, mode=mode, exclude_none=exclude_none)
        for count in (dumped["last"], dumped["total"]):
            count.pop("cacheWriteInputTokens" if by_alias else "cache_write_input_tokens")
        return dumped


class RunCollector(Collector):
    """Takes the events of one turn."""

    def run_result(self) -> RunResult:
        """Raises `TurnFailed`, a `RuntimeError`, for a turn that failed."""
        whole, used = self.result(), self._usage
        usage = None if used is None else Usage(**msgspec.structs.asdict(used))
        return RunResult(whole.final_response, self._items, usage)


def completed_turn(last: Notification | None, turn_id: str) -> Turn:
    """The turn that the last event of its stream tells of, whatever came of it: bare, as servers told it then."""
    turn: Turn | None = getattr(last.payload, "turn", None) if last is not None else None
    if turn is None or turn.id != turn_id:
        raise CodexError(f"the stream of turn {turn_id} ended without its completion")
    return msgspec.structs.replace(turn, items=[])


def params_dict(params: Any) -> dict[str, Any]:
    """Params as a plain object with the names of the wire."""
    return wire_object(params) or {}


def notification_turn_id(payload: Any) -> str | None:
    """The id of the turn that the payload of a notification is about."""
    return turn_of(Notification("", payload))


def approval_mode_settings(mode: ApprovalMode) -> tuple[Any, Any]:
    """The policy and the reviewer that a mode stands for."""
    if not isinstance(mode, ApprovalMode):
        known = ", ".join(each.value for each in ApprovalMode)
        told = f"approval_mode must be a member of ApprovalMode ({known}), not {mode!r}"
        raise ArgumentValueError("approval_mode", told)
    settings = approval_settings(mode)
    return settings["approval_policy"], settings.get("approvals_reviewer")
