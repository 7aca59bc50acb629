"""A PostgreSQL of the tests' own: a cluster in a temporary folder, on a socket there, gone afterwards. The system's
clusters are not touched. Where PostgreSQL is not installed, tests that want one say "skipped"."""

from __future__ import annotations

import copy
import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

_SETTINGS = {
    "listen_addresses": "''",
    "max_connections": "300",
    "shared_buffers": "64MB",
    "log_min_messages": "panic",
}


def programs() -> Path | None:
    """The folder of the server's programs, the newest where there are several."""
    found = shutil.which("initdb")
    folders = [os.path.dirname(os.path.realpath(found))] if found else glob.glob("/usr/lib/postgresql/*/bin")
    return Path(max(folders, key=lambda folder: (len(folder), folder))) if folders else None


class Postgres:
    """One cluster. `fsync` only where a test is about what a crash leaves."""

    def __init__(self, folder: Path, *, fsync: bool = False) -> None:
        found = programs()
        assert found is not None
        self.folder = folder
        self._programs = found
        self._data = folder / "data"
        # PostgreSQL refuses to run as root.
        self._user = "nobody" if os.geteuid() == 0 else None
        if self._user is not None:
            account = pwd.getpwnam(self._user)
            os.chown(folder, account.pw_uid, account.pw_gid)
        options = ["-U", "treadle", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"]
        self._run("initdb", *options, "-D", str(self._data))
        settings = {**_SETTINGS, "unix_socket_directories": f"'{folder}'", "fsync": "on" if fsync else "off"}
        with (self._data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), *arguments],
            user=self._user,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=120,
            cwd=self.folder,
            check=False,
        )
        assert done.returncode == 0, done.stdout

    def start(self) -> None:
        # The log is a file: a server that inherits a pipe would keep it open.
        self._run("pg_ctl", "-D", str(self._data), "-l", str(self.folder / "log"), "-w", "-t", "60", "start")

    def stop(self, mode: str = "immediate") -> None:
        """`immediate` is as if it had crashed; `fast` ends its connections in order."""
        self._run("pg_ctl", "-D", str(self._data), "-m", mode, "-w", "-t", "60", "stop")

    def standby(self, folder: Path) -> Postgres:
        """A copy that follows this one, in a folder that is there; not started."""
        other = copy.copy(self)
        other.folder, other._data = folder, folder / "data"
        if self._user is not None:
            os.chown(folder, pwd.getpwnam(self._user).pw_uid, -1)
        source = ["-h", str(self.folder), "-U", "treadle"]
        self._run("pg_basebackup", *source, "-D", str(other._data), "-R", "-X", "stream")
        with (other._data / "postgresql.auto.conf").open("a") as file:
            file.write(f"unix_socket_directories = '{folder}'\n")
        return other

    def promote(self) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-w", "promote")

    def url(self, schema: str = "treadle") -> str:
        return f"postgres://treadle@/postgres?host={quote(str(self.folder), safe='')}&schema={schema}"


@contextmanager
def running_postgres(*, fsync: bool = False) -> Iterator[Postgres]:
    if programs() is None:
        pytest.skip("PostgreSQL is not installed (apt install postgresql)")
    pytest.importorskip("asyncpg")
    # Not in pytest's folders, which only their user may enter.
    with tempfile.TemporaryDirectory(prefix="treadle-postgres-", ignore_cleanup_errors=True) as folder:
        server = Postgres(Path(folder), fsync=fsync)
        server.start()
        try:
            yield server
        finally:
            server.stop()
