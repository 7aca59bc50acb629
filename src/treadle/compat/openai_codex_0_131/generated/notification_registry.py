"""To which turn a notification belongs, where both earlier SDKs had it."""

from treadle.client.notification import Notification
from treadle.client.router import turn_of


def notification_turn_id(payload: object) -> str | None:
    """The id of the turn that the payload of a notification is about."""
    return turn_of(Notification("", payload))  # type: ignore[arg-type]
