"""The server of the soak: a home of its own in a fresh folder, and a program that ends with all its processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench import family
from bench.app_server import programs
from bench.servers import STOP_SECONDS, BenchError

# Threads are compacted now and then, so that their histories have an end, as in the world.
COMPACT_AT: Final = 40_000
NEVER: Final = 1_000_000_000
_KEPT: Final = ("PATH", "LANG", "PYTHONPATH", "PYTHONHOME", "TMPDIR")


@contextmanager
def home_for(model_url: str, *, compact_at: int = COMPACT_AT) -> Iterator[Path]:
    """A fresh one; its threads are compacted at so many tokens."""
    with TemporaryDirectory(prefix="treadle-soak-", ignore_cleanup_errors=True) as folder:
        home = Path(folder) / "home"
        (home / "work").mkdir(parents=True)
        settings = f"model_auto_compact_token_limit = {compact_at}\n"
        (home / "config.toml").write_text(settings + programs.config_for(model_url))
        yield home


@contextmanager
def running(home: Path) -> Iterator[tuple[str, int]]:
    """Its address and its pid."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    with (home.parent / "stderr").open("wb") as errors:
        child = subprocess.Popen(
            [*programs.ours().command[:-2], "--listen", "ws://127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=home / "work",
            env=kept | {"HOME": str(home), "TREADLE_HOME": str(home)},
            start_new_session=True,
        )
    assert child.stdout is not None
    try:
        url = child.stdout.readline().decode().strip()
        if not url:
            raise BenchError(f"the server did not start: {(home.parent / 'stderr').read_text()[-2000:]}")
        yield url, child.pid
    finally:
        everyone = family.members(child.pid)
        child.terminate()
        child.stdout.close()
        try:
            child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            print("bench: the server did not end in time; it is killed", file=sys.stderr)
        finally:
            family.kill(everyone)
            child.wait()
