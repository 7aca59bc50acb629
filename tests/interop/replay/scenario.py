"""`Scenario`: what a recording needs besides itself to be played again: configuration, files, the model's part.

Owns `scenarios.toml`, whose head explains the keys. Does not play: `player` does, and `model_script` is the model.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from interop.replay.recording import DATA, Json, Line, load

End: TypeAlias = Literal["eof", "kill"]

_CONFIG: Final = """\
model = "{model}"
model_provider = "mock_provider"
approval_policy = "{approval_policy}"
sandbox_mode = "{sandbox_mode}"

[model_providers.mock_provider]
name = "Mock"
base_url = "{base_url}"
wire_api = "responses"
request_max_retries = {request_max_retries}
stream_max_retries = {stream_max_retries}
"""
_MCP_SERVER: Final = str(Path(__file__).with_name("recorded_server.py"))
_DEFAULTS: Final = {
    "model": "mock-model",
    "approval_policy": "never",
    "sandbox_mode": "read-only",
    "request_max_retries": 0,
    "stream_max_retries": 0,
}


@dataclass(frozen=True, slots=True)
class Places:
    """The folders of one run, and the names that stand for them in recordings and scripts."""

    base: Path

    @property
    def user_home(self) -> Path:
        return self.base / "user"

    @property
    def codex_home(self) -> Path:
        return self.user_home / ".codex"

    @property
    def workspace(self) -> Path:
        return self.base / "workspace"

    @property
    def elsewhere(self) -> Path:
        """The folder of the exec-server."""
        return self.base / "elsewhere"

    @property
    def tokens(self) -> Mapping[str, str]:
        """Token to path; inner folders come first, so that replacing in this order is right both ways."""
        return {
            "<executor>": f"unix://{self.base / 'executor'}",
            "<elsewhere>": str(self.elsewhere),
            "<home>": str(self.codex_home),
            "<workspace>": str(self.workspace),
            "<outside>": str(self.base),
        }

    def live(self, text: str) -> str:
        for token, path in self.tokens.items():
            text = text.replace(token, path)
        return text

    def recorded(self, text: str) -> str:
        for token, path in self.tokens.items():
            text = text.replace(path, token)
        return text


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario. Several recordings are several servers, one after the other, on one home."""

    name: str
    recordings: Sequence[str]
    ends: Sequence[End]
    config: Mapping[str, Any]
    files: Mapping[str, str | Mapping[str, str]]
    git: bool
    replies: Sequence[Sequence[Json]]
    websocket: bool = False
    after_model_requests: Mapping[str, int] = field(default_factory=dict)
    unordered_output: Sequence[str] = ()
    usage: Sequence[int] = ()
    mcp_servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    executor: bool = False
    executor_variable: bool = False
    executor_restarts: Sequence[str] = ()
    environments: str = ""

    def sessions(self) -> list[list[Line]]:
        return [load(name) for name in self.recordings]

    def prepare(self, places: Places, base_url: str) -> None:
        """Make the folders, the configuration and the files."""
        places.codex_home.mkdir(parents=True)
        places.workspace.mkdir()
        more = "".join(f"{key} = {_toml(value)}\n" for key, value in self.config.items() if key not in _DEFAULTS)
        config = more + _CONFIG.format(base_url=base_url, **{**_DEFAULTS, **self.config})
        config += "".join(map(_server_table, self.mcp_servers.items()))
        (places.codex_home / "config.toml").write_text(config, encoding="utf-8")
        places.elsewhere.mkdir()
        if self.environments:
            text = places.live(self.environments).replace("<python>", sys.executable)
            (places.codex_home / "environments.toml").write_text(text, encoding="utf-8")
        for name, content in self.files.items():
            path = places.workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else base64.b64decode(content["base64"]))
        if self.git:
            _make_repository(places.workspace)


def load_scenarios() -> dict[str, Scenario]:
    """Every scenario by name."""
    document = tomllib.loads((DATA / "scenarios.toml").read_text(encoding="utf-8"))
    return {name: _scenario(name, table) for name, table in document.items()}


def _server_table(server: tuple[str, Mapping[str, Any]]) -> str:
    """`[mcp_servers.NAME]`; one with a `mode` is the recorded server in that mode."""
    name, given = server
    table = {key: value for key, value in given.items() if key != "mode"}
    if "mode" in given:
        table |= {"command": sys.executable, "args": ["-I", "-S", _MCP_SERVER, given["mode"]]}
    return f"\n[mcp_servers.{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in table.items())


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{json.dumps(key)} = {_toml(each)}' for key, each in value.items())} }}"
    return json.dumps(value)


def _make_repository(folder: Path) -> None:
    who = ["-c", "user.name=Replay", "-c", "user.email=replay@example.com"]
    subprocess.run(["git", "init", "-q", "-b", "master", str(folder)], check=True)
    commit = ["commit", "-q", "--allow-empty", "-m", "first"]
    subprocess.run(["git", "-C", str(folder), *who, *commit], check=True)


def _scenario(name: str, table: Json) -> Scenario:
    known = {entry.name for entry in fields(Scenario)} - {"name"}
    if unknown := set(table) - known:
        raise ValueError(f"scenario {name}: unknown keys {sorted(unknown)}; known are {sorted(known)}")
    recordings = table.get("recordings", [name])
    return Scenario(
        name=name,
        recordings=recordings,
        ends=table.get("ends", ["eof"] * len(recordings)),
        config=table.get("config", {}),
        files=table.get("files", {}),
        git=table.get("git", False),
        replies=table.get("replies", []),
        websocket=table.get("websocket", False),
        after_model_requests=table.get("after_model_requests", {}),
        unordered_output=table.get("unordered_output", ()),
        usage=table.get("usage", ()),
        mcp_servers=table.get("mcp_servers", {}),
        executor=table.get("executor", False),
        executor_variable=table.get("executor_variable", False),
        executor_restarts=table.get("executor_restarts", ()),
        environments=table.get("environments", ""),
    )
