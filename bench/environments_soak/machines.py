"""The programs of the soak: an app-server here, and an exec-server on each machine, two of which dial."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import family
from bench.environments_soak import program
from bench.environments_soak.network import Network
from bench.servers import BenchError

LISTENS: Final = "one"
DIAL: Final = ("two", "three")
NAMES: Final = (LISTENS, *DIAL)
POOL: Final = "pool"
"""The environment that is any of those that dial."""
RECOVERY_S: Final = 10.0
DETACH_S: Final = 60.0
SMALL: Final = 512 << 10  # bytes of the disk on which patches write
APP_PORT: Final = 4500
EXEC_PORT: Final = 8765
_KEPT: Final = ("PATH", "LANG", "TMPDIR", "PYTHONPATH", "TREADLE_LOG")
_CONFIG: Final = """\
model = "mock-model"
approval_policy = "never"
sandbox_mode = "danger-full-access"
model_provider = "mock"

[model_providers.mock]
name = "mock"
base_url = "{model}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0

[environments.one]
url = "wss://{far}:{port}"
token_file = "{folder}/token"
ca_file = "{folder}/cert.pem"
{patience}
"""
_DIALLED: Final = """
[environments.{name}]
labels = ["{name}"]
{patience}
"""


class Program:
    """One that is started anew after it was killed. `offset` is how far its clock is off, in seconds."""

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        self.folder = folder
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._clock = folder / "clock"
        (folder / "user").mkdir(parents=True)
        self._clock.write_bytes(bytes(8))

    @property
    def log(self) -> Path:
        return self.folder / "stderr"

    def set_clock(self, offset: int) -> None:
        with self._clock.open("r+b") as file:  # it is mapped: it may not become shorter
            file.write(struct.pack("q", offset))

    def start(self) -> None:
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        homes = {"HOME": str(self.folder / "user"), "TREADLE_HOME": str(self.folder / "home")}
        with self.log.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                cwd=self.folder,
                env=kept | homes | {program.CLOCK: str(self._clock)},
                start_new_session=True,
            )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def freeze(self, *, everything: bool) -> list[int]:
        """Stop the program, with its commands if `everything`; gives what `thaw` takes."""
        assert self._process is not None
        members = [each.pid for each in family.members(self._process.pid)] if everything else [self._process.pid]
        for pid in members:
            _signal(pid, signal.SIGSTOP)
        return members

    def thaw(self, pids: Sequence[int]) -> None:
        for pid in pids:
            _signal(pid, signal.SIGCONT)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            family.kill(family.members(self._process.pid))
            self._process.wait()


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # a command that has ended meanwhile
        return


class Machines:
    """The app-server `app` and the exec-servers. Each machine has a folder: `truth` is where its commands note what
    they do, `small` a disk of its own on which threads work."""

    def __init__(self, folder: Path, network: Network, model_url: str) -> None:
        self.folder = folder
        self.token = secrets.token_hex(16)
        self._write("token", self.token)
        self._write("executors", secrets.token_hex(16))
        _make_certificate(folder, ["127.0.0.1", network.far(LISTENS), *map(network.near, DIAL)])
        treadle = [sys.executable, "-P", program.__file__]
        tls = ["--tls-cert", f"{folder}/cert.pem", "--tls-key", f"{folder}/key.pem"]
        tokens = ["--token-file", f"{folder}/token", "--executors-token-file", f"{folder}/executors"]
        listen = ["--listen", f"wss://0.0.0.0:{APP_PORT}", *tokens, *tls]
        self.app = Program(folder / "app", [*treadle, "app-server", *listen])
        self._configure(network, model_url)
        self.executors: dict[str, Program] = {}
        for name in NAMES:
            if name == LISTENS:
                words = ["--listen", f"wss://0.0.0.0:{EXEC_PORT}", "--token-file", f"{folder}/token", *tls]
            else:
                url = f"wss://{network.near(name)}:{APP_PORT}/executors"
                words = ["--dial", url, "--token-file", f"{folder}/executors", "--ca-file", f"{folder}/cert.pem"]
                words += ["--name", name, "--label", name, "--label", POOL]
            serve = [*network.inside(name), *treadle, "exec-server", "--detached-s", str(DETACH_S), *words]
            self.executors[name] = Program(folder / name, serve)
            self.truth(name).mkdir()
            self.small(name).mkdir()
            mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "none", str(self.small(name))]
            subprocess.run(mount, check=True, timeout=60)

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).touch(mode=0o600)
        (self.folder / name).write_text(text)

    def _configure(self, network: Network, model_url: str) -> None:
        patience = f"recovery_s = {RECOVERY_S}\ndetach_s = {DETACH_S}\n"
        given = {"model": model_url, "far": network.far(LISTENS), "port": EXEC_PORT, "folder": self.folder}
        config = _CONFIG.format(**given, patience=patience)
        config += "".join(_DIALLED.format(name=name, patience=patience) for name in (*DIAL, POOL))
        (self.app.folder / "home").mkdir()
        (self.app.folder / "home" / "config.toml").write_text(config)

    def truth(self, name: str) -> Path:
        return self.folder / name / "truth"

    def small(self, name: str) -> Path:
        return self.folder / name / "small"

    @property
    def all(self) -> list[Program]:
        return [self.app, *self.executors.values()]

    def close(self) -> None:
        for each in self.all:
            each.close()
        for name in self.executors:
            subprocess.run(["umount", "--lazy", str(self.small(name))], check=False, timeout=60)

    async def until_said(self, each: Program, text: str, deadline_s: float = 60.0) -> None:
        try:
            async with asyncio.timeout(deadline_s):
                while text not in each.log.read_text(errors="replace"):  # noqa: ASYNC110 (a file cannot be awaited)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            said = each.log.read_text(errors="replace")[-2000:]
            raise BenchError(f"{each.folder.name} did not say {text!r}: {said}") from None


def _make_certificate(folder: Path, addresses: Sequence[str]) -> None:
    places = ",".join(f"IP:{address}" for address in addresses)
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-days", "2", "-subj", "/CN=soak", "-addext", f"subjectAltName={places}"]
    words += ["-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem"]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    (folder / "key.pem").chmod(0o600)
