"""What the servers share as programs: logging, signals, standard input and output, the token file, exiting."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from treadle.errors import TreadleError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

EXIT_DEADLINE_S = 2.0
_M_ARENA_MAX = -8  # in glibc's malloc.h


def start_logging(default: str, given: str | None = None, settings: Iterable[str] = ()) -> None:
    """`default` is the level unless the environment names one; `given`, of the command line, comes before both. The
    secrets in `settings`, also of the command line, are not shown."""
    from treadle.logs.log_setup import set_up_logging  # not before `initialize` was answered

    set_up_logging(os.environ, default, given, settings)


def read_token(path: str) -> str:
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            token = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _bad_token(path, f"it cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise _bad_token(path, "it must hold one word of printable ASCII")
    return token


def _bad_token(path: str, why: str) -> TreadleError:
    from treadle.cli.problem import Problem  # only when the start fails

    return Problem(f"the token file {path} cannot be used", why=why, do=f"umask 077; openssl rand -hex 32 > {path}")


def take_stdio() -> tuple[int, int]:
    """Descriptors for the messages. Nothing else may reach standard output, so what a library prints goes to standard
    error.
    """
    reader, writer = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    return reader, writer


def use_one_malloc_arena() -> None:
    """Make all threads allocate from one heap: glibc gives each thread its own, where memory freed by others cannot be
    reused. For a long-running server, before its first thread starts. The GIL keeps contention low.
    """
    import ctypes  # only for servers that listen

    malloc = ctypes.CDLL(None)
    if hasattr(malloc, "mallopt"):  # not every C library has it
        malloc.mallopt(_M_ARENA_MAX, 1)


def exit_with_deadline() -> None:
    """Python waits for its worker threads at exit, and one may hang in a file system; this bounds the wait."""
    import asyncio  # not before `initialize` was answered

    asyncio.get_running_loop().call_later(EXIT_DEADLINE_S, os._exit, 0)


def stop_on_signals() -> asyncio.Event:
    """The first SIGTERM or SIGINT shuts the server and its processes down cleanly; a second one exits immediately."""
    # Not before `initialize` was answered.
    import asyncio
    import signal

    stop = asyncio.Event()

    def requested() -> None:
        if stop.is_set():
            os._exit(1)  # the helper process sees it and kills what is left
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, requested)
    return stop
