"""Conversations on disk: sessions and their messages, one writer each, with full-text search over all of them."""

from __future__ import annotations

from treadle.host.conversations.records import MessageHit, MessageRecord, SessionRecord, StoredConversation, TurnState
from treadle.host.conversations.sqlite import ConversationStore

__all__ = ["ConversationStore", "MessageHit", "MessageRecord", "SessionRecord", "StoredConversation", "TurnState"]
