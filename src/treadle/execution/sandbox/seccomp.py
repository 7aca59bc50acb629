"""The system-call filter of a sandbox, as a classic BPF program.

Owns the bytes of the program and the system-call numbers in it. Does not load it: bubblewrap or the launcher does.

Without network a process may have local (AF_UNIX) sockets of its own, but may not connect them to anything: the
message bus of the user, a container daemon or an agent that listens on a socket file would act outside the sandbox on
its behalf. Pairs made by `socketpair` work, so do pipes.
"""

from __future__ import annotations

import errno
import os
import struct
from dataclasses import dataclass
from typing import Final

from treadle.errors import INVALID_REQUEST, ExecError

_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K

_ALLOW: Final = 0x7FFF0000
_KILL_PROCESS: Final = 0x80000000
_DENY: Final = 0x00050000 | errno.EPERM  # SECCOMP_RET_ERRNO

# Offsets in `struct seccomp_data`; both machines are little-endian, so the low half of an argument comes first.
_NUMBER: Final = 0
_MACHINE: Final = 4
_ARGUMENTS: Final = 16

_AF_UNIX: Final = 1
_X32_BIT: Final = 0x40000000  # the same machine with another numbering

Instruction = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Numbers:
    """What differs between machines: the audit name of the machine and the system-call numbers."""

    audit: int
    socket: int
    socketpair: int
    connect: int
    sendto: int
    truncate: int
    io_uring_setup: int = 425


MACHINES: Final = {
    "x86_64": Numbers(0xC000003E, socket=41, socketpair=53, connect=42, sendto=44, truncate=76),
    "aarch64": Numbers(0xC00000B7, socket=198, socketpair=199, connect=203, sendto=206, truncate=45),
}


def filter_program(*, network: bool, truncate: bool, unix: bool = True, machine: str | None = None) -> bytes:
    """The filter as an array of `struct sock_filter`. `network`, `truncate` and `unix` say what stays allowed.

    `unix` matters only with network: without it there are no sockets that could connect to a socket file.
    """
    name = machine or os.uname().machine
    numbers = MACHINES.get(name)
    if numbers is None:
        raise ExecError(
            f"sandbox: no system-call filter for the machine {name!r}, only for {', '.join(MACHINES)}; the request "
            "was refused rather than run unconfined",
            INVALID_REQUEST,
        )
    program = [
        (_LOAD, 0, 0, _MACHINE),
        (_JUMP_EQUAL, 1, 0, numbers.audit),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _DENY),
    ]
    if not truncate:
        program += _deny(numbers.truncate)
    if not network:
        program += _deny_network(numbers)
    elif not unix:
        program += _deny(numbers.io_uring_setup)
        program += _when(
            numbers.socket, [(_LOAD, 0, 0, _argument(0)), (_JUMP_EQUAL, 0, 1, _AF_UNIX), (_RETURN, 0, 0, _DENY)]
        )
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def _deny_network(numbers: Numbers) -> list[Instruction]:
    # Requests queued in a ring are not seen by any filter, so there must be no ring.
    program = _deny(numbers.io_uring_setup) + _deny(numbers.connect)
    for number in (numbers.socket, numbers.socketpair):
        program += _when(number, [(_LOAD, 0, 0, _argument(0)), (_JUMP_EQUAL, 1, 0, _AF_UNIX), (_RETURN, 0, 0, _DENY)])
    no_address = [
        (_LOAD, 0, 0, _argument(4)),
        (_JUMP_EQUAL, 0, 2, 0),
        (_LOAD, 0, 0, _argument(4) + 4),
        (_JUMP_EQUAL, 1, 0, 0),
        (_RETURN, 0, 0, _DENY),
    ]
    return program + _when(numbers.sendto, no_address)


def _deny(number: int) -> list[Instruction]:
    return [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _DENY)]


def _when(number: int, check: list[Instruction]) -> list[Instruction]:
    """Run `check` for one system call; what it does not deny is allowed."""
    return [(_JUMP_EQUAL, 0, len(check) + 1, number), *check, (_RETURN, 0, 0, _ALLOW)]


def _argument(index: int) -> int:
    return _ARGUMENTS + 8 * index
