"""The handshake, without I/O: who the client is, and what it is answered.

Nothing is loaded for it that it does not need, because a program that starts a server waits for this answer.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Final

from msgspec import Struct

from treadle._version import PROTOCOL_VERSION, __version__
from treadle.errors import INVALID_REQUEST, RpcError
from treadle.protocol.app.handshake import InitializeParams, InitializeResponse

_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]+")
_PLATFORMS: Final = {"darwin": "macos", "win32": "windows"}


# What we have beyond the Codex protocol; other clients ignore it. Every notification about a thread carries `seq`
# beside `emittedAtMs`: numbered ones are published once each, without gaps; deltas carry the number of the event that
# they follow. `thread/events/list` gives what a client has missed.
EXTENSIONS: Final = {"treadle/threadEvents": {"version": 1}, "treadle/messageSearch": {"version": 1}}


class OurInitializeResponse(InitializeResponse, frozen=True, kw_only=True):
    extensions: dict[str, Any]


class Identity(Struct, frozen=True, kw_only=True):
    """What a client says about itself."""

    name: str
    version: str
    user_agent: str
    experimental: bool = False
    opted_out: frozenset[str] = frozenset()


def shake_hands(params: InitializeParams, home: str) -> tuple[Identity, OurInitializeResponse]:
    """Raises `RpcError`."""
    info, wanted = params.client_info, params.capabilities
    if _HEADER_VALUE.fullmatch(info.name) is None:
        text = f"Invalid clientInfo.name: '{info.name[:100]}'. Must be a valid HTTP header value."
        raise RpcError(INVALID_REQUEST, text)
    identity = Identity(
        name=info.name,
        version=info.version,
        user_agent=user_agent(info.name, info.version),
        experimental=wanted is not None and wanted.experimental_api,
        opted_out=frozenset((wanted.opt_out_notification_methods if wanted is not None else None) or ()),
    )
    return identity, OurInitializeResponse(
        user_agent=identity.user_agent,
        codex_home=home,
        platform_family="unix" if os.name == "posix" else "windows",
        platform_os=_PLATFORMS.get(sys.platform, sys.platform),
        extensions=EXTENSIONS,
    )


def user_agent(name: str, version: str) -> str:
    system = os.uname()
    place = f"{system.sysname} {system.release}; {system.machine}"
    shown = version if _HEADER_VALUE.fullmatch(version) else "unknown"
    return f"{name}/{PROTOCOL_VERSION} ({place}) treadle/{__version__} ({name}; {shown})"
