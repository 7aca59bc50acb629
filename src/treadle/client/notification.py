"""`Notification`: one notification from a server, and how it is parsed from a frame.

What cannot be parsed stays raw data, so that a newer server never breaks a stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, Union, cast

import msgspec
from msgspec import Struct, field

from treadle.protocol.app.base import JsonObject, convert, native_decoder
from treadle.protocol.app.methods import NOTIFICATIONS

if TYPE_CHECKING:
    from treadle.protocol.app.notifications import ConfigWarningNotification
    from treadle.protocol.app.payloads import NotificationPayload


class UnknownNotification(Struct):
    """The params of a notification that we don't know, or that are not what we know, as they came."""

    params: JsonObject


if TYPE_CHECKING:
    Payload: TypeAlias = NotificationPayload | UnknownNotification
else:
    Payload = Any  # the structs of the others are loaded when one of them comes


class Notification(Struct, eq=False):
    """One notification of a server.

    `payload` is the struct of the protocol that belongs to the method (`treadle.types`), or an `UnknownNotification`.
    `isinstance` and `match` narrow it, also for a type checker.
    """

    method: str
    payload: Payload
    plain: ClassVar[bool] = False
    """Whether it only has to go into the stream of its turn, which `payload.turn_id` names."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Notification):
            return NotImplemented
        return self.method == other.method and bool(self.payload == other.payload)

    def __repr__(self) -> str:
        return f"Notification(method={self.method!r}, payload={self.payload!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Notification, (self.method, self.payload)


# What every turn consists of. The rest is rare: that msgspec looks into all its structs would take 10 ms more.
_FREQUENT: Final = (
    "item/started",
    "item/completed",
    "item/agentMessage/delta",
    "item/commandExecution/outputDelta",
    "item/reasoning/summaryTextDelta",
    "item/reasoning/textDelta",
    "thread/started",
    "thread/status/changed",
    "thread/tokenUsage/updated",
    "turn/completed",
    "turn/started",
)
_read_frequent: Callable[[bytes], Notification] | None = None


def frequent_reader() -> Callable[[bytes], Notification]:
    """A function that reads the frame of a notification that belongs to a turn and in which all is known, in one step.

    It raises `msgspec.DecodeError` for everything else, which then has to be read in full.
    """
    global _read_frequent
    if _read_frequent is None:
        kinds = tuple(
            msgspec.defstruct(
                "Notification",
                [("method", str, field(default=method, name="\u2060")), ("payload", struct, field(name="params"))],
                bases=(Notification,),
                namespace={"plain": "turn_id" in struct.__struct_fields__ and method != "item/started"},
                tag_field="method",
                tag=method,
                kw_only=True,
            )
            for method, struct in ((name, NOTIFICATIONS[name]) for name in _FREQUENT)
        )
        _read_frequent = native_decoder(Union[kinds]).decode  # noqa: UP007 - of a tuple
    return _read_frequent


def make(method: str, params: object) -> Notification:
    """A notification from plain values."""
    if method in NOTIFICATIONS:
        try:
            return Notification(method, cast("Any", convert(params, NOTIFICATIONS[method])))
        except (msgspec.ValidationError, RecursionError):
            pass  # it stays as it came
    return Notification(method, UnknownNotification(params if isinstance(params, dict) else {}))


def warning_text(warning: ConfigWarningNotification) -> str:
    """The text of a warning about settings, with the place in the file."""
    if warning.details is not None:
        return f"{warning.summary} {warning.details}"
    place = warning.path or ""
    if warning.range is not None:
        place = f"{place}:{warning.range.start.line}:{warning.range.start.column}"
    return f"{place}: {warning.summary}" if place else warning.summary
