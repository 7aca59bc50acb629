"""`treadle threads`: the commands that look at conversations. Those that change them are in `changing`."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import click

from treadle.cli.exit_codes import REFUSED
from treadle.cli.people import color_option
from treadle.cli.people import command as people_command
from treadle.cli.people import group as people_group
from treadle.cli.problem import Problem
from treadle.cli.server_process import start_logging
from treadle.cli.streams import write, write_stderr
from treadle.cli.terminal import Colors, console, is_terminal, wants_color
from treadle.cli.threads import changing
from treadle.cli.threads.export_file import check_target, export_file
from treadle.cli.threads.html.html_page import HtmlPage
from treadle.cli.threads.json_page import JsonPage
from treadle.cli.threads.markdown_page import MarkdownPage
from treadle.cli.threads.page import Page
from treadle.cli.threads.page_writing import page_pieces
from treadle.cli.threads.pager import Pager
from treadle.cli.threads.search_view import Hit, hits_as_json, hits_for_terminal, hits_in_lines
from treadle.cli.threads.text_page import TextPage, markdown_for
from treadle.cli.threads.thread_choice import choose
from treadle.cli.threads.thread_completion import complete_threads
from treadle.cli.threads.thread_library import ThreadLibrary, run_with_library
from treadle.cli.threads.thread_table import Row, as_json, tab_lines, table
from treadle.protocol.app.threads import Thread

_CODES: Final = {0: "done", 1: "there is no such thread, or it did not work", 2: "wrong usage or configuration"}
_WHICH: Final = """\
THREAD is an id of `treadle threads list`, the beginning of one (4 characters or more), or the name of a thread."""
_FORMATS: Final[dict[str, Callable[[], Page]]] = {"md": MarkdownPage, "json": JsonPage, "html": HtmlPage}
_SUFFIXES: Final = {".md": "md", ".markdown": "md", ".json": "json", ".html": "html", ".htm": "html"}
_MAX_WIDTH: Final = 100

_thread_argument: Final = click.argument("thread", required=False, shell_complete=complete_threads)
_last_option: Final = click.option("--last", is_flag=True, help="the thread that was used last")


@people_group(
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


@people_command(
    "list",
    summary="list threads, the one used last first",
    more="In a pipe: id, time of last use, title, directory, model, tokens and dollars, with tabs between them.",
    exit_codes={0: "done", 2: "wrong usage or configuration"},
    examples=("treadle threads list --cwd --limit 5", "treadle threads list --json | jq -r '.[].id'"),
)
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="how many")
@click.option("--cwd/--all", "here", default=False, help="those of this directory, or of all (the default)")
@click.option("--archived", is_flag=True, help="those that were put away")
@click.option("--json", "as_array", is_flag=True, help="one JSON array")
@color_option
def list_threads(
    limit: int, here: bool, archived: bool, as_array: bool, color: str, config_overrides: tuple[str, ...]
) -> int:
    cwd = str(Path.cwd()) if here else None

    async def work(library: ThreadLibrary) -> tuple[list[Row], bool]:
        threads = await library.newest_few(limit + 1, archived=archived, cwd=cwd)
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
    else:
        write_stderr(_none_yet(here, archived))
    return 0


def _none_yet(here: bool, archived: bool) -> str:
    if archived:
        return "nothing is archived"
    return "no thread of this directory; try --all" if here else 'no threads yet; begin one: treadle exec "look around"'


# --- show ---


@people_command(
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
        (found,) = await choose(library, [thread] if thread else [], last=last)
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


async def _write(library: ThreadLibrary, thread: Thread, page: Page, out: Callable[[str], Any]) -> None:
    async with aclosing(page_pieces(library, thread, page)) as pieces:
        async for piece in pieces:
            out(piece)


async def _write_to_stdout(library: ThreadLibrary, thread: Thread, page: Page) -> None:
    await _write(library, thread, page, lambda piece: write(sys.stdout, piece))


# --- search ---


@people_command(
    "search",
    summary="find what was said, by you and by agents",
    more="A message is found when it holds all the words; in archived threads, when it holds them in this order.",
    exit_codes={0: "found", 1: "nothing found", 2: "wrong usage or configuration"},
    examples=("treadle threads search flaky test", "treadle threads search --json deadline | jq -r '.[].threadId'"),
)
@click.argument("words", nargs=-1, required=True)
@click.option("-n", "--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="how many")
@click.option("--archived", is_flag=True, help="in threads that were put away")
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
        return await _hits(library, term, limit)

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


async def _hits(library: ThreadLibrary, term: str, limit: int) -> list[Hit]:
    threads: dict[str, Thread | None] = {}
    hits = []
    for hit in await library.search(term, limit):
        if hit.thread_id not in threads:
            threads[hit.thread_id] = await library.read(hit.thread_id)
        if (thread := threads[hit.thread_id]) is not None:  # else it was deleted since
            hits.append(Hit(thread, hit.item_id, hit.snippet, marked=True))
    return hits


# --- export ---


@people_command(
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
    page = _FORMATS[kind or _format_of(target)]()
    if target is not None:
        check_target(target, force=force)

    async def work(library: ThreadLibrary) -> None:
        (found,) = await choose(library, [thread] if thread else [], last=last)
        if target is None:
            await _write_to_stdout(library, found, page)
            return
        with export_file(target, force=force) as file:
            await _write(library, found, page, file.write)

    run_with_library(work, config_overrides)
    if target is not None:
        write_stderr(f"written: {target}")
    return 0


def _format_of(target: Path | None) -> str:
    if target is None:
        return "md"
    found = _SUFFIXES.get(target.suffix.lower())
    if found is None:
        raise Problem(
            f"the name {target.name} does not tell the format",
            do="a name that ends in .html, .md or .json, or --format",
            code=REFUSED,
        )
    return found


for _one in (list_threads, show, search, export, changing.archive, changing.unarchive, changing.delete):
    command.add_command(_one)
