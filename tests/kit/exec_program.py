"""The exec-server as a real child process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import treadle
from kit.server_process import ServerProcess, child

SOURCE: Final = Path(treadle.__file__).resolve().parents[1]
COMMAND: Final[tuple[str, ...]] = (sys.executable, "-m", "treadle", "exec-server")


@contextmanager
def running(
    folder: Path,
    *arguments: str,
    command: Sequence[str] = COMMAND,
    env: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    announced: bool = True,
) -> Iterator[ServerProcess]:
    """A server in `folder`, which it also uses as its working directory; killed and reaped at the end."""
    log = folder / "server.stderr"
    environ = server_environment({"TREADLE_HOME": str(folder / "home"), **(env or {})})
    with child([*command, *arguments], cwd=folder, env=environ, log=log, stdin=stdin) as process:
        server = ServerProcess(process, log)
        if announced:
            server.url = server.read_line()
        yield server


def server_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE), **(extra or {})}
