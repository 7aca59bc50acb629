"""Who the server is: the result of `initialize`, with the attribute names of the official SDK."""

from __future__ import annotations

from typing import Any, Self

import msgspec
from msgspec import Struct

from treadle.client.codex_config import CodexConfig
from treadle.client.sdk_errors import MissingMetadata


class _Read(Struct):
    @classmethod
    def model_validate(cls, obj: object) -> Self:
        """From plain values."""
        return msgspec.convert(obj, cls)

    def model_dump(self, *, by_alias: bool = False, mode: str = "python", exclude_none: bool = False) -> dict[str, Any]:
        """To plain values."""
        members: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in members.items() if value is not None} if exclude_none else members


class ServerInfo(_Read):
    """The name and version of the server."""

    name: str | None = None
    version: str | None = None


class InitializeResponse(_Read):
    """Who the server is, and where; the names are those of the wire."""

    serverInfo: ServerInfo | None = None
    userAgent: str | None = None
    platformFamily: str | None = None
    platformOs: str | None = None
    codexHome: str | None = None
    extensions: Any = None
    """What the server can do beyond the Codex protocol: ours says so here."""


def client_info(config: CodexConfig) -> dict[str, Any]:
    """The params of `initialize`."""
    info = {"name": config.client_name, "title": config.client_title, "version": config.client_version}
    return {"clientInfo": info, "capabilities": {"experimentalApi": config.experimental_api}}


def check_metadata(answer: InitializeResponse) -> InitializeResponse:
    """The answer with `serverInfo` filled in; raises `MissingMetadata` when it cannot be."""
    agent = (answer.userAgent or "").strip()
    given = answer.serverInfo or ServerInfo()
    name, version = (given.name or "").strip(), (given.version or "").strip()
    if agent and not (name and version):
        slash = "/" in agent
        parsed_name, _, parsed_version = agent.partition("/" if slash else " ")
        name, version = name or parsed_name.strip(), version or parsed_version.strip()
    if not (agent and name and version):
        raise MissingMetadata(
            "the initialize response is missing required metadata "
            f"(userAgent={agent!r}, server name={name!r}, server version={version!r}): is this an app-server?"
        )
    if answer.serverInfo is None:
        answer.serverInfo = ServerInfo()
    answer.serverInfo.name, answer.serverInfo.version = name, version
    return answer
