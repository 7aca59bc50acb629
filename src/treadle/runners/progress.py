"""`Progress`: the events of a run, folded into what is running and what is done. Pure; the clock is an argument.

It renders a run while an engine works: a header and some plain lines, or a `Snapshot` for other renderers. What it
stores is bounded whatever the engine prints: counts, running steps, and the last finished ones.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from treadle.runners.run_events import (
    ActionEvent,
    ActionKind,
    CompletedEvent,
    Event,
    Level,
    Phase,
    ResumeToken,
    StartedEvent,
    TextDelta,
)

KEEP_DONE: Final = 50
# More than any engine runs at once; what goes beyond is dropped, the oldest first.
KEEP_RUNNING: Final = 200
KEEP_TEXT: Final = 16_000
MAX_TITLE: Final = 300
MAX_MESSAGE: Final = 2_000
MAX_ID: Final = 200

State: TypeAlias = Literal["starting", "working", "done", "failed"]
_CUT: Final = "…"


class Step(Struct, frozen=True, kw_only=True):
    """An action, as it stands.

    Args:
        id: The engine's id of it.
        number: It was the how many-th of the run, from 1.
        kind: What sort of thing it is.
        title: One line for people, without anything that a terminal would act upon.
        phase: Where it stands.
        ok: Whether it went well, once that is known.
        exit_code: That of a command, once it is known.
        message: More than fits in the title.
        level: How much it matters to people.
    """

    id: str
    number: int
    kind: ActionKind
    title: str
    phase: Phase
    ok: bool | None = None
    exit_code: int | None = None
    message: str | None = None
    level: Level | None = None

    @property
    def mark(self) -> str:
        """▸ running, ↻ running with news, ✓ done, ✗ failed."""
        if self.phase != "completed":
            return "▸" if self.phase == "started" else "↻"
        return "✗" if self.failed else "✓"

    @property
    def failed(self) -> bool:
        """Whether it ended badly."""
        return self.phase == "completed" and (self.ok is False or (self.ok is None and bool(self.exit_code)))

    def line(self, width: int) -> str:
        """Mark and title, cut to so many letters; how a command ended is not cut off.

        Args:
            width: How many letters a line has.
        """
        suffix = f" (exit {self.exit_code})" if self.exit_code else ""
        return cut(f"{self.mark} {cut(self.title, width - 2 - len(suffix))}{suffix}", width)


class Snapshot(Struct, frozen=True, kw_only=True):
    """All that is known of a run.

    Args:
        engine: The engine that runs; empty until its first event.
        resume: Its session.
        title: What the engine calls the run, such as the model.
        began: When it began, by the clock that the `Progress` was made with.
        steps: What runs and the last that was done, in the order in which they began.
        seen: How many there were in all.
        running: How many run.
        done: How many have ended.
        failed: How many of those ended badly.
        text: The last part of the answer so far, from engines that stream.
        completed: How the run ended.
    """

    engine: str
    resume: ResumeToken | None
    title: str | None
    began: float
    steps: tuple[Step, ...]
    seen: int
    running: int
    done: int
    failed: int
    text: str
    completed: CompletedEvent | None

    @property
    def state(self) -> State:
        """In one word."""
        if self.completed is not None:
            return "done" if self.completed.ok else "failed"
        return "working" if self.engine else "starting"

    def header(self, now: float) -> str:
        """One line: `working · codex · 3m 04s · step 7`.

        Args:
            now: The time, by the same clock as when it began.
        """
        count = f"step {self.seen}"
        if self.completed is not None:
            count = f"{self.seen} step{'' if self.seen == 1 else 's'}"
        parts = (self.state, self.engine, elapsed(now - self.began), count if self.seen else "")
        return " · ".join(part for part in parts if part)

    def lines(self, width: int = 80, limit: int = 5) -> list[str]:
        """The last steps, a line each. What runs is shown before what is done.

        Args:
            width: How many letters a line has.
            limit: How many lines there are at most.
        """
        running = [step for step in self.steps if step.phase != "completed"]
        done = [step for step in self.steps if step.phase == "completed"]
        shown = _last(running, limit)
        shown += _last(done, limit - len(shown))
        return [step.line(width) for step in sorted(shown, key=lambda step: step.number)]


class Progress:
    """Takes the events of one run.

    Args:
        began: When it began, by any clock that is then used for `header` too.
        keep: How many of the finished steps are stored.
    """

    def __init__(self, began: float, *, keep: int = KEEP_DONE) -> None:
        self._began = began
        self._keep = keep
        self._engine = ""
        self._started: StartedEvent | None = None
        self._completed: CompletedEvent | None = None
        self._running: dict[str, Step] = {}
        self._done: dict[str, Step] = {}
        self._seen = self._done_count = self._failed_count = 0
        self._text = _Tail(KEEP_TEXT)

    def add(self, event: Event) -> None:
        """Take the next event.

        Args:
            event: The event.
        """
        self._engine = event.engine
        match event:
            case StartedEvent():
                self._started = event
            case TextDelta():
                self._text.add(event.text)
            case CompletedEvent():
                self._completed = event
            case ActionEvent() if event.action.kind != "turn":
                key = event.action.id[:MAX_ID]
                old = self._running.get(key) or self._done.get(key)
                if old is None:
                    self._seen += 1
                action = event.action
                code = action.detail.get("exit_code")
                step = Step(
                    id=key,
                    number=self._seen if old is None else old.number,
                    kind=action.kind,
                    title=one_line(action.title),
                    phase=event.phase,
                    ok=event.ok,
                    exit_code=code if isinstance(code, int) and not isinstance(code, bool) else None,
                    message=None if event.message is None else cut(event.message, MAX_MESSAGE),
                    level=event.level,
                )
                self._count(old, -1)
                self._count(step, 1)
                if step.phase == "completed":
                    self._running.pop(key, None)
                    self._done[key] = step
                    _drop_oldest(self._done, self._keep)
                else:
                    self._done.pop(key, None)
                    self._running[key] = step
                    _drop_oldest(self._running, KEEP_RUNNING)

    def snapshot(self) -> Snapshot:
        """What is known of the run now."""
        started, completed = self._started, self._completed
        resume = started.resume if started else completed.resume if completed else None
        steps = sorted((*self._running.values(), *self._done.values()), key=lambda step: step.number)
        return Snapshot(
            engine=self._engine,
            resume=resume,
            title=started.title if started else None,
            began=self._began,
            steps=tuple(steps),
            seen=self._seen,
            running=len(self._running),
            done=self._done_count,
            failed=self._failed_count,
            text=self._text.joined(),
            completed=completed,
        )

    def header(self, now: float) -> str:
        """`Snapshot.header` of now.

        Args:
            now: The time, by the same clock as when it began.
        """
        return self.snapshot().header(now)

    def lines(self, width: int = 80, limit: int = 5) -> list[str]:
        """`Snapshot.lines` of now.

        Args:
            width: How many letters a line has.
            limit: How many lines there are at most.
        """
        return self.snapshot().lines(width, limit)

    def _count(self, step: Step | None, by: int) -> None:
        if step is not None and step.phase == "completed":
            self._done_count += by
            self._failed_count += by * step.failed


class _Tail:
    """The last letters of a text that comes in pieces."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[str] = []
        self._size = 0

    def add(self, piece: str) -> None:
        self._pieces.append(piece[-self._limit :])
        self._size += len(self._pieces[-1])
        if self._size > 2 * self._limit or len(self._pieces) > self._limit:
            self._pieces = [self.joined()]
            self._size = len(self._pieces[0])

    def joined(self) -> str:
        return "".join(self._pieces)[-self._limit :]


def _drop_oldest(steps: dict[str, Step], keep: int) -> None:
    if len(steps) > keep:
        del steps[next(iter(steps))]


def _last(steps: list[Step], count: int) -> list[Step]:
    return steps[-count:] if count > 0 else []


def one_line(text: str) -> str:
    """The text on one line, cut, and without letters that cannot be seen: a terminal or a chat may act upon them."""
    # Before it is looked at: a title can be a whole script.
    start = text[: 4 * MAX_TITLE]
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in start).split())
    return cut(line + _CUT * (len(start) < len(text)), MAX_TITLE)


def cut(text: str, width: int) -> str:
    """At most so many letters; the last one shows that there were more."""
    if len(text) <= width:
        return text
    return text[: width - 1] + _CUT if width > 0 else ""


def elapsed(seconds: float) -> str:
    """`12s`, `3m 04s`, `1h 02m`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    return f"{whole // 3600}h {whole // 60 % 60:02}m"
