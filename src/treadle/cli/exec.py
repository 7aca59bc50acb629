"""`treadle exec "…"`: one turn on a server in this process, shown as it happens, in plain lines.

It owns the turn as a program: what comes in, which stream gets what, signals, the exit code. On a terminal everything
is shown there. For a script the answer alone goes to standard output, as it is, and the rest to standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from treadle.agent.event import Event
from treadle.agent.services import Ask
from treadle.cli.output import OutputFailed, write
from treadle.cli.paint import wants_color
from treadle.cli.process import FAILED, REFUSED, refuse, start_logging
from treadle.cli.prompt import read_prompt
from treadle.cli.settings_check import check_turn, refuse_settings
from treadle.cli.view import View
from treadle.config import ConfigError
from treadle.errors import INVALID_REQUEST, RpcError, TreadleError
from treadle.protocol.app.handshake import ClientInfo, InitializeParams
from treadle.protocol.app.inputs import TextUserInput
from treadle.protocol.app.items import AgentMessageThreadItem
from treadle.protocol.app.thread_methods import ThreadStartParams
from treadle.protocol.app.turns import Turn, TurnInterruptParams, TurnStartParams
from treadle.server.app import AppServer
from treadle.server.local import LocalClient

_NAME = "exec"
_MORE = """\
On a terminal everything is shown. Otherwise standard output gets the answer alone, standard error the rest.

exit codes:
  0 done   1 the turn failed   2 wrong usage or configuration   130 interrupted (143 by SIGTERM)

examples:
  treadle exec "explain what this project does"
  treadle exec --sandbox workspace-write "fix the failing test"
  git diff | treadle exec "write a commit message" > message.txt
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _MORE
    parser.add_argument(
        "prompt",
        nargs="?",
        help="what to do; what is piped in is appended to it. - or nothing: read it from standard input",
    )
    parser.add_argument("-C", "--cd", metavar="DIR", default=".", help="where to work (default: here)")
    parser.add_argument("-m", "--model", help="the model to use instead of the configured one")
    parser.add_argument(
        "-s",
        "--sandbox",
        choices=("read-only", "workspace-write", "danger-full-access"),
        help="what commands may do (default: as configured, else read-only)",
    )
    parser.add_argument(
        "-o", "--output-last-message", metavar="FILE", help="also write the answer to this file when the turn is done"
    )
    parser.add_argument("--ephemeral", action="store_true", help="do not keep the thread")
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="colours (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    start_logging("error")
    try:
        check_turn(_NAME, arguments.config_overrides, arguments.model)
        target = _target(arguments.output_last_message)
        if not os.path.isdir(arguments.cd):
            return refuse(_NAME, f"{arguments.cd} is no directory; give one with --cd", REFUSED)
        if sys.stdout is None and target is None:
            return refuse(_NAME, "standard output is closed: nobody would get the answer; use -o FILE", REFUSED)
        prompt = read_prompt(arguments.prompt)
        return asyncio.run(_run(arguments, prompt, os.path.abspath(arguments.cd), target))
    except ConfigError as error:
        return refuse_settings(_NAME, error)
    except OutputFailed as error:
        return refuse(_NAME, str(error), FAILED)
    except RpcError as error:
        return refuse(_NAME, error.message, REFUSED)
    except TreadleError as error:
        return refuse(_NAME, str(error), REFUSED)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _target(name: str | None) -> Path | None:
    """Where the answer goes too. What cannot be written later is said now, before a turn is paid for."""
    if name is None:
        return None
    path = Path(name).absolute()
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise TreadleError(f"{name} cannot be written: give a file in a directory that is there and yours to write")
    return path


async def _run(arguments: argparse.Namespace, prompt: str, cwd: str, target: Path | None) -> int:
    seen = sys.stdout is not None and sys.stdout.isatty()
    async with AppServer(overrides=arguments.config_overrides, cwd=cwd) as server:
        program = _Exec(server, _view_on_terminal(arguments.color) if seen else _view_beside(arguments.color))
        turn = await program.turn(arguments, prompt)
    if turn.status == "completed":
        answer = program.answer or ""
        if not seen and sys.stdout is not None:
            write(sys.stdout, answer if answer.endswith("\n") else f"{answer}\n")
        if target is not None:
            _keep(target, answer)
        return 0
    return 128 + program.signal if program.signal else FAILED


def _view_on_terminal(color: str) -> View:
    return View(lambda text: write(sys.stdout, text), color=wants_color(color, sys.stdout, os.environ))


def _view_beside(color: str) -> View:
    """On standard error, while the answer is for standard output. Who has closed it does not want to see anything."""
    stream = sys.stderr

    def show(text: str) -> None:
        nonlocal stream
        if stream is not None:
            try:
                write(stream, text)
            except OutputFailed:
                stream = None

    return View(show, color=wants_color(color, sys.stderr, os.environ), holds_answer=True)


def _keep(target: Path, answer: str) -> None:
    from treadle.config.atomic import replace_file

    try:
        replace_file(target, answer.encode("utf-8", "replace"), 0o644 & ~_umask())
    except OSError as error:
        raise OutputFailed(f"the answer could not be written to {target}: {error.strerror}") from None


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


class _Exec:
    def __init__(self, server: AppServer, view: View) -> None:
        self._view = view
        self._done: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        self._client: LocalClient = server.connect(self._told, self._asked)
        self.answer: str | None = None
        self.signal = 0  # the one that interrupted the turn

    async def turn(self, arguments: argparse.Namespace, prompt: str) -> Turn:
        client = self._client
        info = ClientInfo(name="treadle_exec", version="1")
        await client.request("initialize", InitializeParams(client_info=info))
        # Nobody is there to be asked.
        params = ThreadStartParams(
            approval_policy="never",
            model=arguments.model,
            sandbox=arguments.sandbox,
            ephemeral=arguments.ephemeral or None,
        )
        started = await client.request("thread/start", params)
        self._view.started(started)
        said = TurnStartParams(thread_id=started.thread.id, input=(TextUserInput(text=prompt),))
        turn_id = (await client.request("turn/start", said)).turn.id
        self._interrupt_on_signals(started.thread.id, turn_id)
        turn = await self._done
        self._view.ended(turn)
        return turn

    def _interrupt_on_signals(self, thread_id: str, turn_id: str) -> None:
        """The first Ctrl-C ends the turn in order, the second one ends the program."""
        loop = asyncio.get_running_loop()

        def requested(number: int) -> None:
            if self.signal:
                os._exit(128 + number)  # the helper process sees it and kills what is left
            self.signal = number
            self._show(lambda: self._view.note("interrupting; press Ctrl-C again to leave at once"))
            params = TurnInterruptParams(thread_id=thread_id, turn_id=turn_id)
            self._client.receive_now("turn/interrupt", params)

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, requested, number)

    def _told(self, event: Event) -> None:
        params: Any = event.params
        self._show(lambda: self._view.show(event.method, params))
        if event.method == "item/completed" and isinstance(params.item, AgentMessageThreadItem):
            self.answer = params.item.text
        if event.method == "turn/completed" and not self._done.done():
            self._done.set_result(params.turn)

    def _show(self, showing: Any) -> None:
        """We are called in the middle of the server's work, which is not to suffer from our output."""
        try:
            showing()
        except OutputFailed as error:
            if not self._done.done():
                self._done.set_exception(error)

    def _asked(self, ask: Ask) -> None:
        self._client.answer(ask.id, RpcError(INVALID_REQUEST, "nobody is there to be asked"))
