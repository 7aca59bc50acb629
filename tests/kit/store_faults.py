"""`StoreFaults` of our back ends: reached into from the outside, in this process."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from treadle.store import LEASE_S, Owner, PostgresStore, SqliteStore, Store


class HaltedOwner:
    """Stands in for the `Owner` of a store, whose writer beats before each group: there it waits."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._gate = threading.Event()
        self.id = owner.id
        then = time.monotonic_ns() - int((LEASE_S + 1) * 1e9)
        os.utime(owner._fd, ns=(then, then))
        owner._beaten = then
        owner.held_until = then / 1e9 + LEASE_S
        self.go_on, self.leave = self._gate.set, owner.leave

    @property
    def held_until(self) -> float:
        return self._owner.held_until

    def beat(self) -> None:
        assert self._gate.wait(60.0)
        self._owner.beat()


class SqliteFaults:
    """An answer cannot be lost: it comes from the same process."""

    async def halt(self, store: Store) -> None:
        assert isinstance(store, SqliteStore)
        store._writer.owner = HaltedOwner(store._writer.owner)  # type: ignore[assignment]

    async def go_on(self, store: Store) -> None:
        assert isinstance(store, SqliteStore)
        halted = store._writer.owner
        assert isinstance(halted, HaltedOwner)
        halted.go_on()

    async def lose_answer(self, store: Store) -> None:
        pass


class PostgresFaults:
    """The tasks of the store wait, and nothing renews its lease."""

    def __init__(self) -> None:
        self._gates: dict[Store, asyncio.Event] = {}

    async def halt(self, store: Store) -> None:
        assert isinstance(store, PostgresStore)
        gate = self._gates[store] = asyncio.Event()
        write: Callable[..., Any] = store._writer._write

        async def waits(works: Any) -> Any:
            await gate.wait()
            return await write(works)

        store._writer._write = waits  # type: ignore[method-assign]
        beating = store._presence._beating
        assert beating is not None
        beating.cancel()
        await asyncio.wait([beating])
        async with asyncio.timeout(60.0):
            while any(server.id == store._presence.id and server.alive for server in await store.servers()):
                await asyncio.sleep(0.05)

    async def go_on(self, store: Store) -> None:
        assert isinstance(store, PostgresStore)
        presence = store._presence
        presence._beating = asyncio.get_running_loop().create_task(presence._beat())
        self._gates[store].set()

    async def lose_answer(self, store: Store) -> None:
        assert isinstance(store, PostgresStore)
        connection = store._writer._connection

        class Cut:
            """Makes one statement and loses its connection."""

            def __init__(self, method: str) -> None:
                self._method = method

            async def __call__(self, *operands: Any, **options: Any) -> Any:
                await getattr(connection, self._method)(*operands, **options)
                raise ConnectionResetError("cut by the test")

        class Connection:
            fetchval = Cut("fetchval")
            fetchrow = Cut("fetchrow")

            def terminate(self) -> None:
                connection.terminate()

        store._writer._connection = Connection()
