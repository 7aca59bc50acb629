"""`EnvironmentRegistry`: the machines that threads of this server may work on, by the ids of their environments.

Owns which there are (`Config.environments`, and those that clients have added), one connection to each, which all
threads share, and what their clients are told of it. This machine is none of them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import structs

from treadle.config.environment_settings import LOCAL, EnvironmentConfig, id_problem
from treadle.config.environment_settings import Environments as ConfiguredEnvironments
from treadle.errors import INVALID_REQUEST, ExecError, RpcError
from treadle.execution.environment import Environment, connect_over
from treadle.execution.remote_machine import RemoteMachine
from treadle.execution.uris import uri_from_path
from treadle.protocol.app.environment_messages import EnvironmentStatusResponse
from treadle.secrets import learn

if TYPE_CHECKING:
    from treadle.server.app import AppServer

logger: logging.Logger = logging.getLogger(__name__)
MAX_ADDED: Final = 256
STATUS_S: Final = 5.0
RECOVERING: Final = "exec-server environment is recovering"


class EnvironmentRegistry:
    def __init__(self, server: AppServer) -> None:
        self._server = server
        self._added: dict[str, EnvironmentConfig] = {}
        self._machines: dict[str, tuple[EnvironmentConfig, RemoteMachine]] = {}
        self._tokens: dict[str, str] = {}  # of those that were added
        self._told: dict[str, bool] = {}

    @property
    def _configured(self) -> ConfiguredEnvironments:
        return self._server.config.environments or ConfiguredEnvironments()

    @property
    def default(self) -> Sequence[str]:
        """The environments of threads that name none."""
        return self._configured.default

    def all(self) -> list[EnvironmentConfig]:
        """Those of the settings, then those that were added."""
        known = {**self._configured.known, **self._added}
        return list(known.values())

    def config(self, environment_id: str) -> EnvironmentConfig | None:
        return self._added.get(environment_id) or self._configured.known.get(environment_id)

    def machine(self, environment_id: str) -> RemoteMachine:
        """Raises `ExecError` for an id that nobody knows."""
        config = self.config(environment_id)
        if config is None:
            raise ExecError(f"unknown turn environment id `{environment_id}`", INVALID_REQUEST)
        if config.problem is not None:
            raise ExecError(config.problem, INVALID_REQUEST)
        known = self._machines.get(environment_id)
        if known is not None and known[0] == config:
            return known[1]
        if known is not None:  # it is somewhere else now; what runs there ends with the connection
            self._server.spawn(known[1].close(), f"leaving the environment {environment_id}")
        machine = RemoteMachine(environment_id, lambda session_id: self._connect(config, session_id))
        self._machines[environment_id] = config, machine
        return machine

    def add(self, config: EnvironmentConfig, token: str | None = None) -> None:
        """An environment of a client, for as long as this server runs. Raises `RpcError`."""
        if config.id == LOCAL or (problem := id_problem(config.id)) is not None:
            reserved = f"environment id `{config.id}` is reserved for EnvironmentManager"
            text = reserved if config.id in (LOCAL, "none") else problem
            raise RpcError(INVALID_REQUEST, f"exec-server protocol error: {text}")
        if config.id not in self._added and len(self._added) >= MAX_ADDED:
            raise RpcError(INVALID_REQUEST, f"{MAX_ADDED} environments were added: replace one of them")
        self._added[config.id] = config
        self._tokens.pop(config.id, None)
        if token is not None:
            self._tokens[config.id] = token

    async def status(self, environment_id: str) -> EnvironmentStatusResponse:
        """How an environment is, without connecting it."""
        if environment_id == LOCAL:
            return EnvironmentStatusResponse(status="ready")
        config = self.config(environment_id)
        if config is None:
            return EnvironmentStatusResponse(status="unknown", error=f"unknown environment id `{environment_id}`")
        known = self._machines.get(environment_id)
        if known is None or known[0] != config:
            return EnvironmentStatusResponse(status="pending")
        machine = known[1]
        if machine.connected is None:
            failure = machine.last_failure
            if failure is None:
                return EnvironmentStatusResponse(status="pending")
            return EnvironmentStatusResponse(status="disconnected", error=failure)
        if not machine.connected.is_connected:
            return EnvironmentStatusResponse(status="disconnected", error=RECOVERING)
        try:
            async with asyncio.timeout(STATUS_S):
                await machine.connected.check()
        except (ExecError, TimeoutError) as error:
            return EnvironmentStatusResponse(status="disconnected", error=str(error) or "it does not answer")
        return EnvironmentStatusResponse(status="ready")

    async def _connect(self, config: EnvironmentConfig, session_id: str | None = None) -> Environment:
        """Raises `ExecError`."""
        url: str | Sequence[str] | None = config.url
        through, workdir = None, config.workdir
        token = self._tokens.get(config.id) or _token(config)
        if token is not None:
            learn([token])  # so that no log shows it
        if config.provider is not None:
            from treadle.execution.environment_provider import find_provider  # few have one

            state = os.path.join(self._server.home, "environments", config.id)
            opened = await find_provider(config.provider).open(config.id, config.options, state)
            url, through, token = opened.url or opened.command, opened.through, opened.token or token
            workdir = workdir or opened.workdir
        elif config.program is not None:
            url = _command(config)

        def changed(connected: bool) -> None:
            if session_id is None:
                self._changed(config.id, connected)

        try:
            async with asyncio.timeout(config.connect_timeout_sec + config.initialize_timeout_sec):
                if config.labels:
                    environment = await self._connect_by_labels(config, changed, session_id)
                else:
                    environment = await Environment.connect(
                        url,
                        through=through,
                        token=token,
                        ca_file=config.ca_file,
                        cert_file=config.cert_file,
                        key_file=config.key_file,
                        recovery_s=config.recovery_s,
                        detach_s=config.detach_s,
                        on_connection=changed,
                        session_id=session_id,
                    )
        except TimeoutError:
            raise ExecError(f"the environment `{config.id}` did not answer in time") from None
        except ExecError as error:
            raise ExecError(f"the environment `{config.id}` cannot be reached: {error.message}", error.code) from None
        if workdir is not None:  # what it says of itself, is where threads that name no directory work
            environment.info = structs.replace(environment.info, cwd=uri_from_path(workdir))
        changed(True)
        return environment

    async def _connect_by_labels(
        self, config: EnvironmentConfig, changed: Callable[[bool], None], session_id: str | None
    ) -> Environment:
        """An executor that has dialed this server. It stays the same one after a loss, because it has the session."""
        executors = self._server.executors
        if executors is None:
            raise ExecError("this server listens nowhere, so no executor can dial it", INVALID_REQUEST)
        open_over = partial(
            connect_over,
            place=" ".join(config.labels),
            recovery_s=config.recovery_s,
            detach_s=config.detach_s,
            on_connection=changed,
            session_id=session_id,
        )
        if session_id is None:
            return await open_over(executors.opener(config.labels))
        for name in [each.name for each in executors.there() if each.fits(config.labels)]:
            try:
                return await open_over(executors.opener(name))
            except ExecError as error:
                if error.code != INVALID_REQUEST:
                    raise
        # The one that has it may be on its way: with which of them it was is not known.
        raise ExecError(f"no executor with the labels {', '.join(config.labels)} that is here has the session")

    def _changed(self, environment_id: str, connected: bool) -> None:
        """Tell the clients of the threads that work there."""
        before, self._told[environment_id] = self._told.get(environment_id), connected
        if before is None or before == connected:  # the first connection is what everybody expects
            return
        logger.info("environment changed", {"environment": environment_id, "connected": connected})
        for thread_id in self._server.threads.ids():
            handle = self._server.threads.get(thread_id)
            if handle is not None and handle.works_in(environment_id):
                handle.environment_changed(environment_id, connected=connected)

    async def close(self) -> None:
        machines = [machine for _, machine in self._machines.values()]
        self._machines.clear()
        await asyncio.gather(*(machine.close() for machine in machines), return_exceptions=True)


def _token(config: EnvironmentConfig) -> str | None:
    """The token for a server. Raises `ExecError`."""
    if config.token_env_var is not None:
        found = os.environ.get(config.token_env_var, "")
        if not found:
            raise ExecError(f"the environment `{config.id}` needs a token: set {config.token_env_var}")
        return found
    if config.token_file is None:
        return None
    try:
        with open(os.path.expanduser(config.token_file), encoding="utf-8") as file:
            return file.read(4096).strip()
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ExecError(f"the token of the environment `{config.id}` cannot be read: {problem}") from None


def _command(config: EnvironmentConfig) -> list[str]:
    """The program with its variables and its directory, by the shell's own words for that."""
    assert config.program is not None
    words = [config.program, *config.args]
    if config.env:
        words = ["env", *(f"{name}={value}" for name, value in config.env.items()), *words]
    if config.cwd is not None:
        words = ["sh", "-c", 'cd -- "$1" && shift && exec "$@"', "sh", config.cwd, *words]
    return words
