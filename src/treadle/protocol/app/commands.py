"""One-off commands outside of any thread: command/exec and its companions. Chunks travel as base64 text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from treadle.protocol.app.base import Empty, Open, Params, Unsigned, Wire, Word
from treadle.protocol.app.settings import SandboxPolicy


class CommandExecOutputStream(Word):
    stdout = "stdout"
    stderr = "stderr"


class CommandExecTerminalSize(Wire, frozen=True, kw_only=True):
    cols: int
    rows: int


class CommandExecParams(Params, frozen=True, kw_only=True):
    """In `env`, null takes a variable away."""

    _hidden: ClassVar = ("env",)

    command: tuple[str, ...]
    cwd: str | None = None
    disable_output_cap: bool = False
    disable_timeout: bool = False
    env: Mapping[str, str | None] | None = None
    output_bytes_cap: Unsigned | None = None
    permission_profile: str | None = None
    """The id of a permission profile, instead of `sandbox_policy`. Experimental in Codex."""
    process_id: str | None = None
    sandbox_policy: SandboxPolicy | None = None
    size: CommandExecTerminalSize | None = None
    stream_stdin: bool = False
    stream_stdout_stderr: bool = False
    timeout_ms: int | None = None
    tty: bool = False


class CommandExecResponse(Wire, frozen=True, kw_only=True):
    exit_code: int
    stderr: str
    stdout: str


class CommandExecWriteParams(Params, frozen=True, kw_only=True):
    _hidden: ClassVar = ("delta_base64",)

    process_id: str
    close_stdin: bool = False
    delta_base64: str | None = None


CommandExecWriteResponse = Empty


class CommandExecTerminateParams(Params, frozen=True, kw_only=True):
    process_id: str


CommandExecTerminateResponse = Empty


class CommandExecResizeParams(Params, frozen=True, kw_only=True):
    process_id: str
    size: CommandExecTerminalSize


CommandExecResizeResponse = Empty


class CommandExecOutputDeltaNotification(Wire, frozen=True, kw_only=True):
    cap_reached: bool
    delta_base64: str
    process_id: str
    stream: Open[CommandExecOutputStream]
