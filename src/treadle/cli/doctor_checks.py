"""What `treadle doctor` checks in Treadle itself: Python, home, settings, sandbox, git."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from treadle.config import ConfigError, find_home, load_config
from treadle.errors import ExecError
from treadle.execution.sandbox.confinement import confine
from treadle.execution.sandbox.policy import Policy, Rule

Verdict: TypeAlias = Literal["ok", "warning", "failed", "skipped"]
MARKS: Final[dict[str, str]] = {"ok": "✓", "warning": "!", "failed": "✗", "skipped": "–"}


class Check(msgspec.Struct, frozen=True):
    """One thing that was checked.

    Args:
        what: What it is, and what was found.
        verdict: The outcome.
        advice: What to do about it.
        detail: More about it, a line each.
        seconds: How long it took, where that is worth knowing.
    """

    what: str
    verdict: Verdict = "ok"
    advice: str | None = None
    detail: list[str] = []
    seconds: float | None = None


def own_checks(overrides: Sequence[str] = ()) -> Iterator[Check]:
    """One after the other; the sandbox is tried out and may take a second."""
    yield Check(f"Python {sys.version.split()[0]}")
    yield _home()
    yield from _settings(overrides)
    yield _sandbox()
    yield _git()


def _home() -> Check:
    try:
        home = find_home(os.environ)
    except ConfigError as error:
        return Check(str(error), "failed")
    if not home.exists():
        made_in = next(parent for parent in home.parents if parent.exists())
        if os.access(made_in, os.W_OK):
            return Check(f"home {home}: made when it is first needed")
        return _unwritable(f"home {home} cannot be made")
    try:
        with tempfile.TemporaryFile(dir=home):
            return Check(f"home {home} can be written")
    except OSError as error:
        return _unwritable(f"home {home} cannot be written: {error.strerror}")


def _unwritable(what: str) -> Check:
    return Check(what, "failed", "set TREADLE_HOME to a folder of yours")


def _settings(overrides: Sequence[str]) -> Iterator[Check]:
    try:
        loaded = load_config(find_home(os.environ), overrides=overrides)
    except ConfigError as error:
        problems = [str(problem) for problem in error.problems]
        yield Check("the settings cannot be used", "failed", "correct them there", problems)
        return
    warnings = [str(warning) for warning in loaded.warnings]
    if warnings:
        yield Check("the settings can be read, with warnings", "warning", None, warnings)
    else:
        yield Check("the settings can be read")


def _sandbox() -> Check:
    try:
        confined = confine(
            Policy((Rule("/", "read"),), network=False), argv=["true"], arg0=None, cwd="/", env={}, tty=False
        )
    except ExecError as error:
        return Check("there is no sandbox for commands", "failed", None, [error.message])
    confined.release()
    by = "bubblewrap" if confined.argv[0].endswith("bwrap") else "Landlock"
    return Check(f"commands can be confined, by {by}")


def _git() -> Check:
    path = shutil.which("git")
    if path is None:
        return Check("git is not installed: projects have no branches", "warning", "install git")
    return Check(f"git at {path}")
