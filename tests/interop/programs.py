"""The programs of the interop tests as children: exec-servers and `codex exec`.

Owns their command lines, their homes and their end: whatever a test does, no process that it caused outlives it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from interop.scripted_model import Script

ROOT: Final = Path(__file__).resolve().parents[2]
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 15.0
RUN_SECONDS: Final = 120.0
# Inherited by everything that a program starts, in whatever session or group, so that it can be found at the end.
MARK: Final = "TREADLE_INTEROP_RUN"

Json: TypeAlias = dict[str, Any]

FULL_ACCESS = "danger-full-access"

_CONFIG = """\
model = "gpt-5.5"
model_provider = "mock"
approval_policy = "{approval}"
sandbox_mode = "{sandbox}"
check_for_update_on_startup = false
{top}

[model_providers.mock]
name = "mock"
base_url = "{base_url}"
wire_api = "responses"
requires_openai_auth = false
supports_websockets = false
request_max_retries = 0
stream_max_retries = 0

[analytics]
enabled = false

# The real codex makes .git where a command may write and there is none, and leaves it behind when it is killed: not in
# the folder that all tests share.
[sandbox_workspace_write]
exclude_slash_tmp = true
exclude_tmpdir_env_var = true
{tables}"""


def codex_config(
    base_url: str, sandbox: str = FULL_ACCESS, approval: str = "never", *, top: str = "", tables: str = ""
) -> str:
    """A `config.toml` for codex, and for us, with the model at `base_url`; `top` and `tables` are lines more of it."""
    return _CONFIG.format(base_url=base_url, sandbox=sandbox, approval=approval, top=top, tables=tables)


@dataclass(frozen=True, slots=True)
class CodexRun:
    """How `codex exec --json` ended."""

    exit_code: int
    events: list[Json]
    stderr: str

    @property
    def answer(self) -> str | None:
        """The last message of the agent."""
        messages = [event["item"] for event in self.events if event.get("type") == "item.completed"]
        texts: list[str] = [item["text"] for item in messages if item["type"] == "agent_message"]
        return texts[-1] if texts else None


class RunCodex(Protocol):
    """The fixture `run_codex`."""

    def __call__(
        self, script: Script, exec_server_url: str, cwd: Path, *, sandbox: str = FULL_ACCESS
    ) -> Coroutine[None, None, CodexRun]: ...


def treadle_command() -> list[str]:
    return [sys.executable, "-m", "treadle", "exec-server", "--listen", "ws://127.0.0.1:0"]


def codex_command(codex: Path) -> list[str]:
    return [str(codex), "exec-server", "--listen", "ws://127.0.0.1:0"]


@asynccontextmanager
async def exec_server(command: Sequence[str], home: Path) -> AsyncIterator[str]:
    """Run an exec-server; the value is the URL that it announces on its first line."""
    log = home / "exec-server.log"
    # The real one puts the helper that its sandboxes need into its home, unless that is in the temporary directory.
    for name in (".codex", "tmp"):
        (home / name).mkdir(exist_ok=True)
    async with _child(command, home, home, log, TMPDIR=str(home / "tmp")) as child:
        assert child.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                line = await child.stdout.readline()
        except TimeoutError:
            line = b""
        url = line.decode().strip()
        assert url.startswith("ws://"), f"{command[:4]} announced {url!r}; it said:\n{log.read_text()}"
        yield url


async def codex_exec(
    codex: Path, *, home: Path, cwd: Path, base_url: str, exec_server_url: str, sandbox: str, prompt: str = "go"
) -> CodexRun:
    """One run of `codex exec` with a home of its own; the model is at `base_url`."""
    assert exec_server_url.startswith("ws://"), "with an empty URL codex silently runs commands itself"
    codex_home = home / ".codex"
    codex_home.mkdir(parents=True)
    (codex_home / "config.toml").write_text(codex_config(base_url, sandbox))
    command = [str(codex), "exec", "--json", "--skip-git-repo-check", "--color=never", "-"]
    log = home / "codex.log"
    async with _child(command, home, cwd, log, CODEX_EXEC_SERVER_URL=exec_server_url) as child:
        try:
            async with asyncio.timeout(RUN_SECONDS):
                stdout, _ = await child.communicate(prompt.encode())
        except TimeoutError:
            raise AssertionError(
                f"codex exec did not end within {RUN_SECONDS} s; it said:\n{log.read_text()}"
            ) from None
    events = [json.loads(line) for line in stdout.splitlines()]
    assert child.returncode is not None
    return CodexRun(child.returncode, events, log.read_text())


@asynccontextmanager
async def _child(
    command: Sequence[str], home: Path, cwd: Path, log: Path, **extra: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    mark = uuid.uuid4().hex
    env = {
        "HOME": str(home),
        "CODEX_HOME": str(home / ".codex"),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PYTHONPATH": str(ROOT / "src"),
        MARK: mark,
        **extra,
    }
    with log.open("wb") as stderr:
        child = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            cwd=cwd,
            env=env,
            start_new_session=True,
            limit=64 * 1024 * 1024,
        )
    try:
        yield child
    finally:
        await _stop(child)
        sweep(mark)


async def _stop(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        # Not `terminate`, which may reap the child behind the back of asyncio.
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await child.communicate()
    except TimeoutError:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.communicate()


def sweep(mark: str) -> None:
    """Kill what still carries the mark; such processes have left the group of their program long ago."""
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # gone in between, or not ours
