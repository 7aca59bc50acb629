"""`treadle queue`: leaves a message for a thread, or shows those that wait there. The words are those of `codex queue`.

A message waits in the store, for the next time that somebody has the thread in memory and no turn runs.
"""

from __future__ import annotations

import asyncio
import sys
import uuid

import click

from treadle.arguments import text_problem
from treadle.cli.completion import complete_threads
from treadle.cli.in_process import open_client
from treadle.cli.own_process import start_logging
from treadle.cli.problem import Problem
from treadle.cli.streams import REFUSED, write
from treadle.cli.thread_choice import find_threads, label, several_meant
from treadle.cli.user_commands import user_command
from treadle.errors import RpcError
from treadle.pages.safe_text import printable_line
from treadle.protocol.app.item_parts import TextUserInput
from treadle.protocol.app.thread_methods import ThreadQueueAddParams, ThreadQueueListParams

# More do not wait: the server takes a hundred.
_MOST = 100


@user_command(
    "queue",
    more="It is sent when the thread is resumed, in a chat or by `treadle exec resume`, or loaded by a server, and no "
    "turn runs. Without --message, what waits is listed. A thread that another program works on takes none from here.",
    exit_codes={0: "it waits, or listed", 1: "there is no such thread", 2: "wrong usage, or the thread is in use"},
    examples=('treadle queue --thread 01a1e129 --message "then run the tests"', "treadle queue --thread 01a1e129"),
)
@click.option(
    "--thread",
    required=True,
    metavar="THREAD",
    help="an id, the beginning or the end of one, or a name",
    shell_complete=complete_threads,
)
@click.option("--message", metavar="TEXT", help="what the agent is to do next")
def command(thread: str, message: str | None, config_overrides: tuple[str, ...]) -> int:
    start_logging("error")
    if message is not None and (problem := text_problem(message) or ("" if message.strip() else "is empty")):
        raise Problem("--message is no text", why=f"it {problem}", do='--message "…"', code=REFUSED)

    async def run() -> list[str]:
        async with open_client("treadle_queue", config_overrides) as client:
            meant = await find_threads(client, thread)
            if not meant:
                raise Problem(f"there is no thread {thread!r}", do="treadle threads list")
            if len(meant) > 1:
                raise several_meant(thread, meant)
            found = meant[0]
            if message is None:
                listed = await client.thread_queue_list(ThreadQueueListParams(thread_id=found.id, limit=_MOST))
                texts = [part.text for each in listed.data for part in each.input if isinstance(part, TextUserInput)]
                lines = [f"{number}  {text}" for number, text in enumerate(texts, 1)]
                return lines or [f"Nothing waits for {label(found)}"]
            items = (TextUserInput(text=message),)
            params = ThreadQueueAddParams(thread_id=found.id, client_user_message_id=str(uuid.uuid4()), input=items)
            try:
                await client.thread_queue_add(params)
            except RpcError as error:
                what, why = "the message was not taken", error.message
                raise Problem(what, why=why, do=f"treadle queue --thread {found.id}", code=REFUSED) from None
            return [f"It waits for {label(found)}", f"To send it now: treadle resume {found.id}"]

    write(sys.stdout, "".join(f"{printable_line(line)}\n" for line in asyncio.run(run())))
    return 0
