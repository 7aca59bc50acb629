"""Something that may block, from an event loop: when there are no more threads to be had, and what is left of it."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

import pytest

from treadle.client import run_on_own_thread

pytestmark = pytest.mark.anyio


class Ended:
    def is_alive(self) -> bool:
        return False


def no_more(_: Any) -> None:
    raise RuntimeError("can't create new thread at interpreter shutdown")


async def test_while_the_program_ends_it_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", no_more)
    monkeypatch.setattr(threading, "main_thread", Ended)
    assert await run_on_own_thread(threading.get_ident) == threading.get_ident()


async def test_while_it_runs_nothing_blocks_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", no_more)
    with pytest.raises(RuntimeError, match="can't create"):
        await run_on_own_thread(threading.get_ident)


async def test_what_was_called_is_let_go_before_its_thread_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    class Owner:
        def work(self) -> int:
            return 1

    loop = asyncio.get_running_loop()
    deliver, lets_go = loop.call_soon_threadsafe, threading.Event()

    def and_is_slow(*given: Any) -> None:
        deliver(*given)
        lets_go.wait(60)

    monkeypatch.setattr(loop, "call_soon_threadsafe", and_is_slow)
    owner = Owner()
    left = weakref.ref(owner)
    try:
        assert await run_on_own_thread(owner.work) == 1
        del owner
        assert left() is None
    finally:
        lets_go.set()
