"""A real sshd on loopback, with keys, settings and a home of its own: nothing of the user's is read or written."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from kit.ports import free_port
from treadle.own_python import treadle_command

SSHD: Final = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or ""
MISSING: Final = (
    "openssh-server is not installed here"
    if not SSHD or shutil.which("ssh") is None
    else "sshd wants the folder /run/sshd"
    if os.geteuid() == 0 and not os.path.isdir("/run/sshd")
    else ""
)


class SshServer(NamedTuple):
    """`config` is for `ssh -F`; in it, `box` is the server. `home` is what logins have as theirs."""

    config: Path
    home: Path
    process: subprocess.Popen[bytes]

    def cut(self) -> None:
        """End the connections that there are, as the loss of a network does: without a word to what runs there."""
        for session in _children(self.process.pid):
            for worker in (*_children(session), session):
                with suppress(ProcessLookupError):  # the first one's end was its own
                    os.kill(worker, signal.SIGKILL)


def write_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def _children(pid: int) -> list[int]:
    try:
        named = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []
    return [int(each) for each in named if Path(f"/proc/{each}/comm").read_text().startswith("sshd")]


@contextmanager
def ssh_server(folder: Path) -> Iterator[SshServer]:
    """A server whose logins find `treadle`."""
    programs, home = folder / "bin", folder / "home"
    for made in (programs, home):
        made.mkdir(parents=True)
    write_program(programs / "treadle", f'exec {shlex.join(treadle_command())} "$@"')
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True, timeout=60)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    port = free_port()
    host = (folder / "host.pub").read_text()
    (folder / "known").write_text(f"[127.0.0.1]:{port} {host}")
    (folder / "sshd.conf").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        f"PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\n"
        f"SetEnv HOME={home} TREADLE_HOME={home}/.treadle PATH={programs}:/usr/bin:/bin\n"
    )
    (folder / "ssh.conf").write_text(
        f"Host box\n HostName 127.0.0.1\n Port {port}\n User {pwd.getpwuid(os.geteuid()).pw_name}\n"
        f" IdentityFile {folder}/user\n IdentitiesOnly yes\n UserKnownHostsFile {folder}/known\n"
        " GlobalKnownHostsFile /dev/null\n"
    )
    log = folder / "sshd.log"
    with log.open("wb") as file:
        process = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "sshd.conf"], stderr=file, start_new_session=True)
    server = SshServer(folder / "ssh.conf", home, process)
    try:
        reached = subprocess.run(
            ["ssh", "-F", server.config, "-o", "BatchMode=yes", "-o", "ConnectionAttempts=50", "box", "true"],
            capture_output=True,
            timeout=100,
        )
        assert reached.returncode == 0, (reached.stderr, log.read_text())
        yield server
    finally:
        server.cut()
        process.kill()
        process.wait()
