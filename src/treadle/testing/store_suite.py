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
from typing import Final

from treadle.store.contract import Store
from treadle.testing import store_access_checks, store_checks, store_fault_checks
from treadle.testing.store_fault_checks import StoreFaults

DEADLINE_S: Final = 60.0
"""For each check, on a busy machine."""


_STORES: Final = {"store", "other", "faults"}
_CHECKS: Final[dict[str, Callable[..., Awaitable[None]]]] = {
    name: check
    for module in (store_checks, store_access_checks, store_fault_checks)
    for name, check in vars(module).items()
    if not name.startswith("_") and iscoroutinefunction(check) and set(signature(check).parameters) <= _STORES
}
STORE_CHECKS: Final[tuple[str, ...]] = tuple(_CHECKS)
"""The names of the checks; each says what must hold."""


async def check_store(
    open_store: Callable[[str], Awaitable[Store]],
    *,
    shared: bool = True,
    only: Sequence[str] = STORE_CHECKS,
    faults: StoreFaults | None = None,
) -> None:
    """Raises `AssertionError` with what does not hold.

    Args:
        open_store: Opens a store on the threads of that name, which are none at first. Two stores that are opened with
            the same name have the same threads, as two servers would.
        shared: Whether that is so. Without, nothing is said about two stores.
        only: The checks to make, of `STORE_CHECKS`; all when not given.
        faults: How a store is brought to a halt, and its answers are lost. Without, nothing is said about that.
    """
    for name in only:
        check = _CHECKS[name]
        stores = signature(check).parameters
        if (len(stores) > 1 and not shared) or ("faults" in stores and faults is None):
            continue
        async with asyncio.timeout(DEADLINE_S), AsyncExitStack() as stack:
            opened: dict[str, Store | StoreFaults] = {}
            for each in stores:
                if each == "faults":
                    assert faults is not None
                    opened[each] = faults
                    continue
                opened[each] = store = await open_store(name)
                stack.push_async_callback(store.close)
            try:
                await check(**opened)
            except AssertionError as error:
                line = traceback.extract_tb(error.__traceback__)[-1].line
                what = f"{error}" if error.args else f"this does not hold: {line}"
                raise AssertionError(f"{name.replace('_', ' ')}: {what}") from error
