"""Running something that blocks on a thread of its own, from an event loop.

Not the loop's own pool: that has a handful of threads, which people who think about an approval would hold for hours.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def on_thread(function: Callable[..., T], *arguments: object) -> T:
    """What the function gives or raises. When the caller is cancelled the thread goes on, and nobody is told."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

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
            value = context.run(function, *arguments)
        except BaseException as problem:
            # A future takes no StopIteration, which would end whoever awaits it.
            error = RuntimeError(repr(problem)) if isinstance(problem, StopIteration) else problem
        try:
            loop.call_soon_threadsafe(finish, value, error)
        except RuntimeError:
            return  # the loop has ended

    thread = threading.Thread(target=run, name=f"treadle {getattr(function, '__name__', 'handler')}", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        if threading.main_thread().is_alive():
            raise
        # Python 3.12 starts none once the program is ending; what is to be closed then is closed all the same.
        run()
    return await done


def blocks(function: Callable[..., object]) -> bool:
    """Whether calling it may take its time: a plain function, of which nobody knows what it does."""
    import inspect

    called = function if inspect.isroutine(function) else type(function).__call__
    return not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called))
