"""The sandbox, tried out: a small command that may write one folder, and tries another and the network."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from treadle.cli.checkup.check import Check
from treadle.errors import ExecError
from treadle.execution.sandbox.confinement import Confined, confine
from treadle.execution.sandbox.host import HOST, Unusable
from treadle.execution.sandbox.policy import Policy, Rule

_DEADLINE_S: Final = 20.0
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
# It tells what it could do.
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


def check_sandbox() -> Check:
    began = time.monotonic()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="treadle-doctor-") as folder,
            socket.create_server(("127.0.0.1", 0)) as peer,
        ):
            did, by = _try_out(Path(folder).resolve(), peer.getsockname()[1])
    except ExecError as error:
        return Check("there is no sandbox for commands", "failed", _advice(), [error.message])
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Check("the sandbox could not be tried out", "failed", _advice(), [str(error)])
    seconds = time.monotonic() - began
    leaks = [words for name, words in _LEAKS.items() if did.get(name) is not _WANTED[name]]
    if leaks:
        return Check(f"{by} does not confine commands as it should", "failed", _advice(), leaks, seconds)
    what = f"{by} confines commands: one was kept from writing elsewhere, and from the network"
    missing = HOST.bubblewrap()
    if by != "bubblewrap" and isinstance(missing, Unusable) and not os.environ.get("TREADLE_SANDBOX"):
        more = [f"{missing.reason}; with it, files can also be hidden below a writable folder"]
        return Check(what, "warning", _advice(), more, seconds)
    return Check(what, seconds=seconds)


_WANTED: Final = {"allowed": True, "forbidden": False, "network": False}
_LEAKS: Final = {
    "allowed": "a command could not write where it may",
    "forbidden": "a command could write where it may not",
    "network": "a command could use the network though it may not",
}


def _try_out(folder: Path, port: int) -> tuple[dict[str, Any], str]:
    inside, outside = folder / "inside", folder / "outside"
    inside.mkdir()
    outside.mkdir()
    policy = Policy((Rule("/", "read"), Rule(str(inside), "write")), network=False)
    argv = [sys.executable, "-I", "-S", "-c", _TRIAL, str(inside / "file"), str(outside / "file"), str(port)]
    confined = confine(policy, argv=argv, arg0=None, cwd=str(inside), env={"PATH": os.defpath}, tty=False)
    try:
        # bubblewrap ends what a command leaves behind; Landlock cannot.
        return json.loads(_run(confined, inside)), "Landlock" if confined.leaves_descendants else "bubblewrap"
    finally:
        confined.release()


def _run(confined: Confined, cwd: Path) -> bytes:
    done = subprocess.run(
        confined.argv,
        cwd=cwd,
        env=dict(confined.env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        start_new_session=True,
        timeout=_DEADLINE_S,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()[-300:]
        raise OSError(f"exit code {done.returncode}: {said}")
    return done.stdout


def _advice() -> str:
    """What lets bubblewrap work here."""
    for path, (blocking, mend) in _SWITCHES.items():
        try:
            value = Path(path).read_text().strip()
        except OSError:
            continue
        if value == blocking and os.access("/usr/bin/bwrap", os.X_OK):
            return mend
    return INSTALL
