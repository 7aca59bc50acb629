"""The outside, planted for one attempt, and what became of it: a judge that sees from outside.

Everything is the test's own: files below its folder, processes that it started, listeners, keys and queues that it
made and takes away again.
"""

from __future__ import annotations

import os
import resource
import select
import socket
import stat
import subprocess
import sys
import termios
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from system.escapes.escape_planted import plant_shared
from system.escapes.escape_table import DID_IT, Attempt, Ground

# It lets itself be traced by anybody, where a machine asks for that; what is left to stop it is the sandbox.
VICTIM = """
import ctypes, os, signal
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
held = os.open("victim", os.O_RDWR)
secret = ctypes.create_string_buffer(os.environb[b"SECRET"])
print(ctypes.addressof(secret), held, flush=True)
while True:
    signal.pause()
"""
NAMESPACED_POWERS = 24  # the length of those that name their user namespace's root, in the last four bytes
LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU)


@dataclass
class Planted:
    """One attempt's outside. `watchers` say what happened to a part of it, or None."""

    attempt: Attempt
    root: Path
    secret: str = field(default_factory=lambda: uuid.uuid4().hex[:24])
    watchers: list[Callable[[], str | None]] = field(default_factory=list)
    cleanup: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.outside, self.work = self.root / "out" / self.attempt.name, self.root / "work" / self.attempt.name
        (self.outside / "folder").mkdir(parents=True)
        self.work.mkdir(parents=True)
        (self.outside / "victim").write_text("precious data")
        (self.outside / "secret").write_text(self.secret)
        values: dict[str, int | str] = {}
        for need in self.attempt.needs:
            if need == "process":
                values |= self._process()
            elif need == "sockets":
                values |= self._sockets()
            elif need == "hard-link":
                os.link(self.outside / "victim", self.work / "link")
            elif need == "fifo":
                self._fifo()
            elif need == "terminal":
                values |= self._terminal()
            elif need != "files":
                values |= plant_shared(need, self.secret, self.watchers, self.cleanup)
        self.ground = Ground(str(self.outside), str(self.work), **values)  # type: ignore[arg-type]
        self._before = dict(_snapshot(self.outside))

    def signs(self, told: bytes) -> list[str]:
        """How it can be seen that the attempt succeeded."""
        after = dict(_snapshot(self.outside))
        changed = [
            f"{name} changed"
            for name in sorted(after.keys() | self._before.keys())
            if after.get(name) != self._before.get(name)
        ]
        special = [f"{path.name} is a {what}" for path, what in _special(self.work)]
        heard = [sign for watcher in self.watchers if (sign := watcher()) is not None]
        words = [
            what
            for what, data in (("the secret was told", self.secret.encode()), ("it says so", DID_IT))
            if data in told
        ]
        return changed + special + heard + words

    def _process(self) -> dict[str, int | str]:
        process = self.cleanup.enter_context(
            subprocess.Popen(
                [os.path.realpath(sys.executable), "-I", "-S", "-c", VICTIM],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                cwd=self.outside,
                env={"SECRET": self.secret},
                process_group=0,
            )
        )
        self.cleanup.callback(process.kill)
        assert process.stdout is not None
        address, held = (int(word) for word in process.stdout.readline().split())
        limits = [resource.prlimit(process.pid, which) for which in LIMITS]

        def watch() -> str | None:
            if process.poll() is not None:
                return f"the process ended with {process.returncode}"
            if [resource.prlimit(process.pid, which) for which in LIMITS] != limits:
                return "the process has other limits"
            if Path(f"/proc/{process.pid}/oom_score_adj").read_text() == "999\n":
                return "the process is to be ended first"
            with open(f"/proc/{process.pid}/mem", "rb", buffering=0) as memory:
                memory.seek(address)
                return None if memory.read(len(self.secret)) == self.secret.encode() else "its memory changed"

        self.watchers.append(watch)
        return {"pid": process.pid, "address": address, "held": held}

    def _sockets(self) -> dict[str, int | str]:
        name = f"treadle-{uuid.uuid4().hex}"
        here = os.open(self.outside, os.O_PATH)
        self.cleanup.callback(os.close, here)
        by_file = f"/proc/self/fd/{here}"  # the name of a socket is limited to about a hundred bytes
        stream, datagram, ip = socket.SOCK_STREAM, socket.SOCK_DGRAM, ("127.0.0.1", 0)
        self._listen(socket.AF_UNIX, stream, f"{by_file}/stream")
        self._listen(socket.AF_UNIX, datagram, f"{by_file}/datagram")
        self._listen(socket.AF_UNIX, stream, f"\0{name}-stream")
        self._listen(socket.AF_UNIX, datagram, f"\0{name}-datagram")
        tcp, udp = self._listen(socket.AF_INET, stream, ip), self._listen(socket.AF_INET, datagram, ip)
        return {"abstract": name, "tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1]}

    def _listen(self, family: int, kind: int, address: object) -> socket.socket:
        listener = self.cleanup.enter_context(socket.socket(family, kind))
        listener.bind(address)  # type: ignore[arg-type]
        if kind == socket.SOCK_STREAM:
            listener.listen()
        self.watchers.append(lambda: f"{address!r} heard something" if _readable(listener.fileno()) else None)
        return listener

    def _fifo(self) -> None:
        os.mkfifo(self.outside / "fifo")
        reader = os.open(self.outside / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        self.cleanup.callback(os.close, reader)
        self.watchers.append(lambda: "something was written to the FIFO" if _has_bytes(reader) else None)

    def _terminal(self) -> dict[str, int | str]:
        near, far = os.openpty()
        self.cleanup.callback(os.close, near)
        self.cleanup.callback(os.close, far)
        settings = termios.tcgetattr(far)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(far, termios.TCSANOW, settings)
        os.write(near, f"{self.secret}\n".encode())
        self.watchers.append(lambda: "something was written to the terminal" if _readable(near) else None)
        return {"terminal": os.ttyname(far)}


def _readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def _has_bytes(fifo: int) -> bool:
    """More than the end of what nobody has written."""
    try:
        return os.read(fifo, 1) != b""
    except BlockingIOError:
        return False


def _snapshot(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Any change of a file, its name or what is known about it moves its ctime or that of its directory."""
    for path in (folder, *folder.rglob("*")):
        status = path.lstat()
        yield str(path.relative_to(folder)), (status.st_ino, status.st_ctime_ns, status.st_mode, status.st_size)


def _special(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in folder.rglob("*"):
        mode = path.lstat().st_mode
        if mode & stat.S_ISUID:
            yield path, "setuid file"
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            yield path, "device"
        if _has_powers(path):
            yield path, "file with powers"


def _has_powers(path: Path) -> bool:
    """Powers that hold outside: not those that only count below a user namespace of an ordinary user."""
    if "security.capability" not in os.listxattr(path, follow_symlinks=False):
        return False
    value = os.getxattr(path, "security.capability")
    return len(value) < NAMESPACED_POWERS or not any(value[-4:])
