"""`Presence`: that this store is alive, which the others see in two ways.

A session lock on a connection of its own ends with the connection: a server that was killed is known to be gone at
once. A beat renews a lease by the clock of the database: that of a server which is stopped or cut off runs out, while
its lock may still be held. No clock of a server is compared with another.

    connect ─▶ lock, row ─▶ beat, beat, … ─▶ connection lost ─▶ connect …
                              │
                              └▶ `held_until`: by our own clock, counted from before the beat was sent
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from treadle.store.postgres.failures import is_lost
from treadle.store.postgres.location import Location, connect

logger: logging.Logger = logging.getLogger(__name__)

POSTGRES_LEASE_S: Final = 3.0
# "Trdl", as in `is_alive`.
_LOCKS: Final = 0x5472646C
_AGAIN_S: Final = 0.2
# Stores that were gone for so long are forgotten.
_FORGET: Final = timedelta(days=1)

_ENTER: Final = """
INSERT INTO stores (id, server, lock_key, lease, beat) VALUES ($1, $2, $3, $4, clock_timestamp())
ON CONFLICT (id) DO UPDATE SET lock_key = excluded.lock_key, beat = excluded.beat
"""
_BEAT: Final = "UPDATE stores SET beat = clock_timestamp() WHERE id = $1"
_SWEEP: Final = """
WITH gone AS (
    DELETE FROM stores WHERE clock_timestamp() - beat > $1 AND NOT is_alive(id) RETURNING id
), numbers AS (DELETE FROM writers USING gone WHERE name = gone.id OR starts_with(name, gone.id || '-'))
DELETE FROM loaded WHERE store_id IN (SELECT id FROM gone)
"""


class Presence:
    """Entered by `start`, which raises what the driver raises, and left by `close`."""

    def __init__(self, location: Location, *, lease_s: float = POSTGRES_LEASE_S) -> None:
        self.id: str = f"{os.getpid()}-{os.urandom(12).hex()}"
        self.epoch: str = ""
        self.held_until: float = 0.0  # by `time.monotonic`
        self._location = location
        self._lease_s = lease_s
        self._connection: Any = None
        self._beating: asyncio.Task[None] | None = None

    async def start(self, connection: Any) -> None:
        self._connection = connection
        await connection.execute(_SWEEP, _FORGET)
        await self._enter(connection)
        self._beating = asyncio.get_running_loop().create_task(self._beat(), name="beats of the store")

    async def close(self) -> None:
        """Leave: what is held here may be taken at once."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # nothing that is not over with the connection, or the lease
                await connection.execute("DELETE FROM stores WHERE id = $1", self.id, timeout=self._lease_s)
                await connection.execute("DELETE FROM loaded WHERE store_id = $1", self.id, timeout=self._lease_s)
            await end(connection)

    async def _enter(self, connection: Any) -> None:
        asked = time.monotonic()
        await connection.execute("SET synchronous_commit = off")  # a beat that is lost is followed by another
        server = f"another server (process {os.getpid()} on {platform.node()})"
        # Another one for each connection: the one before may not know yet that it is over.
        lock_key = int.from_bytes(os.urandom(4)) >> 1
        await connection.execute("SELECT pg_advisory_lock($1, $2)", _LOCKS, lock_key)
        await connection.execute(_ENTER, self.id, server, lock_key, timedelta(seconds=self._lease_s))
        self.epoch = await connection.fetchval("SELECT current_epoch()")
        self.held_until = asked + self._lease_s

    async def _beat(self) -> None:
        while True:
            try:
                await asyncio.sleep(self._lease_s / 3)
                asked = time.monotonic()
                await self._connection.execute(_BEAT, self.id, timeout=self._lease_s)
                self.held_until = asked + self._lease_s
            except Exception as error:
                if not is_lost(error):
                    logger.exception("the store could not show that it is alive")
                logger.warning("the connection to %s was lost: %s", self._location, error)
                await self._reconnect()

    async def _reconnect(self) -> None:
        await end(self._connection)
        while True:
            connection: Any = None
            try:
                connection = await connect(self._location)
                await self._enter(connection)
            except BaseException as error:
                if connection is not None:
                    connection.terminate()
                if not isinstance(error, Exception):  # this store is closed meanwhile
                    raise
                logger.debug("%s cannot be reached yet: %s", self._location, error)
                await asyncio.sleep(_AGAIN_S)
            else:
                self._connection = connection
                logger.info("%s is reached again", self._location)
                return


async def end(connection: Any) -> None:
    """Close a connection, also one that does not answer."""
    try:
        await connection.close(timeout=1.0)
    except Exception:
        connection.terminate()
