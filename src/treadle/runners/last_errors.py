"""`LastErrors`: why the last run of each engine failed, for later inspection. A small file per engine in the home.

It contains no secrets: the writer removes them first. A successful run deletes the file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import msgspec

from treadle.config.atomic_write import PRIVATE, make_home, replace_file
from treadle.home import home_place

MAX_ERROR: Final = 2000
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")


class LastError(msgspec.Struct, frozen=True):
    """A failure.

    Args:
        error: Why, for people.
        at: When, in seconds since 1970.
    """

    error: str
    at: float


class LastErrors:
    """The failures of a home. Reading never fails; a home that cannot be written keeps none.

    Args:
        home: The home; else the usual one.
    """

    def __init__(self, home: str | os.PathLike[str] | None = None) -> None:
        place = home_place(os.environ) if home is None else (os.fspath(home), "")
        self._folder = None if place is None else Path(place[0]) / "runs" / "last_errors"

    def find(self, engine: str) -> LastError | None:
        """The failure of an engine's last run, if it failed.

        Args:
            engine: Its name.
        """
        path = self._path(engine)
        try:
            return None if path is None else msgspec.json.decode(path.read_bytes(), type=LastError)
        except (OSError, msgspec.MsgspecError):
            return None

    def keep(self, engine: str, error: LastError | None) -> bool:
        """Remember how an engine's last run ended. False when the disk does not take it: the run does not fail for it.

        Args:
            engine: Its name.
            error: Why it failed; None when it did not.
        """
        path = self._path(engine)
        if path is None:
            return False
        try:
            if error is None:
                path.unlink(missing_ok=True)
            else:
                make_home(path.parent)
                short = msgspec.structs.replace(error, error=error.error[:MAX_ERROR])
                replace_file(path, msgspec.json.encode(short), PRIVATE)
        except OSError:
            return False
        return True

    def _path(self, engine: str) -> Path | None:
        if self._folder is None or _NAME.fullmatch(engine) is None:
            return None
        return self._folder / f"{engine}.json"
