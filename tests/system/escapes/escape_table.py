"""The table of escape attempts: what a row says, and the few things that the rows share.

An attempt is a plain function that tries to do something outside its sandbox; the row says where it is tried:

    @attempt("file-append", needs=("files",))
    def append(ground: Ground, tell: Tell) -> None:
        with open(f"{ground.outside}/victim", "a") as file:
            file.write("changed")

To add one, write such a function into one of the `escape_*` modules next to this one (or into a new one, named in
`rows` of `escape_program`). Nothing else is needed: `test_escapes` runs every row under both mechanisms in each of its
settings, and once without any sandbox, where it must succeed; else it would prove nothing.

- Whether it succeeded is judged from outside, by `escape_ground`: a file of `ground.outside` changed, a process hurt,
  a listener heard something. What an attempt learned it gives to `tell`, and the judge looks for the secret in it.
  Where the effect itself must not happen (a setting of the kernel), opening the way is enough: `tell(DID_IT)`.
- Everything that is attacked is planted for this one attempt, below the test's own folder or as a process, key, queue
  of the test's own. An attempt must touch nothing else, since it also runs unconfined.
- An OSError is how an attempt is expected to fail. It must not wait for anything longer than a moment.
- The rows run inside the sandbox too: this module and theirs use the standard library only.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

Mechanism = Literal["bubblewrap", "landlock"]
# workspace: all can be read, the network is off. online: with network. closed: no more than the system can be read.
# readonly: nothing can be written.
Setting = Literal["workspace", "online", "closed", "readonly"]
Need = Literal[
    "files", "fifo", "hard-link", "process", "sockets", "terminal", "key", "memory", "queue", "semaphore", "posix-queue"
]

DID_IT: Final = b"<<did it>>"
ALWAYS: Final[tuple[Setting, ...]] = ("workspace", "online")


@dataclass(frozen=True, slots=True)
class Ground:
    """What an attempt is told about the outside. Zero or empty when the row does not need it."""

    outside: (
        str  # a folder with the file `victim`, the folder `folder` and maybe a `fifo`; the process has it as its cwd
    )
    work: str  # a folder that may be written, maybe with a `link` to `victim`
    pid: int = 0
    address: int = 0  # where that process has a secret in its memory
    held: int = 0  # the descriptor by which it holds `victim` open for writing
    tcp: int = 0  # ports on loopback
    udp: int = 0
    abstract: str = ""  # two listeners by name, `…-stream` and `…-datagram`; by file: `stream`, `datagram`
    terminal: str = ""
    key: int = 0
    shared: int = 0  # the number of a shared memory, queue or semaphore
    queue_name: str = ""


Tell = Callable[[bytes], None]
Run = Callable[[Ground, Tell], None]


@dataclass(frozen=True, slots=True)
class Attempt:
    """`open_on` names the mechanisms that are known not to stop it; docs/sandbox.md says so as well.

    `control` is "anyone", or "root" when only root can do it without a sandbox; `may_lack` are the errors by which a
    machine says that it does not have such a thing at all. `landlock` is the version of Landlock that stops it.
    """

    name: str
    run: Run
    needs: tuple[Need, ...]
    settings: tuple[Setting, ...]
    open_on: tuple[Mechanism, ...]
    control: Literal["anyone", "root"]
    may_lack: tuple[int, ...]
    landlock: int


TABLE: Final[dict[str, Attempt]] = {}


def attempt(
    name: str,
    *,
    needs: tuple[Need, ...] = ("files",),
    settings: tuple[Setting, ...] = ("workspace",),
    open_on: tuple[Mechanism, ...] = (),
    control: Literal["anyone", "root"] = "anyone",
    may_lack: tuple[int, ...] = (),
    landlock: int = 1,
) -> Callable[[Run], Run]:
    def add(run: Run) -> Run:
        assert name not in TABLE, f"two attempts are called {name}"
        TABLE[name] = Attempt(name, run, needs, settings, open_on, control, may_lack, landlock)
        return run

    return add


LIBC: Final = ctypes.CDLL(None, use_errno=True)
LIBC.shmat.restype = ctypes.c_void_p

_COLUMN: Final = {"x86_64": 0, "aarch64": 1}
_NUMBERS: Final = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "userfaultfd": (323, 282),
}


def checked(result: int) -> int:
    """The result of a function of the C library, or its error."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def system_call(name: str, *arguments: object) -> int:
    return checked(LIBC.syscall(ctypes.c_long(_NUMBERS[name][_COLUMN[os.uname().machine]]), *arguments))
