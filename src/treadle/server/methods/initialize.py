"""`initialize`, and what a client is sent right after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from treadle.agent.event import Event, now_ms
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.handshake import InitializeParams, InitializeResponse
from treadle.server.app import AppServer
from treadle.server.clients import Client, ServerCall
from treadle.server.identity import Identity, shake_hands

if TYPE_CHECKING:
    from treadle.config import ConfigProblem, ConfigWarning

EPHEMERAL_ONLY: Final = "treadle/ephemeralThreadsOnly"
"""An extension that a client may name in its capabilities: it will have ephemeral threads alone."""
UNUSABLE: Final = "Invalid configuration; no thread can be started until it is corrected."


def initialize(call: ServerCall[InitializeParams]) -> InitializeResponse:
    if call.client.initialized:
        raise RpcError(INVALID_REQUEST, "Already initialized")
    identity, result = shake_hands(call.params, call.server.home)
    capabilities = call.params.capabilities
    extensions = None if capabilities is None else capabilities.extensions
    stores = not (extensions or {}).get(EPHEMERAL_ONLY)
    call.afterwards(lambda: welcome(call.server, call.client, identity, stores=stores))
    return result


def welcome(server: AppServer, client: Client, identity: Identity, *, stores: bool = True) -> None:
    """The client has had its answer: from now on it hears what happens, first what is wrong with the settings. A client
    that `stores` nothing needs no file of threads to be opened."""
    client.identify(identity)
    server.user_agent = identity.user_agent
    server.refresh_config()  # read now, so that a broken file is heard of before anything depends on it
    for problem in server.config_problems:
        client.notify(config_warning(problem))
    if stores:
        server.warm_up()


def config_warning(problem: ConfigProblem | ConfigWarning) -> Event:
    # Loaded when something is wrong with the settings.
    from treadle.config.problems import ConfigWarning
    from treadle.protocol.app.notifications import ConfigWarningNotification, TextPosition, TextRange

    place = None
    if problem.line is not None:
        position = TextPosition(line=problem.line, column=problem.column or 1)
        place = TextRange(start=position, end=position)
    if isinstance(problem, ConfigWarning):
        warning = ConfigWarningNotification(summary=problem.message, path=problem.path, range=place)
    else:
        warning = ConfigWarningNotification(summary=UNUSABLE, details=str(problem), path=problem.path, range=place)
    return Event("configWarning", warning, None, now_ms())
