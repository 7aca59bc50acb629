"""The command that shall be confined, and how something is handed to the programs on the way to it.

Its environment goes in a sealed file in memory, never on a command line, where other users could read it. The programs
on the way get none of it: they run before the confinement is in place, and `LD_LIBRARY_PATH` often names a directory
that confined programs can write to.

`EntryProgram` makes the last program before a command inside bubblewrap: system calls with constant arguments, in
machine code. Python would cost each command 10 ms more, and a policy may not let it be read in there; no other program
that all machines have can restrict itself by Landlock. The program is made for one command and handed over as a sealed
file in memory; it brings the environment of the command along. Its code runs from top to bottom; a call that fails ends
it, with a message, and then the command is not run. Which calls are made is the matter of `bubblewrap`.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

SHELL: Final = "/bin/sh"
HANDED: Final = 3  # the number under which the process inherits that file
_MFD_EXEC: Final = 0x10  # newer kernels ask for it; older ones do not know it
FAILED: Final = 125  # as the launcher ends when it did not run the command

_ADDRESS: Final = 0x400000  # where the file is mapped, as a whole
_HEADERS: Final = 64 + 56
_WORD: Final = (1 << 64) - 1

# The column of the numbers below, and how an ELF file calls the machine.
_MACHINES: Final = {"x86_64": (0, 62), "aarch64": (1, 183)}
_CALLS: Final = {
    "capset": (126, 91),
    "close": (3, 57),
    "dup3": (292, 24),
    "execve": (59, 221),
    "exit_group": (231, 94),
    "landlock_add_rule": (445, 445),
    "landlock_create_ruleset": (444, 444),
    "landlock_restrict_self": (446, 446),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "openat": (257, 56),
    "prctl": (157, 167),
    "rt_sigaction": (13, 134),
    "unshare": (272, 97),
    "write": (1, 64),
}
RESULT: Final = None  # as the first argument of a call: what the call before it answered


@dataclass(frozen=True, slots=True)
class ConfinedCommand:
    """`arg0` is None when the command sees its own name; `cwd` is canonical."""

    argv: tuple[str, ...]
    arg0: str | None
    cwd: str
    tty: bool
    env: Mapping[str, str]


def open_sealed(name: str, content: bytes) -> int:
    """A file in memory that nobody can change, and that can be executed."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        descriptor = os.memfd_create(name, flags | _MFD_EXEC)
    except OSError:
        descriptor = os.memfd_create(name, flags)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)  # a process that inherits it reads from here on
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def handing(argv: Sequence[str], descriptor: int) -> list[str]:
    """The command line that hands the file over, for `subprocess`, which cannot give a descriptor another number."""
    return [SHELL, "-c", f'exec "$@" {HANDED}<"$0"', f"/proc/{os.getpid()}/fd/{descriptor}", *argv]


class EntryProgram:
    """The program, as it grows. Arguments of calls are numbers, or bytes, which are given by their address."""

    def __init__(self, machine: str | None = None) -> None:
        self._column, self._elf_machine = _MACHINES[machine or os.uname().machine]
        self._data = bytearray()
        self._code = bytearray()

    def call(self, name: str, *arguments: int | bytes | None, failure: str) -> None:
        """Make a system call, and stop when it fails."""
        self._code += self._called(name, *arguments)
        stop = self._stopped(FAILED, f"the command was not run: {failure}")
        # Go on behind that unless the result is negative: `test rax, rax; jns`, or `tbz x0, #63`.
        if self._column == 0:
            self._code += b"\x48\x85\xc0\x0f\x89" + struct.pack("<i", len(stop))
        else:
            self._code += struct.pack("<I", 0xB6F80000 | (len(stop) // 4 + 1) << 5)
        self._code += stop

    def execute(self, path: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Become the program at the path. When that fails, go on."""
        variables = [f"{name}={value}" for name, value in env.items()]
        self._code += self._called("execve", os.fsencode(path) + b"\0", self._table(argv), self._table(variables))

    def stop(self, status: int, message: str) -> None:
        self._code += self._stopped(status, message)

    def file(self) -> bytes:
        size = _HEADERS + len(self._data) + len(self._code)
        start = _ADDRESS + _HEADERS + len(self._data)
        kind = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
        header = struct.pack("<HHIQQQIHHHHHH", 2, self._elf_machine, 1, start, 64, 0, 0, 64, 56, 1, 0, 0, 0)
        segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _ADDRESS, _ADDRESS, size, size, 1 << 16)  # to read and execute
        return kind + header + segment + bytes(self._data) + bytes(self._code)

    def _stopped(self, status: int, message: str) -> bytes:
        text = b"treadle sandbox: " + os.fsencode(message) + b"\n"
        return self._called("write", 2, text, len(text)) + self._called("exit_group", status)

    def _table(self, words: Sequence[str]) -> bytes:
        """Addresses of strings, with a zero at the end."""
        return struct.pack(f"<{len(words) + 1}Q", *(self._place(os.fsencode(word) + b"\0") for word in words), 0)

    def _place(self, data: bytes) -> int:
        """The address of a copy of the data."""
        address = _ADDRESS + _HEADERS + len(self._data)
        self._data += data + bytes(-len(data) % 8)  # ARM wants the code behind it, and likes numbers, to be aligned
        return address

    def _called(self, name: str, *arguments: int | bytes | None) -> bytes:
        number = _CALLS[name][self._column]
        values = [self._place(value) if isinstance(value, bytes) else value for value in arguments]
        if self._column == 0:
            code = b""
            # `mov` of a constant into rdi, rsi, rdx, r10, r8, which is enough for the calls above; `mov rdi, rax`
            loads = (b"\x48\xbf", b"\x48\xbe", b"\x48\xba", b"\x49\xba", b"\x49\xb8")
            for load, value in zip(loads, values, strict=False):
                code += b"\x48\x89\xc7" if value is None else load + struct.pack("<Q", value & _WORD)
            return code + b"\xb8" + struct.pack("<I", number) + b"\x0f\x05"  # `mov eax`, `syscall`
        words: list[int] = []
        for register, value in ((8, number), *enumerate(values)):
            if value is None:
                continue  # x0 has the result already
            words.append(0xD2800000 | (value & 0xFFFF) << 5 | register)  # `movz`
            words += (  # `movk` for the other three quarters
                0xF2800000 | part << 21 | (value >> 16 * part & 0xFFFF) << 5 | register for part in (1, 2, 3)
            )
        return struct.pack(f"<{len(words) + 1}I", *words, 0xD4000001)  # `svc #0`
