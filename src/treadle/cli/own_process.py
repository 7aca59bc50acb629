"""This process as a program: logging, signals, standard input and output, exiting.

Servers load this module at their start, and answer `initialize` before they load asyncio: it is imported late here.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType
    from typing import Protocol

    class Closable(Protocol):
        async def wait_closed(self) -> None: ...


STOP: Final = (signal.SIGINT, signal.SIGTERM)
EXIT_DEADLINE_S: Final = 2.0
_M_ARENA_MAX: Final = -8  # in glibc's malloc.h


def start_logging(default: str, given: str | None = None, settings: Iterable[str] = ()) -> None:
    """Log at the level `default`, unless the environment names one; `given`, of the command line, comes before both.
    The secrets in `settings`, also of the command line, are not shown."""
    from treadle.logs.log_setup import set_up_logging  # not before `initialize` was answered

    set_up_logging(os.environ, default, given, settings)
    if os.environ.get("TREADLE_AUDIT_FILE"):
        # Few have one.
        from treadle.cli.problem import Problem
        from treadle.logs.audit import AuditFailed, set_up_audit

        try:
            set_up_audit(os.environ)
        except AuditFailed as error:
            raise Problem(str(error), do="correct TREADLE_AUDIT_FILE, or unset it") from None


def take_stdio() -> tuple[int, int]:
    """Descriptors for the messages. Nothing else may reach standard output, so what a library prints goes to standard
    error."""
    reader, writer = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    return reader, writer


def use_one_malloc_arena() -> None:
    """Make all threads allocate from one heap: glibc gives each thread its own, where memory freed by others cannot be
    reused. For a long-running server, before its first thread starts. The GIL keeps contention low."""
    import ctypes  # only for servers that listen

    malloc = ctypes.CDLL(None)
    if hasattr(malloc, "mallopt"):  # not every C library has it
        malloc.mallopt(_M_ARENA_MAX, 1)


def exit_with_deadline() -> None:
    """Bound the wait at exit: Python waits for its worker threads, and one may hang in a file system."""
    import asyncio  # not before `initialize` was answered

    asyncio.get_running_loop().call_later(EXIT_DEADLINE_S, os._exit, 0)


def stop_on_signals() -> asyncio.Event:
    """An event for servers, set by the first SIGTERM or SIGINT: the server and its processes shut down cleanly. A
    second signal exits immediately."""
    import asyncio  # not before `initialize` was answered

    stop = asyncio.Event()

    def requested() -> None:
        if stop.is_set():
            os._exit(1)  # the helper process sees it and kills what is left
        stop.set()

    loop = asyncio.get_running_loop()
    for number in STOP:
        loop.add_signal_handler(number, requested)
    return stop


async def closed_or_stopped(connection: Closable, stop: asyncio.Event) -> None:
    """Wait until the only client of a server has gone, or a signal has asked the server to stop."""
    import asyncio  # not before `initialize` was answered

    waits = [asyncio.ensure_future(connection.wait_closed()), asyncio.ensure_future(stop.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


def reload_on_hangup(reload: Callable[[], None], stop: asyncio.Event) -> None:
    """SIGHUP reads the settings again. From a terminal that was closed it means the end, as for any other program."""
    import asyncio  # not before `initialize` was answered

    def has_terminal() -> bool:
        with suppress(OSError):
            os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
            return True
        return False

    had_terminal = has_terminal()

    def hung_up() -> None:
        if had_terminal and not has_terminal():
            stop.set()
        else:
            reload()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up)


@contextmanager
def stop_signals(requested: Callable[[int], None]) -> Iterator[None]:
    """Call `requested` with the number of every signal that asks us to stop, at once. For commands that run on an event
    loop and write to people.

    It is called by a Python signal handler and not by the loop, which does not run while a slow reader of our output
    blocks us. The loop has a handler as well, only to be woken: without it, a signal that arrives just before the loop
    begins to wait would not be noticed until something else happens.
    """
    import asyncio  # servers load this module before they load asyncio

    loop = asyncio.get_running_loop()
    before = [(number, signal.getsignal(number)) for number in STOP]

    def handle(number: int, _: FrameType | None) -> None:
        requested(number)

    for number in STOP:
        loop.add_signal_handler(number, lambda: None)
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before:
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
