"""What a shell offers where a thread is to be typed: the newest ones, with their titles."""

from __future__ import annotations

import asyncio
import os
from typing import Final

import click
from click.shell_completion import CompletionItem

from treadle.cli.threads.page import title_of
from treadle.cli.threads.thread_choice import SHORT
from treadle.cli.threads.thread_library import open_library
from treadle.cli.visible import visible_line
from treadle.config import find_home
from treadle.errors import TreadleError
from treadle.protocol.app.threads import Thread

OFFERED: Final = 20


def complete_threads(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Short ids. Nothing when threads cannot be read: a shell has no place for a complaint."""
    if not find_home(os.environ).is_dir():  # nothing is made by pressing a key
        return []
    try:
        threads = asyncio.run(_newest(archived=ctx.command.name == "unarchive"))
    except (TreadleError, OSError):
        return []
    return [
        CompletionItem(thread.id[:SHORT], help=visible_line(title_of(thread)))
        for thread in threads
        if thread.id.startswith(typed.lower())
    ]


async def _newest(archived: bool) -> list[Thread]:
    async with open_library() as library:
        return await library.newest_few(OFFERED, archived=archived)
