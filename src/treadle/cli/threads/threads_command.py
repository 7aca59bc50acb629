"""`treadle threads`: list, show, search, export, archive and delete conversations.

Nothing is deleted that was not confirmed.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import click

from treadle.cli.completion import complete_threads
from treadle.cli.own_process import start_logging
from treadle.cli.problem import Problem
from treadle.cli.streams import FAILED, REFUSED, write, write_stderr
from treadle.cli.terminal import Colors, console, is_terminal, wants_color
from treadle.cli.thread_choice import label
from treadle.cli.threads.page_output import FORMATS, Pager, check_target, export_file, page_for, page_pieces
from treadle.cli.threads.text_page import MAX_WIDTH, TextPage, markdown_for
from treadle.cli.threads.thread_library import ThreadLibrary, run_with_library
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
from treadle.errors import RpcError
from treadle.pages.figures import moment, plural
from treadle.pages.page import Heading, JsonPage, Page
from treadle.pages.safe_text import printable_line
from treadle.protocol.app.threads import Thread

_CODES: Final = {0: "done", 1: "there is no such thread, or it did not work", 2: "wrong usage or configuration"}
_WHICH: Final = """\
THREAD is an id of `treadle threads list`, the beginning or the end of one (4 characters or more), or the name of a
thread. On a terminal it can be left out: then you choose from a list."""
_CHANGE_CODES: Final = {**_CODES, 2: "wrong usage; nothing was changed"}
# As many are listed with numbers, where a terminal cannot move its cursor.
_NUMBERED: Final = 20
_WHICH_FEW: Final = "THREAD is an id, the beginning or end of one (4 characters or more), or a name."

_thread_argument: Final = click.argument("thread", required=False, shell_complete=complete_threads)
_threads_argument: Final = click.argument("threads", nargs=-1, metavar="THREAD...", shell_complete=complete_threads)
_last_option: Final = click.option("--last", is_flag=True, help="the thread that was used last")


@user_group(
    "threads",
    more="They are stored in the home of Treadle, whichever program or server made them.",
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
        "treadle threads show 4c2e90b7",
        "treadle threads show --last --json | jq",
    ),
)
@_thread_argument
@_last_option
@click.option("--json", "as_object", is_flag=True, help="the thread of the protocol with its turns, as JSON")
@color_option
def show(thread: str | None, last: bool, as_object: bool, color: str, config_overrides: tuple[str, ...]) -> int:
    words = _named_or_chosen(thread, last=last, overrides=config_overrides)

    async def work(library: ThreadLibrary) -> None:
        (found,) = await library.choose(words, last=last)
        if as_object:
            await _write_to_stdout(library, found, JsonPage())
        elif is_terminal(sys.stdout):
            painted = wants_color(color, sys.stdout, os.environ)
            width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
            page = TextPage(Colors(painted), markdown_for(width, colors=painted), hint=True)
            with Pager() as pager:
                await _write(library, found, page, pager.write)
        else:
            await _write_to_stdout(library, found, TextPage(Colors(wants_color(color, sys.stdout, os.environ))))

    run_with_library(work, config_overrides)
    return 0


def _named_or_chosen(thread: str | None, *, last: bool, overrides: Sequence[str]) -> list[str]:
    """The word for a thread: what was typed, else what a person chooses from a list, if one is there."""
    if thread or last or not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        return [thread] if thread else []
    title = "Which thread?"
    if is_terminal(sys.stdin) and is_terminal(sys.stderr):
        # prompt_toolkit takes 100 ms: loaded when somebody chooses
        from treadle.cli.chat.picker import pick, threads_to_pick

        cwd = str(Path.cwd())
        chosen = run_with_library(lambda library: pick(title, sys.stderr, **threads_to_pick(library, cwd)), overrides)
    else:
        newest = run_with_library(lambda library: library.newest(_NUMBERED), overrides)
        for number, each in enumerate(newest, 1):
            write_stderr(f"{number:3}  {printable_line(label(each))}")
        numbers = click.IntRange(1, len(newest))
        chosen = newest[click.prompt(title, type=numbers, err=True) - 1] if newest else None
    if chosen is None:
        raise click.Abort
    return [chosen.id]


async def _write(library: ThreadLibrary, thread: Thread, page: Page, out: Callable[[str], Any]) -> None:
    async with aclosing(page_pieces(library, await library.heading(thread), page)) as pieces:
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
        "treadle threads export 4c2e90b7 --format md > thread.md",
        "treadle threads export --last --format json | jq '.turns | length'",
    ),
)
@_thread_argument
@_last_option
@click.option("-f", "--format", "kind", type=click.Choice(FORMATS), help="else by the name of the file, else md")
@click.option("-o", "--output", metavar="FILE", help="where to; nothing or - is standard output")
@click.option("--force", is_flag=True, help="replace a file that is there")
def export(
    thread: str | None, last: bool, kind: str | None, output: str | None, force: bool, config_overrides: tuple[str, ...]
) -> int:
    target = None if output in (None, "-") else Path(output)
    page = page_for(kind, target)
    if target is not None:
        check_target(target, force=force)

    words = _named_or_chosen(thread, last=last, overrides=config_overrides)

    async def work(library: ThreadLibrary) -> None:
        (found,) = await library.choose(words, last=last)
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
    summary="archive threads: they stay stored, and are no longer listed",
    more=_WHICH_FEW,
    exit_codes=_CHANGE_CODES,
    examples=("treadle threads archive 4c2e90b7", "treadle threads list --archived"),
)
@_threads_argument
@_last_option
def archive(threads: tuple[str, ...], last: bool, config_overrides: tuple[str, ...]) -> int:
    return _move(threads, last, config_overrides, to_archive=True)


@user_command(
    "unarchive",
    summary="list archived threads again",
    more=_WHICH_FEW,
    exit_codes=_CHANGE_CODES,
    examples=("treadle threads unarchive 4c2e90b7",),
)
@_threads_argument
@_last_option
def unarchive(threads: tuple[str, ...], last: bool, config_overrides: tuple[str, ...]) -> int:
    return _move(threads, last, config_overrides, to_archive=False)


def _move(threads: Sequence[str], last: bool, overrides: Sequence[str], *, to_archive: bool) -> int:
    async def work(library: ThreadLibrary) -> None:
        if to_archive:
            await _each(await library.choose(threads, last=last, among="listed"), library.archive, "archived")
        else:
            await _each(await library.choose(threads, last=last, among="archived"), library.unarchive, "unarchived")

    run_with_library(work, overrides)
    return 0


@user_command(
    "delete",
    summary="delete threads for good",
    more=f"""\
{_WHICH_FEW} It asks first; where nobody can be asked, --yes is needed. Files that agents have changed stay.""",
    exit_codes=_CHANGE_CODES,
    examples=("treadle threads delete 4c2e90b7", "treadle threads delete --yes 4c2e90b7 91d0f3a2"),
)
@_threads_argument
@_last_option
@click.option("-y", "--yes", is_flag=True, help="do not ask")
def delete(threads: tuple[str, ...], last: bool, yes: bool, config_overrides: tuple[str, ...]) -> int:
    async def look(library: ThreadLibrary) -> list[tuple[Heading, int]]:
        chosen = await library.choose(threads, last=last)
        return [(await library.heading(thread), await library.sub_agents(thread.id)) for thread in chosen]

    async def work(library: ThreadLibrary) -> None:
        await _each([heading.thread for heading, _ in lost], library.delete, "deleted")

    lost = run_with_library(look, config_overrides)
    # Asked between the two: in an event loop Ctrl-C would not end a question.
    if not yes and not _confirmed(lost):
        write_stderr("nothing was deleted")
        return FAILED
    run_with_library(work, config_overrides)
    return 0


def _confirmed(lost: Sequence[tuple[Heading, int]]) -> bool:
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        raise Problem(
            f"{plural(len(lost), 'thread')} would be lost for good",
            why="nobody can be asked here",
            do="the same with --yes, or `treadle threads archive` to keep them out of sight",
            code=REFUSED,
        )
    write_stderr("This is lost for good, with all messages, outputs and token counts (files stay as they are):")
    for heading, agents in lost:
        facts = [plural(len(heading.turns), "turn"), f"begun {moment(heading.thread.created_at, heading.zone)}"]
        if agents:
            facts.append(f"with {plural(agents, 'sub-agent')}")
        write_stderr(f"  {printable_line(label(heading.thread))}  ({', '.join(facts)})")
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
