"""Random edits of random files, and the patches that say them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# No limits of time: a busy machine is no failure.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=12)


@dataclass(frozen=True)
class Step:
    """One line of the old file and what happens to it: new lines before it, and whether it stays."""

    line: str
    keep: bool = True
    before: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileEdit:
    steps: tuple[Step, ...]
    after: tuple[str, ...] = ()

    @property
    def old(self) -> list[str]:
        return [step.line for step in self.steps]

    @property
    def new(self) -> list[str]:
        lines: list[str] = []
        for step in self.steps:
            lines += step.before
            if step.keep:
                lines.append(step.line)
        return [*lines, *self.after]

    def changed(self, index: int) -> bool:
        step = self.steps[index]
        at_end = index == len(self.steps) - 1
        return bool(step.before) or not step.keep or (at_end and bool(self.after))

    def hunks(self, context: int, drift: Callable[[str], str] = lambda line: line) -> list[list[str]]:
        """The lines of the hunks, with that much context; touching ones are joined."""
        shown = {
            near
            for index in range(len(self.steps))
            if self.changed(index)
            for near in range(index - context, index + context + 1)
        }
        hunks: list[list[str]] = []
        previous = -2
        for index in sorted(shown & set(range(len(self.steps)))):
            if index != previous + 1:
                hunks.append([])
            hunks[-1] += self._lines(index, drift)
            previous = index
        return hunks

    def _lines(self, index: int, drift: Callable[[str], str]) -> list[str]:
        step = self.steps[index]
        lines = [f"+{line}" for line in step.before]
        lines.append((" " if step.keep else "-") + drift(step.line))
        if index == len(self.steps) - 1:
            lines += [f"+{line}" for line in self.after]
        return lines


NEW_LINES = st.lists(TEXT, max_size=2).map(tuple)


@st.composite
def edits(draw: st.DrawFn, lines: st.SearchStrategy[list[str]]) -> FileEdit:
    """Mostly kept lines, so that there are several hunks."""
    steps = [_step(draw, line) for line in draw(lines)]
    return FileEdit(tuple(steps), draw(st.one_of(st.just(()), NEW_LINES)))


def _step(draw: st.DrawFn, line: str) -> Step:
    if draw(st.integers(0, 3)):
        return Step(line)
    return Step(line, draw(st.booleans()), draw(NEW_LINES))


def file_bytes(lines: Sequence[str], ending: str = "\n", unfinished: bool = False) -> bytes:
    text = ending.join(lines)
    return (text if unfinished or not lines else text + ending).encode()


def update_patch(path: str, hunks: Sequence[Sequence[str]]) -> str:
    body = [line for hunk in hunks for line in ("@@", *hunk)]
    return "\n".join(["*** Begin Patch", f"*** Update File: {path}", *body, "*** End Patch"])
