"""Attempts on what the kernel shares between all processes of a user: keys, shared memory, queues, semaphores."""

from __future__ import annotations

import ctypes
import errno

from system.escapes.escape_table import ALWAYS, DID_IT, LIBC, Ground, Tell, attempt, checked, system_call

KEYCTL_UPDATE, KEYCTL_UNLINK, KEYCTL_SETPERM, KEYCTL_READ = 2, 9, 5, 11
PROCESS_KEYRING, USER_KEYRING = -2, -4
IPC_RMID, SETVAL = 0, 16
O_WRONLY = 1
LACKING = (errno.ENOSYS,)


class Message(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_long), ("text", ctypes.c_char * 8))


@attempt("key-read", needs=("key",), settings=ALWAYS, may_lack=LACKING)
def key_read(ground: Ground, tell: Tell) -> None:
    buffer = ctypes.create_string_buffer(64)
    system_call("keyctl", KEYCTL_READ, ground.key, buffer, ctypes.c_size_t(64))
    tell(buffer.raw)


@attempt("key-change", needs=("key",), settings=ALWAYS, may_lack=LACKING)
def key_change(ground: Ground, tell: Tell) -> None:
    system_call("keyctl", KEYCTL_UPDATE, ground.key, b"spoiled", ctypes.c_size_t(7))


@attempt("key-add", settings=ALWAYS, may_lack=LACKING)
def key_add(ground: Ground, tell: Tell) -> None:
    system_call("add_key", b"user", b"treadle-escape", b"x", ctypes.c_size_t(1), PROCESS_KEYRING)
    tell(DID_IT)


@attempt("memory-segment-read", needs=("memory",), settings=ALWAYS, may_lack=LACKING)
def segment_read(ground: Ground, tell: Tell) -> None:
    tell(ctypes.string_at(attached(ground.shared), 64))


@attempt("memory-segment-write", needs=("memory",), may_lack=LACKING)
def segment_write(ground: Ground, tell: Tell) -> None:
    ctypes.memmove(attached(ground.shared), b"spoiled", 7)


def attached(segment: int) -> int:
    where: int = LIBC.shmat(segment, None, 0)
    checked(-1 if where == ctypes.c_void_p(-1).value else 0)
    return where


@attempt("memory-segment-remove", needs=("memory",), may_lack=LACKING)
def segment_remove(ground: Ground, tell: Tell) -> None:
    checked(LIBC.shmctl(ground.shared, IPC_RMID, None))


@attempt("queue-send", needs=("queue",), settings=ALWAYS, may_lack=LACKING)
def queue_send(ground: Ground, tell: Tell) -> None:
    checked(LIBC.msgsnd(ground.shared, ctypes.byref(Message(1, b"x")), ctypes.c_size_t(1), 0))


@attempt("queue-remove", needs=("queue",), may_lack=LACKING)
def queue_remove(ground: Ground, tell: Tell) -> None:
    checked(LIBC.msgctl(ground.shared, IPC_RMID, None))


@attempt("semaphore-set", needs=("semaphore",), settings=ALWAYS, may_lack=LACKING)
def semaphore_set(ground: Ground, tell: Tell) -> None:
    checked(LIBC.semctl(ground.shared, 0, SETVAL, 7))


@attempt("posix-queue-send", needs=("posix-queue",), settings=ALWAYS, may_lack=LACKING)
def posix_queue_send(ground: Ground, tell: Tell) -> None:
    queue = checked(LIBC.mq_open(ground.queue_name.encode(), O_WRONLY))
    checked(LIBC.mq_send(queue, b"x", ctypes.c_size_t(1), 0))


@attempt("posix-queue-remove", needs=("posix-queue",), may_lack=LACKING)
def posix_queue_remove(ground: Ground, tell: Tell) -> None:
    checked(LIBC.mq_unlink(ground.queue_name.encode()))
