"""Runs a blocking function on a thread of its own, from an event loop.

Not on the loop's default executor: that has a handful of threads, and a handler that waits for a person to approve
something would hold one for hours.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")


async def run_on_own_thread(function: Callable[..., T], *arguments: object) -> T:
    """Return what the function returns, or raise what it raises. If the caller is cancelled, the thread goes on and its
    result is dropped.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()
    name = f"treadle {getattr(function, '__name__', 'handler')}"
    # Taken out by the thread: it may be slow to end, and what it called must not live until then.
    calls = [partial(function, *arguments)]
    del function, arguments

    def finish(value: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value, error = None, None
        try:
            value = context.run(calls.pop())
        except BaseException as problem:
            # A future cannot carry StopIteration: it would end the coroutine that awaits it.
            error = RuntimeError(repr(problem)) if isinstance(problem, StopIteration) else problem
        try:
            loop.call_soon_threadsafe(finish, value, error)
        except RuntimeError:
            return  # the loop has ended

    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        if threading.main_thread().is_alive():
            raise
        # Python 3.12 starts no threads during shutdown; cleanup must still run, so do it here.
        run()
    return await done


def may_block(function: Callable[..., object]) -> bool:
    """Whether calling it may take long: true for a plain function, since nobody knows what it does."""
    called = function if inspect.isroutine(function) else type(function).__call__
    return not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called))
