"""A program, not a module: confines itself as its arguments say, then becomes the command.

    python -I -S launcher.py [option value]... -- command [argument]...

Owns the system calls (Landlock, seccomp, capabilities) and the last step before the command. Decides nothing: what is
granted was worked out by `landlock`. Uses the standard library only, since it starts without site-packages.

Any failure before the command runs ends it with status 125 and one line on stderr; the command is then not run.
A command that cannot be started gives 127 (not found) or 126, as `env` does.
"""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import sys
from typing import Final, Never

FAILED: Final = 125

_PR_CAPBSET_READ: Final = 23
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_SET_SECCOMP: Final = 22
_SECCOMP_MODE_FILTER: Final = 2
_CAPABILITY_VERSION_3: Final = 0x20080522
_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_RULE_PATH_BENEATH: Final = 1
_FILE_RIGHTS: Final = 0b1100_0000_0000_0111  # execute, write, read, truncate, ioctl: all that a non-directory has


class LaunchFailure(Exception):
    """Why the command was not run."""


class Kernel:
    """System calls by number. An error becomes a `LaunchFailure` that names the step."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def call(self, step: str, number: int, *arguments: int | bytes | None) -> int:
        return self._checked(step, self._libc.syscall(ctypes.c_long(number), *map(self._plain, arguments)))

    def control(self, step: str, option: int, *arguments: int | bytes | None) -> int:
        padded = (*arguments, 0, 0, 0, 0)[:4]
        return self._checked(step, self._libc.prctl(option, *map(self._plain, padded)))

    def set_capabilities(self, header: bytes, data: bytes) -> None:
        self._checked("capset", self._libc.capset(header, data))

    def address(self, data: bytes) -> tuple[object, int]:
        """A buffer with the data, to be kept alive, and where it is."""
        buffer = ctypes.create_string_buffer(data, len(data))
        return buffer, ctypes.addressof(buffer)

    def _plain(self, value: int | bytes | None) -> object:
        return ctypes.c_ulong(value) if isinstance(value, int) else value

    def _checked(self, step: str, result: int) -> int:
        if result < 0:
            raise LaunchFailure(f"{step}: {os.strerror(ctypes.get_errno())}")
        return result


class Options:
    """The arguments, read."""

    def __init__(self, arguments: list[str]) -> None:
        self.grants: list[tuple[int, str, bool]] = []
        self.terminal_rights: int = 0
        self.landlock: tuple[int, int, int] | None = None
        self.filter: bytes = b""
        self.arg0: str | None = None
        self.environment: dict[bytes, bytes] = {}
        position = 0
        while position + 1 < len(arguments) and arguments[position] != "--":
            option = arguments[position]
            value = arguments[position + 1]
            match option:
                case "--landlock":  # file-system rights, network rights and scopes that are denied unless granted
                    fs, net, scope = (int(part) for part in value.split(","))
                    self.landlock = (fs, net, scope)
                case "--grant" | "--offer":  # what is offered need not be there any more
                    rights, _, path = value.partition(",")
                    self.grants.append((int(rights), path, option == "--grant"))
                case "--grant-terminal":  # the one that the command runs on
                    self.terminal_rights = int(value)
                case "--filter":
                    self.filter = bytes.fromhex(value)
                case "--arg0":
                    self.arg0 = value
                case "--environment":  # the descriptor of a file with NAME=value, each with a NUL behind it
                    with open(int(value), "rb") as file:
                        variables = (variable.partition(b"=") for variable in file.read().split(b"\0")[:-1])
                        self.environment = {name: content for name, _, content in variables}
                case _:
                    raise LaunchFailure(f"unknown option {option}")
            position += 2
        self.command: list[str] = arguments[position + 1 :]
        if arguments[position : position + 1] != ["--"] or not self.command:
            raise LaunchFailure("the arguments name no command")


def main(arguments: list[str]) -> Never:
    try:
        options = Options(arguments)
        if options.landlock is not None:
            _confine(options, options.landlock)
        # Python ignores these two, and what is ignored stays so in the command.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
    except (LaunchFailure, OSError, ValueError) as error:
        _stop(FAILED, f"the command was not run: {error}")
    command = options.command
    try:
        os.execvpe(command[0], [options.arg0 or command[0], *command[1:]], options.environment)
    except FileNotFoundError as error:
        _stop(127, f"{command[0]}: {error.strerror}")
    except (OSError, ValueError) as error:
        _stop(126, f"{command[0]}: {error}")


def _confine(options: Options, handled: tuple[int, int, int]) -> None:
    kernel = Kernel()
    kernel.control("no_new_privs", _PR_SET_NO_NEW_PRIVS, 1)
    terminal = [(options.terminal_rights, os.ttyname(0), True)] if options.terminal_rights else []
    # The kernel takes a longer struct than it knows only when the rest is zero; so it must be as short as possible.
    size = 24 if handled[2] else 16 if handled[1] else 8
    attributes = b"".join(value.to_bytes(8, sys.byteorder) for value in handled)[:size]
    ruleset = kernel.call("landlock_create_ruleset", _CREATE_RULESET, attributes, size, 0)
    for rights, path, required in options.grants + terminal:
        try:
            # Open what has this very name; a link that was put into the path since it was checked is an error.
            descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            name = os.readlink(f"/proc/self/fd/{descriptor}")
            if name != path or stat.S_ISLNK(os.fstat(descriptor).st_mode):
                raise LaunchFailure(f"{path} was replaced while the sandbox was being set up")
        except (OSError, LaunchFailure):
            if required:
                raise
            continue
        rights &= -1 if os.path.isdir(f"/proc/self/fd/{descriptor}") else _FILE_RIGHTS
        rule = rights.to_bytes(8, sys.byteorder) + descriptor.to_bytes(4, sys.byteorder)
        kernel.call(f"landlock_add_rule {path}", _ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0)
        os.close(descriptor)
    # Take all powers from a process of root, which stays root's, as under bubblewrap.
    if os.geteuid() == 0:
        with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as file:
            last = int(file.read())
        for capability in range(last + 1):
            if kernel.control("reading a capability", _PR_CAPBSET_READ, capability):
                kernel.control(f"dropping capability {capability}", _PR_CAPBSET_DROP, capability)
    header = _CAPABILITY_VERSION_3.to_bytes(4, sys.byteorder) + bytes(4)
    kernel.set_capabilities(header, bytes(24))
    kernel.call("landlock_restrict_self", _RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    if options.filter:
        buffer, where = kernel.address(options.filter)
        length = len(options.filter) // 8
        program = length.to_bytes(2, sys.byteorder) + bytes(6) + where.to_bytes(8, sys.byteorder)
        kernel.control("seccomp", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program)
        del buffer


def _stop(status: int, message: str) -> Never:
    text = f"treadle sandbox: {message}\n"
    os.write(2, text.encode(errors="surrogateescape"))
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
