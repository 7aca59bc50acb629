"""The machine of the server, outside of any thread: commands (command/exec), processes (process/*), files (fs/*) and
finding files by name (fuzzyFileSearch). Chunks of output and contents of files travel as base64 text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from msgspec import UNSET, UnsetType, field

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
    environment_id: str | None = None
    """The environment that it runs in, else this machine. Ours alone."""
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


# --- files ---


class FsReadFileParams(Params, frozen=True, kw_only=True):
    path: str


class FsReadFileResponse(Wire, frozen=True, kw_only=True):
    data_base64: str


class FsWriteFileParams(Params, frozen=True, kw_only=True):
    data_base64: str
    path: str


FsWriteFileResponse = Empty


class FsCreateDirectoryParams(Params, frozen=True, kw_only=True):
    path: str
    recursive: bool | None = None


FsCreateDirectoryResponse = Empty


class FsGetMetadataParams(Params, frozen=True, kw_only=True):
    path: str


class FsGetMetadataResponse(Wire, frozen=True, kw_only=True):
    created_at_ms: int
    is_directory: bool
    is_file: bool
    is_symlink: bool
    modified_at_ms: int


class FsReadDirectoryEntry(Wire, frozen=True, kw_only=True):
    file_name: str
    is_directory: bool
    is_file: bool


class FsReadDirectoryParams(Params, frozen=True, kw_only=True):
    path: str


class FsReadDirectoryResponse(Wire, frozen=True, kw_only=True):
    entries: tuple[FsReadDirectoryEntry, ...]


class FsRemoveParams(Params, frozen=True, kw_only=True):
    path: str
    force: bool | None = None
    recursive: bool | None = None


FsRemoveResponse = Empty


class FsCopyParams(Params, frozen=True, kw_only=True):
    destination_path: str
    source_path: str
    recursive: bool = False


FsCopyResponse = Empty


class FsWatchParams(Params, frozen=True, kw_only=True):
    path: str
    watch_id: str


class FsWatchResponse(Wire, frozen=True, kw_only=True):
    path: str


class FsUnwatchParams(Params, frozen=True, kw_only=True):
    watch_id: str


FsUnwatchResponse = Empty


class FsChangedNotification(Wire, frozen=True, kw_only=True):
    changed_paths: tuple[str, ...]
    watch_id: str


# --- finding files by a part of their name ---


class FuzzyFileSearchParams(Params, frozen=True, kw_only=True):
    query: str
    roots: tuple[str, ...]
    cancellation_token: str | None = None
    environment_id: str | None = None
    """The environment that the roots are in, else this machine. Ours alone."""


class FuzzyFileSearchResult(Wire, frozen=True, kw_only=True):
    root: str
    path: str
    match_type: Open[Literal["file", "directory"]] = field(name="match_type")
    file_name: str = field(name="file_name")
    score: int
    indices: tuple[int, ...] | None = None


class FuzzyFileSearchResponse(Wire, frozen=True, kw_only=True):
    files: tuple[FuzzyFileSearchResult, ...]


# --- sessions: a search that follows what somebody types -------------------------------------------------------------


class FuzzyFileSearchSessionStartParams(Params, frozen=True, kw_only=True):
    session_id: str
    roots: tuple[str, ...]
    environment_id: str | None = None
    """The environment that the roots are in, else this machine. Ours alone."""


FuzzyFileSearchSessionStartResponse = Empty


class FuzzyFileSearchSessionUpdateParams(Params, frozen=True, kw_only=True):
    session_id: str
    query: str


FuzzyFileSearchSessionUpdateResponse = Empty


class FuzzyFileSearchSessionStopParams(Params, frozen=True, kw_only=True):
    session_id: str


FuzzyFileSearchSessionStopResponse = Empty


class FuzzyFileSearchSessionUpdatedNotification(Wire, frozen=True, kw_only=True):
    session_id: str
    query: str
    files: tuple[FuzzyFileSearchResult, ...]


class FuzzyFileSearchSessionCompletedNotification(Wire, frozen=True, kw_only=True):
    session_id: str
