"""Commands outside of any thread: command/exec and its companions, and process/*. Chunks travel as base64 text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec import UNSET, UnsetType

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


# --- process/* -------------------------------------------------------------------------------------------------------


class ProcessOutputStream(Word):
    stdout = "stdout"
    stderr = "stderr"


class ProcessTerminalSize(Wire, frozen=True, kw_only=True):
    cols: int
    rows: int


class ProcessSpawnParams(Params, frozen=True, kw_only=True):
    """In `env`, null takes a variable away. A limit that is null is none; one that is left out is the server's."""

    _hidden: ClassVar = ("env",)

    command: tuple[str, ...]
    cwd: str
    process_handle: str
    env: Mapping[str, str | None] | None = None
    output_bytes_cap: Unsigned | UnsetType | None = UNSET
    size: ProcessTerminalSize | None = None
    stream_stdin: bool = False
    stream_stdout_stderr: bool = False
    timeout_ms: int | UnsetType | None = UNSET
    tty: bool = False


ProcessSpawnResponse = Empty


class ProcessWriteStdinParams(Params, frozen=True, kw_only=True):
    _hidden: ClassVar = ("delta_base64",)

    process_handle: str
    close_stdin: bool = False
    delta_base64: str | None = None


ProcessWriteStdinResponse = Empty


class ProcessKillParams(Params, frozen=True, kw_only=True):
    process_handle: str


ProcessKillResponse = Empty


class ProcessResizePtyParams(Params, frozen=True, kw_only=True):
    process_handle: str
    size: ProcessTerminalSize


ProcessResizePtyResponse = Empty


class ProcessOutputDeltaNotification(Wire, frozen=True, kw_only=True):
    cap_reached: bool
    delta_base64: str
    process_handle: str
    stream: Open[ProcessOutputStream]


class ProcessExitedNotification(Wire, frozen=True, kw_only=True):
    exit_code: int
    process_handle: str
    stderr: str
    stderr_cap_reached: bool
    stdout: str
    stdout_cap_reached: bool
    output_drain_timed_out: bool | None = None
