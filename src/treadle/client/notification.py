"""`Notification`: one notification from a server, and how it is parsed from a frame.

What cannot be parsed is kept as raw data, so that a newer server never breaks a stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, Union, cast

import msgspec
from msgspec import Struct, field

from treadle.protocol.app.base import JsonObject, convert, native_decoder
from treadle.protocol.app.registry import NOTIFICATIONS

if TYPE_CHECKING:
    from treadle.protocol.app.payloads import NotificationPayload


class UnknownNotification(Struct):
    """The params of a notification that we don't know, or that are not what we know, as they came."""

    params: JsonObject


if TYPE_CHECKING:
    Payload: TypeAlias = NotificationPayload | UnknownNotification
else:
    Payload = Any  # the structs of the others are loaded when one of them comes


class Notification(Struct, eq=False):
    """One thing that a server tells.

    `payload` is the struct of the protocol that belongs to the method (`treadle.types`), or an `UnknownNotification`.
    `isinstance` and `match` tell which, also to a type checker.
    """

    method: str
    payload: Payload
    plain: ClassVar[bool] = False
    """Whether it only has to be put into the stream of its turn, which `payload.turn_id` names."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Notification):
            return NotImplemented
        return self.method == other.method and bool(self.payload == other.payload)

    def __repr__(self) -> str:
        return f"Notification(method={self.method!r}, payload={self.payload!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Notification, (self.method, self.payload)


# What a turn consists of. The rest is rare, and its structs need not be loaded for it.
_FREQUENT: Final = ("item/", "turn/", "thread/")
_read_frequent: Callable[[bytes], Notification] | None = None


def frequent_reader() -> Callable[[bytes], Notification]:
    """Reads the frame of a notification that belongs to a turn and in which all is known, at once.

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
            for method, struct in ((name, NOTIFICATIONS[name]) for name in NOTIFICATIONS if name.startswith(_FREQUENT))
        )
        _read_frequent = native_decoder(Union[kinds]).decode  # noqa: UP007 - of a tuple
    return _read_frequent


def make(method: str, params: object) -> Notification:
    """A notification from plain values."""
    if method in NOTIFICATIONS:
        try:
            return Notification(method, cast("Any", convert(params, NOTIFICATIONS[method])))
        except (msgspec.ValidationError, RecursionError):
            pass  # kept as it came
    return Notification(method, UnknownNotification(params if isinstance(params, dict) else {}))


def turn_of(notification: Notification) -> str | None:
    """The id of the turn that a notification is about."""
    payload: Any = notification.payload
    try:
        turn_id = payload.turn_id
    except AttributeError:
        if isinstance(payload, UnknownNotification):
            return _turn_in(payload.params)
        turn = getattr(payload, "turn", None)
        turn_id = getattr(turn, "id", None)
    return turn_id if isinstance(turn_id, str) else None


def _turn_in(params: JsonObject) -> str | None:
    turn_id, turn = params.get("turnId"), params.get("turn")
    if not isinstance(turn_id, str) and isinstance(turn, dict):
        turn_id = turn.get("id")
    return turn_id if isinstance(turn_id, str) else None


def thread_of(notification: Notification) -> str | None:
    """The id of the thread that a notification is about."""
    payload = notification.payload
    if isinstance(payload, UnknownNotification):
        thread_id = payload.params.get("threadId")
    else:
        thread_id = getattr(payload, "thread_id", None)
    return thread_id if isinstance(thread_id, str) else None
