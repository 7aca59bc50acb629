"""`Soak`: turn after turn with an agent, each with its fault, and what is found out about it from outside."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench import family
from bench.host_soak.ledger import Ledger, Turn, rows_of
from bench.host_soak.model import SoakModel, answer, said, steering
from bench.host_soak.plan import COMPLETED, INTERRUPTED, Kind, Moment, Program
from bench.host_soak.stage import SESSION_ID, Stage, staged
from bench.soak.meter import Meter, Sample
from treadle.execution.bounded_reads import READER
from treadle.host import HostAgent
from treadle.host.agent import ConversationResult
from treadle.host.runtime import Delta, RuntimeEvent

EVERY: Final = 25
"""Turns between two samples."""
MOMENT_S: Final = 0.5
END_S: Final = 10.0
_SERVER: Final = b"app-server"


@dataclass(frozen=True, slots=True)
class Children:
    """What the agent had started, at a sample. `memory` is in MB of 10^6 bytes, of the server."""

    processes: int
    memory: float


@dataclass(slots=True)
class Tally:
    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Kinds of turns with how they ended."""
    problems: list[str] = field(default_factory=list)
    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    threads: set[str] = field(default_factory=set)
    """The runtime's threads."""
    restarts: int = 0
    reviews: int = 0
    model_calls: int = 0
    messages: int = 0
    left: dict[str, int] = field(default_factory=dict)
    """What was there at the end and not at the start."""
    samples: list[Sample] = field(default_factory=list)
    children: list[Children] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.ends.total()


class Soak:
    """`run` for every turn, then `end`."""

    def __init__(self, stage: Stage, model: SoakModel, tally: Tally) -> None:
        self.tally = tally
        self._stage = stage
        self._model = model
        self._ledger = Ledger()
        self._meter = Meter(os.getpid(), lambda: tally.total)
        self._kind: Kind | None = None
        self._number = 0
        self._struck = False
        self._kept: list[str] = []
        self._used: Counter[int] = Counter()
        self._others = frozenset(member.pid for member in family.members(os.getpid()))
        """Children of this process that are none of our business: in a test, those of the tests before."""
        self._agent = self._new_agent()
        self.sample()

    def _new_agent(self) -> HostAgent:
        def soak_tool(number: int) -> str:
            """Count the turn.

            Args:
                number: Which one.
            """
            self._used[number] += 1
            return f"[output {number}]"

        return self._stage.agent(self._on_event, soak_tool)

    def run(self, kind: Kind) -> None:
        self._number += 1
        self._kind, self._struck = kind, False
        self._model.over.clear()
        self._model.steered = False
        kept, self._kept = self._kept, []
        self.strike("before")
        words = said(self._number, kind.name)
        began = time.perf_counter()
        try:
            result = self._agent.run_conversation(words)
        finally:
            self._model.over.set()
        self.tally.seconds[kind.name].append(time.perf_counter() - began)
        steered = steering(self._number) if self._model.steered else None
        self._ledger.turns.append(Turn(self._number, "\n\n".join([*kept, words]), result.completed, steered))
        self._judge(kind, words, result)
        if self._number % EVERY == 0:
            self.sample()

    # --- faults ---

    def strike(self, moment: Moment) -> None:
        """Do what this turn is to suffer, if this is its moment; once."""
        kind = self._kind
        if kind is None or self._struck or kind.moment != moment:
            return
        self._struck = True
        match kind.name.partition("-")[0]:
            case "kill":
                self._signal(signal.SIGKILL)
            case "stop":
                self._signal(signal.SIGSTOP)
                if kind.name == "stop-for-a-moment":
                    time.sleep(MOMENT_S)
                    self._signal(signal.SIGCONT)
            case "interrupt":
                self._agent.interrupt()
            case "steer":
                words = steering(self._number)
                self._model.steered = self._agent.steer(words)
                if not self._model.steered:
                    self._kept.append(words)
            case "restart":
                self._agent.close()
                self._agent = self._new_agent()
                self.tally.restarts += 1

    def _on_event(self, event: RuntimeEvent) -> None:
        if isinstance(event, Delta) and event.kind == "text":
            self.strike("streaming")

    def _signal(self, number: int) -> None:
        for pid in self._servers():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    # --- what came of it ---

    def _judge(self, kind: Kind, words: str, result: ConversationResult) -> None:
        end = _end_of(result)
        self.tally.ends[kind.name, end] += 1
        if end not in kind.ends:
            self._problem(f"ended with {end}, not {' or '.join(kind.ends)}: {result.error}")
        if result.completed and result.final_response != answer(self._number):
            self._problem(f"the answer was {result.final_response!r}")
        if any("cut off" in notice for notice in result.notices):
            self._problem("a turn is said to have been cut off, and none was")
        if result.thread_id is not None:
            self.tally.threads.add(result.thread_id)
        self._model.expected += [words, answer(self._number)] if result.completed else [words]
        rows = rows_of(self._stage.store, SESSION_ID)
        self.tally.messages = len(rows)
        for problem in self._ledger.check(rows, result.messages):
            self._problem(problem)
        if self._agent.session is None and (left := self._children()):
            self._problem(f"the session was given up, and {len(left)} of its processes were left")
        self.tally.problems += self._model.problems
        self._model.problems.clear()

    def _problem(self, text: str) -> None:
        assert self._kind is not None
        self.tally.problems.append(f"after turn {self._number} ({self._kind.name}): {text}")

    def sample(self) -> None:
        memory = 0.0
        for pid in self._servers():
            with suppress(OSError, ValueError):  # it may be ending
                memory += family.memory(pid).rss
        self.tally.samples.append(self._meter.take())
        self.tally.children.append(Children(len(self._children()), memory))

    def _children(self) -> list[family.Member]:
        return [member for member in family.members(os.getpid()) if member.pid not in self._others]

    def _servers(self) -> list[int]:
        """The app-servers among our own children."""
        ours = self._children()
        return [it.pid for it in ours if it.parent == os.getpid() and _SERVER in _command_of(it.pid)]

    def end(self) -> None:
        self._agent.wait_for_review(END_S)
        self.sample()
        self._agent.close()
        self._kind = None
        doubled = [number for number, times in self._used.items() if times != 1]
        if doubled:
            self.tally.problems.append(f"the tool was used more than once in the turns {doubled}")
        memory = self._stage.home / "memory" / "MEMORY.md"
        facts = memory.read_text().count("of the soak.") if memory.exists() else 0
        if facts > 1:
            self.tally.problems.append(f"the memory has {facts} facts, not the last one")
        self.tally.reviews = self._model.reviews
        self.tally.model_calls = self._model.asked.total()


def _end_of(result: ConversationResult) -> str:
    if result.completed:
        return COMPLETED
    return result.fault.kind if result.fault is not None else INTERRUPTED if result.interrupted else "error"


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


def soak(program: Program, kinds: Iterable[Kind], report: Callable[[Tally], None] = lambda _: None) -> Tally:
    """All the turns, and the end."""
    tally = Tally()
    before = _held()
    soaking: Soak | None = None

    def strike(moment: Moment) -> None:
        if soaking is not None:
            soaking.strike(moment)

    has_commands = program in ("app_server", "codex")
    with SoakModel(strike, has_commands=has_commands) as model, staged(program, model.base_url) as stage:
        soaking = Soak(stage, model, tally)
        try:
            for kind in kinds:
                soaking.run(kind)
                report(tally)
        finally:
            soaking.end()
    tally.left = _left(before)
    return tally


def _held() -> dict[str, int]:
    return {
        "processes": len(family.members(os.getpid())) - 1,
        # Those that read files stay for a moment, for the next read.
        "threads": sum(thread.name != READER for thread in threading.enumerate()),
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


def _left(before: dict[str, int]) -> dict[str, int]:
    """What there is more than before; a thread that is ending has a moment for it."""
    until = time.monotonic() + END_S
    while True:
        left = {name: count - before[name] for name, count in _held().items()}
        if not any(left.values()) or time.monotonic() > until:
            return left
        time.sleep(0.05)
