"""`ServerChild`: a server that we started as a program. It owns the process, its standard error, and its end.

It does not touch the other two streams: the connections read and write them, each in its own way.
"""

from __future__ import annotations

import fcntl
import logging
import os
import resource
import signal
import subprocess
import threading
from pathlib import Path
from typing import Final

from treadle.client.codex_config import CodexConfig
from treadle.client.sdk_errors import CodexError, TransportClosedError
from treadle.errors import ArgumentValueError
from treadle.execution.supervisor_program import RLIMIT_LOCKS, family, scan, send_signal, signal_group
from treadle.secrets import redact, secrets_in

logger: logging.Logger = logging.getLogger(__name__)

GRACE_S: Final = 1.0
"""A server whose input has ended gets this long to end by itself, and as long again after SIGTERM."""
LAST_WORDS_S: Final = 2.0
SILENCE_S: Final = 0.2
"""A server that has ended and has written nothing for so long has written all."""
HEIRS_S: Final = 2.0
"""What is still written after so long is not of the server but of another process that holds its streams."""
PIPE_BYTES: Final = 1 << 20
STDERR_BYTES: Final = 1 << 17
SHOWN_BYTES: Final = 1 << 14
SHOWN_LINES: Final = 40


class ServerChild:
    """Starts at once; raises `TransportClosedError` or `ArgumentError`."""

    def __init__(self, config: CodexConfig) -> None:
        self.command: list[str] = command_line(config)
        environment = {**os.environ, **(config.env or {})}
        try:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=config.cwd,
                env=environment,
                bufsize=0,
                # Ctrl-C in a terminal is for us: we decide how the server ends.
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # a word with a NUL in it is the latter
            why = getattr(error, "strerror", None) or error
            raise TransportClosedError(f"cannot start {self.command[0]}: {why}") from error
        try:
            # A server that sends much need not wait for us at every 64 KiB. Users have a limit, so it may not work.
            fcntl.fcntl(self.stdout_fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        except (OSError, AttributeError):
            logger.debug("the pipe of the server keeps its size")
        self._family = _ProcessTree(self._process.pid)
        self._secrets = secrets_in(environment, config.config_overrides)
        self._stderr = b""
        self._lock = threading.Lock()
        self._ended = False
        self._drain = threading.Thread(target=self._read_stderr, name="treadle server stderr", daemon=True)
        self._drain.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stdin_fd(self) -> int:
        assert self._process.stdin is not None
        return self._process.stdin.fileno()

    @property
    def stdout_fd(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def exit_fd(self) -> int | None:
        """A descriptor that becomes readable when the server ends, whoever holds its streams; the caller closes it."""
        try:
            return os.pidfd_open(self._process.pid)
        except (OSError, AttributeError):
            return None

    def give_streams(self) -> None:
        """Close the standard input and output: another owner has copies."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def end(self, *, polite: bool = True) -> None:
        """End the server and all that it started; blocks for a few seconds at most. May be called again.

        `polite` ends its input first and gives it a moment: unless another thread may be writing to it.
        """
        with self._lock:
            if self._ended:
                return
            self._ended = True
        assert self._process.stdin is not None
        if polite:
            self._process.stdin.close()
        if not polite or not self._waited(GRACE_S):
            self._process.send_signal(signal.SIGTERM)
            if not self._waited(GRACE_S):
                self._process.kill()
                self._process.wait()
        self._family.end()
        self._drain.join(LAST_WORDS_S)

    def release(self) -> None:
        """Close what is left of its streams, once nobody reads them any more: their numbers are used again."""
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None and (stream is not self._process.stderr or not self._drain.is_alive()):
                stream.close()

    def _waited(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def failure(self, what: str) -> TransportClosedError:
        """The error for all who wait, now that its output has ended. Blocks for a moment: its last words come late."""
        try:
            exit_code: int | None = self._process.wait(LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            exit_code = None
        self._drain.join(LAST_WORDS_S)
        tail = self.stderr_tail()
        how = f"{what}; it runs on" if exit_code is None else _ended(exit_code)
        last_words = f"; its last words:\n{tail}" if tail else ""
        return TransportClosedError(
            f"the server {Path(self.command[0]).name} {how}{last_words}", exit_code=exit_code, stderr_tail=tail
        )

    def misbehaved(self, how: str) -> TransportClosedError:
        """The error when it is we who end the conversation."""
        return TransportClosedError(f"the server {Path(self.command[0]).name} {how}", stderr_tail=self.stderr_tail())

    def stderr_tail(self) -> str:
        """The last lines of standard error, without what looks like a secret.

        More is read than is returned, and cut only afterwards: half a secret could not be found.
        """
        text = redact(self._stderr.decode("utf-8", "replace"), self._secrets)
        lines = [line for line in text[-SHOWN_BYTES:].splitlines() if line.strip()]
        return "\n".join(lines[-SHOWN_LINES:])

    def _read_stderr(self) -> None:
        stream = self._process.stderr
        assert stream is not None
        while True:
            try:
                data = os.read(stream.fileno(), 65_536)
            except (OSError, ValueError):  # closed under our hands
                return
            if not data:
                return
            self._stderr = (self._stderr + data)[-STDERR_BYTES:]


class DrainDeadline:
    """How long to keep reading from a server that has exited: its last output is in the pipe, which other processes may
    keep open.
    """

    def __init__(self, now: float) -> None:
        self._until = now + HEIRS_S

    def left(self, now: float, heard_at: float) -> float:
        """Seconds of silence after which it is over. None are left when it is."""
        return min(heard_at + SILENCE_S, self._until) - now


class _ProcessTree:
    """A server and all its descendants, even daemonised ones: they carry a tag (see
    `execution.supervisor.supervisor_program`).
    """

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._tag = int.from_bytes(os.urandom(7), "big") | 1
        try:
            _, hard = resource.prlimit(leader, RLIMIT_LOCKS)
            resource.prlimit(leader, RLIMIT_LOCKS, (self._tag, hard))
        except (OSError, ValueError, AttributeError):
            logger.debug("the server cannot be tagged: of its descendants only those in its session are found")

    def end(self) -> None:
        """Kill the processes that are left."""
        try:
            table = scan()
        except OSError:  # there is no /proc: then its group must do
            signal_group(self._leader, signal.SIGKILL)
            return
        send_signal(family(table, self._tag, self._tag, {self._tag: self._leader}), signal.SIGKILL)


class NoProgram(ArgumentValueError, FileNotFoundError):
    """`codex_bin` names nothing. Also a `FileNotFoundError`, which the official SDK raises."""


def command_line(config: CodexConfig) -> list[str]:
    """How the server is started."""
    if config.launch_args_override is not None:
        if not config.launch_args_override:
            raise CodexError("CodexConfig.launch_args_override is empty: give the program and its arguments")
        return [os.fspath(word) for word in config.launch_args_override]
    assert config.codex_bin is not None
    program = os.fspath(config.codex_bin)
    if not Path(program).exists():
        import shutil  # only for a program without a path

        found = shutil.which(program) if os.sep not in program else None
        if found is None:
            raise NoProgram(
                "codex_bin", f"there is no program {program!r}: set CodexConfig.codex_bin to a codex or a treadle"
            )
        program = found
    overrides = [word for text in config.config_overrides for word in ("--config", text)]
    return [program, *overrides, "app-server", "--listen", "stdio://"]


def _ended(exit_code: int) -> str:
    if exit_code < 0:
        try:
            return f"was killed by {signal.Signals(-exit_code).name}"
        except ValueError:
            return f"was killed by signal {-exit_code}"
    return f"has ended with exit code {exit_code}"
