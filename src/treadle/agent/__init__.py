"""Threads behind their `ThreadHandle`, and the turn: context, model stream, tools, approvals, steering, compaction.

It owns what a thread does. It knows nothing of connections or JSON-RPC: what happens is published to `Subscribers`,
and what has to be asked is asked through them.
"""
