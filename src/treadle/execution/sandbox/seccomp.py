"""The system-call filter of a sandbox, as a classic BPF program.

Owns the bytes of the program and the system-call numbers in it. Does not load it: bubblewrap or the launcher does.

A filter sees the numbers that a call is given and not what they point to, so it cannot tell one address from another.
Hence what can be made is decided, not what is done with it: local (AF_UNIX) sockets come in connected pairs only, since
the message bus of the user, a container daemon or an agent that listens on a socket file would act outside the sandbox
on its behalf; and there are no datagrams among them, since those take another address with every message. The network,
where it is granted, is the internet protocols and nothing else.

Debuggers stay possible: what a process may trace is limited by the pid namespace or by Landlock already.
"""

from __future__ import annotations

import errno
import os
import struct
from typing import Final

from treadle.execution.sandbox.policy import refused

_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_AND: Final = 0x54  # BPF_ALU | BPF_AND | BPF_K
_JUMP_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_JUMP_ANY_BIT: Final = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K

_ALLOW: Final = 0x7FFF0000
_KILL_PROCESS: Final = 0x80000000
_DENY: Final = 0x00050000 | errno.EPERM  # SECCOMP_RET_ERRNO
_NO_SUCH_CALL: Final = 0x00050000 | errno.ENOSYS

# Offsets in `struct seccomp_data`; both machines are little-endian, so the low half of an argument comes first.
_NUMBER: Final = 0
_MACHINE: Final = 4
_ARGUMENTS: Final = 16

_AF_UNIX: Final = 1
_AF_INET: Final = 2
_AF_INET6: Final = 10
_AF_NETLINK: Final = 16
_NETLINK_ROUTE: Final = 0  # how the C library asks for the addresses of this machine
_SOCKET_TYPE: Final = 0xF  # the rest are flags
_SOCK_STREAM: Final = 1
_SOCK_SEQPACKET: Final = 5
_SETUID: Final = 0o4000
_O_CREAT_OR_TMPFILE: Final = 0o100 | 0o20000000
_O_TRUNC: Final = 0o1000
_O_WRONLY_OR_RDWR: Final = 0o3
_TIOCSTI: Final = 0x5412
_TIOCLINUX: Final = 0x541C
_RLIMIT_LOCKS: Final = 10  # carries the tag of the family: see `supervisor.program`
_X32_BIT: Final = 0x40000000  # the same machine with another numbering

Instruction = tuple[int, int, int, int]
Numbers = dict[str, int]

# How the kernel's audit calls a machine, and the column of the numbers below.
MACHINES: Final = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_MISSING: Final = -1
CALLS: Final = {
    "add_key": (248, 217),
    "bind": (49, 200),
    "bpf": (321, 280),
    "chmod": (90, _MISSING),
    "connect": (42, 203),
    "creat": (85, _MISSING),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "keyctl": (250, 219),
    "mknod": (133, _MISSING),
    "mknodat": (259, 33),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "open": (2, _MISSING),
    "open_by_handle_at": (304, 265),
    "openat": (257, 56),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "prlimit64": (302, 261),
    "request_key": (249, 218),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "setrlimit": (160, 164),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "truncate": (76, 45),
    "userfaultfd": (323, 282),
}

# Keys belong to the user and not to a sandbox; requests in a ring are seen by no filter; the rest are ways into the
# kernel that no ordinary program takes.
_NEVER: Final = (
    *("add_key", "request_key", "keyctl"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("bpf", "perf_event_open", "userfaultfd", "open_by_handle_at"),
)
# Shared by all processes of a user, unless there is a namespace around them.
_SHARED_MEMORY_AND_QUEUES: Final = (
    *("shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl"),
    *("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink"),
)


def filter_program(*, network: bool, truncate: bool, namespaces: bool, machine: str | None = None) -> bytes:
    """The filter as an array of `struct sock_filter`.

    `network` and `truncate` say what stays allowed; `namespaces`, that processes and queues of others are out of sight.
    """
    name = machine or os.uname().machine
    if name not in MACHINES:
        raise refused(f"no system-call filter for the machine {name!r}, only for {', '.join(MACHINES)}")
    audit, column = MACHINES[name]
    numbers = {call: row[column] for call, row in CALLS.items() if row[column] != _MISSING}
    denied = [*_NEVER, *(() if namespaces else _SHARED_MEMORY_AND_QUEUES), *(() if truncate else ("truncate",))]
    if not network:
        denied += ("socket", "connect", "bind")
    program = [
        *_only_for(audit),
        *_deny([numbers[call] for call in denied]),
        *_when(numbers["socketpair"], _CONNECTED_PAIR),
        *_when(numbers["socket"], _INTERNET),
        *_when(numbers["ioctl"], _NO_TYPING),
        # What it is asked to do is not seen here. Programs know that older kernels lack it, and do without.
        *[(_JUMP_EQUAL, 0, 1, numbers["openat2"]), (_RETURN, 0, 0, _NO_SUCH_CALL)],
        *_deny_setuid(numbers),
        *_check_opening(numbers, truncate=truncate),
        *(() if namespaces else _keep_limits(numbers)),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def _only_for(audit: int) -> list[Instruction]:
    """Leaves the number of the call loaded. Another machine's calls have other numbers: such programs are ended."""
    return [
        (_LOAD, 0, 0, _MACHINE),
        (_JUMP_EQUAL, 1, 0, audit),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _DENY),
    ]


def _deny(numbers: list[int]) -> list[Instruction]:
    """Each jumps to the one answer behind them all, and the last jumps over it."""
    last = len(numbers) - 1
    jumps = [(_JUMP_EQUAL, last - place, int(place == last), number) for place, number in enumerate(numbers)]
    return [*jumps, (_RETURN, 0, 0, _DENY)]


def _when(number: int, check: list[Instruction]) -> list[Instruction]:
    """Run `check` for one system call; what it does not deny is allowed."""
    return [(_JUMP_EQUAL, 0, len(check) + 1, number), *check, (_RETURN, 0, 0, _ALLOW)]


def _argument(index: int) -> int:
    return _ARGUMENTS + 8 * index


_CONNECTED_PAIR: Final[list[Instruction]] = [
    (_LOAD, 0, 0, _argument(0)),
    (_JUMP_EQUAL, 0, 4, _AF_UNIX),
    (_LOAD, 0, 0, _argument(1)),
    (_AND, 0, 0, _SOCKET_TYPE),
    (_JUMP_EQUAL, 2, 0, _SOCK_STREAM),
    (_JUMP_EQUAL, 1, 0, _SOCK_SEQPACKET),
    (_RETURN, 0, 0, _DENY),
]
_INTERNET: Final[list[Instruction]] = [
    (_LOAD, 0, 0, _argument(0)),
    (_JUMP_EQUAL, 5, 0, _AF_INET),
    (_JUMP_EQUAL, 4, 0, _AF_INET6),
    (_JUMP_EQUAL, 0, 2, _AF_NETLINK),
    (_LOAD, 0, 0, _argument(2)),
    (_JUMP_EQUAL, 1, 0, _NETLINK_ROUTE),
    (_RETURN, 0, 0, _DENY),
]
# Input that is pushed into a terminal is read by whoever uses it next.
_NO_TYPING: Final[list[Instruction]] = [
    (_LOAD, 0, 0, _argument(1)),
    (_JUMP_EQUAL, 1, 0, _TIOCSTI),
    (_JUMP_EQUAL, 0, 1, _TIOCLINUX),
    (_RETURN, 0, 0, _DENY),
]


def _deny_setuid(numbers: Numbers) -> list[Instruction]:
    """A file that gives its owner's rights to whoever runs it, outside and later, would undo the sandbox."""
    changing = (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2))
    making = (("creat", 1), ("mknod", 1), ("mknodat", 2))
    program: list[Instruction] = []
    for call, mode in (*changing, *making):
        if call in numbers:
            program += _when(numbers[call], _without_setuid(mode))
    return program


def _without_setuid(mode: int) -> list[Instruction]:
    return [(_LOAD, 0, 0, _argument(mode)), (_JUMP_ANY_BIT, 0, 1, _SETUID), (_RETURN, 0, 0, _DENY)]


def _check_opening(numbers: Numbers, *, truncate: bool) -> list[Instruction]:
    """A file that is made by opening it is not setuid either. Without `truncate`, one that is opened for reading only
    must not lose its content by that."""
    program: list[Instruction] = []
    for call, flags in (("open", 1), ("openat", 2)):
        if call not in numbers:
            continue
        mode = _without_setuid(flags + 1)
        check = [(_LOAD, 0, 0, _argument(flags)), (_JUMP_ANY_BIT, 0, len(mode), _O_CREAT_OR_TMPFILE), *mode]
        if not truncate:
            check += [
                (_LOAD, 0, 0, _argument(flags)),
                (_JUMP_ANY_BIT, 0, 2, _O_TRUNC),
                (_JUMP_ANY_BIT, 1, 0, _O_WRONLY_OR_RDWR),
                (_RETURN, 0, 0, _DENY),
            ]
        program += _when(numbers[call], check)
    return program


def _keep_limits(numbers: Numbers) -> list[Instruction]:
    """No limits for other processes, which can end them, and no new tag for its own, which would hide a daemon."""
    own_tag = [(_LOAD, 0, 0, _argument(0)), (_JUMP_EQUAL, 0, 1, _RLIMIT_LOCKS), (_RETURN, 0, 0, _DENY)]
    check = [
        (_LOAD, 0, 0, _argument(2)),
        (_JUMP_EQUAL, 0, 2, 0),
        (_LOAD, 0, 0, _argument(2) + 4),
        (_JUMP_EQUAL, 5, 0, 0),  # no new limits: only a question
        (_LOAD, 0, 0, _argument(0)),
        (_JUMP_EQUAL, 0, 2, 0),
        (_LOAD, 0, 0, _argument(1)),
        (_JUMP_EQUAL, 0, 1, _RLIMIT_LOCKS),
        (_RETURN, 0, 0, _DENY),
    ]
    return _when(numbers["setrlimit"], own_tag) + _when(numbers["prlimit64"], check)
