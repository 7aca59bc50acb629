"""What `treadle doctor` tries out: the sandbox with a small command, and every engine with one question.

Nothing of the user is touched and nothing is sent anywhere: the model is a server of ours on 127.0.0.1, and the homes
are temporary folders.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from treadle.cli.checkup.checks import Check
from treadle.cli.run.run_view import failure_reason, stderr_lines
from treadle.errors import ExecError
from treadle.execution.sandbox.command import handing
from treadle.execution.sandbox.confinement import HOST, Confined, Unusable, confine
from treadle.execution.sandbox.policy import PathRule, Policy
from treadle.own_python import isolated_python, treadle_command
from treadle.runners.engine import Timeouts
from treadle.runners.engine_registry import find_engine
from treadle.runners.run_events import CompletedEvent
from treadle.runners.runner import Runner
from treadle.runners.status import EngineStatus, engine_statuses
from treadle.secrets import secrets_in
from treadle.testing import EngineHome, EngineModel
from treadle.testing.engine_home import ENGINES, EngineName

# --- the sandbox ---

_SANDBOX_S: Final = 20.0
INSTALL: Final = "sudo apt install bubblewrap (or: dnf, pacman -S, apk add bubblewrap)"
# What keeps bubblewrap from working though it is installed, and how it is allowed.
_SWITCHES: Final = {
    "/proc/sys/kernel/unprivileged_userns_clone": ("0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    "/proc/sys/user/max_user_namespaces": ("0", "sudo sysctl -w user.max_user_namespaces=15000"),
}
# A command that writes what it could do.
_TRIAL: Final = """
import json, socket, sys
allowed, forbidden, port = sys.argv[1:]
did = {}
for name, path in (("allowed", allowed), ("forbidden", forbidden)):
    try:
        open(path, "w").close()
        did[name] = True
    except OSError:
        did[name] = False
try:
    socket.create_connection(("127.0.0.1", int(port)), 2).close()
    did["network"] = True
except OSError:
    did["network"] = False
print(json.dumps(did))
"""


# What the command should be able to do, and what it means if it is otherwise.
_LEAKS: Final = {
    "allowed": (True, "a command could not write where it may"),
    "forbidden": (False, "a command could write where it may not"),
    "network": (False, "a command could use the network though it may not"),
}


def check_sandbox() -> Check:
    """Try out the sandbox: a small command that may write one folder, and tries another and the network."""
    began = time.monotonic()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="treadle-doctor-") as folder,
            socket.create_server(("127.0.0.1", 0)) as peer,
        ):
            did, by = _try_sandbox(Path(folder).resolve(), peer.getsockname()[1])
    except ExecError as error:
        return Check("there is no sandbox for commands", "failed", _how_to_allow(), [error.message])
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Check("the sandbox could not be tried out", "failed", _how_to_allow(), [str(error)])
    seconds = time.monotonic() - began
    leaks = [leak for name, (wanted, leak) in _LEAKS.items() if did.get(name) is not wanted]
    if leaks:
        return Check(f"{by} does not confine commands as it should", "failed", _how_to_allow(), leaks, seconds)
    what = f"{by} confines commands: one was kept from writing elsewhere, and from the network"
    missing = HOST.bubblewrap()
    if by != "bubblewrap" and isinstance(missing, Unusable) and not os.environ.get("TREADLE_SANDBOX"):
        more = [f"{missing.reason}; with it, files can also be hidden below a writable folder"]
        return Check(what, "warning", _how_to_allow(), more, seconds)
    return Check(what, seconds=seconds)


def _try_sandbox(folder: Path, port: int) -> tuple[dict[str, Any], str]:
    inside, outside = folder / "inside", folder / "outside"
    inside.mkdir()
    outside.mkdir()
    policy = Policy((PathRule("/", "read"), PathRule(str(inside), "write")), network=False)
    argv = isolated_python("-S", "-c", _TRIAL, str(inside / "file"), str(outside / "file"), str(port))
    confined = confine(policy, argv=argv, arg0=None, cwd=str(inside), env={"PATH": os.defpath}, tty=False)
    try:
        # bubblewrap ends what a command leaves behind; Landlock cannot.
        return json.loads(_run(confined, inside)), "Landlock" if confined.leaves_descendants else "bubblewrap"
    finally:
        confined.release()


def _run(confined: Confined, cwd: Path) -> bytes:
    done = subprocess.run(
        handing(confined.argv, confined.handed),
        cwd=cwd,
        env={},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        start_new_session=True,
        timeout=_SANDBOX_S,
        check=False,
    )
    if done.returncode != 0:
        complaint = done.stderr.decode("utf-8", "replace").strip()[-300:]
        raise OSError(f"exit code {done.returncode}: {complaint}")
    return done.stdout


def _how_to_allow() -> str:
    """What to type so that bubblewrap works here."""
    for path, (blocking, mend) in _SWITCHES.items():
        try:
            value = Path(path).read_text().strip()
        except OSError:
            continue
        if value == blocking and os.access("/usr/bin/bwrap", os.X_OK):
            return mend
    return INSTALL


# --- the engines ---

PROMPT: Final = "treadle doctor"
ANSWER: Final = f"pong: {PROMPT}"
# opencode takes ten seconds when the machine is busy with others.
TRIAL_S: Final = 120.0


@contextmanager
def trial_environment() -> Iterator[Trial]:
    """The environment for trying out engines. What the runners store goes into its temporary folder too."""
    with tempfile.TemporaryDirectory(prefix="treadle-doctor-", ignore_cleanup_errors=True) as folder:
        before = os.environ.get("TREADLE_HOME")
        os.environ["TREADLE_HOME"] = str(Path(folder) / "runs")
        try:
            with EngineModel() as model:
                yield Trial(EngineHome(folder, model))
        finally:
            if before is None:
                del os.environ["TREADLE_HOME"]
            else:
                os.environ["TREADLE_HOME"] = before


class Trial:
    """Runs engines against a mock model, in a home of their own. Their environment variables have nothing of the user's
    but the PATH, so that neither a login nor the network is used."""

    def __init__(self, home: EngineHome) -> None:
        self._home = home

    async def checks(self, status: EngineStatus) -> AsyncIterator[Check]:
        """The checks of an engine, one after the other, the last of them slow.

        Args:
            status: What was seen of the engine from outside.
        """
        if not status.installed and status.problem is not None:
            yield Check(status.problem, "failed", "correct or remove the package that offers it")
            return
        if not status.installed:
            yield Check("not installed", "skipped", f"to get it: {status.install}")
            return
        yield Check("part of Treadle" if status.name == "treadle" else f"found {status.path}")
        yield await self._version(status)
        yield _check_login(status)
        if status.name not in ENGINES:
            yield Check("no round trip: nobody knows how to lead it to a mock model", "skipped")
        else:
            yield await self._round_trip(status.name, status)

    async def _version(self, status: EngineStatus) -> Check:
        everything = {name: value for engine in ENGINES for name, value in self._home.env(engine).items()}
        began = time.monotonic()
        [asked] = await engine_statuses([status.name], ask_in=everything)
        seconds = time.monotonic() - began
        if asked.problem is not None:
            return Check(
                asked.problem, "warning", f"if it does not work, install it anew: {status.install}", seconds=seconds
            )
        if asked.outdated:
            what = f"version {asked.version} is older than {asked.tested}, which Treadle is tested with"
            return Check(what, "warning", f"to update: {status.install}", seconds=seconds)
        return Check(f"version {asked.version}", seconds=seconds)

    async def _round_trip(self, name: EngineName, status: EngineStatus) -> Check:
        engine = find_engine(name)
        runner = Runner(
            replace(engine, drop_env=tuple(os.environ)),
            treadle_command() if name == "treadle" else status.path,
            env=self._home.env(name),
            cwd=self._home.project,
            timeouts=Timeouts(total=TRIAL_S, idle=TRIAL_S),
        )
        began = time.monotonic()
        run = runner.run(PROMPT)
        completed: CompletedEvent | None = None
        async with aclosing(run):
            async for event in run:
                if isinstance(event, CompletedEvent):
                    completed = event
        seconds = time.monotonic() - began
        assert completed is not None
        if completed.ok and completed.answer.strip() == ANSWER:
            return Check("answers through a mock model", seconds=seconds)
        secrets = secrets_in(os.environ)
        reason = failure_reason(completed, secrets) if not completed.ok else f"it answered {completed.answer[:200]!a}"
        advice = f"install it anew: {status.install}; `treadle run --engine {name} …` shows more"
        return Check(
            f"does not answer through a mock model: {reason}",
            "failed",
            advice,
            stderr_lines(run.stderr, secrets),
            seconds,
        )


def _check_login(status: EngineStatus) -> Check:
    if status.login:
        return Check(f"login: {status.login_at}")
    if status.login is False:
        return Check(f"not logged in: {status.login_at}", "warning", status.log_in and f"to log in: {status.log_in}")
    if not status.login_at:
        return Check("login: nobody knows", "skipped")
    return Check(f"login: {status.login_at}", "skipped", status.log_in and f"to use a real model: {status.log_in}")
