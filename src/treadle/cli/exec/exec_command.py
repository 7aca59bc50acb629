"""`treadle exec "…"`: one turn on a server in this process, shown as it happens.

It owns the process: which stream gets what, signals, the answer, the exit code. A terminal is drawn on, standard output
before standard error; when only the latter is one, the answer still goes to the former. Nobody is asked unless the
keyboard is a terminal too.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

from treadle.cli.exec.exec_arguments import (
    ExecArguments,
    exec_command,
    exec_request,
    more_roots,
    overrides,
    warnings,
)
from treadle.cli.exec.exec_events import JsonLines
from treadle.cli.exec.exec_turn import ExecTurn, TurnDisplay
from treadle.cli.in_process import check_turn, open_client, server_of
from treadle.cli.own_process import start_logging, stop_signals
from treadle.cli.problem import Problem
from treadle.cli.streams import FAILED, REFUSED, TIMED_OUT, OutputFailed, write, write_bytes, write_stderr
from treadle.cli.terminal import console, is_terminal, wants_color
from treadle.cli.turn.plain_turn import PlainTurn
from treadle.cli.turn.turn_header import TurnHeader
from treadle.cli.turn_input import answer_file, read_prompt, write_answer
from treadle.cli.user_commands import Shortcut
from treadle.config.configuration import RUN_KEY_VARIABLE
from treadle.llm.known_providers import OPENAI_KEY_VARIABLE
from treadle.pages.figures import at_home
from treadle.pages.safe_text import printable
from treadle.protocol.app.turns import Turn
from treadle.store.sqlite.sqlite_store import FILE_NAME

if TYPE_CHECKING:
    from treadle.cli.turn.live_turn import TerminalApprover

_NAME = "exec"
# How long a turn that was interrupted because its time is up may take to end.
_STOP_S: Final = 10.0


@exec_command
def command(arguments: ExecArguments) -> int:
    start_logging("error")
    return _Program(arguments).run()


review: Final = Shortcut(
    "review",
    command,
    "review",
    "[PROMPT]",
    (
        "treadle review --uncommitted",
        "treadle review --base main -o review.md",
        'treadle review "look at how errors are handled in src"',
    ),
)


class _Program:
    def __init__(self, arguments: ExecArguments) -> None:
        for warning in warnings(arguments):
            write_stderr(f"treadle {_NAME}: warning: {warning}")
        # The key that was given for this run alone. Commands never inherit it.
        self._key = os.environ.get(RUN_KEY_VARIABLE, "").strip() or None
        if self._key is not None:
            os.environ[OPENAI_KEY_VARIABLE] = self._key  # so that the provider is chosen by it
        self._settings = overrides(arguments)
        config = check_turn(_NAME, self._settings, arguments.model, strict=arguments.strict_config)
        self._choice = config.model_choice(arguments.model, None)
        self._settings += more_roots(arguments, config.sandbox_workspace_write.writable_roots)
        self._request = request = exec_request(arguments)
        self._target = answer_file(arguments.output_last_message)
        if sys.stdout is None and self._target is None:
            why = "nobody would get the answer"
            raise Problem("standard output is closed", why=why, do="-o FILE", code=REFUSED)
        self._config = config
        # What the streams are is asked once: a terminal that is gone is none any more.
        self._shows_answer = (
            sys.stdout is not None and sys.stdout.isatty() and not request.as_json and not request.quiet
        )
        self._terminal: TextIO | None = None
        if not request.as_json and not request.quiet:
            self._terminal = next((stream for stream in (sys.stdout, sys.stderr) if is_terminal(stream)), None)
        self._can_ask = self._terminal is not None and is_terminal(sys.stdin)
        self._turn: ExecTurn | None = None
        self._display: TurnDisplay | None = None
        self._asker: TerminalApprover | None = None
        self._signal = 0  # the one that interrupted it
        self._out_of_time = False

    def run(self) -> int:
        request = self._request
        prompt = "" if request.review else read_prompt(request.prompt, appended=request.resume is None)
        code = asyncio.run(self._run(prompt))
        if self._signal and self._request.as_json:
            # Who drives `codex exec` expects it to fail after SIGINT, and to have been ended by SIGTERM.
            if self._signal == signal.SIGTERM:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGTERM)
            return FAILED
        return 128 + self._signal if self._signal and code else code

    async def _run(self, prompt: str) -> int:
        request = self._request
        with stop_signals(self._stop):
            self._display = self._shown()
            # As configured where somebody can be asked; else nobody is, unless that is what was asked for.
            approval = request.approval or (self._config.approval_policy if self._can_ask else "never")
            if request.as_json:  # as with Codex, whose programs give a policy and get none
                approval = "never"
            self._turn = run = ExecTurn(self._config, self._display, approval=approval, asker=self._asker)
            try:
                async with (
                    open_client(
                        "treadle_exec", self._settings, cwd=request.cwd, approval_handler=run.answer_request
                    ) as client,
                    self._time_limit(request.timeout),
                ):
                    server_of(client).given_key = self._key
                    turn = await run.run(client, request, prompt)
            except TimeoutError:
                if not self._out_of_time:
                    raise
                turn = None
            finally:
                self._display.close()
        if turn is None or turn.status != "completed":
            if self._out_of_time:
                write_stderr(f"treadle {_NAME}: stopped: the {request.timeout:g} s of --timeout were up")
            return TIMED_OUT if self._out_of_time else FAILED
        answer = run.answer or ""
        if not self._shows_answer and not request.as_json and sys.stdout is not None:
            if is_terminal(sys.stdout):
                from treadle.cli.turn.rich_blocks import markdown  # rich takes 60 ms: loaded when something is drawn

                with console(sys.stdout, request.color) as screen:
                    screen.print(markdown(answer))
            else:
                write(sys.stdout, answer if answer.endswith("\n") else f"{answer}\n")
        if self._target is not None:
            write_answer(self._target, answer)
        return 0

    @asynccontextmanager
    async def _time_limit(self, seconds: float | None) -> AsyncIterator[None]:
        """Interrupt the turn when its time is up. One that does not end then, or has not begun, is left alone a little
        later."""

        def interrupt() -> None:
            self._out_of_time = True
            self._interrupt("the time is up")

        if seconds is None:
            yield
            return
        timer = asyncio.get_running_loop().call_later(seconds, interrupt)
        try:
            async with asyncio.timeout(seconds + _STOP_S):
                yield
        finally:
            timer.cancel()

    def _shown(self) -> TurnDisplay:
        """Where the turn is shown; and who asks, if somebody can be asked."""
        request = self._request
        if request.as_json:

            def write_line(line: bytes) -> None:
                if not self._signal:  # like Codex, we write nothing more when we have to end
                    write_bytes(line, lambda: self._signal != 0)

            return JsonLines(write_line)
        store = self._config.store or at_home(os.path.join(self._config.home, FILE_NAME))
        stored_in = None if request.ephemeral else store
        provider = self._config.providers.get(self._choice.provider)
        header = TurnHeader(self._choice, asks=self._can_ask, stored_in=stored_in, provider=provider)
        if request.quiet:
            return _Quiet(header)
        if self._terminal is None:
            # On standard output if that is a terminal, though a simple one. Else on standard error, while the
            # answer is for standard output; who has closed it does not want to see anything.
            color = self._request.color
            if self._shows_answer:
                colored = wants_color(color, sys.stdout, os.environ)
                return PlainTurn(lambda text: write(sys.stdout, text), color=colored, header=header)
            stream = sys.stderr

            def show(text: str) -> None:
                nonlocal stream
                if stream is not None:
                    try:
                        write(stream, text)
                    except OutputFailed:
                        stream = None

            return PlainTurn(show, color=wants_color(color, sys.stderr, os.environ), holds_answer=True, header=header)
        from treadle.cli.turn.live_turn import Keyboard, LiveTurn, TerminalApprover  # rich takes 60 ms

        def lost() -> None:
            # If everything is shown there, there is no point in going on.
            if self._turn is not None and self._shows_answer:
                self._turn.fail(OutputFailed("the terminal is gone"))

        turn = LiveTurn(self._terminal, header, color=request.color, holds_answer=not self._shows_answer, on_lost=lost)
        if self._can_ask:
            self._asker = TerminalApprover(turn, Keyboard())
        return turn

    def _stop(self, number: int) -> None:
        """The first Ctrl-C ends the turn in order, the second one ends the program."""
        if self._signal:
            if self._display is not None:
                self._display.close()
            if self._asker is not None:
                self._asker.close()
            os._exit(128 + number)  # the helper process sees it and kills what is left
        self._signal = number
        why = "interrupting; press Ctrl-C again to leave at once"
        asyncio.get_running_loop().call_soon_threadsafe(self._interrupt, why)

    def _interrupt(self, why: str) -> None:
        if self._turn is not None:
            self._turn.note(why)
            self._turn.interrupt()


class _Quiet:
    """Shows that a turn failed or was interrupted, and nothing else."""

    def __init__(self, header: TurnHeader) -> None:
        self._header = header

    def started(self, started: Any) -> None:
        self._header.facts(started)

    def show(self, method: str, params: Any) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...

    def ended(self, turn: Turn) -> None:
        if turn.status == "failed":
            write_stderr("treadle exec: the turn failed")
            write_stderr(f"  why: {'it did not say' if turn.error is None else printable(turn.error.message)}")
            for step in list(self._header.next_steps(turn.error).values())[:1]:
                write_stderr(f"  try: {step}")
        elif turn.status == "interrupted":
            write_stderr("treadle exec: interrupted")
            for step in list(self._header.next_steps().values())[:1]:
                write_stderr(f"  try: {step}")
