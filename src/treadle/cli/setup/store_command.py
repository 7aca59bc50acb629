"""`treadle store`: looks after stored threads: back them up, delete what is old, copy them elsewhere, read them all."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final, TypeVar

import click

from treadle.cli.problem import Problem
from treadle.cli.streams import FAILED, REFUSED, write, write_stderr
from treadle.cli.terminal import table_lines
from treadle.cli.user_commands import user_command, user_group
from treadle.config import find_home, load_config
from treadle.pages.figures import moment, plural
from treadle.pages.safe_text import printable, printable_line
from treadle.store import Store, StoreError, UnusedThread, back_up, open_store, vacuum
from treadle.store.copying import CopyOutcome, copy_threads, digest, thread_ids

T = TypeVar("T")
_CODES: Final = {0: "done", 1: "it did not work, or was not confirmed", 2: "wrong usage"}
_HOURS: Final = {"h": 1, "d": 24, "w": 7 * 24}
_TITLE: Final = 60


@user_group(
    "store",
    more="""\
Threads are in threads.db of the home ($TREADLE_HOME, else $CODEX_HOME, else ~/.treadle), or where the setting `store`
says, such as postgres://USER@HOST/DATABASE.""",
    examples=(
        "treadle store backup /backups/monday",
        "treadle store prune --older-than 90d --dry-run",
        "treadle store vacuum",
        "treadle store copy ~/.treadle postgres://treadle@db/threads",
        "treadle store check",
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
    size = _done(lambda: back_up(_home_of_threads("pg_dump"), folder, keys=with_keys))
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
    before, after = _done(lambda: vacuum(_home_of_threads("VACUUM")))
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
    home, location = str(find_home(os.environ)), _existing(_location())

    async def look(store: Store) -> list[UnusedThread]:
        return await store.unused(before)

    async def delete(store: Store) -> int:
        from treadle.agent.thread.file_undo import forget_missing  # only when something is deleted

        deleted = [each for each in found if await store.delete_unused(each.id, before)]
        await forget_missing(home, store)
        await store.shrink()
        return len(deleted)

    found = _done(lambda: asyncio.run(_with_store(location, look)))
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
    deleted = _done(lambda: asyncio.run(_with_store(location, delete)))
    left = len(found) - deleted
    more = f"; {plural(left, 'thread')} left alone, which a server has in memory" if left else ""
    write(sys.stdout, f"{plural(deleted, 'thread')} deleted{more}\n")
    return 0


@user_command(
    "copy",
    summary="copy threads from one store into another, and compare them; servers may run",
    more="""\
FROM and TO are homes (folders) or URLs: sqlite:///HOME, postgres://USER@HOST/DATABASE. What is there already and the
same is left alone, so a copy that was stopped is finished by the same command. A thread that a server works on is left
out, and one that differs in TO is never touched: then the exit code is 1. Settings, keys and files of the home are not
copied.""",
    config=False,
    exit_codes={**_CODES, 1: "some threads were left out, or it did not work"},
    examples=("treadle store copy ~/.treadle postgres://treadle@db/threads",),
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
def copy_command(source: str, target: str) -> int:
    counts: Counter[CopyOutcome] = Counter()

    def report(thread_id: str, outcome: CopyOutcome) -> None:
        counts[outcome] += 1
        if outcome in ("in use", "differs"):
            reason = "is in use" if outcome == "in use" else f"differs in {printable(target)}, and was left as it is"
            write_stderr(f"{thread_id} {reason}")

    async def work() -> None:
        async with AsyncExitStack() as stack:
            stores = []
            for location in (_existing(source), target):
                stores.append(await open_store(location))
                stack.push_async_callback(stores[-1].close)
            await copy_threads(stores[0], stores[1], report)

    _done(lambda: asyncio.run(work()))
    write(sys.stdout, f"{plural(counts['copied'], 'thread')} copied, {counts['there']} there already\n")
    return FAILED if counts["in use"] or counts["differs"] else 0


@user_command(
    "check",
    summary="read every thread to its end, and say which of them are damaged; servers may run",
    config=False,
    exit_codes={**_CODES, 1: "something is damaged, or it did not work"},
    examples=("treadle store check", "treadle store check postgres://treadle@db/threads"),
)
@click.argument("store", required=False)
def check_command(store: str | None) -> int:
    async def work(opened: Store) -> tuple[int, int]:
        whole = broken = 0
        async for thread_id in thread_ids(opened):
            try:
                await digest(opened, thread_id)
                whole += 1
            except StoreError as error:
                if error.kind != "damaged":
                    raise
                broken += 1
                write_stderr(f"{thread_id}: {printable_line(error.message)}")
        return whole, broken

    whole, broken = _done(lambda: asyncio.run(_with_store(_existing(store or _location()), work)))
    write(sys.stdout, f"{plural(whole, 'thread')} whole, {broken} damaged\n")
    return FAILED if broken else 0


def _location() -> str:
    """Where the settings say that threads are."""
    home = find_home(os.environ)
    return load_config(home).config.store or str(home)


def _existing(location: str) -> str:
    """A store that is there: to look for threads must not make one."""
    home = location.removeprefix("sqlite://")
    if "://" not in home and not os.path.isfile(os.path.join(home, "threads.db")):
        raise Problem(f"there are no threads in {printable(home)}", do="set TREADLE_HOME to the home that is meant")
    return location


def _home_of_threads(instead: str) -> str:
    location = _location()
    if "://" in location:
        raise Problem(f"the threads are in {printable(location)}", do=f"use {instead}, as for any database there")
    return location


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


def _done(work: Callable[[], T]) -> T:
    try:
        return work()
    except StoreError as error:
        raise Problem(error.message) from None


def _size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


for _one in (backup, prune, vacuum_command, copy_command, check_command):
    command.add_command(_one)
