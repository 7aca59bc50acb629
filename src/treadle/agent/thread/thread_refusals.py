"""What a thread refuses, in the words that clients know."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.errors import INVALID_REQUEST, RpcError


def thread_not_found(thread_id: str) -> RpcError:
    return RpcError(INVALID_REQUEST, f"thread not found: {thread_id}")


def not_loaded(thread_id: str) -> RpcError:
    return RpcError(INVALID_REQUEST, f"thread not loaded: {thread_id}")


def no_rollout(thread_id: str) -> RpcError:
    return RpcError(INVALID_REQUEST, f"no rollout found for thread id {thread_id}")


def no_metadata(thread_id: str) -> RpcError:
    return RpcError(INVALID_REQUEST, f"ephemeral thread does not support metadata updates: {thread_id}")


def no_queue(thread_id: str) -> RpcError:
    return RpcError(INVALID_REQUEST, f"ephemeral thread does not support queued submissions: {thread_id}")


def archived(thread_id: str) -> RpcError:
    text = f"session {thread_id} is archived. Run thread/unarchive for it first."
    return RpcError(INVALID_REQUEST, text)


def no_environment(thread_id: str) -> RpcError:
    text = f"thread {thread_id} has no environment to run commands in; start a turn with `environments` to give it one"
    return RpcError(INVALID_REQUEST, text)


def not_steerable(kind: str, what: str) -> RpcError:
    """`what` cannot be done while a turn of that kind runs."""
    return RpcError(
        INVALID_REQUEST, f"cannot {what}", {"codexErrorInfo": {"activeTurnNotSteerable": {"turnKind": kind}}}
    )


def engine_cannot(engine: str, what: str) -> RpcError:
    text = f"{engine} cannot {what}: this thread is answered by an agent program, not by a model"
    return RpcError(INVALID_REQUEST, text, {"kind": "engineCannot", "engine": engine})


def fixed_in_turn(thread_id: str, names: Sequence[str]) -> RpcError:
    text = (
        f"thread {thread_id} has a turn running, during which {', '.join(names)} cannot be changed; resume it without "
        "that, or when the turn has ended (turn/interrupt ends it)"
    )
    return RpcError(INVALID_REQUEST, text)


def turn_not_found(turn_id: str) -> RpcError:
    return RpcError(INVALID_REQUEST, f"turn not found: {turn_id}")


def not_denied(review_id: str) -> RpcError:
    text = (
        f"no denied review {review_id} is known: it was allowed already, or the settings of the thread have changed "
        "since, or the server was restarted. Let the agent try again."
    )
    return RpcError(INVALID_REQUEST, text)


def other_epoch(given: str, now: str) -> RpcError:
    """Refuse a cursor of another epoch: its number may be that of another event by now."""
    text = (
        "the threads were put back from a backup, or another database has taken over, and the last events before that "
        "may be gone: read the thread anew (thread/resume) and go on from the seq and epoch that it gives"
    )
    return RpcError(INVALID_REQUEST, text, {"kind": "otherEpoch", "given": given, "epoch": now})


def cursor_ahead(after_seq: int, last_seq: int) -> RpcError:
    """Refuse a cursor beyond the last event: with an empty page the client would wait at a place that later events
    take."""
    text = (
        f"afterSeq {after_seq} is beyond the last event of this thread ({last_seq}): it is not a number that this "
        "thread has published; read the thread anew (thread/resume) and go on from the seq that it gives"
    )
    return RpcError(INVALID_REQUEST, text, {"kind": "cursorAhead", "lastSeq": last_seq})
