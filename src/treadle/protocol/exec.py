"""The exec-server protocol: params, results and notifications, and a registry of methods.

Names are those of the wire (camelCase there). Members that are ours, not Codex's, are marked *extension*; a server
lists them under `capabilities` and a client sends them only to a server that did.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType, field

Unsigned = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Stream = Literal["stdout", "stderr", "pty"]
SandboxType = Literal["none", "linuxSeccomp", "macosSeatbelt", "windowsRestrictedToken"]
SignalName = Literal["interrupt", "terminate", "kill", "hangup", "quit", "usr1", "usr2", "stop", "continue"]


def without(struct: Struct, *hidden: str) -> str:
    """The `repr` of a struct without the values of some members, which may be secrets."""
    names = struct.__struct_fields__
    shown = (f"{name}={'…' if name in hidden else repr(getattr(struct, name))}" for name in names)
    return f"{type(struct).__name__}({', '.join(shown)})"


class ExecStruct(Struct, rename="camel", kw_only=True, frozen=True):
    """Base of everything on the wire; unknown members are ignored."""


class NoParams(ExecStruct, frozen=True, forbid_unknown_fields=True):
    """Parameters of methods that take none: absent, null and `{}` are accepted."""


class Empty(ExecStruct, frozen=True):
    """The result `{}`."""


# --- handshake and environment ---------------------------------------------------------------------------------------


class InitializeParams(ExecStruct, frozen=True):
    client_name: str
    resume_session_id: str | None = None
    detach_s: Annotated[float, Meta(ge=0)] | UnsetType = UNSET
    """*extension* (`sessionDetach`): how long the session shall wait for its client after the loss of a connection."""


class Shell(ExecStruct, frozen=True):
    name: str
    path: str


class Capabilities(ExecStruct, frozen=True, omit_defaults=True):
    """Booleans; absent means false. The first group is Codex's, the second is ours."""

    fs_watch_missing: bool = False
    http_header_env_vars: bool = False
    file_write_streaming: bool = False
    sandboxed_file_streaming: bool = False

    fs_look: bool = False
    process_ack: bool = False
    process_close_stdin: bool = False
    process_graceful_terminate: bool = False
    process_list: bool = False
    process_resize: bool = False
    process_signals: bool = False
    sandbox_orders: bool = False
    session_detach: bool = False


class EnvironmentInfo(ExecStruct, frozen=True, omit_defaults=True):
    shell: Shell
    cwd: str | None = None
    user_home_dir: str | None = None
    temp_dir: str | None = None
    temporary_directories: tuple[str, ...] = ()
    platform_os: str | None = None
    executor_version: str | None = None
    provider_id: str | None = None
    prepend_path_dirs: tuple[str, ...] = ()
    capabilities: Capabilities = Capabilities()
    confines_by: str | None = None
    """*extension*, of `environment/info` alone: what commands are confined by, `bubblewrap`, `landlock` or `none`."""


class InitializeResult(ExecStruct, frozen=True):
    session_id: str
    environment_info: EnvironmentInfo | None = None
    detach_s: float | UnsetType = UNSET
    """*extension*: how long it will wait, for a client that has said a wish: at most what the server allows."""


class DetachParams(ExecStruct, frozen=True):
    """*extension* (`sessionDetach`): another wish than that of `initialize`. Who leaves for good says 0."""

    detach_s: Annotated[float, Meta(ge=0)]


class DetachResult(ExecStruct, frozen=True):
    detach_s: float


class EnvironmentStatus(ExecStruct, frozen=True):
    status: str


# --- sandbox ---------------------------------------------------------------------------------------------------------


class Confinement(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Base of what is inside `permissions`, snake_case on the wire.

    The exception to the rule that unknown members are ignored: one of them could be a restriction, and a restriction
    that is not understood must not be dropped.
    """


class SandboxPathValue(Confinement, frozen=True):
    kind: str
    subpath: str | None = None


class SandboxPath(Confinement, frozen=True):
    """`{type: "path", path}`, `{type: "glob_pattern", pattern}` or `{type: "special", value: {kind, subpath?}}`."""

    type: str
    path: str | None = None
    pattern: str | None = None
    value: SandboxPathValue | None = None


class SandboxEntry(Confinement, frozen=True):
    path: SandboxPath
    access: str
    missing_path_behavior: str | None = None


class FileSystemPermissions(Confinement, frozen=True):
    type: Literal["unrestricted", "restricted"]
    entries: tuple[SandboxEntry, ...] = ()
    glob_scan_max_depth: int | None = None
    """Only for entries by pattern, which are refused."""


class Permissions(Confinement, frozen=True):
    type: Literal["disabled", "external", "managed"]
    network: Literal["restricted", "enabled"] | None = None
    file_system: FileSystemPermissions | None = None


class Sandbox(ExecStruct, frozen=True):
    """How a process is confined: what it may do, and the folders that it is seen from."""

    permissions: Permissions
    cwd: str | None = None
    workspace_roots: tuple[str, ...] = ()
    user_home_dir: str | None = None
    temporary_directories: tuple[str, ...] | None = None
    # The real server refuses a sandbox that does not have these two.
    windows_sandbox_level: str | None = "disabled"
    use_legacy_landlock: bool | None = False
    canonical_paths: bool | UnsetType = UNSET
    """Ours: the paths of the entries had no symbolic link in them when they were chosen. One that has is refused."""
    protect_orders: bool | UnsetType = UNSET
    """*extension* (`sandboxOrders`): what git and agents take orders from stays as it is below the project roots, and
    the executor's own home is out of reach. The executor knows what that is."""
    roots_of: str | UnsetType = UNSET
    """*extension*: whose folders these are, by a name that the client has made. The executor refuses one that is not
    the folder any more that it was when this session first named it so."""


# --- processes -------------------------------------------------------------------------------------------------------


class EnvPolicy(ExecStruct, frozen=True):
    """Which variables a process gets: those that are inherited, without the excluded ones, and those that are set."""

    inherit: Literal["all", "core", "none"]
    ignore_default_excludes: bool
    exclude: tuple[str, ...]
    set: Mapping[str, str]
    include_only: tuple[str, ...]

    def __repr__(self) -> str:
        return without(self, "set")


INHERIT_ALL: Final = EnvPolicy(inherit="all", ignore_default_excludes=True, exclude=(), set={}, include_only=())


class StartParams(ExecStruct, frozen=True):
    process_id: str
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    tty: bool
    pipe_stdin: bool = False
    arg0: str | None = None
    env_policy: EnvPolicy | None = None
    sandbox: Sandbox | None = None
    enforce_managed_network: bool = False
    managed_network: Any = None
    network_proxy: Any = None
    shell_snapshot: Any = None
    acks: bool | UnsetType = UNSET
    """*extension* (`processAck`): the client acknowledges what it has consumed, and while too much is unacknowledged
    the process is blocked; also while the client is away, so that nothing is lost before it resumes."""

    def __repr__(self) -> str:
        return without(self, "env")


class StartResult(ExecStruct, frozen=True):
    process_id: str
    sandbox_type: SandboxType | None = None


class ReadParams(ExecStruct, frozen=True):
    process_id: str
    after_seq: Unsigned | None = None
    max_bytes: Unsigned | None = None
    wait_ms: Unsigned | None = None


class WireChunk(ExecStruct, frozen=True):
    seq: int
    stream: Stream
    chunk: bytes


class WireEvicted(ExecStruct, frozen=True):
    first_seq: int
    last_seq: int


class ReadResult(ExecStruct, frozen=True):
    chunks: tuple[WireChunk, ...]
    next_seq: int
    exited: bool
    exit_code: int | None
    closed: bool
    failure: str | None = None
    sandbox_denied: bool = False
    evicted: WireEvicted | UnsetType = UNSET
    """*extension*: the numbers after `afterSeq` that are no longer retained; absent when none is missing."""
    exited_seq: int | UnsetType = UNSET
    """*extension*: the number of the exit, so that a reader need not infer it."""


class WriteParams(ExecStruct, frozen=True):
    process_id: str
    chunk: bytes
    write_id: str


class WriteResult(ExecStruct, frozen=True):
    status: Literal["accepted", "stdinClosed", "unknownProcess", "starting"]


class SignalParams(ExecStruct, frozen=True):
    process_id: str
    signal: SignalName


class TerminateParams(ExecStruct, frozen=True):
    process_id: str
    grace_ms: Unsigned | UnsetType = UNSET
    """*extension* (`processGracefulTerminate`): how long between TERM and KILL."""


class TerminateResult(ExecStruct, frozen=True):
    running: bool


class ResizeParams(ExecStruct, frozen=True):
    process_id: str
    rows: Annotated[int, Meta(ge=1, le=65535)]
    cols: Annotated[int, Meta(ge=1, le=65535)]


class CloseStdinParams(ExecStruct, frozen=True):
    process_id: str


class ProcessSummary(ExecStruct, frozen=True):
    process_id: str
    argv: tuple[str, ...]
    tty: bool
    next_seq: int
    exited: bool
    exit_code: int | None
    closed: bool


class ListResult(ExecStruct, frozen=True):
    processes: tuple[ProcessSummary, ...]


class AckParams(ExecStruct, frozen=True):
    """*extension* (`processAck`), a notification: everything up to `seq` has been consumed."""

    process_id: str
    seq: Unsigned


class OutputNotice(ExecStruct, frozen=True):
    process_id: str
    seq: int
    stream: Stream
    chunk: str
    """Base64 as text: this is where the bytes flow, and both ends use a faster codec than msgspec's."""


class ExitedNotice(ExecStruct, frozen=True):
    process_id: str
    seq: int
    exit_code: int
    sandbox_denied: bool = False


class ClosedNotice(ExecStruct, frozen=True):
    process_id: str
    seq: int


# --- files -----------------------------------------------------------------------------------------------------------


class PathParams(ExecStruct, frozen=True):
    path: str
    sandbox: Sandbox | None = None


class FollowParams(ExecStruct, frozen=True):
    path: str
    follow_symlinks: bool = True
    sandbox: Sandbox | None = None


class ReadFileResult(ExecStruct, frozen=True):
    data_base64: bytes


class WriteFileParams(ExecStruct, frozen=True):
    path: str
    data_base64: str
    """Text, not bytes: wrong base64 here is an invalid request (-32600), everywhere else invalid params."""
    follow_symlinks: bool = True
    sandbox: Sandbox | None = None


class CreateDirectoryParams(ExecStruct, frozen=True):
    path: str
    recursive: bool = True
    sandbox: Sandbox | None = None


class Metadata(ExecStruct, frozen=True):
    is_directory: bool
    is_file: bool
    is_symlink: bool
    size: int
    created_at_ms: int
    modified_at_ms: int


class LookParams(ExecStruct, frozen=True):
    """*extension* (`fsLook`): what is at many paths."""

    paths: Annotated[tuple[str, ...], Meta(max_length=4096)]
    sandbox: Sandbox | None = None


class LookResult(ExecStruct, frozen=True):
    found: tuple[Metadata | None, ...]
    """For each path; null where nothing is, or nothing that may be seen."""


class CanonicalizeResult(ExecStruct, frozen=True):
    path: str


class DirectoryEntry(ExecStruct, frozen=True):
    file_name: str
    is_directory: bool
    is_file: bool


class ReadDirectoryResult(ExecStruct, frozen=True):
    entries: tuple[DirectoryEntry, ...]


class WalkOptions(ExecStruct, frozen=True):
    max_depth: Unsigned
    max_directories: Unsigned
    max_entries: Unsigned
    follow_directory_symlinks: bool
    prune_hidden_directories: bool = False


class WalkParams(ExecStruct, frozen=True):
    path: str
    options: WalkOptions
    sandbox: Sandbox | None = None


class WalkEntry(ExecStruct, frozen=True):
    path: str
    kind: Literal["directory", "file"]


class WalkError(ExecStruct, frozen=True):
    path: str
    message: str


class WalkResult(ExecStruct, frozen=True):
    entries: tuple[WalkEntry, ...]
    errors: tuple[WalkError, ...]
    truncated: bool


class RemoveParams(ExecStruct, frozen=True):
    path: str
    recursive: bool = True
    force: bool = True
    follow_symlinks: bool = True
    sandbox: Sandbox | None = None


class CopyParams(ExecStruct, frozen=True):
    source_path: str
    destination_path: str
    recursive: bool
    sandbox: Sandbox | None = None


class OpenParams(ExecStruct, frozen=True):
    handle_id: str
    path: str
    mode: Literal["read", "replace"] = "read"
    sandbox: Sandbox | None = None


class OpenResult(ExecStruct, frozen=True):
    handle_id: str


class ReadBlockParams(ExecStruct, frozen=True):
    handle_id: str
    offset: Unsigned
    length: Unsigned = field(name="len")


class ReadBlockResult(ExecStruct, frozen=True):
    chunk: bytes
    eof: bool


class WriteBlockParams(ExecStruct, frozen=True):
    handle_id: str
    offset: Unsigned
    chunk: bytes


class CloseParams(ExecStruct, frozen=True):
    handle_id: str


class WatchMissingParams(ExecStruct, frozen=True):
    watch_id: Unsigned
    missing: tuple[str, ...]
    present: str | None = None


class WatchMissingResult(ExecStruct, frozen=True):
    watching: bool


class MissingChangedNotice(ExecStruct, frozen=True):
    watch_id: int


# --- HTTP ------------------------------------------------------------------------------------------------------------


class HttpHeader(ExecStruct, frozen=True, omit_defaults=True):
    name: str
    value: str
    value_env_var: str | None = None


class HttpRequestParams(ExecStruct, frozen=True):
    method: str
    url: str
    request_id: str
    headers: tuple[HttpHeader, ...] = ()
    body_base64: bytes | None = None
    timeout_ms: Unsigned | None = None
    redirect_policy: Literal["follow", "stop"] = "follow"
    stream_response: bool = False


class HttpResult(ExecStruct, frozen=True):
    status: int
    headers: tuple[HttpHeader, ...]
    body_base64: bytes


class HttpBodyDeltaNotice(ExecStruct, frozen=True):
    request_id: str
    seq: int
    delta_base64: bytes
    done: bool
    error: str | None = None


# --- registry --------------------------------------------------------------------------------------------------------


class Method(NamedTuple):
    """What a request takes and gives. `family` is the word used when it comes before the handshake is done."""

    params: type[Struct]
    result: type[Struct]
    family: str


METHODS: Mapping[str, Method] = {
    "initialize": Method(InitializeParams, InitializeResult, "handshake"),
    "session/detach": Method(DetachParams, DetachResult, "session"),
    "environment/info": Method(NoParams, EnvironmentInfo, "environment info"),
    "environment/status": Method(NoParams, EnvironmentStatus, "environment status"),
    "process/start": Method(StartParams, StartResult, "exec"),
    "process/read": Method(ReadParams, ReadResult, "exec"),
    "process/write": Method(WriteParams, WriteResult, "exec"),
    "process/signal": Method(SignalParams, Empty, "exec"),
    "process/terminate": Method(TerminateParams, TerminateResult, "exec"),
    "process/resize": Method(ResizeParams, Empty, "exec"),
    "process/closeStdin": Method(CloseStdinParams, Empty, "exec"),
    "process/list": Method(NoParams, ListResult, "exec"),
    "fs/readFile": Method(FollowParams, ReadFileResult, "filesystem"),
    "fs/writeFile": Method(WriteFileParams, Empty, "filesystem"),
    "fs/createDirectory": Method(CreateDirectoryParams, Empty, "filesystem"),
    "fs/getMetadata": Method(FollowParams, Metadata, "filesystem"),
    "fs/look": Method(LookParams, LookResult, "filesystem"),
    "fs/canonicalize": Method(PathParams, CanonicalizeResult, "filesystem"),
    "fs/readDirectory": Method(PathParams, ReadDirectoryResult, "filesystem"),
    "fs/walk": Method(WalkParams, WalkResult, "filesystem"),
    "fs/remove": Method(RemoveParams, Empty, "filesystem"),
    "fs/copy": Method(CopyParams, Empty, "filesystem"),
    "fs/open": Method(OpenParams, OpenResult, "filesystem"),
    "fs/readBlock": Method(ReadBlockParams, ReadBlockResult, "filesystem"),
    "fs/writeBlock": Method(WriteBlockParams, Empty, "filesystem"),
    "fs/close": Method(CloseParams, Empty, "filesystem"),
    "fs/watchMissing": Method(WatchMissingParams, WatchMissingResult, "filesystem"),
    "http/request": Method(HttpRequestParams, HttpResult, "http"),
}
