"""What went wrong, for people: what happened, why, and what to type. Three lines on standard error, and an exit code.

Every error that a command meets becomes a `Problem` (`problem_of` looks at types and fields, never at texts) and is
written by `report`, which escapes texts of others and takes secrets out. What to do about a model that gave no answer
is not decided here: `treadle.agent.model_failures` has that table, for servers and other clients too.
"""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from treadle.cli.streams import FAILED, READER_GONE, REFUSED, OutputFailed, ReaderGone, write_stderr
from treadle.errors import ChannelClosed, RpcError, TreadleError, needs_linux
from treadle.pages.safe_text import printable
from treadle.secrets import redact, secrets_in

if TYPE_CHECKING:
    from treadle.config import ConfigError
    from treadle.llm import ModelError, ProviderConfig

_DOCTOR: Final = "treadle doctor --no-engines"
_FREE_PORT: Final = "--listen ws://127.0.0.1:0, which takes a free port of this machine"
_STORE: Final = {
    "full": "make room on that disk, then the same again",
    "busy": f"{_DOCTOR} names the process that holds it",
    "claimed": "end the other server that works on this thread, or wait for it",
    "missing": "treadle exec resume --last goes on with the most recent thread",
}
_SYSTEM: Final = {
    errno.ENOSPC: "make room on that disk, then the same again",
    errno.EDQUOT: "make room: your quota is used up",
    errno.EACCES: "look at who owns it: ls -l",
    errno.EPERM: "look at who owns it: ls -l",
    errno.EROFS: "choose a place that can be written, as with TREADLE_HOME=DIR",
    errno.ENOENT: "look whether the name is right",
    errno.EMFILE: "ulimit -n 4096, then the same again",
}


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
    """Write an error to standard error; gives the exit code. `words` are what was typed: a setting in it may be
    secret."""
    if isinstance(error, ReaderGone):
        return READER_GONE
    # Only when something is wrong.
    from treadle.config import ConfigError, Login, find_home
    from treadle.config.login import StoredKeys

    problem = problem_of(error)
    name = f"treadle {command}" if command else "treadle"
    if problem.do is None and problem.code == REFUSED:
        problem.do = f"{name} --help"
    lines = [f"{name}: {problem}"]
    if debug:
        lines += "".join(traceback.format_exception(error)).splitlines()
    secrets = secrets_in(os.environ, words)
    try:
        home = find_home(os.environ)
        secrets += filter(None, (Login(home).api_key(), *StoredKeys(home).secrets()))
    except ConfigError:
        pass  # without a home there are no stored keys
    write_stderr(printable(redact("\n".join(lines), secrets)))
    return problem.code


def problem_of(error: Exception) -> Problem:
    """The problem that an error of any layer is. An error that nobody has thought of is a bug, and its message says
    so."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, AttributeError | ImportError) and (missing := needs_linux("this command")) is not None:
        return Problem(missing, code=REFUSED)
    # Only when something is wrong: Treadle is nearly loaded as a whole.
    from treadle.config import ConfigError
    from treadle.llm import ModelError
    from treadle.runners.engine import UnknownEngine
    from treadle.store.contract import StoreError
    from treadle.transport.address import AddressError, ListenError

    match error:
        case ConfigError():
            return _of_settings(error)
        case ModelError():
            return model_problem(error, None, "the provider gave no answer")
        case StoreError():
            what = "threads cannot be read or written"
            return Problem(what, why=error.message, do=_STORE.get(error.kind, f"{_DOCTOR} says more"), code=REFUSED)
        case AddressError():
            return Problem("--listen cannot be used", why=str(error), do=_FREE_PORT, code=FAILED)
        case ListenError():
            return Problem("the server cannot listen", why=str(error), do=_FREE_PORT)
        case ChannelClosed():
            do = "let a client start it, which gives it pipes; or --listen ws://127.0.0.1:0"
            return Problem("there is no connection", why=error.reason, do=do)
        case UnknownEngine():
            why, do = error.reason, "treadle engines shows which there are"
            return Problem(f"{error.name!r} cannot be used as an engine", why=why, do=do, code=REFUSED)
        case OutputFailed():
            return Problem(str(error))
        case RpcError():
            do = f"{_DOCTOR} looks at home, disk and database"
            return Problem("the app-server in this program refused it", why=error.message, do=do, code=REFUSED)
        case TreadleError():
            return Problem("this cannot be done", why=str(error), code=REFUSED)
        case OSError():
            what = "the system refused something" if error.filename is None else f"{error.filename} cannot be used"
            do = _SYSTEM.get(error.errno or 0, f"{_DOCTOR} looks at disk, home and database")
            return Problem(what, why=error.strerror or str(error), do=do)
    return Problem(
        "this is a bug in Treadle",
        why=f"{type(error).__name__}: {error}",
        do="the same again with --debug, and report what it prints",
    )


def model_problem(error: ModelError, provider: ProviderConfig | None, what: str) -> Problem:
    """The problem that a failure of a provider is.

    Args:
        error: The error.
        provider: The provider, if it is known.
        what: What was wanted and did not work.
    """
    from treadle.agent.model_failures import advice  # only where a model failed

    return Problem(what, why=error.message, do=advice(error.kind, provider))


def _of_settings(error: ConfigError) -> Problem:
    from treadle.config import ConfigWriteError, ModelUnusable  # only when something is wrong

    why = "\n".join(str(problem) for problem in error.problems)
    if isinstance(error, ConfigWriteError):
        return Problem("config.toml was not changed", why=why, do="treadle config show --all", code=REFUSED)
    if isinstance(error, ModelUnusable):
        other = "-c model_provider=NAME; `treadle login status` lists them"
        do = "-m NAME; `treadle models` lists them" if error.key == "model" else other
        return Problem("the model cannot be used", why=why, do=do, code=FAILED)
    if error.path is not None and error.line is not None:
        do = f"correct line {error.line} of {error.path}, then: treadle config check"
    elif error.path is not None:
        do = f"look at it: ls -l {error.path}"
    elif error.source == "-c":
        do = "correct that -c KEY=VALUE, or leave it out; treadle config show --all lists the keys"
    else:
        do = "export TREADLE_HOME=DIR" if error.source is None else f"correct {error.source}, or unset it"
    return Problem("the settings cannot be used, so nothing was run", why=why, do=do, code=REFUSED)
