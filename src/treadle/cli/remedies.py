"""Errors of other layers as `Problem`s: what happened, why, and what to type. Loaded when something has gone wrong.

Callers look at types and fields, never at texts.
"""

from __future__ import annotations

import errno
from typing import Final

from treadle.cli.exit_codes import FAILED, REFUSED
from treadle.cli.model_problem import model_problem
from treadle.cli.problem import Problem
from treadle.cli.streams import OutputFailed
from treadle.config import ConfigError, ConfigProblem, ConfigWriteError, ModelUnusable
from treadle.errors import ChannelClosed, RpcError, TreadleError
from treadle.llm import ModelError
from treadle.runners.engine_registry import UnknownEngine
from treadle.store.contract import StoreError
from treadle.transport.address import AddressError
from treadle.transport.sockets import ListenError

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


def problem_of(error: Exception) -> Problem:
    """The same for people. An error that nobody has thought of is a bug, and says so."""
    match error:
        case Problem():
            return error
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
            return _of_system(error)
    return Problem(
        "this is a bug in Treadle",
        why=f"{type(error).__name__}: {error}",
        do="the same again with --debug, and report what it prints",
    )


def _of_settings(error: ConfigError) -> Problem:
    why = "\n".join(str(problem) for problem in error.problems)
    first = error.problems[0]
    if isinstance(error, ConfigWriteError):
        return Problem("config.toml was not changed", why=why, do="treadle config show --all", code=REFUSED)
    if isinstance(error, ModelUnusable):
        other = "-c model_provider=NAME; `treadle login status` lists them"
        do = "-m NAME; `treadle models` lists them" if first.key == "model" else other
        return Problem("the model cannot be used", why=why, do=do, code=FAILED)
    return Problem("the settings cannot be used, so nothing was run", why=why, do=_mend(first), code=REFUSED)


def _mend(problem: ConfigProblem) -> str:
    if problem.path is not None and problem.line is not None:
        return f"correct line {problem.line} of {problem.path}, then: treadle config check"
    if problem.path is not None:
        return f"look at it: ls -l {problem.path}"
    if problem.source == "-c":
        return "correct that -c KEY=VALUE, or leave it out; treadle config show --all lists the keys"
    return "export TREADLE_HOME=DIR" if problem.source is None else f"correct {problem.source}, or unset it"


def _of_system(error: OSError) -> Problem:
    what = "the system refused something" if error.filename is None else f"{error.filename} cannot be used"
    do = _SYSTEM.get(error.errno or 0, f"{_DOCTOR} looks at disk, home and database")
    return Problem(what, why=error.strerror or str(error), do=do)
