"""What a server tells, where `openai_codex_0_131` had it."""

from treadle.client.metadata import InitializeResponse, ServerInfo
from treadle.client.notification import Notification, UnknownNotification
from treadle.protocol.app.base import JsonObject

__all__ = ["InitializeResponse", "JsonObject", "Notification", "ServerInfo", "UnknownNotification"]
