"""`treadle threads`: list, show, search, export, archive and delete conversations.

Nothing is deleted that was not confirmed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from treadle.cli.figures import moment, plural
from treadle.cli.own_process import start_logging
from treadle.cli.problem import Problem
from treadle.cli.streams import FAILED, REFUSED, write, write_stderr
from treadle.cli.terminal import Colors, console, is_terminal, printable_line, wants_color
from treadle.cli.thread_choice import SHORT, label, title_of
from treadle.cli.threads.html_page import HtmlPage
from treadle.cli.threads.markdown_page import MarkdownPage
from treadle.cli.threads.page import Heading, JsonPage, Page
from treadle.cli.threads.page_output import Pager, check_target, export_file
from treadle.cli.threads.text_page import TextPage, markdown_for
from treadle.cli.threads.thread_library import ThreadLibrary, open_library, run_with_library
from treadle.cli.threads.thread_list import (
    Hit,
    Row,
    as_json,
    hits_as_json,
    hits_for_terminal,
    hits_in_lines,
    tab_lines,
    table,
)
from treadle.cli.user_commands import color_option, user_command, user_group
from treadle.cli.view_blocks import item_blocks
from treadle.config import find_home
from treadle.errors import RpcError, TreadleError
from treadle.protocol.app.threads import Thread

_CODES: Final = {0: "done", 1: "there is no such thread, or it did not work", 2: "wrong usage or configuration"}
_WHICH: Final = """\
THREAD is an id of `treadle threads list`, the beginning of one (4 characters or more), or the name of a thread."""
_CHANGE_CODES: Final = {**_CODES, 2: "wrong usage; nothing was changed"}
_WHICH_FEW: Final = "THREAD is an id, the beginning of one (4 characters or more), or a name."
_FORMATS: Final[dict[str, Callable[[], Page]]] = {"md": MarkdownPage, "json": JsonPage, "html": HtmlPage}
_SUFFIXES: Final = {".md": "md", ".markdown": "md", ".json": "json", ".html": "html", ".htm": "html"}
_MAX_WIDTH: Final = 100

# Threads that a shell offers where one is to be typed.
OFFERED: Final = 20


def complete_threads(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    """The newest threads with their titles, by short ids. Nothing when threads cannot be read: a shell has no place for
    a complaint."""
    if not find_home(os.environ).is_dir():  # nothing is made by pressing a key
        return []

    async def newest() -> list[Thread]:
        async with open_library() as library:
            return await library.newest(OFFERED, archived=ctx.command.name == "unarchive")

    try:
        threads = asyncio.run(newest())
    except (TreadleError, OSError):
        return []
    return [
        CompletionItem(thread.id[:SHORT], help=printable_line(title_of(thread)))
        for thread in threads
        if thread.id.startswith(typed.lower())
    ]


_thread_argument: Final = click.argument("thread", required=False, shell_complete=complete_threads)
_threads_argument: Final = click.argument("threads", nargs=-1, metavar="THREAD...", shell_complete=complete_threads)
_last_option: Final = click.option("--last", is_flag=True, help="the thread that was used last")


@user_group(
    "threads",
    more="They are kept in the home of Treadle, whichever program or server made them.",
    examples=(
        "treadle threads list",
        "treadle threads show --last",
        "treadle threads search flaky test",
        "treadle threads export --last -o thread.html",
    ),
)
def command() -> None:
    start_logging("error")


# --- list ---


@user_command(
    "list",
    summary="list threads, the one used last first",
    more="In a pipe: id, time of last use, title, directory, model, tokens and dollars, with tabs between them.",
    exit_codes={0: "done", 2: "wrong usage or configuration"},
    examples=("treadle threads list --cwd --limit 5", "treadle threads list --json | jq -r '.[].id'"),
)
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="how many")
@click.option("--cwd/--all", "here", default=False, help="those of this directory, or of all (the default)")
@click.option("--archived", is_flag=True, help="those that were archived")
@click.option("--json", "as_array", is_flag=True, help="one JSON array")
@color_option
def list_threads(
    limit: int, here: bool, archived: bool, as_array: bool, color: str, config_overrides: tuple[str, ...]
) -> int:
    cwd = str(Path.cwd()) if here else None

    async def work(library: ThreadLibrary) -> tuple[list[Row], bool]:
        threads = await library.newest(limit + 1, archived=archived, cwd=cwd)
        return [Row(thread, await library.usage(thread.id)) for thread in threads[:limit]], len(threads) > limit

    rows, more = run_with_library(work, config_overrides)
    if as_array:
        write(sys.stdout, as_json(rows))
    elif not is_terminal(sys.stdout):
        write(sys.stdout, tab_lines(rows))
    elif rows:
        with console(sys.stdout, color) as screen:
            screen.print(table(rows, screen.width, time.time(), os.path.expanduser("~")), end="")
        if more:
            write_stderr(f"there are more: treadle threads list --limit {limit * 5}")
    elif archived:
        write_stderr("nothing is archived")
    elif here:
        write_stderr("no thread of this directory; try --all")
    else:
        write_stderr('no threads yet; begin one: treadle exec "look around"')
    return 0


# --- show ---


@user_command(
    "show",
    summary="show a thread as text",
    more=f"{_WHICH} On a terminal a long one is read with $PAGER, or less.",
    exit_codes=_CODES,
    examples=(
        "treadle threads show --last",
        "treadle threads show 01a1e129",
        "treadle threads show --last --json | jq",
    ),
)
@_thread_argument
@_last_option
@click.option("--json", "as_object", is_flag=True, help="the thread of the protocol with its turns, as JSON")
@color_option
def show(thread: str | None, last: bool, as_object: bool, color: str, config_overrides: tuple[str, ...]) -> int:
    async def work(library: ThreadLibrary) -> None:
        (found,) = await library.choose([thread] if thread else [], last=last)
        if as_object:
            await _write_to_stdout(library, found, JsonPage())
        elif is_terminal(sys.stdout):
            painted = wants_color(color, sys.stdout, os.environ)
            width = min(shutil.get_terminal_size().columns, _MAX_WIDTH)
            page = TextPage(Colors(painted), markdown_for(width, colors=painted), hint=True)
            with Pager() as pager:
                await _write(library, found, page, pager.write)
        else:
            await _write_to_stdout(library, found, TextPage(Colors(wants_color(color, sys.stdout, os.environ))))

    run_with_library(work, config_overrides)
    return 0


async def page_pieces(library: ThreadLibrary, thread: Thread, page: Page) -> AsyncGenerator[str, None]:
    """A thread read page by page and written piece by piece."""
    heading = await library.heading(thread)
    yield page.head(heading)
    places = {turn.id: place for place, turn in enumerate(heading.turns)}
    at = -1  # the turn that is being written

    def up_to(place: int) -> str:
        """Ends the turn that is open, and begins those up to `place`: there may be some without items."""
        nonlocal at
        pieces = []
        for number in range(at + 1, place + 1):
            if number > 0:
                pieces.append(page.turn_ended(heading.turns[number - 1]))
            pieces.append(page.turn_begun(number + 1, heading.turns[number]))
        at = max(at, place)
        return "".join(pieces)

    async for turn_id, item in library.items(thread.id):
        if turn_id not in places:  # begun since the turns were read
            break
        yield up_to(places[turn_id])
        if isinstance(page, HtmlPage) and page.pictures.seen is None:
            pictures = [picture for block in item_blocks(item) for picture in getattr(block, "pictures", ())]
            if any(picture.path is not None for picture in pictures):
                page.pictures.seen = await library.seen_pictures(thread.id)
        yield page.item(item)
    if heading.turns:
        yield up_to(len(heading.turns) - 1)
        yield page.turn_ended(heading.turns[-1])
    yield page.foot()


async def _write(library: ThreadLibrary, thread: Thread, page: Page, out: Callable[[str], Any]) -> None:
    async with aclosing(page_pieces(library, thread, page)) as pieces:
        async for piece in pieces:
            out(piece)


async def _write_to_stdout(library: ThreadLibrary, thread: Thread, page: Page) -> None:
    await _write(library, thread, page, lambda piece: write(sys.stdout, piece))


# --- search ---


@user_command(
    "search",
    summary="find what was said, by you and by agents",
    more="A message is found when it holds all the words; in archived threads, when it holds them in this order.",
    exit_codes={0: "found", 1: "nothing found", 2: "wrong usage or configuration"},
    examples=("treadle threads search flaky test", "treadle threads search --json deadline | jq -r '.[].threadId'"),
)
@click.argument("words", nargs=-1, required=True)
@click.option("-n", "--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="how many")
@click.option("--archived", is_flag=True, help="in archived threads")
@click.option("--json", "as_array", is_flag=True, help="one JSON array")
@color_option
def search(
    words: tuple[str, ...], limit: int, archived: bool, as_array: bool, color: str, config_overrides: tuple[str, ...]
) -> int:
    term = " ".join(words)
    if not term.strip() or len(term) > 1000:
        raise Problem("give 1 to 1000 characters to look for", do="treadle threads search WORDS", code=REFUSED)

    async def work(library: ThreadLibrary) -> list[Hit]:
        if archived:
            return [Hit(one.thread, None, one.snippet) for one in await library.search_archived(term, limit)]
        threads: dict[str, Thread | None] = {}
        hits = []
        for hit in await library.search(term, limit):
            if hit.thread_id not in threads:
                threads[hit.thread_id] = await library.read(hit.thread_id)
            if (thread := threads[hit.thread_id]) is not None:  # else it was deleted since
                hits.append(Hit(thread, hit.item_id, hit.snippet, marked=True))
        return hits

    hits = run_with_library(work, config_overrides)
    if as_array:
        write(sys.stdout, hits_as_json(hits))
    elif hits and is_terminal(sys.stdout):
        with console(sys.stdout, color) as screen:
            screen.print(hits_for_terminal(hits, term, time.time()))
    else:
        write(sys.stdout, hits_in_lines(hits, term))
    if not hits:
        write_stderr("nothing found" + ("" if archived else "; archived threads are searched with --archived"))
    return 0 if hits else 1


# --- export ---


@user_command(
    "export",
    summary="write a thread as a web page, Markdown or JSON",
    more=f"""\
{_WHICH} The page needs nothing else, so it can be sent as it is. Keys that this machine knows, and what looks like
one, are taken out; the rest is as it was said. Long outputs are cut, except in JSON.""",
    exit_codes=_CODES,
    examples=(
        "treadle threads export --last -o thread.html",
        "treadle threads export 01a1e129 --format md > thread.md",
        "treadle threads export --last --format json | jq '.turns | length'",
    ),
)
@_thread_argument
@_last_option
@click.option(
    "-f", "--format", "kind", type=click.Choice(tuple(_FORMATS)), help="else by the name of the file, else md"
)
@click.option("-o", "--output", metavar="FILE", help="where to; nothing or - is standard output")
@click.option("--force", is_flag=True, help="replace a file that is there")
def export(
    thread: str | None, last: bool, kind: str | None, output: str | None, force: bool, config_overrides: tuple[str, ...]
) -> int:
    target = None if output in (None, "-") else Path(output)
    if kind is None and target is not None:
        kind = _SUFFIXES.get(target.suffix.lower())
        if kind is None:
            raise Problem(
                f"the name {target.name} does not tell the format",
                do="a name that ends in .html, .md or .json, or --format",
                code=REFUSED,
            )
    page = _FORMATS[kind or "md"]()
    if target is not None:
        check_target(target, force=force)

    async def work(library: ThreadLibrary) -> None:
        (found,) = await library.choose([thread] if thread else [], last=last)
        if target is None:
            await _write_to_stdout(library, found, page)
            return
        with export_file(target, force=force) as file:
            await _write(library, found, page, file.write)

    run_with_library(work, config_overrides)
    if target is not None:
        write_stderr(f"written: {target}")
    return 0


# --- archive, unarchive, delete ---


@user_command(
    "archive",
    summary="put threads away: they are kept, and no longer listed",
    more=_WHICH_FEW,
    exit_codes=_CHANGE_CODES,
    examples=("treadle threads archive 01a1e129", "treadle threads list --archived"),
)
@_threads_argument
@_last_option
def archive(threads: tuple[str, ...], last: bool, config_overrides: tuple[str, ...]) -> int:
    async def work(library: ThreadLibrary) -> None:
        found = await library.choose(threads, last=last, among="kept")
        await _each(found, library.archive, "archived")

    run_with_library(work, config_overrides)
    return 0


@user_command(
    "unarchive",
    summary="list archived threads again",
    more=_WHICH_FEW,
    exit_codes=_CHANGE_CODES,
    examples=("treadle threads unarchive 01a1e129",),
)
@_threads_argument
@_last_option
def unarchive(threads: tuple[str, ...], last: bool, config_overrides: tuple[str, ...]) -> int:
    async def work(library: ThreadLibrary) -> None:
        found = await library.choose(threads, last=last, among="archived")
        await _each(found, library.unarchive, "unarchived")

    run_with_library(work, config_overrides)
    return 0


@user_command(
    "delete",
    summary="delete threads for good",
    more=f"""\
{_WHICH_FEW} It asks first; where nobody can be asked, --yes is needed. Files that agents have changed stay.""",
    exit_codes=_CHANGE_CODES,
    examples=("treadle threads delete 01a1e129", "treadle threads delete --yes 01a1e129 01a1e12a"),
)
@_threads_argument
@_last_option
@click.option("-y", "--yes", is_flag=True, help="do not ask")
def delete(threads: tuple[str, ...], last: bool, yes: bool, config_overrides: tuple[str, ...]) -> int:
    async def look(library: ThreadLibrary) -> list[Heading]:
        return [await library.heading(thread) for thread in await library.choose(threads, last=last)]

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
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        raise Problem(
            f"{plural(len(headings), 'thread')} would be lost for good",
            why="nobody can be asked here",
            do="the same with --yes, or `treadle threads archive` to keep them out of sight",
            code=REFUSED,
        )
    write_stderr("This is lost for good, with all messages, outputs and token counts (files stay as they are):")
    for heading in headings:
        begun = moment(heading.thread.created_at, heading.zone)
        write_stderr(
            f"  {printable_line(label(heading.thread))}  ({plural(len(heading.turns), 'turn')}, begun {begun})"
        )
    return click.confirm("Delete?", default=False, err=True)


async def _each(threads: Sequence[Thread], act: Callable[[str], Awaitable[None]], done: str) -> None:
    for thread in threads:
        try:
            await act(thread.id)
        except RpcError as error:
            raise Problem(f"{label(thread)} could not be {done}", why=error.message) from None
        write(sys.stdout, f"{done} {printable_line(label(thread))}\n")


for _one in (list_threads, show, search, export, archive, unarchive, delete):
    command.add_command(_one)
