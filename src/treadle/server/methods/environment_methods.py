"""Environments: which there are, how they are, and new ones."""

from __future__ import annotations

from msgspec import UnsetType

from treadle.config.environment_settings import LOCAL, EnvironmentConfig
from treadle.errors import INVALID_REQUEST, ExecError, RpcError
from treadle.protocol.app.environment_messages import (
    EnvironmentAddParams,
    EnvironmentAddResponse,
    EnvironmentInfoParams,
    EnvironmentInfoResponse,
    EnvironmentListParams,
    EnvironmentListResponse,
    EnvironmentShell,
    EnvironmentStatusParams,
    EnvironmentStatusResponse,
    ListedEnvironment,
)
from treadle.server.clients import ServerCall


async def add(call: ServerCall[EnvironmentAddParams]) -> EnvironmentAddResponse:
    """Name an exec-server that threads can work on, until this server ends."""
    given = call.params
    wait_s = 10.0 if given.connect_timeout_ms is None else max(given.connect_timeout_ms / 1000, 0.001)
    config = EnvironmentConfig(id=given.environment_id, url=given.exec_server_url, connect_timeout_sec=wait_s)
    call.server.environments.add(config, given.auth_bearer_token)
    return EnvironmentAddResponse()


async def status(call: ServerCall[EnvironmentStatusParams]) -> EnvironmentStatusResponse:
    """Say how an environment is, without connecting it."""
    return await call.server.environments.status(call.params.environment_id)


async def info(call: ServerCall[EnvironmentInfoParams]) -> EnvironmentInfoResponse:
    """Say what an environment says of itself; it is connected for that."""
    try:
        environment = await call.server.environment(call.params.environment_id)
    except ExecError as error:
        raise RpcError(INVALID_REQUEST, error.message) from None
    shell = environment.info.shell
    return EnvironmentInfoResponse(shell=EnvironmentShell(name=shell.name, path=shell.path), cwd=environment.info.cwd)


async def list_all(call: ServerCall[EnvironmentListParams]) -> EnvironmentListResponse:
    """List the environments: this machine, those of the settings, and those that were added."""
    environments = call.server.environments
    default = environments.default
    listed = [ListedEnvironment(environment_id=LOCAL, kind=LOCAL, default=LOCAL in default, status="ready")]
    for config in environments.all():
        found = await environments.status(config.id)
        listed.append(
            ListedEnvironment(
                environment_id=config.id,
                kind=config.kind,
                default=config.id in default,
                status=found.status if config.problem is None else "unknown",
                error=config.problem or (None if isinstance(found.error, UnsetType) else found.error),
                workdir=config.workdir,
            )
        )
    return EnvironmentListResponse(data=tuple(listed))
