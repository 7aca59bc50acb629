"""`GroupStore`: what every back end that commits in groups does for its callers: waiting, patience, closing.

A back end has `submit` and `_claim_once`, and calls `report_outcomes` when a group is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from treadle.store.contract import Claim, Done, StoreError, Write

# Servers release a thread a moment after they have used it.
CLAIM_PATIENCE_S: Final = 0.5
CLAIM_AGAIN_S: Final = 0.02


class GroupStore:
    """The part of `Store` that is the same for all of them."""

    def submit(
        self, thread_id: str, fence: int, writes: Sequence[Write], done: Done, after_seq: int | None = None
    ) -> None:
        raise NotImplementedError

    async def _claim_once(self, thread_id: str, known_fence: int) -> Claim:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def commit(self, thread_id: str, fence: int, writes: Sequence[Write]) -> None:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.submit(thread_id, fence, writes, partial(settle, written))
        await written

    async def claim(self, thread_id: str, known_fence: int) -> Claim:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CLAIM_PATIENCE_S
        while True:
            try:
                return await self._claim_once(thread_id, known_fence)
            except StoreError as error:
                if error.kind != "claimed" or loop.time() >= deadline:
                    raise
            await asyncio.sleep(CLAIM_AGAIN_S)


def report_outcomes(loop: asyncio.AbstractEventLoop, outcomes: Sequence[tuple[Done, StoreError | None]]) -> None:
    """Call every `done`, also after one that failed."""
    for done, error in outcomes:
        try:
            done(error)
        except Exception as problem:
            loop.call_exception_handler({"message": "a callback of the store failed", "exception": problem})


def settle(future: asyncio.Future[Any], error: Exception | None, value: object = None) -> None:
    """Give the future its error, or else its value, unless its caller was cancelled."""
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
