"""`treadle exec "…"`: one turn on a server in this process, shown as it happens, in plain lines."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from typing import Any

from treadle.agent.event import Event
from treadle.agent.services import Ask
from treadle.cli.lines import Lines
from treadle.cli.process import refuse, start_logging
from treadle.cli.settings_check import check_turn, refuse_settings
from treadle.config import ConfigError
from treadle.errors import INVALID_REQUEST, RpcError, TreadleError
from treadle.protocol.app.handshake import ClientInfo, InitializeParams
from treadle.protocol.app.inputs import TextUserInput
from treadle.protocol.app.thread_methods import ThreadStartParams
from treadle.protocol.app.turns import Turn, TurnInterruptParams, TurnStartParams
from treadle.server.app import AppServer
from treadle.server.local import LocalClient

_NAME = "exec"
_EXAMPLES = """\
examples:
  treadle exec "explain what this project does"
  treadle exec --sandbox workspace-write "fix the failing test"
  git diff | treadle exec -
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument("prompt", nargs="?", default="-", help="what to do; - or nothing: read it from standard input")
    parser.add_argument("-C", "--cd", metavar="DIR", default=".", help="where to work (default: here)")
    parser.add_argument("-m", "--model", help="the model to use instead of the configured one")
    parser.add_argument(
        "-s",
        "--sandbox",
        choices=("read-only", "workspace-write", "danger-full-access"),
        help="what commands may do (default: as configured, else read-only)",
    )
    parser.add_argument("--ephemeral", action="store_true", help="do not keep the thread")
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="colours (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    start_logging("error")
    try:
        check_turn(_NAME, arguments.config_overrides, arguments.model)
        prompt = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
        if not prompt.strip():
            return refuse(_NAME, 'there is nothing to do: give a prompt, as in `treadle exec "explain this project"`')
        if not os.path.isdir(arguments.cd):
            return refuse(_NAME, f"{arguments.cd} is no directory; give one with --cd")
        return asyncio.run(_run(arguments, prompt, os.path.abspath(arguments.cd)))
    except ConfigError as error:
        return refuse_settings(_NAME, error)
    except RpcError as error:
        return refuse(_NAME, error.message)
    except TreadleError as error:
        return refuse(_NAME, str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left in the buffer has nowhere to go
        return 1
    except KeyboardInterrupt:
        return 130


async def _run(arguments: argparse.Namespace, prompt: str, cwd: str) -> int:
    lines = Lines(sys.stdout, color=_wants_color(arguments.color))
    async with AppServer(overrides=arguments.config_overrides, cwd=cwd) as server:
        return await _Exec(server, lines).turn(arguments, prompt)


def _wants_color(asked: str) -> bool:
    if asked != "auto":
        return asked == "always"
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class _Exec:
    def __init__(self, server: AppServer, lines: Lines) -> None:
        self._lines = lines
        self._done: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        self._client: LocalClient = server.connect(self._told, self._asked)

    async def turn(self, arguments: argparse.Namespace, prompt: str) -> int:
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
        self._lines.started(started)
        said = TurnStartParams(thread_id=started.thread.id, input=(TextUserInput(text=prompt),))
        turn_id = (await client.request("turn/start", said)).turn.id
        self._interrupt_on_signal(started.thread.id, turn_id)
        turn = await self._done
        self._lines.ended(turn)
        return 0 if turn.status == "completed" else 1

    def _interrupt_on_signal(self, thread_id: str, turn_id: str) -> None:
        """The first Ctrl-C ends the turn in order, the second one ends the program."""
        loop = asyncio.get_running_loop()

        def requested() -> None:
            loop.remove_signal_handler(signal.SIGINT)
            self._lines.note("interrupting; press Ctrl-C again to leave at once")
            params = TurnInterruptParams(thread_id=thread_id, turn_id=turn_id)
            self._client.receive_now("turn/interrupt", params)

        loop.add_signal_handler(signal.SIGINT, requested)

    def _told(self, event: Event) -> None:
        params: Any = event.params
        try:
            self._lines.show(event.method, params)
        except BrokenPipeError as error:  # whoever read our output has seen enough
            if not self._done.done():
                self._done.set_exception(error)
            return
        if event.method == "turn/completed" and not self._done.done():
            self._done.set_result(params.turn)

    def _asked(self, ask: Ask) -> None:
        self._client.answer(ask.id, RpcError(INVALID_REQUEST, "nobody is there to be asked"))
