"""`treadle store`: looks after the database of a home: back it up, delete what is old, make it smaller."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import click

from treadle.cli.problem import Problem
from treadle.cli.streams import FAILED, REFUSED, write, write_stderr
from treadle.cli.terminal import table_lines
from treadle.cli.user_commands import user_command, user_group
from treadle.config import find_home
from treadle.pages.figures import moment, plural
from treadle.pages.safe_text import printable, printable_line
from treadle.store import Store, StoreError, UnusedThread, back_up, open_store, vacuum

T = TypeVar("T")
_CODES: Final = {0: "done", 1: "it did not work, or was not confirmed", 2: "wrong usage"}
_HOURS: Final = {"h": 1, "d": 24, "w": 7 * 24}
_TITLE: Final = 60


@user_group(
    "store",
    more="Threads are in threads.db of the home ($TREADLE_HOME, else $CODEX_HOME, else ~/.treadle).",
    examples=(
        "treadle store backup /backups/monday",
        "treadle store prune --older-than 90d --dry-run",
        "treadle store vacuum",
    ),
)
def command() -> int:
    return 0


@user_command(
    "backup",
    summary="copy threads, and what belongs to them, to a new folder; servers may run",
    more="""\
The folder is private, and whole once it is there. It can be used as a home: to restore it, end all servers and move it
into the place of the home, or set TREADLE_HOME to it. Keys and logins are not in it, unless they are asked for.""",
    config=False,
    exit_codes=_CODES,
    examples=("treadle store backup /backups/monday",),
)
@click.argument("folder", type=click.Path())
@click.option("--with-keys", is_flag=True, help="also the keys of providers and the logins to MCP servers")
def backup(folder: str, with_keys: bool) -> int:
    size = _done(lambda: back_up(_home(), folder, keys=with_keys))
    write(sys.stdout, f"{printable(folder)}: {_size(size)}\n")
    return 0


@user_command(
    "vacuum",
    summary="write the database anew without what was deleted; no server may run",
    config=False,
    exit_codes=_CODES,
    examples=("treadle store vacuum",),
)
def vacuum_command() -> int:
    before, after = _done(lambda: vacuum(_home()))
    write(sys.stdout, f"{_size(before)} before, {_size(after)} now\n")
    return 0


@user_command(
    "prune",
    summary="delete threads that nobody has used for a time; servers may run",
    more="""\
With each thread go the sub-agents that worked for it. What a server has in memory or works on is left alone, and so is
a thread of which a sub-agent was used since. It asks first; where nobody can be asked, --yes is needed. The space is
given back to the disk. To have servers do it, set retention.max_age_days.""",
    config=False,
    exit_codes=_CODES,
    examples=("treadle store prune --older-than 90d --dry-run", "treadle store prune --older-than 26w --yes"),
)
@click.option("--older-than", "age", required=True, metavar="AGE", help="such as 90d, 12w or 36h")
@click.option("--dry-run", is_flag=True, help="only say what would be deleted")
@click.option("-y", "--yes", is_flag=True, help="do not ask")
def prune(age: str, dry_run: bool, yes: bool) -> int:
    given = re.fullmatch(r"([0-9]{1,6})([hdw])", age)
    if given is None or not int(given[1]):
        raise Problem(f"{age!r} is no age", do="treadle store prune --older-than 90d", code=REFUSED)
    before = int((time.time() - int(given[1]) * _HOURS[given[2]] * 3600) * 1000)
    home = _home()
    if not os.path.isfile(os.path.join(home, "threads.db")):
        raise Problem(f"there are no threads in {home}", do="set TREADLE_HOME to the home that is meant")

    async def look(store: Store) -> list[UnusedThread]:
        return await store.unused(before)

    async def delete(store: Store) -> int:
        from treadle.agent.thread.file_undo import forget_missing  # only when something is deleted

        deleted = [each for each in found if await store.delete_unused(each.id, before)]
        await forget_missing(home, store)
        await store.shrink()
        return len(deleted)

    found = _done(lambda: asyncio.run(_with_store(home, look)))
    if not found:
        write(sys.stdout, f"no thread is unused for {age}\n")
        return 0
    if dry_run or not yes:
        rows = []
        for each in found:
            agents = f" (and {plural(each.agents, 'sub-agent')})" if each.agents else ""
            rows.append((each.id, moment(each.used_at / 1000), printable_line(each.title)[:_TITLE] + agents))
        write(sys.stdout if dry_run else sys.stderr, "\n".join(table_lines(rows)) + "\n")
    if dry_run:
        write(sys.stdout, f"{plural(len(found), 'thread')} would be deleted\n")
        return 0
    if not yes and not _confirmed(len(found)):
        write_stderr("nothing was deleted")
        return FAILED
    # Asked between the two: in an event loop Ctrl-C would not end a question.
    deleted = _done(lambda: asyncio.run(_with_store(home, delete)))
    left = len(found) - deleted
    more = f"; {plural(left, 'thread')} left alone, which a server has in memory" if left else ""
    write(sys.stdout, f"{plural(deleted, 'thread')} deleted{more}\n")
    return 0


async def _with_store(home: str, work: Callable[[Store], Awaitable[T]]) -> T:
    store = await open_store(home)
    try:
        return await work(store)
    finally:
        await store.close()


def _confirmed(number: int) -> bool:
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        raise Problem(
            f"{plural(number, 'thread')} would be lost for good",
            why="nobody can be asked here",
            do="the same with --dry-run, and then with --yes",
            code=REFUSED,
        )
    return click.confirm(f"{plural(number, 'thread')} are lost for good. Delete?", default=False, err=True)


def _home() -> str:
    return str(find_home(os.environ))


def _done(work: Callable[[], T]) -> T:
    try:
        return work()
    except StoreError as error:
        raise Problem(error.message) from None


def _size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


for _one in (backup, prune, vacuum_command):
    command.add_command(_one)
