"""The turn loop: context, model stream, tool calls, approvals, steering, interrupt, compaction.

It owns what a thread does. It knows nothing of connections or JSON-RPC: what happens is told to an `Audience`, and what
has to be asked is asked through it.
"""
