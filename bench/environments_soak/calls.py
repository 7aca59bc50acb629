"""`Call`: one call of the model, what it does on its machine, and what must hold of all that was said about it.

truth     what the worker has noted: how often it ran, what it printed, what was typed; what is in the files
client    the deltas, and the item when it was completed
reading   the item of `thread/read` afterwards
model     what the model was answered
"""

from __future__ import annotations

import random
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.environments_soak import worker
from bench.environments_soak.model import Step

LOST: Final = ("the command was lost", "could not be started", "no answer came")
PATCHED: Final = 8  # files
_OUTPUT: Final = "\nOutput:\n"


@dataclass
class Seen:
    """What was said of a call. `may_lose` says that the fault may take commands with it, and `killed` in which life of
    the client the app-server was killed; None if it was not."""

    item: dict[str, Any] | None
    completed: list[dict[str, Any]]
    deltas: list[tuple[int, str]]
    told: list[str]
    asked: int
    may_lose: bool
    killed: int | None

    @property
    def restarted(self) -> bool:
        return self.killed is not None

    @property
    def was_under_way(self) -> bool:
        """Whether the client had heard of it, so that it may not be forgotten by a kill of the app-server."""
        return self.killed is None or bool(self.completed) or any(life <= self.killed for life, _ in self.deltas)


@dataclass
class Call:
    name: str
    truth: Path
    cwd: Path

    def steps(self) -> list[Step]:
        raise NotImplementedError

    def check(self, seen: Seen) -> Iterator[str]:
        raise NotImplementedError


# --- commands ---------------------------------------------------------------------------------------------------------


@dataclass
class Command(Call):
    code: int = 0
    yield_ms: int = 30_000
    tty: bool = False
    answer: str | None = None
    """The decision, where it asks for one, and `when`: `before` the fault, `during` it or `after` it."""
    when: str = "before"

    @property
    def told_all(self) -> bool:
        """Whether the model is told all that it prints."""
        return True

    def words(self) -> list[str]:
        raise NotImplementedError

    def printed(self) -> str | None:
        """All that it prints; None for what depends."""
        raise NotImplementedError

    def steps(self) -> list[Step]:
        words = [sys.executable, "-I", "-S", worker.__file__, self.name, str(self.truth)]
        args = {"cmd": shlex.join([*words, *self.words()]), "login": False, "yield_time_ms": self.yield_ms}
        args |= {"tty": self.tty}
        if self.told_all:
            args["max_output_tokens"] = 1_000_000
        return [{"id": self.name, "tool": "exec_command", "args": args}]

    @property
    def pids(self) -> list[int]:
        """Of every time that it ran."""
        path = self.truth / "ran"
        lines = path.read_text().splitlines() if path.exists() else []
        return [int(pid) for name, pid in map(str.split, lines) if name == self.name]

    @property
    def runs(self) -> bool:
        return any(Path(f"/proc/{pid}/cmdline").exists() and _is_alive(pid) for pid in self.pids)

    def _noted(self, kind: str) -> str:
        path = self.truth / f"{self.name}.{kind}"
        return path.read_text() if path.exists() else ""

    def check(self, seen: Seen) -> Iterator[str]:
        runs, truth = len(self.pids), self._noted("truth")
        if runs > 1:
            yield f"ran {runs} times"
        if seen.asked > 1:
            yield f"asked for approval {seen.asked} times"
        if seen.item is None:
            # It was begun in the moment in which the server was killed, or not at all.
            if seen.was_under_way:
                yield f"has no item, and ran {runs} times"
            return
        status, code = seen.item["status"], seen.item.get("exitCode")
        output = (seen.item.get("aggregatedOutput") or "").replace("\r\n", "\n")
        if seen.completed and seen.completed[-1] != seen.item:
            yield f"the item was completed as {_short(seen.completed[-1])} and is read as {_short(seen.item)}"
        if len(seen.completed) > 1 or (not seen.completed and not seen.restarted):
            yield f"its item was completed {len(seen.completed)} times"
        if status == "declined" or self.answer == "decline":
            if runs or not (status == "declined" or seen.restarted):
                yield f"was declined, is {status}, and ran {runs} times"
        elif code in (self.code, worker.IDLE_CODE) and status == ("completed" if code == 0 else "failed"):
            yield from self._check_whole(seen, output, truth)
            if code == worker.IDLE_CODE and not (self.tty and (seen.restarted or self._refused(seen))):
                yield "was left idle"
        else:
            yield from self._check_lost(seen, output, truth)
        yield from self._check_typed(seen)

    def _check_whole(self, seen: Seen, output: str, truth: str) -> Iterator[str]:
        if not self.pids:
            yield "has ended, and did not run"
        if output != truth:
            yield f"the item has {_difference(truth, output)}"
        expected = self.printed()
        if expected is not None and truth != expected:
            yield f"it printed {_difference(expected, truth)}"
        yield from self._check_deltas(seen, truth, whole=True)
        told = "".join(text.partition(_OUTPUT)[2] for text in seen.told).replace("\r\n", "\n")
        if self.told_all and not seen.restarted and not self._refused(seen) and told != truth:
            yield f"the model was told {_difference(truth, told)}"

    def _check_lost(self, seen: Seen, output: str, truth: str) -> Iterator[str]:
        assert seen.item is not None
        status, code = seen.item["status"], seen.item.get("exitCode")
        if not seen.may_lose and seen.was_under_way:
            yield f"was lost: {status} {code}, {output[-300:]!r}; the model was told {[t[-200:] for t in seen.told]}"
        if status != "failed" or code not in (-1, None):
            yield f"was lost, and is {status} with {code}"
        if self.pids and output and not truth.startswith(output) and seen.deltas:
            yield f"was lost, and its item has {_difference(truth, output)}"
        yield from self._check_deltas(seen, truth, whole=False)
        if not seen.restarted and not any(words in text for text in seen.told for words in LOST):
            yield f"was lost, and the model was told {[text[-300:] for text in seen.told]}"

    def _check_deltas(self, seen: Seen, truth: str, *, whole: bool) -> Iterator[str]:
        lives = {life for life, _ in seen.deltas}
        for life in sorted(lives):
            said = "".join(text for each, text in seen.deltas if each == life).replace("\r\n", "\n")
            if seen.killed is None:
                right = said == truth if whole else truth.startswith(said)
            elif life <= seen.killed:
                right = truth.startswith(said)
            else:
                right = truth.endswith(said) if whole else said in truth
            if not right:
                yield f"the client was sent {_difference(truth, said)} in life {life} of {sorted(lives)}"
        if whole and not seen.restarted and not seen.deltas:
            yield "the client was sent no output"

    def _refused(self, seen: Seen) -> bool:
        """Whether what was typed was refused: then the model was told, and what has become of it is open."""
        return self.tty and any(_OUTPUT not in text for text in seen.told)

    def _check_typed(self, seen: Seen) -> Iterator[str]:
        yield from ()


@dataclass
class Lines(Command):
    count: int = 40
    pause: float = 0.05
    burst: int = 0

    @property
    def told_all(self) -> bool:
        return self.burst == 0

    def words(self) -> list[str]:
        return ["lines", str(self.count), str(self.pause), str(self.burst), str(self.code)]

    def printed(self) -> str | None:
        lines = []
        for number in range(self.count):
            lines.append(f"{self.name} {number} äöü € 😀\n")
            if number == self.count // 2 and self.burst:
                lines += [f"{self.name} {number}.{part} {'x' * 900}\n" for part in range(self.burst // 920)]
        return "".join(lines)


@dataclass
class Typed(Command):
    tty: bool = True
    count: int = 6

    def words(self) -> list[str]:
        return ["typed", str(self.code)]

    def printed(self) -> str | None:
        return None

    def steps(self) -> list[Step]:
        (start,) = super().steps()
        start["args"]["yield_time_ms"] = 1_000
        typed = [
            {
                "id": f"{self.name}~{number}",
                "tool": "write_stdin",
                "args": {"chars": text, "yield_time_ms": 400, "max_output_tokens": 1_000_000},
            }
            for number, text in enumerate(self._sent())
        ]
        return [start, *typed]

    def _sent(self) -> list[str]:
        return [*(f"{number}\n" for number in range(self.count)), "end\n"]

    def _check_typed(self, seen: Seen) -> Iterator[str]:
        sent, typed = self._sent(), self._noted("typed").splitlines(keepends=True)
        if typed != [line for line in sent if line in typed]:
            yield f"what was typed arrived as {typed}"
        if not (seen.may_lose or seen.restarted or self._refused(seen)) and typed != sent:
            yield f"of what was typed, this arrived: {typed}"


# --- patches ----------------------------------------------------------------------------------------------------------


@dataclass
class Patch(Call):
    """Adds a line with its name to some files, and a file: a patch that is applied twice shows."""

    before: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def prepare(cwd: Path) -> None:
        for number in range(PATCHED):
            (cwd / f"f{number}").write_text("start\nend\n")

    def steps(self) -> list[Step]:
        self.before = self._content()
        lines = ["*** Begin Patch"]
        for number in range(PATCHED):
            lines += [f"*** Update File: f{number}", "@@", " start", f"+{self.name}"]
        lines += [f"*** Add File: new/{self.name}", "+new", "*** End Patch"]
        return [{"id": self.name, "tool": "apply_patch", "args": {"input": "\n".join(lines) + "\n"}}]

    def _content(self) -> dict[str, str]:
        return {f"f{number}": (self.cwd / f"f{number}").read_text() for number in range(PATCHED)}

    def check(self, seen: Seen) -> Iterator[str]:
        added = self.cwd / "new" / self.name
        after = {name: text.replace("start\n", f"start\n{self.name}\n", 1) for name, text in self.before.items()}
        files = self._content()
        told = " ".join(seen.told)
        status = None if seen.item is None else seen.item["status"]
        if status == "inProgress":
            yield "is still in progress"
        # Without an item it was refused before anything was done, which the model has to know; see below.
        if len(seen.completed) > 1 or (seen.item and not seen.completed and not seen.restarted):
            yield f"its item was completed {len(seen.completed)} times"
        if seen.completed and seen.item != seen.completed[-1]:
            yield f"the item was completed as {seen.completed[-1]['status']} and is read as {status}"
        for name, text in files.items():
            if text.count(f"{self.name}\n") > 1:
                yield f"{name} was patched {text.count(self.name)} times"
        if status == "completed":
            wrong = [name for name, text in files.items() if text != after[name]]
            if wrong or not added.exists() or added.read_text() != "new\n":
                yield f"is completed, and these are not as they should be: {wrong} (added: {added.exists()})"
            if not seen.restarted and "Success" not in told:
                yield f"is completed, and the model was told {told[-300:]!r}"
        elif seen.restarted:
            wrong = [name for name, text in files.items() if text not in (self.before[name], after[name])]
            if wrong:
                yield f"was cut off by a kill, and these are neither old nor new: {wrong}"
        else:
            changed = {name for name, text in files.items() if text != self.before[name]} | (
                {f"new/{self.name}"} if added.exists() else set()
            )
            silent = [name for name in changed if f"/{name}" not in told]
            if silent:
                yield f"is {status}, these are changed and the model was not told so: {silent}; but {told[-400:]!r}"
            if not told:
                yield f"is {status}, and the model was told nothing"
        self._repair()

    def _repair(self) -> None:
        """What was named as broken would be so for all that follows."""
        for name, text in self._content().items():
            if not text.startswith("start\n"):
                (self.cwd / name).write_text("start\nend\n")


# --- words ------------------------------------------------------------------------------------------------------------


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _short(item: dict[str, Any]) -> str:
    return f"{item['status']} {item.get('exitCode')} ({len(item.get('aggregatedOutput') or '')} characters)"


def _difference(right: str, wrong: str) -> str:
    """Where a text begins to be another one."""
    at = next((n for n, (one, other) in enumerate(zip(right, wrong, strict=False)) if one != other), None)
    at = min(len(right), len(wrong)) if at is None else at
    return f"{len(wrong)} of {len(right)} characters; at {at} {wrong[at : at + 60]!r}, not {right[at : at + 60]!r}"


def draw(chance: random.Random, name: str, truth: Path, cwd: Path) -> Sequence[Call]:
    """The calls of a turn."""
    kind = chance.choices(["lines", "behind", "burst", "asked", "typed", "patch"], [4, 2, 2, 3, 2, 3])[0]
    code = chance.choice([0, 0, 0, 3])
    first = f"{name}a"
    match kind:
        case "lines":
            calls: list[Call] = [Lines(first, truth, cwd, code=code, count=chance.randint(20, 60))]
        case "behind":
            calls = [Lines(first, truth, cwd, code=code, yield_ms=250, count=chance.randint(30, 60))]
        case "burst":
            burst = chance.choice([60_000, 300_000, 700_000])
            calls = [Lines(first, truth, cwd, code=code, burst=burst, count=chance.randint(20, 40))]
        case "asked":
            answer = chance.choices(["accept", "decline"], [5, 1])[0]
            when = chance.choice(["before", "during", "after"])
            return [Lines(first, truth, cwd, code=code, answer=answer, when=when, count=chance.randint(20, 40))]
        case "typed":
            calls = [Typed(first, truth, cwd, code=code)]
        case _:
            calls = [Patch(first, truth, cwd)]
    if chance.random() < 0.4:
        second = f"{name}b"
        calls.append(Patch(second, truth, cwd) if kind != "patch" else Lines(second, truth, cwd, code=code))
    return calls
