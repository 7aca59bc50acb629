"""Programs of ours that run to their end, without the start of Python: each is a fork of a process that is warm.

`run_python` is `subprocess.run` for `python -m treadle …` and `python script.py`, with its output read. Most of what
such a program costs is the start of the interpreter and the loading of modules. One process for each worker (`_serve`)
does that once, and becomes the program in a fork of itself: with its arguments, environment, directory and streams.
What only a new interpreter reads (`PYTHON…`, the locale) makes it a new one. Which modules a program loads is checked
elsewhere (`tests/unit/test_layers.py`).

`write_treadle` makes a program `treadle` for tests that type commands into a shell: it hands itself over to the warm
process with its streams, and ends as its copy there does. Servers and terminals get a Python of their own.
"""

from __future__ import annotations

import atexit
import gc
import os
import runpy
import select
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from ast import literal_eval
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from signal import SIGKILL
from types import ModuleType
from typing import Any, Final

_LOADED: Final = (
    *(
        "treadle.cli.exec.exec_turn",
        "treadle.cli.in_process",
        "treadle.cli.user_commands",
    ),
    *("treadle.cli.turn.plain_turn", "treadle.client.api", "treadle.client.async_api", "treadle.server.app"),
    *("treadle.server.loaded_threads", "treadle.agent.turn.turn_loop", "treadle.agent.tools.built_in"),
    *("treadle.agent.tools.command_call", "treadle.agent.tools.patch_call", "treadle.tools.patch.patch_transaction"),
    *("treadle.execution.local_backend", "treadle.store.sqlite.sqlite_store", "treadle.llm.offline", "treadle.testing"),
    *("treadle.llm.provider_model", "treadle.http.http_connection", "asyncio", "ssl"),
)
_OF_INTERPRETERS: Final = ("PYTHON", "LC_", "LANG")
_WITHOUT_EFFECT: Final = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")  # on what a program says
_LARGEST_REQUEST: Final = 1 << 20


def run_python(
    arguments: Sequence[str | Path],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: str = "",
    timeout: float = 100,
) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS` (`-W` and options of its own, then `-m treadle …` or a script) and wait for its end. Its
    streams are files."""
    command = [sys.executable, *map(str, arguments)]
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        code: int | None
        if _of_interpreters(env) != _of_interpreters(os.environ):
            code = subprocess.run(
                command, cwd=cwd, env=env, stdin=given, stdout=out, stderr=err, timeout=timeout, check=False
            ).returncode
        else:
            request = {"words": command[1:], "cwd": str(cwd), "env": dict(env)}
            code = _run_forked(request, [each.fileno() for each in (given, out, err)], timeout)
        texts = []
        for each in (out, err):
            each.seek(0)
            texts.append(each.read().decode())
    if code is None:
        raise subprocess.TimeoutExpired(command, timeout, *texts)
    return subprocess.CompletedProcess(command, code, *texts)


def _of_interpreters(env: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in env.items() if name.startswith(_OF_INTERPRETERS) and name not in _WITHOUT_EFFECT
    }


def _run_forked(request: Mapping[str, Any], streams: list[int], timeout: float) -> int | None:
    """The exit code, negative for a signal; None when it did not end in time."""
    ours, theirs = os.pipe()
    try:
        socket.send_fds(_server(), [ascii(request).encode()], [*streams, theirs])
    finally:
        os.close(theirs)
    with open(ours) as answer:
        pid = int(answer.readline())
        if not select.select([answer], [], [], timeout)[0]:
            os.kill(pid, SIGKILL)
            answer.readline()
            return None
        return os.waitstatus_to_exitcode(int(answer.readline()))


_PROGRAM: Final = """\
#!/bin/sh
'''exec' '{python}' -IS "$0" "$@"
'''
import os, sys, _socket

words = sys.argv[1:]
if os.isatty(0) or os.isatty(1) or (words[:1] or [""])[0].endswith("-server"):
    os.execv({python!r}, [{python!r}, "-m", "treadle", *words])
ours, theirs = os.pipe()
request = dict(words=["-m", "treadle", *words], cwd=os.getcwd(), env=dict(os.environ))
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2, theirs))
way = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
way.connect({address!r})
way.sendmsg([ascii(request).encode()], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
os.close(theirs)
code = os.waitstatus_to_exitcode(int(open(ours).read().split()[1]))
os._exit(code) if code >= 0 else os.kill(os.getpid(), -code)
"""


def write_treadle(path: Path) -> None:
    """Write the program, to be found on a `PATH`."""
    path.write_text(_PROGRAM.format(python=sys.executable, address=_server().getpeername()))
    path.chmod(0o755)


@cache
def _server() -> socket.socket:
    """The way to this worker's warm process, which ends with the worker."""
    folder = tempfile.TemporaryDirectory()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"{folder.name}/s")
    listener.listen(100)
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.connect(listener.getsockname())
    process = subprocess.Popen([sys.executable, __file__], stdin=listener.fileno())
    listener.close()

    def end() -> None:
        ours.close()
        process.wait(10)
        folder.cleanup()

    atexit.register(end)
    return ours


# --- the warm process -------------------------------------------------------------------------------------------------


def _serve() -> None:
    """Fork for each request; in the fork, return when it has been made into what was asked for."""
    listener = socket.socket(fileno=os.dup(0))
    owner, _ = listener.accept()
    running: dict[int, tuple[int, int]] = {}  # from the handle of a process to its number and where its end is written
    poll = select.poll()
    poll.register(owner.fileno(), select.POLLIN)
    poll.register(listener.fileno(), select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready in running:
                pid, answer = running.pop(ready)
                _write(answer, os.waitpid(pid, 0)[1])
                poll.unregister(ready)
                os.close(ready)
                os.close(answer)
                continue
            way = owner if ready == owner.fileno() else listener.accept()[0]
            request, descriptors, _, _ = socket.recv_fds(way, _LARGEST_REQUEST, 4)
            if way is owner and not request:
                os._exit(0)
            if way is not owner:
                way.close()
            pid = os.fork()
            if pid == 0:
                owner.detach()
                listener.detach()
                for number, descriptor in enumerate(descriptors[:3]):
                    os.dup2(descriptor, number)
                os.closerange(3, 1000)
                _become(**literal_eval(request.decode()))
                return
            _write(descriptors[3], pid)
            handle = os.pidfd_open(pid)
            running[handle] = (pid, descriptors[3])
            poll.register(handle, select.POLLIN)
            for descriptor in descriptors[:3]:
                os.close(descriptor)


def _write(answer: int, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody waits for it any more
        os.write(answer, f"{number}\n".encode())


def _become(words: list[str], cwd: str, env: dict[str, str]) -> None:
    for number, name in enumerate(("stdin", "stdout", "stderr")):  # the present ones know what they were opened on
        before = getattr(sys, name)
        mode, buffering = ("r", -1) if number == 0 else ("w", -1 if number == 1 else 1)
        stream = open(number, mode, buffering, before.encoding, before.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.orig_argv = [sys.executable, *words]
    while words[0] == "-W":
        warnings.simplefilter(words[1])  # type: ignore[arg-type]
        del words[:2]
    if words[0] == "-m":
        sys.path[0] = cwd
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    sys.path[0] = os.path.dirname(words[0])
    sys.argv = words
    program = ModuleType("__main__")
    program.__file__ = words[0]
    sys.modules["__main__"] = program
    exec(compile(Path(words[0]).read_bytes(), words[0], "exec"), program.__dict__)


if __name__ == "__main__":
    for _name in _LOADED:
        import_module(_name)
    gc.freeze()
    _serve()
