"""`initialize`, and what a client is told right after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from treadle.agent.event import Event
from treadle.agent.ids import now_ms
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.handshake import InitializeParams, InitializeResponse
from treadle.server.app import AppServer
from treadle.server.client_base import Call, Client
from treadle.server.identity import Identity, shake_hands

if TYPE_CHECKING:
    from treadle.config import ConfigProblem, ConfigWarning
    from treadle.protocol.app.notifications import ConfigWarningNotification

UNUSABLE: Final = "Invalid configuration; no thread can be started until it is corrected."


def initialize(call: Call[InitializeParams]) -> InitializeResponse:
    if call.client.initialized:
        raise RpcError(INVALID_REQUEST, "Already initialized")
    identity, result = shake_hands(call.params, call.server.home)
    call.afterwards(lambda: welcome(call.server, call.client, identity))
    return result


def welcome(server: AppServer, client: Client, identity: Identity) -> None:
    """The client has had its answer: from now on it hears what happens, first what is wrong with the settings."""
    client.identify(identity)
    server.user_agent = identity.user_agent
    server.require_config()  # read now, so that a broken file is heard of before anything depends on it
    problems = server.config_warnings if server.config_error is None else server.config_error.problems
    for problem in problems:
        client.notify(Event("configWarning", _warning(problem), None, now_ms()))
    server.warm_up()


def _warning(problem: ConfigProblem | ConfigWarning) -> ConfigWarningNotification:
    # Loaded when something is wrong with the settings.
    from treadle.config.problems import ConfigWarning
    from treadle.protocol.app.notifications import ConfigWarningNotification, TextPosition, TextRange

    place = None
    if problem.line is not None:
        position = TextPosition(line=problem.line, column=problem.column or 1)
        place = TextRange(start=position, end=position)
    if isinstance(problem, ConfigWarning):
        return ConfigWarningNotification(summary=problem.message, path=problem.path, range=place)
    return ConfigWarningNotification(summary=UNUSABLE, details=str(problem), path=problem.path, range=place)
