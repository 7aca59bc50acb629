"""Files of the server's host: fs/*. Contents travel as base64 text."""

from __future__ import annotations

from treadle.protocol.app.base import Empty, Params, Wire


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
