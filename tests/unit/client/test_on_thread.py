"""Something that may_block, from an event loop, when there are no more threads to be had."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from treadle.client.own_thread import run_on_own_thread

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
