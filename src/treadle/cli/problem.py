"""What went wrong, for people: what happened, why, and what to type. Three lines on standard error, and an exit code.

Every error that a command meets becomes a `Problem` here, and is written here. Texts of others are made `visible`, and
secrets are taken out.
"""

from __future__ import annotations

import os
import traceback

from treadle.cli.exit_codes import FAILED, REFUSED
from treadle.cli.streams import OutputFailed, write_stderr
from treadle.cli.visible import visible
from treadle.errors import RpcError, TreadleError
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


def problem_of(error: Exception) -> Problem:
    """The same for people. An error that nobody has thought of is a bug, and says so."""
    from treadle.config import ConfigError, ModelUnusable  # only when something is wrong
    from treadle.llm import ModelError

    match error:
        case Problem():
            return error
        case ConfigError():
            return _of_settings(error, FAILED if isinstance(error, ModelUnusable) else REFUSED)
        case OutputFailed() | ModelError():
            return Problem(str(error))
        case RpcError():
            return Problem(error.message, code=REFUSED)
        case TreadleError():
            return Problem(str(error), code=REFUSED)
        case OSError():
            return Problem(_of_system(error))
    return Problem(
        f"this is a bug in Treadle: {type(error).__name__}: {error}",
        do="the same again with --debug, and report what it prints",
    )


def _of_settings(error: Exception, code: int) -> Problem:
    lines = [str(problem) for problem in getattr(error, "problems", ())] or [str(error)]
    if len(lines) == 1:
        return Problem(lines[0], code=code)
    return Problem("\n  ".join(["the configuration cannot be used, nothing was run:", *lines]), code=code)


def _of_system(error: OSError) -> str:
    named = f"{error.filename}: " if error.filename is not None else ""
    return f"{named}{error.strerror or error}"


def report(command: str | None, error: Exception, *, debug: bool = False) -> int:
    """Write it to standard error; gives the exit code."""
    problem = problem_of(error)
    secrets = secrets_in(os.environ)
    name = f"treadle {command}" if command else "treadle"
    lines = [f"{name}: {problem.what}"]
    if problem.why:
        lines.append(f"  why: {problem.why}")
    if problem.do:
        lines.append(f"  try: {problem.do}")
    if debug:
        lines += "".join(traceback.format_exception(error)).splitlines()
    write_stderr(visible(redact("\n".join(lines), secrets)))
    return problem.code
