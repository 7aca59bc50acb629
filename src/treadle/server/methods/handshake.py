"""`initialize`."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

from treadle._version import __version__
from treadle.agent.event import Event
from treadle.agent.ids import now_ms
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.server.client import Call
from treadle.server.extensions import ANNOUNCED, OurInitializeResponse
from treadle.server.quirks import quirks_of

if TYPE_CHECKING:
    from treadle.protocol.app.notifications import ConfigWarningNotification

# The Codex release whose protocol this is. SDKs read it where a Codex server has its own version, and refuse what they
# think is too old.
PROTOCOL_VERSION: Final = "0.166.0"
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]+")


def initialize(call: Call) -> None:
    client, server, params = call.client, call.server, call.params
    info = params.client_info
    if client.initialized:
        raise RpcError(INVALID_REQUEST, "Already initialized")
    if _HEADER_VALUE.fullmatch(info.name) is None:
        text = f"Invalid clientInfo.name: '{info.name[:100]}'. Must be a valid HTTP header value."
        raise RpcError(INVALID_REQUEST, text)
    client.name, client.version = info.name, info.version
    client.quirks = quirks_of(info.name)
    if params.capabilities is not None:
        client.experimental = params.capabilities.experimental_api
        client.opted_out = frozenset(params.capabilities.opt_out_notification_methods or ())
    client.initialized = True
    agent = user_agent(info.name, info.version)
    server.user_agent = agent
    result = OurInitializeResponse(
        user_agent=agent,
        codex_home=server.home,
        platform_family="unix" if os.name == "posix" else "windows",
        platform_os=_platform(),
        extensions=ANNOUNCED,
    )
    call.reply(result)
    _tell_config_problems(call)
    server.warm_up()


def user_agent(name: str, version: str) -> str:
    system = os.uname()
    place = f"{system.sysname} {system.release}; {system.machine}"
    shown = version if _HEADER_VALUE.fullmatch(version) else "unknown"
    return f"{name}/{PROTOCOL_VERSION} ({place}) treadle/{__version__} ({name}; {shown})"


def _platform() -> str:
    import sys

    return {"darwin": "macos", "win32": "windows"}.get(sys.platform, sys.platform)


def _tell_config_problems(call: Call) -> None:
    server = call.server
    _ = server.config  # read now, so that a broken file is heard of before anything depends on it
    for problem in server.config_problems:
        call.client.tell(Event("configWarning", _warning(problem), 0, now_ms()))


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
