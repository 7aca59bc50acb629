"""Environments: other machines on which threads can work. Experimental in Codex, but for `environment/list`, which is
ours."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from treadle.protocol.app.base import Params, Wire


class EnvironmentAddParams(Params, frozen=True, kw_only=True):
    environment_id: str
    exec_server_url: str
    auth_bearer_token: str | None = None
    connect_timeout_ms: int | None = None

    def __repr__(self) -> str:
        return f"EnvironmentAddParams(environment_id={self.environment_id!r}, exec_server_url={self.exec_server_url!r})"


class EnvironmentAddResponse(Wire, frozen=True, kw_only=True):
    pass


class EnvironmentStatusParams(Params, frozen=True, kw_only=True):
    environment_id: str


class EnvironmentStatusResponse(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """`status` is `ready`, `pending`, `disconnected` or `unknown`."""

    status: str
    error: str | UnsetType = UNSET


class EnvironmentInfoParams(Params, frozen=True, kw_only=True):
    environment_id: str


class EnvironmentShell(Wire, frozen=True, kw_only=True):
    name: str
    path: str


class EnvironmentInfoResponse(Wire, frozen=True, kw_only=True):
    shell: EnvironmentShell
    cwd: str | None = None
    """As a `file:` URI."""


class EnvironmentListParams(Params, frozen=True, kw_only=True):
    pass


class ListedEnvironment(Wire, frozen=True, kw_only=True):
    environment_id: str
    kind: str
    """`local`, `url`, `program`, `labels`, or the name of what starts it."""
    default: bool
    status: str
    error: str | None = None
    workdir: str | None = None


class EnvironmentListResponse(Wire, frozen=True, kw_only=True):
    data: tuple[ListedEnvironment, ...]
