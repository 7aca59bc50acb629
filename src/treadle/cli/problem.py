"""What went wrong, for people: what happened, why, and what to type. Three lines on standard error, and an exit code.

Every error that a command meets becomes a `Problem` (`remedies` knows how), and is written here. Texts of others are
made `visible`, and secrets are taken out.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence

from treadle.cli.exit_codes import FAILED, REFUSED
from treadle.cli.streams import write_stderr
from treadle.cli.visible import visible
from treadle.errors import TreadleError
from treadle.secrets import redact, secrets_in


class Problem(TreadleError):
    """Why a command cannot go on.

    Args:
        what: What happened.
        why: The reason, if `what` does not say it.
        do: What to type, or to change.
        code: The exit code.
    """

    def __init__(self, what: str, *, why: str | None = None, do: str | None = None, code: int = FAILED) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.do = do
        self.code = code

    def __str__(self) -> str:
        """The lines that are shown."""
        why = "" if self.why is None else "\n  why: " + self.why.replace("\n", "\n       ")
        return f"{self.what}{why}" + ("" if self.do is None else f"\n  try: {self.do}")


def report(command: str | None, error: Exception, *, debug: bool = False, words: Sequence[str] = ()) -> int:
    """Write it to standard error; gives the exit code. `words` are what was typed: a setting in it may be secret."""
    from treadle.cli.remedies import problem_of  # only when something is wrong

    problem = problem_of(error)
    name = f"treadle {command}" if command else "treadle"
    if problem.do is None and problem.code == REFUSED:
        problem.do = f"{name} --help"
    lines = [f"{name}: {problem}"]
    if debug:
        lines += "".join(traceback.format_exception(error)).splitlines()
    write_stderr(visible(redact("\n".join(lines), [*secrets_in(os.environ, words), *_kept_keys()])))
    return problem.code


def _kept_keys() -> list[str]:
    """The keys that `treadle login` keeps."""
    from treadle.config import ConfigError, Login, find_home  # only when something is wrong
    from treadle.config.stored_keys import StoredKeys

    try:
        home = find_home(os.environ)
    except ConfigError:
        return []
    return [key for key in (Login(home).api_key(), *StoredKeys(home).secrets()) if key]
