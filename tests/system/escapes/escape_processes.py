"""Attempts on processes outside: to signal, trace, limit or read them, or to reach files through them."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import signal
import socket

from system.escapes.escape_files import spoil
from system.escapes.escape_table import ALWAYS, DID_IT, LIBC, Ground, Tell, attempt, checked, system_call

SIGNALS_SINCE = 6  # Linux 6.12
PTRACE_ATTACH = 16
PTRACE_SEIZE = 0x4206
LENGTH = 32  # more than a secret has


class Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@attempt("signal-kill", needs=("process",), landlock=SIGNALS_SINCE, settings=ALWAYS)
def kill(ground: Ground, tell: Tell) -> None:
    os.kill(ground.pid, signal.SIGKILL)


@attempt("signal-group", needs=("process",), landlock=SIGNALS_SINCE)
def kill_group(ground: Ground, tell: Tell) -> None:
    os.killpg(ground.pid, signal.SIGKILL)  # it leads a group of its own


@attempt("signal-thread", needs=("process",), landlock=SIGNALS_SINCE)
def kill_thread(ground: Ground, tell: Tell) -> None:
    checked(LIBC.tgkill(ground.pid, ground.pid, signal.SIGKILL))


@attempt("signal-queued", needs=("process",), landlock=SIGNALS_SINCE)
def kill_queued(ground: Ground, tell: Tell) -> None:
    checked(LIBC.sigqueue(ground.pid, signal.SIGKILL, None))


@attempt("signal-descriptor", needs=("process",), landlock=SIGNALS_SINCE)
def kill_descriptor(ground: Ground, tell: Tell) -> None:
    signal.pidfd_send_signal(os.pidfd_open(ground.pid), signal.SIGKILL)


@attempt("signal-by-input", needs=("process",), landlock=SIGNALS_SINCE)
def kill_by_input(ground: Ground, tell: Tell) -> None:
    """The kernel sends SIGIO to whom it was told to, when there is something to read."""
    ours, theirs = socket.socketpair()
    fcntl.fcntl(ours, fcntl.F_SETOWN, ground.pid)
    fcntl.fcntl(ours, fcntl.F_SETFL, fcntl.fcntl(ours, fcntl.F_GETFL) | os.O_ASYNC)
    theirs.send(b"x")


@attempt("limit", needs=("process",), settings=ALWAYS)
def limit(ground: Ground, tell: Tell) -> None:
    resource.prlimit(ground.pid, resource.RLIMIT_NOFILE, (17, 4096))


@attempt("limit-to-death", needs=("process",))
def limit_to_death(ground: Ground, tell: Tell) -> None:
    resource.prlimit(ground.pid, resource.RLIMIT_CPU, (0, 0))


@attempt("out-of-memory-score", needs=("process",))
def out_of_memory(ground: Ground, tell: Tell) -> None:
    with open(f"/proc/{ground.pid}/oom_score_adj", "w") as file:
        file.write("999")


@attempt("trace-attach", needs=("process",))
def trace_attach(ground: Ground, tell: Tell) -> None:
    checked(LIBC.ptrace(PTRACE_ATTACH, ground.pid, None, None))
    tell(DID_IT)


@attempt("trace-seize", needs=("process",), settings=ALWAYS)
def trace_seize(ground: Ground, tell: Tell) -> None:
    checked(LIBC.ptrace(PTRACE_SEIZE, ground.pid, None, None))
    tell(DID_IT)


@attempt("memory-read", needs=("process",))
def memory_read(ground: Ground, tell: Tell) -> None:
    buffer = ctypes.create_string_buffer(LENGTH)
    here, there = Vector(ctypes.addressof(buffer), LENGTH), Vector(ground.address, LENGTH)
    checked(LIBC.process_vm_readv(ground.pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0))
    tell(buffer.raw)


@attempt("memory-write", needs=("process",))
def memory_write(ground: Ground, tell: Tell) -> None:
    buffer = ctypes.create_string_buffer(b"spoiled", LENGTH)
    here, there = Vector(ctypes.addressof(buffer), LENGTH), Vector(ground.address, LENGTH)
    checked(LIBC.process_vm_writev(ground.pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0))


@attempt("proc-mem", needs=("process",))
def proc_mem(ground: Ground, tell: Tell) -> None:
    with open(f"/proc/{ground.pid}/mem", "rb", buffering=0) as file:
        file.seek(ground.address)
        tell(file.read(LENGTH))


@attempt("proc-environ", needs=("process",), settings=(*ALWAYS, "closed"))
def proc_environ(ground: Ground, tell: Tell) -> None:
    with open(f"/proc/{ground.pid}/environ", "rb") as file:
        tell(file.read())


@attempt("proc-root", needs=("process",))
def proc_root(ground: Ground, tell: Tell) -> None:
    spoil(f"/proc/{ground.pid}/root{ground.outside}/victim")


@attempt("proc-cwd", needs=("process",))
def proc_cwd(ground: Ground, tell: Tell) -> None:
    spoil(f"/proc/{ground.pid}/cwd/victim")


@attempt("proc-fd", needs=("process",))
def proc_fd(ground: Ground, tell: Tell) -> None:
    spoil(f"/proc/{ground.pid}/fd/{ground.held}")


@attempt("proc-task-root", needs=("process",), settings=("closed",))
def proc_task_root(ground: Ground, tell: Tell) -> None:
    with open(f"/proc/{ground.pid}/task/{ground.pid}/root{ground.outside}/secret", "rb") as file:
        tell(file.read())


@attempt("proc-1-root", control="root", may_lack=(errno.EACCES, errno.ENOENT))
def proc_1_root(ground: Ground, tell: Tell) -> None:
    spoil(f"/proc/1/root{ground.outside}/victim")


@attempt("proc-parents-root")
def proc_parents_root(ground: Ground, tell: Tell) -> None:
    """The parent of this one is the program of the attempts; above it is what started the sandbox."""
    with open(f"/proc/{os.getppid()}/stat") as file:
        above = int(file.read().rpartition(")")[2].split()[1])
    spoil(f"/proc/{above}/root{ground.outside}/victim")


@attempt("stolen-descriptor", needs=("process",), settings=ALWAYS)
def stolen_descriptor(ground: Ground, tell: Tell) -> None:
    process = os.pidfd_open(ground.pid)
    taken = system_call("pidfd_getfd", process, ground.held, 0)
    os.write(taken, b"spoiled")
