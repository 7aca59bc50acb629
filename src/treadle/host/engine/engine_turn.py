"""`EngineTurn`: one run of an engine as a turn, and `EngineThread`: what is kept from turn to turn."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace as changed

from treadle.agent.ids import new_id
from treadle.host.ask import Ask, AskPerson
from treadle.host.chat_items import read_input
from treadle.host.engine.faults import engine_fault
from treadle.host.engine.run_items import EngineItems, changed_paths
from treadle.host.faults import Fault
from treadle.host.history_text import history_text
from treadle.host.runtime import Notice, Opening, ThreadNamed, TurnEnded, UsageReported, UserInput
from treadle.host.turn_events import TurnEvents
from treadle.host.usage import Usage
from treadle.protocol.app.inputs import LocalImageUserInput, TextUserInput
from treadle.runners.action_titles import tool_action
from treadle.runners.engine import ApprovalAnswer, ApprovalAsk, RunOptions
from treadle.runners.logins import HOW_TO_LOG_IN, find_login
from treadle.runners.run_events import CompletedEvent, ResumeToken, StartedEvent
from treadle.runners.runner import Runner
from treadle.secrets import secrets_in

logger: Final = logging.getLogger(__name__)

# How often a process that was stopped is looked at again.
_LOOK_S: Final = 0.05
_COUNTED: Final = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)
# Of a command: said to people, or of no effect on what it does.
_WORDS_ONLY: Final = frozenset({"description", "timeout"})


@dataclass(slots=True)
class EngineThread:
    """What is kept from turn to turn. `token` is None until the engine has named its session."""

    runner: Runner
    opening: Opening
    ask: AskPerson
    token: ResumeToken | None
    id: str = ""
    total: Usage | None = None
    allowed: set[tuple[str, ...]] = field(default_factory=set)
    told_of_tools: bool = False

    @property
    def name(self) -> str:
        return self.runner.engine.name

    def prompt(self, user_input: UserInput) -> str:
        """What the engine is asked; in a new session, after what it has to know. Raises `RuntimeFault`."""
        said = [self._said(part) for part in read_input(user_input)]
        asked = "\n\n".join(text for text in said if text)
        if self.token is not None:
            return asked
        told = self.opening.instructions
        before = [f"<instructions>\n{told.strip()}\n</instructions>" if told and told.strip() else ""]
        seed = history_text(self.opening.history)
        before.append(f"<conversation>\n{seed}\n</conversation>" if seed else "")
        return "\n\n".join([*(text for text in before if text), asked])

    def _said(self, part: object) -> str:
        if isinstance(part, TextUserInput):
            return part.text
        if isinstance(part, LocalImageUserInput):
            return f"[An image was attached. {self.name} cannot be shown it, but it is the file {part.path}]"
        return f"[An image was attached. {self.name} cannot be shown images]"

    def count(self, used: dict[str, Any]) -> Usage:
        """Add a run to the total, and give that. What an engine counts for its whole session is the total itself."""
        whole = used.get("scope") == "session"
        before = Usage(cost_usd=0.0) if whole or self.total is None else self.total
        sums = {name: getattr(before, name) + _number(used.get(name)) for name in _COUNTED}
        cost = used.get("cost_usd")
        known = isinstance(cost, int | float) and before.cost_usd is not None
        self.total = Usage(
            **sums,
            total_tokens=sums["input_tokens"] + sums["output_tokens"],
            cost_usd=(before.cost_usd or 0.0) + float(cost or 0.0) if known else None,
        )
        return self.total


class EngineTurn:
    """A run that goes from the moment it is made.

    Args:
        thread: Whose turn it is.
        events: Where it tells what happens, with a `TurnEnded` as the last.
        prompt: What the engine is asked.
        options: What is different in this run.
    """

    def __init__(self, thread: EngineThread, events: TurnEvents, prompt: str, options: RunOptions) -> None:
        self.id: str = new_id()
        self._thread = thread
        self._events = events
        self._options = self._with_opening(options)
        self._interrupted = self._started = False
        self._run = thread.runner.run(prompt, thread.token, self._options)
        self.task: asyncio.Task[None] = asyncio.create_task(self._follow(), name=f"turn {self.id}")

    def _with_opening(self, options: RunOptions) -> RunOptions:
        thread, runner = self._thread, self._thread.runner
        asks = runner.engine.answer is not None and runner.options.approve is None
        base = RunOptions(model=thread.opening.model, cwd=thread.opening.cwd, approve=self._approve if asks else None)
        return options.over(base)

    @property
    def _cwd(self) -> str:
        return os.path.abspath(os.path.expanduser(self._options.cwd or self._thread.runner.options.cwd or "."))

    def interrupt(self) -> None:
        """Ask the engine to stop; its end is told when it has."""
        self._interrupted = True
        self._run.cancel()

    # --- the run ---

    async def _follow(self) -> None:
        thread = self._thread
        items = EngineItems(self.id, self._cwd)
        if thread.opening.tools and not thread.told_of_tools:
            thread.told_of_tools = True
            names = ", ".join(tool.name for tool in thread.opening.tools)
            own_tools = f"{thread.name} uses its own tools: it cannot be given those of the host ({names})."
            self._events.note(Notice(own_tools, keep=True))
        ended = TurnEnded("failed", Fault(kind="other", message=f"{thread.name} ended without an answer"))
        try:
            async for event in self._run:
                if isinstance(event, StartedEvent):
                    self._started = True
                    thread.token, thread.id = event.resume, event.resume.value
                for told in items.receive(event):
                    await self._events.tell(told)
                if isinstance(event, CompletedEvent):
                    ended = await self._ended(event)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            logger.exception("a run of %s failed", thread.name)
            message = f"the run of {thread.name} failed: {type(error).__name__}: {error}"
            ended = TurnEnded("failed", Fault(kind="other", message=message))
        finally:
            await self._run.aclose()
        self._events.note(ended)

    async def _ended(self, event: CompletedEvent) -> TurnEnded:
        if event.resume is not None and self._thread.token is None:
            self._thread.token, self._thread.id = event.resume, event.resume.value
            await self._events.tell(ThreadNamed(event.resume.value))
        if event.usage:
            await self._events.tell(UsageReported(self._thread.count(event.usage)))
        if event.ok:
            return TurnEnded("completed")
        if self._interrupted:
            return TurnEnded("interrupted")
        return TurnEnded("failed", self._fault(event.error or f"{self._thread.name} failed"))

    def _fault(self, error: str) -> Fault:
        thread, engine, ending = self._thread, self._thread.runner.engine, self._run.ending
        environ = {**os.environ, **(thread.runner.options.env or {}), **(self._options.env or {})}
        program = thread.runner.command[0]
        if ending is None and self._run.pid is None and shutil.which(program, path=environ.get("PATH")) is None:
            message = f"{engine.name} is not installed: there is no program {program}"
            return Fault(kind="missing", message=message, advice=f"Install it with: {engine.install}")
        return engine_fault(
            engine.name,
            error,
            ending=ending,
            stderr=self._run.stderr,
            secrets=secrets_in(environ),
            log_in=HOW_TO_LOG_IN.get(engine.name),
            no_login=find_login(engine.name, environ).ok is False,
            lost_session=thread.token is not None and not self._started,
        )

    # --- questions ---

    async def _approve(self, asked: ApprovalAsk) -> ApprovalAnswer:
        ask, key = self._question(asked)
        if key in self._thread.allowed:
            return ApprovalAnswer(allow=True)
        choice = await self._thread.ask(ask)
        if choice == "session" and key is not None:
            self._thread.allowed.add(key)
        if choice in ("once", "session"):
            return ApprovalAnswer(allow=True)
        return ApprovalAnswer(allow=False, message="the user does not want this")

    def _question(self, asked: ApprovalAsk) -> tuple[Ask, tuple[str, ...] | None]:
        """The question, and what a yes for the session is a yes to: this command run in this way, these files, or this
        tool; None when nobody can say which files."""
        given = dict(asked.input)
        action = tool_action(asked.id, asked.tool, given, self._cwd)
        base = Ask(
            kind="tool",
            title=action.title,
            cwd=self._cwd,
            tool=asked.tool,
            thread_id=self._thread.id,
            turn_id=self.id,
            detail=dict(asked.detail) or given,
        )
        command, paths = given.get("command"), changed_paths(given)
        if action.kind == "command" and isinstance(command, str):
            # How it is run counts too: outside of the engine's sandbox, or in the background.
            way = {name: value for name, value in given.items() if name not in _WORDS_ONLY}
            return changed(base, kind="command", command=command), ("command", asked.tool, repr(sorted(way.items())))
        if action.kind == "file_change":
            return changed(base, kind="patch", paths=paths), ("patch", asked.tool, *paths) if paths else None
        return base, ("tool", asked.tool)

    # --- life ---

    async def probe(self) -> None:
        """Come back when the process is not stopped, or gone, or not there yet: its end is told by its events."""
        while True:
            pid = self._run.pid
            if pid is None or not _is_stopped(pid):
                return
            await asyncio.sleep(_LOOK_S)


def _is_stopped(pid: int) -> bool:
    """Whether a process was stopped (SIGSTOP); only where the system tells."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read(4096).rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
