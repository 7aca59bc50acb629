"""Pushing process events to a connection, in order, as fast as the peer takes them and no faster.

No task and no queue of its own: each process has a cursor in its log. An append moves it on at once while the channel
is writable; when it is not, the cursor stays behind, the log fills, and that blocks the process.
"""

from __future__ import annotations

from functools import partial

from pybase64 import b64encode

from treadle.events import Cursor, Gap
from treadle.execution.local import LocalProcess
from treadle.execution.process_values import Exited, LogEvent, Output
from treadle.protocol.exec import ClosedNotice, ExitedNotice, OutputNotice
from treadle.rpc import encode_notification
from treadle.transport import RpcLink


class EventPush:
    """The pushes of one connection."""

    def __init__(self, link: RpcLink) -> None:
        self._link = link
        self._cursors: dict[LocalProcess, Cursor[LogEvent]] = {}

    def add(self, process: LocalProcess, after_seq: int) -> None:
        """Push what comes after `after_seq`, beginning now."""
        cursor = process.log.cursor(after_seq)
        self._cursors[process] = cursor
        cursor.notify = partial(self._flush, process, cursor)
        self._flush(process, cursor)

    def resume(self) -> None:
        """The channel is writable again."""
        for process, cursor in tuple(self._cursors.items()):
            self._flush(process, cursor)

    def close(self) -> None:
        for cursor in self._cursors.values():
            cursor.close()
        self._cursors.clear()

    def _flush(self, process: LocalProcess, cursor: Cursor[LogEvent]) -> None:
        while self._link.channel.writable:
            item = cursor.take()
            if item is None:
                break
            if not isinstance(item, Gap):  # a gap shows as a jump in the numbers; `process/read` says it in words
                self._send(process.process_id, item.event)
        if process.log.closed and cursor.position >= process.log.last_seq:
            cursor.close()
            self._cursors.pop(process, None)

    def _send(self, process_id: str, event: LogEvent) -> None:
        if isinstance(event, Output):
            self._link.channel.send(_output_frame(process_id, event))
        elif isinstance(event, Exited):
            self._link.notify(
                "process/exited",
                ExitedNotice(
                    process_id=process_id,
                    seq=event.seq,
                    exit_code=event.exit_code,
                    sandbox_denied=event.sandbox_denied,
                ),
            )
        else:
            self._link.notify("process/closed", ClosedNotice(process_id=process_id, seq=event.seq))


def _output_frame(process_id: str, event: Output) -> bytes:
    """The notification, with the chunk put into its last and still empty member: base64 needs no escapes."""
    notice = OutputNotice(process_id=process_id, seq=event.seq, stream=event.stream.value, chunk="")
    frame = encode_notification("process/output", notice)
    return frame[:-3] + b64encode(event.chunk) + frame[-3:]
