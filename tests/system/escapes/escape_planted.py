"""Keys, shared memory, queues and semaphores of the test's own, to be attacked and then taken away."""

from __future__ import annotations

import ctypes
import errno
import os
import uuid
from collections.abc import Callable
from contextlib import ExitStack

from system.escapes.escape_shared import (
    IPC_RMID,
    KEYCTL_READ,
    KEYCTL_SETPERM,
    KEYCTL_UNLINK,
    USER_KEYRING,
    Message,
    attached,
)
from system.escapes.escape_table import LIBC, Need, checked, system_call

IPC_PRIVATE, GETVAL, IPC_NOWAIT = 0, 12, 0o4000
OWNER = 0o600
SIZE = 64
EVERYTHING_FOR_THE_USER = 0x3F3F0000

Watchers = list[Callable[[], str | None]]
Values = dict[str, int | str]


def plant_shared(need: Need, secret: str, watchers: Watchers, cleanup: ExitStack) -> Values:
    """Nothing is planted where the kernel has no such thing: then the attempt says so."""
    plants = {"key": _key, "memory": _memory, "queue": _queue, "semaphore": _semaphore, "posix-queue": _posix_queue}
    try:
        return plants[need](secret.encode(), watchers, cleanup)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        return {}


def _key(secret: bytes, watchers: Watchers, cleanup: ExitStack) -> Values:
    name = f"treadle-{uuid.uuid4().hex}".encode()
    key = system_call("add_key", b"user", name, secret, ctypes.c_size_t(len(secret)), USER_KEYRING)
    cleanup.callback(system_call, "keyctl", KEYCTL_UNLINK, key, USER_KEYRING)
    system_call("keyctl", KEYCTL_SETPERM, key, ctypes.c_uint(EVERYTHING_FOR_THE_USER))

    def watch() -> str | None:
        buffer = ctypes.create_string_buffer(SIZE)
        system_call("keyctl", KEYCTL_READ, key, buffer, ctypes.c_size_t(SIZE))
        return None if buffer.value == secret else "the key changed"

    watchers.append(watch)
    return {"key": key}


def _memory(secret: bytes, watchers: Watchers, cleanup: ExitStack) -> Values:
    segment = checked(LIBC.shmget(IPC_PRIVATE, ctypes.c_size_t(SIZE), OWNER))
    cleanup.callback(LIBC.shmctl, segment, IPC_RMID, None)
    where = attached(segment)
    ctypes.memmove(where, secret, len(secret))
    LIBC.shmdt(ctypes.c_void_p(where))

    def watch() -> str | None:
        try:
            where = attached(segment)
        except OSError:
            return "the shared memory is gone"
        found = ctypes.string_at(where, len(secret))
        LIBC.shmdt(ctypes.c_void_p(where))
        return None if found == secret else "the shared memory changed"

    watchers.append(watch)
    return {"shared": segment}


def _queue(secret: bytes, watchers: Watchers, cleanup: ExitStack) -> Values:
    queue = checked(LIBC.msgget(IPC_PRIVATE, OWNER))
    cleanup.callback(LIBC.msgctl, queue, IPC_RMID, None)

    def watch() -> str | None:
        if LIBC.msgrcv(queue, ctypes.byref(Message()), ctypes.c_size_t(8), ctypes.c_long(0), IPC_NOWAIT) != -1:
            return "the queue has a message"
        return None if ctypes.get_errno() == errno.ENOMSG else "the queue is gone"

    watchers.append(watch)
    return {"shared": queue}


def _semaphore(secret: bytes, watchers: Watchers, cleanup: ExitStack) -> Values:
    semaphore = checked(LIBC.semget(IPC_PRIVATE, 1, OWNER))
    cleanup.callback(LIBC.semctl, semaphore, 0, IPC_RMID)
    watchers.append(lambda: None if LIBC.semctl(semaphore, 0, GETVAL) == 0 else "the semaphore changed")
    return {"shared": semaphore}


def _posix_queue(secret: bytes, watchers: Watchers, cleanup: ExitStack) -> Values:
    name = f"/treadle-{uuid.uuid4().hex}"
    queue = checked(LIBC.mq_open(name.encode(), os.O_CREAT | os.O_RDWR | os.O_NONBLOCK, OWNER, None))
    cleanup.callback(LIBC.mq_unlink, name.encode())
    cleanup.callback(LIBC.mq_close, queue)

    def watch() -> str | None:
        again = LIBC.mq_open(name.encode(), os.O_RDONLY)
        if again == -1:
            return "the queue is gone"
        LIBC.mq_close(again)
        buffer = ctypes.create_string_buffer(1 << 16)
        return None if LIBC.mq_receive(queue, buffer, ctypes.c_size_t(1 << 16), None) == -1 else "it has a message"

    watchers.append(watch)
    return {"queue_name": name}
