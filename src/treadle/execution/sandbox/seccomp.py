"""The system-call filter of a sandbox, as a classic BPF program.

Owns the bytes of the program and the system-call numbers in it. Does not load it: bubblewrap or the launcher does.

A filter sees the numbers that a call is given and not what they point to, so all addresses look the same to it.
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
_NOT_SUPPORTED: Final = 0x00050000 | errno.EOPNOTSUPP
_DONE: Final = 0x00050000  # without having done anything

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
_FS_IOC_SETFLAGS: Final = 0x40086602
_FS_IOC_FSSETXATTR: Final = 0x401C5820
_RLIMIT_LOCKS: Final = 10  # carries the tag of the family: see `supervisor_program`
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
    "chown": (92, _MISSING),
    "connect": (42, 203),
    "creat": (85, _MISSING),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "file_setattr": (469, 469),
    "fremovexattr": (199, 16),
    "fsetxattr": (190, 7),
    "futimesat": (261, _MISSING),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "keyctl": (250, 219),
    "lchown": (94, _MISSING),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
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
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "request_key": (249, 218),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "setrlimit": (160, 164),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "truncate": (76, 45),
    "userfaultfd": (323, 282),
    "utime": (132, _MISSING),
    "utimensat": (280, 88),
    "utimes": (235, _MISSING),
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
# What Landlock does not watch. Where nothing can be written, none of it is needed.
_MODES_AND_TIMES: Final = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "file_setattr"),
    *("utime", "utimes", "futimesat", "utimensat"),
)
# The calls that set a mode, and which argument it is.
_SETTING_MODES: Final = (
    *(("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2)),
    *(("creat", 1), ("mknod", 1), ("mknodat", 2)),
)
_OWNERS: Final = ("chown", "fchown", "lchown", "fchownat")
_EXTENDED_ATTRIBUTES: Final = (
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
    *("removexattr", "lremovexattr", "fremovexattr", "removexattrat"),
)


def filter_program(
    *, network: bool, truncate: bool, namespaces: bool, changes: bool = True, machine: str | None = None
) -> bytes:
    """The filter as an array of `struct sock_filter`.

    `network`, `truncate` and `changes` (of modes and times) say what stays allowed; `namespaces`, that the processes
    and queues of others are out of sight, and that mounts decide what can be changed.
    """
    name = machine or os.uname().machine
    if name not in MACHINES:
        raise refused(f"no system-call filter for the machine {name!r}, only for {', '.join(MACHINES)}")
    audit, column = MACHINES[name]
    numbers = {call: row[column] for call, row in CALLS.items() if row[column] != _MISSING}
    denied = [*_NEVER, *(() if namespaces else _SHARED_MEMORY_AND_QUEUES), *(() if truncate else ("truncate",))]
    if not network:
        denied += ("socket", "connect", "bind")
    if not changes:
        denied += _MODES_AND_TIMES
    # Another machine's calls have other numbers: such programs are ended. Then the number of the call is loaded.
    program: list[Instruction] = [
        (_LOAD, 0, 0, _MACHINE),
        (_JUMP_EQUAL, 1, 0, audit),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _DENY),
        *_deny([numbers[call] for call in denied if call in numbers]),
    ]
    if not namespaces:
        # Few programs need to change owners and extended attributes. They are answered as they are used to: by a file
        # system that has no such attributes, and as ordinary users cannot give files away. Without its powers root
        # cannot either, but its programs take that for a failure: they are answered that it is done.
        owners = _DONE if os.geteuid() == 0 else _DENY
        program += _deny([numbers[call] for call in _OWNERS if call in numbers], owners)
        program += _deny([numbers[call] for call in _EXTENDED_ATTRIBUTES], _NOT_SUPPORTED)
    program += [
        *_when(numbers["socketpair"], _CONNECTED_PAIR),
        *_when(numbers["socket"], _INTERNET),
        *_when(numbers["ioctl"], _NO_TYPING if namespaces else [*_NO_FLAGS, *_NO_TYPING]),
        # What it is asked to do is not seen here. Programs know that older kernels lack it, and do without.
        *[(_JUMP_EQUAL, 0, 1, numbers["openat2"]), (_RETURN, 0, 0, _NO_SUCH_CALL)],
    ]
    # A file that gives its owner's rights to its users, run outside and later, would undo the sandbox.
    for call, mode in _SETTING_MODES:
        if call in numbers:
            program += _when(numbers[call], _without_setuid(mode))
    program += _check_opening(numbers, truncate=truncate)
    if not namespaces:
        program += _when(numbers["setrlimit"], _KEEP_OWN_TAG) + _when(numbers["prlimit64"], _KEEP_LIMITS)
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def _deny(numbers: list[int], answer: int = _DENY) -> list[Instruction]:
    """Deny these calls: each jumps to the one answer behind them all, and the last jumps over it."""
    last = len(numbers) - 1
    jumps = [(_JUMP_EQUAL, last - place, int(place == last), number) for place, number in enumerate(numbers)]
    return [*jumps, (_RETURN, 0, 0, answer)]


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
# The flags of a file (`chattr`), which are changed by whoever may read it.
_NO_FLAGS: Final[list[Instruction]] = [
    (_LOAD, 0, 0, _argument(1)),
    (_JUMP_EQUAL, 1, 0, _FS_IOC_SETFLAGS),
    (_JUMP_EQUAL, 0, 1, _FS_IOC_FSSETXATTR),
    (_RETURN, 0, 0, _DENY),
]
# Limits of other processes, which can end them, and the own tag, which would hide a daemon, are not to be set.
_KEEP_OWN_TAG: Final[list[Instruction]] = [
    (_LOAD, 0, 0, _argument(0)),
    (_JUMP_EQUAL, 0, 1, _RLIMIT_LOCKS),
    (_RETURN, 0, 0, _DENY),
]
_KEEP_LIMITS: Final[list[Instruction]] = [
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


def _without_setuid(mode: int) -> list[Instruction]:
    return [(_LOAD, 0, 0, _argument(mode)), (_JUMP_ANY_BIT, 0, 1, _SETUID), (_RETURN, 0, 0, _DENY)]


def _check_opening(numbers: Numbers, *, truncate: bool) -> list[Instruction]:
    """Deny making a setuid file by opening it, too. Without `truncate`, one that is opened for reading only
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
