"""The tables of the store: made and migrated when a server starts, while others may be running.

A migration only adds (a table, a column with a default, a function under a new name), so that servers of the version
before go on; what they alone use is removed by a later one, which raises the oldest version that may still open the
database. The order is that of the files `migrations/<version>_<what>.sql`.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final

from treadle.store.contract import StoreError
from treadle.store.postgres.location import Location

_FOLDER: Final = os.path.join(os.path.dirname(__file__), "migrations")
# Held for a migration: "Trdm".
_LOCK: Final = 0x5472646D
# The oldest version of this program's tables that can still use them: `-- needs: N` in a migration.
_NEEDS: Final = re.compile(r"^-- needs: (\d+)$", re.MULTILINE)
_MIGRATE_S: Final = 120.0


def scripts() -> list[str]:
    """The migrations, from version 1 on."""
    found = []
    for name in sorted(os.listdir(_FOLDER)):
        if name.endswith(".sql"):
            with open(os.path.join(_FOLDER, name), encoding="utf-8") as file:
                found.append(file.read())
    return found


async def migrate(connection: Any, location: Location, upto: int | None = None) -> None:
    """Bring the tables to the version that this program knows. Raises `StoreError` when they are too new for it."""
    known = scripts()[:upto]
    version, usable = await _version(connection, location)
    if usable and version >= len(known):
        return
    async with connection.transaction():
        # For this transaction alone: a migration may take longer than a write, and two servers may start together.
        await connection.execute(
            "SET LOCAL lock_timeout = '60s'; SET LOCAL idle_in_transaction_session_timeout = '60s'"
        )
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{location.schema}"')
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS format (version integer NOT NULL, oldest integer NOT NULL)"
        )
        version, usable = await _version(connection, location)
        if not usable:
            raise StoreError(
                f"the tables of {location} were made by a newer Treadle, and this one is too old for them: install the "
                "newer version, or use another schema (?schema=NAME)"
            )
        for number, script in enumerate(known[version:], version + 1):
            await connection.execute(script, timeout=_MIGRATE_S)
            needs = _NEEDS.search(script)
            oldest = int(needs[1]) if needs is not None else None
            if number == 1:
                await connection.execute("INSERT INTO format VALUES (1, 1)")
            else:
                await connection.execute(
                    "UPDATE format SET version = $1, oldest = coalesce($2, oldest)", number, oldest
                )


async def _version(connection: Any, location: Location) -> tuple[int, bool]:
    """The version of the tables, 0 when there are none, and whether this program can use them."""
    there = await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", f'"{location.schema}".format')
    row = await connection.fetchrow("SELECT version, oldest FROM format") if there else None
    if row is None:
        return 0, True
    known = len(scripts())
    return row["version"], row["version"] <= known or row["oldest"] <= known
