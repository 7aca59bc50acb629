"""`treadle threads archive`, `unarchive` and `delete`. Nothing is deleted that was not confirmed."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import click

from treadle.cli.exit_codes import FAILED, REFUSED
from treadle.cli.people import command as people_command
from treadle.cli.problem import Problem
from treadle.cli.streams import write, write_stderr
from treadle.cli.threads.figures import moment, plural
from treadle.cli.threads.page import Heading
from treadle.cli.threads.thread_choice import choose, label
from treadle.cli.threads.thread_completion import complete_threads
from treadle.cli.threads.thread_library import ThreadLibrary, run_with_library
from treadle.cli.visible import visible_line
from treadle.errors import RpcError
from treadle.protocol.app.threads import Thread

_CODES: Final = {0: "done", 1: "there is no such thread, or it did not work", 2: "wrong usage; nothing was changed"}
_WHICH: Final = "THREAD is an id, the beginning of one (4 characters or more), or a name."

_threads_argument: Final = click.argument("threads", nargs=-1, metavar="THREAD...", shell_complete=complete_threads)
_last_option: Final = click.option("--last", is_flag=True, help="the thread that was used last")


@people_command(
    "archive",
    summary="put threads away: they are kept, and no longer listed",
    more=_WHICH,
    exit_codes=_CODES,
    examples=("treadle threads archive 01a1e129", "treadle threads list --archived"),
)
@_threads_argument
@_last_option
def archive(threads: tuple[str, ...], last: bool, config_overrides: tuple[str, ...]) -> int:
    async def work(library: ThreadLibrary) -> None:
        found = await choose(library, threads, last=last, among="kept")
        await _each(found, library.archive, "archived")

    run_with_library(work, config_overrides)
    return 0


@people_command(
    "unarchive",
    summary="list threads again that were put away",
    more=_WHICH,
    exit_codes=_CODES,
    examples=("treadle threads unarchive 01a1e129",),
)
@_threads_argument
@_last_option
def unarchive(threads: tuple[str, ...], last: bool, config_overrides: tuple[str, ...]) -> int:
    async def work(library: ThreadLibrary) -> None:
        found = await choose(library, threads, last=last, among="archived")
        await _each(found, library.unarchive, "unarchived")

    run_with_library(work, config_overrides)
    return 0


@people_command(
    "delete",
    summary="delete threads for good",
    more=f"{_WHICH} It asks first; where nobody can be asked, --yes is needed. Files that agents have changed stay.",
    exit_codes=_CODES,
    examples=("treadle threads delete 01a1e129", "treadle threads delete --yes 01a1e129 01a1e12a"),
)
@_threads_argument
@_last_option
@click.option("-y", "--yes", is_flag=True, help="do not ask")
def delete(threads: tuple[str, ...], last: bool, yes: bool, config_overrides: tuple[str, ...]) -> int:
    async def look(library: ThreadLibrary) -> list[Heading]:
        return [await library.heading(thread) for thread in await choose(library, threads, last=last)]

    async def work(library: ThreadLibrary) -> None:
        await _each([heading.thread for heading in headings], library.delete, "deleted")

    headings = run_with_library(look, config_overrides)
    # Asked between the two: in an event loop Ctrl-C would not end a question.
    if not yes and not _confirmed(headings):
        write_stderr("nothing was deleted")
        return FAILED
    run_with_library(work, config_overrides)
    return 0


def _confirmed(headings: Sequence[Heading]) -> bool:
    if not _somebody_is_there():
        raise Problem(
            f"{plural(len(headings), 'thread')} would be lost for good",
            why="nobody can be asked here",
            do="the same with --yes, or `treadle threads archive` to keep them out of sight",
            code=REFUSED,
        )
    write_stderr("This is lost for good, with all messages, outputs and token counts (files stay as they are):")
    for heading in headings:
        begun = moment(heading.thread.created_at, heading.zone)
        write_stderr(f"  {visible_line(label(heading.thread))}  ({plural(len(heading.turns), 'turn')}, begun {begun})")
    return click.confirm("Delete?", default=False, err=True)


def _somebody_is_there() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


async def _each(threads: Sequence[Thread], act: Callable[[str], Awaitable[None]], done: str) -> None:
    for thread in threads:
        try:
            await act(thread.id)
        except RpcError as error:
            raise Problem(f"{label(thread)} could not be {done}", why=error.message) from None
        write(sys.stdout, f"{done} {visible_line(label(thread))}\n")
