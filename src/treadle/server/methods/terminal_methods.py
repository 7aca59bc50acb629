"""`thread/backgroundTerminals/*`: the commands that run for a thread, listed and ended by its clients."""

from __future__ import annotations

from treadle.protocol.app.background_terminals import (
    ThreadBackgroundTerminalsCleanParams,
    ThreadBackgroundTerminalsListParams,
    ThreadBackgroundTerminalsListResponse,
    ThreadBackgroundTerminalsTerminateParams,
    ThreadBackgroundTerminalsTerminateResponse,
)
from treadle.protocol.app.base import Empty
from treadle.server.client_base import Call


def list_terminals(call: Call[ThreadBackgroundTerminalsListParams]) -> ThreadBackgroundTerminalsListResponse:
    return call.server.threads.find(call.params.thread_id).list_terminals(call.params)


def clean(call: Call[ThreadBackgroundTerminalsCleanParams]) -> Empty:
    call.server.threads.find(call.params.thread_id).clean_terminals()
    return Empty()


def terminate(call: Call[ThreadBackgroundTerminalsTerminateParams]) -> ThreadBackgroundTerminalsTerminateResponse:
    return call.server.threads.find(call.params.thread_id).terminate_terminal(call.params)
