"""`initialize`, and what a client is told right after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from treadle.agent.event import Event
from treadle.agent.ids import now_ms
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.server.app import AppServer
from treadle.server.client import Call, Client
from treadle.server.handshake import Identity, shake_hands

if TYPE_CHECKING:
    from treadle.protocol.app.notifications import ConfigWarningNotification


def initialize(call: Call) -> None:
    if call.client.initialized:
        raise RpcError(INVALID_REQUEST, "Already initialized")
    identity, result = shake_hands(call.params, call.server.home)
    call.reply(result)
    welcome(call.server, call.client, identity)


def welcome(server: AppServer, client: Client, identity: Identity) -> None:
    """The client has had its answer: from now on it hears what happens, first what is wrong with the settings."""
    client.identify(identity)
    server.user_agent = identity.user_agent
    _ = server.config  # read now, so that a broken file is heard of before anything depends on it
    for problem in server.config_problems:
        client.tell(Event("configWarning", _warning(problem), None, now_ms()))
    server.warm_up()


def _warning(problem: Any) -> ConfigWarningNotification:
    from treadle.protocol.app.notifications import ConfigWarningNotification, TextPosition, TextRange

    place = None
    if problem.line is not None:
        position = TextPosition(line=problem.line, column=problem.column or 1)
        place = TextRange(start=position, end=position)
    is_error = isinstance(problem, Exception)
    summary = "config.toml is not used; the built-in settings hold" if is_error else problem.message
    return ConfigWarningNotification(
        summary=summary, details=str(problem) if is_error else None, path=problem.path, range=place
    )
