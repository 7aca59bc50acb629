"""`treadle exec-server --attach NAME` and `--stop NAME`: an exec-server of this user that outlives who connects to it.

    ssh, docker exec ─▶ --attach NAME ─▶ unix socket of NAME ─▶ exec-server, started by the first who asks

The program between is a pipe for bytes and knows nothing of what they say. When it ends, the server and its commands go
on; the next one connects to them again. A server that nobody uses ends by itself. Each version has sockets of its own,
so that a client never meets a server from before an update.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NoReturn

from treadle._version import __version__
from treadle.cli.problem import Problem
from treadle.cli.streams import REFUSED, write_stdout
from treadle.errors import ChannelClosed
from treadle.own_python import treadle_command
from treadle.transport.listener_secret import home_path
from treadle.transport.sockets import check_server, short_path

FOLDER: Final = "executors"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
# A start of Python on a small, busy machine.
START_S: Final = 60.0
STOP_S: Final = 15.0
# With nobody connected and no session: its commands have ended long before.
IDLE_S: Final = 600.0
# The longest that a client may wish its commands to go on without it: the user's own machine is nobody else's.
DETACHED_S: Final = 30 * 24 * 3600
BLOCK: Final = 1 << 16


def attach(name: str) -> NoReturn:
    """Be a connection to the server of this name, until either side closes it."""
    folder = _folder(name)
    path = os.path.join(folder, f"{name}@{__version__}.sock")
    connection = _connected(path)
    if connection is None:
        with _alone(os.path.join(folder, f"{name}.lock")):  # two who come at a time start one
            connection = _connected(path)
            if connection is None:
                _start(path)
                connection = _connected(path)
    if connection is None:
        raise Problem("the exec-server has ended just after its start", do=f"see {path}.log")
    _pipe(connection)


def stop(name: str) -> int:
    """End the servers of this name, whatever their version, with all that they run."""
    folder = _folder(name)
    stopped = 0
    with _alone(os.path.join(folder, f"{name}.lock")):
        for entry in sorted(os.listdir(folder)):
            if not entry.startswith(f"{name}@") or not entry.endswith(".sock"):
                continue
            connection = _connected(os.path.join(folder, entry))
            if connection is None:
                continue
            with connection:
                # Who is connected to it keeps its id from being that of another process.
                data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
                os.kill(struct.unpack("3i", data)[0], signal.SIGTERM)
                connection.settimeout(STOP_S)
                with suppress(OSError):
                    while connection.recv(BLOCK):
                        pass
            stopped += 1
    write_stdout(f"{stopped or 'no'} exec-server{'' if stopped == 1 else 's'} of the name {name} stopped")
    return 0


def _folder(name: str) -> str:
    """The folder of the sockets, which is for this user alone."""
    if not _NAME.fullmatch(name):
        why = "it has at most 64 letters, digits, `-` and `_`"
        raise Problem(f"{name!r} cannot be the name of an exec-server", why=why, do="--attach NAME", code=REFUSED)
    home = home_path(os.environ)
    if home is None:
        raise Problem("this user has no home for the socket", do="set TREADLE_HOME to a folder of this user")
    folder = os.path.join(home, FOLDER)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        status = os.stat(folder)
    except OSError as error:
        why = error.strerror or str(error)
        raise Problem(f"{folder} cannot be made", why=why, do="set TREADLE_HOME to a folder of this user") from None
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise Problem(f"{folder} is open to other users", do=f"chmod 700 {folder}, or another TREADLE_HOME")
    return folder


@contextmanager
def _alone(path: str) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _connected(path: str) -> socket.socket | None:
    """A connection to the server that listens there, which is ours; None when nobody does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_path(path) as short:
            connection.connect(short)
        check_server(connection)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except (OSError, ChannelClosed) as error:
        connection.close()
        raise Problem(
            f"cannot connect to {path}", why=str(error), do="remove it, or set TREADLE_HOME to another folder"
        ) from None
    return connection


def _start(path: str) -> None:
    """Start a server that is a session of its own. It says that it listens by its first line."""
    words = ("--listen", f"unix://{path}", "--idle-s", f"{IDLE_S:g}", "--detached-s", f"{DETACHED_S}")
    with open(f"{path}.log", "wb") as log:  # it must not hold the standard error of a login that ends
        server = subprocess.Popen(
            treadle_command("exec-server", *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    assert server.stdout is not None
    late = threading.Timer(START_S, server.kill)
    late.start()
    listens = server.stdout.readline()
    late.cancel()
    if not listens:
        with open(f"{path}.log", errors="replace") as said:
            why = " ".join(said.read(2000).split())
        raise Problem("an exec-server cannot be started", why=why or f"it said nothing for {START_S:g} s")


def _pipe(connection: socket.socket) -> NoReturn:
    """Pass bytes on, both ways, until the server or whoever reads us has gone."""

    def upwards() -> None:
        with suppress(OSError):
            while data := os.read(0, BLOCK):
                connection.sendall(data)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)

    threading.Thread(target=upwards, daemon=True).start()
    with suppress(OSError):
        while data := connection.recv(BLOCK):
            left = memoryview(data)
            while left:
                left = left[os.write(1, left) :]
    os._exit(0)  # the other thread may wait for input for ever
