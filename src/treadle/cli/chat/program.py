"""A session from its beginning to its end: settings, server, screen, signals, and the line after it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from prompt_toolkit.input import create_input
from rich.text import Text

from treadle._version import __version__
from treadle.cli.chat.chat_command import ChatRequest
from treadle.cli.chat.chat_input import ChatCompleter, MessageHistory
from treadle.cli.chat.chat_session import ChatSession, ThreadOptions
from treadle.cli.chat.chat_view import ChatView
from treadle.cli.chat.picker import pick, threads_to_pick
from treadle.cli.chat.screen import CLOSED, ChatScreen
from treadle.cli.chat.terminal_output import make_output
from treadle.cli.in_process import check_turn
from treadle.cli.own_process import start_logging
from treadle.cli.problem import Problem
from treadle.cli.streams import INTERRUPTED, OutputFailed, write_stdout
from treadle.cli.terminal import wants_color
from treadle.cli.thread_choice import newest_threads, thread_to_resume
from treadle.cli.threads.thread_library import ThreadLibrary, redaction_for
from treadle.cli.workplace import workplace
from treadle.client import CodexConfig, CodexError
from treadle.config import Config, load_config
from treadle.pages.safe_text import printable_line

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
_WELCOME: Final = "Say what you want. @ names a file, /help tells the commands and keys, Ctrl-D leaves."


def run(request: ChatRequest) -> int:
    """Run a session; gives the exit code. Raises `Problem` and other errors for people before the screen is drawn."""
    settings = [*request.config_overrides]
    if os.environ.get("TREADLE_LOG_FILE"):  # without a file it would be written across the screen
        start_logging("error", settings=settings)
    config = check_turn("chat", settings, request.model)
    if request.more_roots:
        roots = [*config.sandbox_workspace_write.writable_roots, *request.more_roots]
        settings.append(f"sandbox_workspace_write.writable_roots={json.dumps(roots)}")
        config = load_config(config.home, overrides=settings).config
    try:
        return asyncio.run(_Program(request, config, settings).run())
    except BaseExceptionGroup as group:  # a bug: one is enough to report
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


class _Program:
    """A session with its server and its screen."""

    def __init__(self, request: ChatRequest, config: Config, settings: list[str]) -> None:
        self._request = request
        self._keyboard = create_input()
        self._settings = settings
        self._config = config
        self._view = ChatView(config)
        self._screen: ChatScreen | None = None
        self._running: asyncio.Task[Any] | None = None
        self._ended: int | None = None

    async def run(self) -> int:
        with _signals(self._end, self._stop), self._keyboard.raw_mode():
            # What is typed before the screen is drawn waits, and is not written across it.
            try:
                return await self._run()
            except asyncio.CancelledError:
                if self._ended is None:
                    raise
                return self._ended

    def _end(self, code: int) -> None:
        """End the session with an exit code, perhaps before there is a screen."""
        if self._screen is not None:
            self._screen.leave(code)
        elif self._ended is None and (task := self._running) is not None:
            self._ended = code
            task.cancel()

    def _stop(self) -> None:
        """Handle SIGINT of another process like a Ctrl-C that is typed."""
        if self._screen is not None:
            self._screen.stop()
        else:
            self._end(INTERRUPTED)

    async def _run(self) -> int:
        self._running = asyncio.current_task()
        request, view = self._request, self._view
        server = CodexConfig(
            config_overrides=self._settings,
            cwd=request.cwd,
            client_name="treadle_chat",
            client_title="Treadle chat",
        )
        folder = request.cwd if request.moved else None
        new = ThreadOptions(model=request.model, sandbox=request.sandbox, approvals=request.approvals, cwd=folder)
        # As with `treadle exec`, a thread that is resumed gets what is configured now, not what was when it was begun;
        # but it stays in its directory.
        config, policy = self._config, self._config.approval_policy
        profile = None if request.sandbox else config.permissions().profile
        resumed = ThreadOptions(
            model=request.model or config.document.get("model"),
            provider=config.document.get("model_provider"),
            sandbox=None if profile else request.sandbox or config.sandbox_mode,
            permissions=None if profile is None else profile.id,
            approvals=request.approvals or (policy if isinstance(policy, str) else None),
            cwd=folder,
        )
        session = ChatSession(server, view, new, resumed)
        try:
            await session.connect()
            if request.environment is not None:
                session.move(await workplace(session.client, request.environment, request.directory))
            thread_id = await self._thread_to_resume(session)
            if request.resume is not None and thread_id is None:  # none of those that were shown
                return 0
            await session.enter(thread_id, copied=request.fork)
            code = await self._talk(session)
        finally:
            await session.close()
        if session.has_turns:
            thread = session.facts.id
            with suppress(OutputFailed):  # nobody is there to read it
                write_stdout(f'To go on: treadle chat resume {thread}\n      or: treadle exec resume {thread} "…"')
        return code

    async def _thread_to_resume(self, session: ChatSession) -> str | None:
        """The id of the thread to resume; None for a new thread, and when none was chosen of a list."""
        request = self._request
        if request.resume is None:
            return None
        if request.resume:
            found = await thread_to_resume(session.client, request.resume)
            if found is None:
                why = "no thread has this id or name"
                do = "treadle chat resume, for a list"
                raise Problem(f"there is no thread {request.resume!r}", why=why, do=do)
            return found.id
        newest = await newest_threads(session.client, 1, cwd=request.cwd if request.last else None)
        if not newest:
            why = f"no thread was begun in {request.cwd}" if request.last else "no thread was begun yet"
            raise Problem("there is nothing to resume", why=why, do="treadle chat")
        if request.last:
            return newest[0].id
        library = ThreadLibrary(session.client, redaction_for(self._config, os.environ))
        how = threads_to_pick(library, request.cwd)
        thread = await pick("Go on with which thread?", sys.stdout, input=self._keyboard, **how)
        return None if thread is None else str(thread.id)

    async def _talk(self, session: ChatSession) -> int:
        completer = ChatCompleter(session.find_files)
        completer.prompts = session.mcp_prompts
        screen = ChatScreen(
            self._view,
            history=MessageHistory(self._config.home),
            completer=completer,
            output=make_output(sys.stdout, lambda: screen.leave(CLOSED)),
            input=self._keyboard,
            colors=wants_color("auto", sys.stdout, os.environ),
            calls=self._config.tui,
        )
        self._view.join(session, screen)
        facts = session.facts
        choice = self._config.model_choice(self._request.model, None)
        because = f", because {choice.because}" if choice.provider == facts.provider else ""
        lines = [
            f"treadle {__version__} · {facts.model} ({facts.provider}{because})",
            f"{facts.place} · {facts.sandbox} · approvals {facts.approvals}",
            _WELCOME,
        ]
        screen.print(*(Text(printable_line(line), "dim") for line in lines), "")
        if self._request.resume is not None:
            await self._view.actions.recap()
        self._screen = screen

        async def learn_models() -> None:
            with suppress(CodexError):  # for completion: without them the session is as good
                completer.models = [model.model for model in (await session.client.model_list()).data]

        log = _ScreenLog(self._view)
        logging.getLogger().addHandler(log)
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(session.run()), tasks.create_task(learn_models())]
                await asyncio.sleep(0)  # the session runs before somebody wants something of it
                self._view.pictures = self._request.images
                if self._request.prompt:
                    self._view.say(self._request.prompt)
                try:
                    return await screen.run()
                finally:
                    for task in running:
                        task.cancel()
        finally:
            logging.getLogger().removeHandler(log)


@contextmanager
def _signals(end: Callable[[int], None], stop: Callable[[], None]) -> Iterator[None]:
    """End the session in order when we are asked to end, or the terminal is closed."""
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, end, 128 + number)
    loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield
    finally:
        for number in (*_SIGNALS, signal.SIGINT):
            loop.remove_signal_handler(number)


class _ScreenLog(logging.Handler):
    """Shows errors on the screen: written to standard error they would be written across it."""

    def __init__(self, view: ChatView) -> None:
        super().__init__(logging.ERROR)
        self._view = view
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        self._loop.call_soon_threadsafe(self._view.problem, record.getMessage())
