"""What `treadle doctor` looks at: Python, git, the home, the settings, the database of threads, and the providers.

Each function gives `Check`s: what was found, and what to type if it is not as it should be. The sandbox and the engines
are tried out instead: see `trials`.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from treadle.agent.model_failures import advice
from treadle.cli.setup.provider_status import ProviderKey, ask_tiny, provider_keys
from treadle.config import Config, ConfigError, Login, ModelUnusable, find_home, load_config
from treadle.config.login import StoredKeys
from treadle.llm import ModelError
from treadle.store import open_store
from treadle.store.contract import StoreError
from treadle.store.sqlite import schema
from treadle.store.sqlite.failures import failure
from treadle.store.sqlite.sqlite_store import FILE_NAME

Verdict: TypeAlias = Literal["ok", "warning", "failed", "skipped"]
MARKS: Final[dict[str, str]] = {"ok": "✓", "warning": "!", "failed": "✗", "skipped": "–"}
OLDEST: Final = (3, 11)
# With less than `_LITTLE`, the next long conversation may not fit; with less than `_TOO_LITTLE`, the next turn.
_LITTLE: Final = 1 << 30
_TOO_LITTLE: Final = 64 << 20
# They hold keys.
_PRIVATE: Final = ("auth.json", "keys.json", "config.toml", "threads.db")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
# A writer has the database for milliseconds.
_BUSY_S: Final = 1.0
# A database of gigabytes takes longer than anybody waits for; what was read until then counts.
_READING_S: Final = 5.0
_STEPS: Final = 100_000


class Check(msgspec.Struct, frozen=True):
    """One thing that was checked.

    Args:
        what: What it is, and what was found.
        verdict: The outcome.
        advice: What to do about it.
        detail: More about it, a line each.
        seconds: How long it took, where that is worth knowing.
    """

    what: str
    verdict: Verdict = "ok"
    advice: str | None = None
    detail: list[str] = []
    seconds: float | None = None


# --- the machine ---


def check_python() -> Check:
    version = sys.version.split()[0]
    if sys.version_info < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        return Check(f"Python {version} is older than {wanted}", "failed", f"install Python {wanted} or newer")
    return Check(f"Python {version} at {sys.executable}")


def check_git() -> Check:
    path = shutil.which("git")
    if path is None:
        return Check("git is not installed: projects have no branches", "warning", "sudo apt install git")
    return Check(f"git at {path}")


def check_home() -> Iterator[Check]:
    """Whether the home can be written, is closed to others, and has room."""
    try:
        home = find_home(os.environ)
    except ConfigError as error:
        yield Check(str(error), "failed", "export TREADLE_HOME=~/.treadle")
        return
    if not home.exists():
        made_in = next(parent for parent in home.parents if parent.exists())
        if os.access(made_in, os.W_OK):
            yield Check(f"home {home}: made when it is first needed")
        else:
            yield _unwritable(f"home {home} cannot be made")
        yield from _room(made_in)
        return
    try:
        with tempfile.TemporaryFile(dir=home):
            yield Check(f"home {home} can be written")
    except OSError as error:
        yield _unwritable(f"home {home} cannot be written: {error.strerror}")
    # Others get at the files of a home only if they get into it.
    if home.stat().st_mode & _OTHERS:
        found = [path for name in _PRIVATE if (path := home / name).exists() and path.stat().st_mode & _OTHERS]
        if found:
            names = ", ".join(path.name for path in found)
            mend = f"chmod 700 {home}; chmod 600 " + " ".join(map(str, found))
            yield Check(f"other users of this machine can read {names} in {home}", "warning", mend)
    yield from _room(home)


def _unwritable(what: str) -> Check:
    return Check(what, "failed", "set TREADLE_HOME to a folder of yours: export TREADLE_HOME=~/.treadle")


def _room(folder: Path) -> Iterator[Check]:
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return  # whether it can be used at all was reported before
    shown = f"{free / (1 << 30):.1f} GB" if free >= _LITTLE else f"{free >> 20} MB"
    if free < _TOO_LITTLE:
        yield Check(f"the disk of the home is full: {shown} left", "failed", f"make room: du -sh {folder}/*")
    elif free < _LITTLE:
        yield Check(f"the disk of the home is nearly full: {shown} left", "warning", f"make room: du -sh {folder}/*")
    else:
        yield Check(f"{shown} free for threads")


def check_settings(overrides: Sequence[str]) -> Check:
    """Whether the settings can be used."""
    try:
        loaded = load_config(find_home(os.environ), overrides=overrides)
    except ConfigError as error:
        problems = [str(problem) for problem in error.problems]
        return Check("the settings cannot be used", "failed", "correct them, then: treadle config check", problems)
    warnings = [str(warning) for warning in loaded.warnings]
    if warnings:
        return Check("the settings can be read, with warnings", "warning", "treadle config check", warnings)
    return Check("the settings can be read")


# --- the database ---


async def check_store(location: str) -> Check:
    """Whether the store that the settings name opens, and who else has it open."""
    began = time.monotonic()
    try:
        store = await open_store(location)
        try:
            servers = [server for server in await store.servers() if server.alive]
        finally:
            await store.close()
    except StoreError as error:
        return Check("the store of threads cannot be used", "failed", "look at `store` in the settings", [str(error)])
    others = len(servers) - 1
    who = "nobody else has it open" if not others else f"open in {others} more"
    return Check(f"store {store.location}: {who}", seconds=time.monotonic() - began)


def check_database(home: Path) -> Check:
    """Whether the database of threads opens, is whole and can be written; and which process keeps it from that."""
    path = home / FILE_NAME
    if not path.exists():
        return Check("no threads yet: their database is made with the first one")
    began = time.monotonic()
    try:
        with closing(sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)) as connection:
            return _examine_database(connection, path, began)
    except (sqlite3.Error, StoreError) as error:
        found = failure(error, str(path))
        if found.kind == "busy":
            holders = [f"process {pid}: {words}" for pid, words in open_by(path)]
            what_to_do = (
                "end the one that hangs (kill PID), or wait for it" if holders else f"fuser -v {path} names who has it"
            )
            return Check(f"{path} is locked by another process", "failed", what_to_do, holders)
        mend = f"look at it: ls -l {path}; or move it away, and Treadle makes a new one: mv {path} {path}.old"
        return Check("the database of threads cannot be used", "failed", mend, [str(found)])


def _examine_database(connection: sqlite3.Connection, path: Path, began: float) -> Check:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    known = len(schema.migrations())
    if int(connection.execute("PRAGMA application_id").fetchone()[0]) != schema.APPLICATION_ID:
        mend = f"mv {path} {path}.other, and Treadle makes a new one"
        return Check(f"{path} is the database of another program", "failed", mend)
    if version > known:
        what = f"{path} was written by a newer Treadle (format {version}, known here is {known})"
        return Check(what, "failed", "install the newer version again: pip install --upgrade treadle")
    connection.execute("BEGIN IMMEDIATE")  # whether anybody holds it; nothing is written
    connection.execute("ROLLBACK")
    problems, complete = _damage(connection, began + _READING_S)
    if problems:
        mend = f"end all servers, then: sqlite3 {path} .recover | sqlite3 recovered.db"
        return Check(f"{path} is damaged", "failed", mend, problems)
    threads = int(connection.execute("SELECT count(*) FROM threads").fetchone()[0])
    counted = "1 thread" if threads == 1 else f"{threads} threads"
    size = path.stat().st_size / (1 << 20)
    whole = "whole" if complete else f"whole as far as {_READING_S:.0f} s of reading show"
    return Check(f"database {path}: {counted}, {size:.1f} MB, {whole}", seconds=time.monotonic() - began)


def _damage(connection: sqlite3.Connection, deadline: float) -> tuple[list[str], bool]:
    """What is damaged, and whether all of it was looked at."""
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    try:
        found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)")]
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_INTERRUPT:
            raise
        return [], False
    finally:
        connection.set_progress_handler(None, 0)
    return [line for line in found if line != "ok"], True


def open_by(path: Path) -> Iterator[tuple[int, str]]:
    """The processes that have a file open, as far as this user may see it, with their command lines."""
    wanted = os.path.realpath(path)
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        try:
            with os.scandir(f"/proc/{name}/fd") as entries:
                files = {os.readlink(entry.path) for entry in entries}
        except OSError:  # it has ended, or is another user's
            continue
        if wanted in files:
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            except OSError:
                words = [b"(it has ended)"]
            yield int(name), b" ".join(words[:4]).decode("utf-8", "replace")[:80]


# --- the providers ---


async def check_providers(overrides: Sequence[str], *, online: bool) -> AsyncIterator[Check]:
    """Whether providers have a key and, with `online`, answer a tiny request: the one in use first, then those that
    somebody has configured or has a key for."""
    try:
        config = load_config(find_home(os.environ), overrides=overrides).config
    except ConfigError as error:
        verdict: Verdict = "failed" if isinstance(error, ModelUnusable) else "skipped"
        yield Check("which provider is used is not known", verdict, "correct the settings: treadle config check")
        return
    if (warning := Login(config.home).warning()) is not None:
        yield Check(warning, "failed", "treadle login openai")
    stored = StoredKeys(config.home)
    try:
        stored.check()
    except ConfigError as error:
        yield Check(str(error), "failed", f"mv {stored.path} {stored.path}.old; treadle login PROVIDER")
    if config.is_offline:
        yield Check(
            "none: the offline model answers, with a fixed script", "skipped", "to use a real one: treadle login"
        )
    for key in sorted(provider_keys(config, os.environ), key=lambda key: not key.used):
        if not key.used and key.source is None and key.provider not in config.document.get("model_providers", {}):
            continue
        has_key = _check_key(key, config)
        yield has_key
        if not online or has_key.verdict != "ok" or key.provider not in config.providers:
            continue
        provider = config.providers[key.provider]
        try:
            answer = await ask_tiny(provider, config)
            yield Check(f"{key.provider}: {answer.what}", seconds=answer.seconds)
        except ModelError as error:
            what = f"{key.provider} does not answer: {error.message}"
            yield Check(what, "failed", advice(error.kind, provider))


def _check_key(key: ProviderKey, config: Config) -> Check:
    name = f"{key.provider} (in use)" if key.used else key.provider
    if key.provider not in config.providers:
        mend = f"treadle config set model_providers.{key.provider}.base_url URL, or: treadle logout {key.provider}"
        return Check(f"{name}: there is a key, but nobody says where its server is", "warning", mend)
    if key.source is not None:
        return Check(f"{name}: key in {key.where}")
    if not key.needs_key:
        return Check(f"{name}: needs no key")
    mend = advice("unauthorized", config.providers[key.provider])
    return Check(f"{name}: there is no key", "failed" if key.used else "warning", mend)
