"""`check_store`: what must hold for every `Store` of threads, ours and yours.

from treadle.testing import check_store

async def test_my_store(tmp_path):
    await check_store(lambda name: open_my_store(tmp_path / name))
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from inspect import iscoroutinefunction, signature
from types import ModuleType
from typing import Final

from treadle.store.contract import Store
from treadle.testing.store_checks import claims, contents, page_checks, queue_checks, removals, search_checks

DEADLINE_S: Final = 60.0
"""For each check, on a busy machine."""


def _checks(module: ModuleType) -> list[Callable[..., Awaitable[None]]]:
    """The functions of a module that are to be called with a store, or with two."""
    public = [found for name, found in vars(module).items() if not name.startswith("_")]
    return [found for found in public if iscoroutinefunction(found) and set(signature(found).parameters) <= _STORES]


_MODULES: Final = (contents, removals, page_checks, search_checks, queue_checks, claims)
_STORES: Final = {"store", "other"}
_CHECKS: Final[dict[str, Callable[..., Awaitable[None]]]] = {
    check.__name__: check for module in _MODULES for check in _checks(module)
}
STORE_CHECKS: Final[tuple[str, ...]] = tuple(_CHECKS)
"""The names of the checks; each says what must hold."""


async def check_store(
    open_store: Callable[[str], Awaitable[Store]], *, shared: bool = True, only: Sequence[str] = STORE_CHECKS
) -> None:
    """Raises `AssertionError` with what does not hold.

    Args:
        open_store: Opens a store on the threads of that name, which are none at first. Two stores that are opened with
            the same name have the same threads, as two servers would.
        shared: Whether that is so. Without, nothing is said about two stores.
        only: The checks to make, of `STORE_CHECKS`; all when not given.
    """
    for name in only:
        check = _CHECKS[name]
        if shared or len(signature(check).parameters) == 1:
            async with asyncio.timeout(DEADLINE_S):
                await _run(check, open_store)


async def _run(check: Callable[..., Awaitable[None]], open_store: Callable[[str], Awaitable[Store]]) -> None:
    async with AsyncExitStack() as stack:

        async def opened() -> Store:
            store = await open_store(check.__name__)
            stack.push_async_callback(store.close)
            return store

        try:
            await check(*[await opened() for _ in signature(check).parameters])
        except AssertionError as error:
            line = traceback.extract_tb(error.__traceback__)[-1].line
            what = f"{error}" if error.args else f"this does not hold: {line}"
            raise AssertionError(f"{check.__name__.replace('_', ' ')}: {what}") from error
