"""`Location`: which database, from a URL, without any secret in what is shown of it."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from treadle.store.contract import StoreError

SCHEMES: Final = ("postgres", "postgresql")
_SCHEMA: Final = "treadle"
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
# What may wait for the database, and for how long. A claim or a write waits for another's lock for this long at most.
_LOCK_TIMEOUT: Final = "2s"
# A server that is stopped inside a transaction holds its locks: ours are single statements, so this is for a migration.
_IDLE_TIMEOUT: Final = "1s"
CONNECT_S: Final = 10.0


class Location(Struct, frozen=True):
    """Where the threads are. `dsn` is for the driver, `schema` what holds the tables."""

    dsn: str
    schema: str

    def __str__(self) -> str:
        parts = urlsplit(self.dsn)
        query = urlencode([("schema", self.schema)]) if self.schema != _SCHEMA else ""
        return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))

    @property
    def settings(self) -> dict[str, str]:
        """Settings of every connection."""
        return {
            "application_name": "treadle",
            "search_path": self.schema,
            # What is published is on the disk first, also where the database is set to be hasty.
            "synchronous_commit": "on",
            "lock_timeout": _LOCK_TIMEOUT,
            "idle_in_transaction_session_timeout": _IDLE_TIMEOUT,
            # So that a machine that has vanished is noticed, and its lock released.
            "tcp_keepalives_idle": "5",
            "tcp_keepalives_interval": "2",
            "tcp_keepalives_count": "3",
        }


def parse_location(url: str) -> Location:
    """Raises `StoreError` for a URL that cannot be used, and never repeats it: there may be a password in it."""
    try:
        parts = urlsplit(url)
        has_password = parts.password is not None
    except ValueError as error:
        raise StoreError(f"the location of the store is no URL ({error}): postgres://USER@HOST:5432/DATABASE") from None
    options = parse_qsl(parts.query, keep_blank_values=True)
    if has_password or any(name in ("password", "sslpassword") for name, _ in options):
        raise StoreError(
            "the location of the store has a password in it, where others may read it: put it into PGPASSWORD, into "
            "~/.pgpass, or into a file that ?passfile=FILE names"
        )
    schema = dict(options).get("schema", _SCHEMA)
    if not _NAME.fullmatch(schema):
        raise StoreError(f"{schema!r} cannot be the schema of a store: small letters, digits and _")
    if parts.scheme not in SCHEMES or not unquote(parts.path).strip("/"):
        raise StoreError("the location of the store names no database: postgres://USER@HOST:5432/DATABASE")
    rest = urlencode([(name, value) for name, value in options if name != "schema"])
    return Location(urlunsplit(("postgresql", parts.netloc, parts.path, rest, "")), schema)


async def connect(location: Location) -> Any:
    """A connection of the driver. Raises what the driver raises."""
    import asyncpg  # 24 ms, and an extra

    return await asyncpg.connect(location.dsn, server_settings=location.settings, timeout=CONNECT_S)
