"""`treadle exec "…"`: one turn on a server in this process, shown as it happens.

It owns the process: signals, the answer, the exit code. How the turn is shown, and where, is in `exec_display`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.cli.exec.exec_arguments import (
    ExecArguments,
    exec_command,
    more_roots,
    overrides,
    read_request,
    warnings,
)
from treadle.cli.exec.exec_display import Quiet, can_ask, drawn, drawn_on, plain, shows_answer, write_answer
from treadle.cli.exec.exec_events import JsonLines
from treadle.cli.exec.exec_turn import ExecTurn, TurnDisplay
from treadle.cli.exec.prompt_input import read_prompt
from treadle.cli.exit_codes import FAILED, REFUSED
from treadle.cli.problem import Problem
from treadle.cli.server_process import start_logging
from treadle.cli.settings_check import check_turn
from treadle.cli.stop_signals import stop_signals
from treadle.cli.streams import OutputFailed, write_bytes, write_stderr
from treadle.cli.turn.frame import Frame, shortened_home
from treadle.config.atomic_write import replace_file
from treadle.config.configuration import RUN_KEY_VARIABLE
from treadle.llm.known_providers import OPENAI_KEY_VARIABLE
from treadle.protocol.app.settings import AskForApproval
from treadle.server.app import AppServer
from treadle.store.sqlite.file_store import FILE_NAME

if TYPE_CHECKING:
    from treadle.cli.turn.terminal_approver import Approver

_NAME = "exec"


@exec_command
def command(arguments: ExecArguments) -> int:
    start_logging("error")
    return _Program(arguments).run()


class _Program:
    def __init__(self, arguments: ExecArguments) -> None:
        for warning in warnings(arguments):
            write_stderr(f"treadle {_NAME}: warning: {warning}")
        self._key = _run_key()
        self._settings = overrides(arguments)
        config = check_turn(_NAME, self._settings, arguments.model, strict=arguments.strict_config)
        self._choice = config.model_choice(arguments.model, None)
        self._settings += more_roots(arguments, config.sandbox_workspace_write.writable_roots)
        self._request = read_request(arguments)
        self._target = _target(arguments.output_last_message)
        if sys.stdout is None and self._target is None:
            why = "nobody would get the answer"
            raise Problem("standard output is closed", why=why, do="-o FILE", code=REFUSED)
        self._config = config
        self._shows_answer = shows_answer(self._request)  # asked once: a terminal that is gone is none any more
        self._turn: ExecTurn | None = None
        self._display: TurnDisplay | None = None
        self._asker: Approver | None = None
        self._signal = 0  # the one that interrupted it

    def run(self) -> int:
        resumes = self._request.resume is not None
        prompt = read_prompt(self._request.prompt, appended=not resumes)
        code = asyncio.run(self._run(prompt))
        if self._signal and self._request.as_json:
            return _end_as_codex(self._signal)
        return 128 + self._signal if self._signal and code else code

    async def _run(self, prompt: str) -> int:
        request = self._request
        with stop_signals(self._stop):
            self._display, self._asker = self._shown()
            try:
                async with AppServer(overrides=self._settings, cwd=request.cwd) as server:
                    server.given_key = self._key
                    self._turn = ExecTurn(server, self._display, approval=self._approval(), asker=self._asker)
                    if self._signal:  # while the server was started
                        self._interrupt()
                    turn = await self._turn.run(request, prompt)
            finally:
                self._display.close()
        if turn.status != "completed":
            return FAILED
        answer = self._turn.answer or ""
        if not self._shows_answer and not request.as_json and sys.stdout is not None:
            write_answer(answer, color=request.color)
        if self._target is not None:
            _keep(self._target, answer)
        return 0

    def _shown(self) -> tuple[TurnDisplay, Approver | None]:
        request = self._request
        if request.as_json:
            return JsonLines(self._write_line), None
        kept_in = None if request.ephemeral else shortened_home(os.path.join(self._config.home, FILE_NAME))
        provider = self._config.providers.get(self._choice.provider)
        frame = Frame(self._choice, asks=can_ask(request), kept_in=kept_in, provider=provider)
        if request.quiet:
            return Quiet(frame), None
        terminal = drawn_on(request)
        return (plain(request, frame), None) if terminal is None else drawn(terminal, request, frame, self._lost)

    def _approval(self) -> AskForApproval:
        """As configured where somebody can be asked; else nobody is, unless that is what was asked for."""
        request = self._request
        if request.as_json:  # as with Codex, whose programs give a policy and get none
            return "never"
        return request.approval or (self._config.approval_policy if can_ask(request) else "never")

    def _lost(self) -> None:
        """If everything is shown there, there is no point in going on."""
        if self._turn is not None and self._shows_answer:
            self._turn.fail(OutputFailed("the terminal is gone"))

    def _write_line(self, line: bytes) -> None:
        """Like Codex, we say nothing more when we are told to end."""
        if not self._signal:
            write_bytes(line, lambda: self._signal != 0)

    def _stop(self, number: int) -> None:
        """The first Ctrl-C ends the turn in order, the second one ends the program."""
        if self._signal:
            if self._display is not None:
                self._display.close()
            if self._asker is not None:
                self._asker.close()
            os._exit(128 + number)  # the helper process sees it and kills what is left
        self._signal = number
        asyncio.get_running_loop().call_soon_threadsafe(self._interrupt)

    def _interrupt(self) -> None:
        if self._turn is not None:
            self._turn.note("interrupting; press Ctrl-C again to leave at once")
            self._turn.interrupt()


def _run_key() -> str | None:
    """The key that was given for this run alone. Commands never inherit it."""
    key = os.environ.get(RUN_KEY_VARIABLE, "").strip()
    if key:
        os.environ[OPENAI_KEY_VARIABLE] = key  # so that the provider is chosen by it
    return key or None


def _end_as_codex(number: int) -> int:
    """Who drives `codex exec` expects it to fail after SIGINT, and to have been ended by SIGTERM."""
    if number == signal.SIGTERM:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    return FAILED


def _target(name: str | None) -> Path | None:
    """Where the answer goes too. What cannot be written later is said now, before a turn is paid for."""
    if name is None:
        return None
    path = Path(name).absolute()
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        why = "it is a directory, or its directory is not there or not yours to write"
        raise Problem(f"{name} cannot be written", why=why, do="-o FILE with another name", code=REFUSED)
    return path


def _keep(target: Path, answer: str) -> None:
    try:
        replace_file(target, answer.encode("utf-8", "replace"), 0o644 & ~_umask())
    except OSError as error:
        raise OutputFailed(f"the answer could not be written to {target}: {error.strerror}") from None


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
