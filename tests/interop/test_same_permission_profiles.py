"""Our app-server and the real one say the same of permission profiles: which are active, and what they come to."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.app_client import AppClient
from kit.app_program import server_on_pipes

CONFIG = """
default_permissions = "base"
[permissions.base.filesystem]
":root" = "read"
":workspace_roots" = { "." = "write" }
[permissions.child]
description = "With more"
extends = "base"
[permissions.child.network]
enabled = true
[permissions.child.filesystem]
"/srv" = "write"
":slash_tmp" = "write"
[permissions.child.filesystem.":workspace_roots"]
"docs" = "read"
[permissions.readers]
extends = ":read-only"
[permissions.circle]
extends = "circle"
"""
ASKED: Sequence[dict[str, Any]] = (
    {"permissions": ":workspace"},
    {"permissions": ":read-only"},
    {"permissions": "child"},
    {"permissions": "readers"},
    {"sandboxPolicy": {"type": "readOnly", "networkAccess": False}},
    {"permissions": "base"},
    {"permissions": ":danger-full-access"},
)
REFUSED: Sequence[dict[str, Any]] = (
    {"permissions": "gone"},
    {"permissions": ":gone"},
    {"permissions": "circle"},
    {"permissions": ":workspace", "sandboxPolicy": {"type": "readOnly"}},
)


@contextmanager
def app_server(command: Sequence[str], root: Path) -> Iterator[AppClient]:
    home = root / "home"
    home.mkdir(parents=True)
    (home / "config.toml").write_text(CONFIG)
    env = {**os.environ, "HOME": str(root), "CODEX_HOME": str(home), "TREADLE_HOME": str(home)}
    with server_on_pipes(command, cwd=root, env=env, log=root / "stderr", ours=False) as program:
        program.client.initialize(experimentalApi=True)
        yield program.client


def said(client: AppClient, cwd: Path) -> list[Any]:
    """All that a server answers."""
    started = client.call("thread/start", {"cwd": str(cwd)})
    thread = started["thread"]["id"]
    answers: list[Any] = [started["sandbox"], started["activePermissionProfile"]]
    for number, params in enumerate(ASKED, start=1):
        assert client.call("thread/settings/update", {"threadId": thread, **params}) == {}
        while len(told := client.params_of("thread/settings/updated")) < number:
            client.receive()
        settings = told[-1]["threadSettings"]
        answers.append((params, settings["sandboxPolicy"], settings["activePermissionProfile"]))
    refused = [client.error("thread/settings/update", {"threadId": thread, **params})["code"] for params in REFUSED]
    return [*answers, refused, client.call("permissionProfile/list", {})["data"]]


@pytest.mark.interop
def test_the_same_profiles_come_to_the_same(codex_bin: Path, tmp_path: Path) -> None:
    cwd = tmp_path / "work"
    cwd.mkdir()
    with app_server([str(codex_bin), "app-server"], tmp_path / "codex") as real:
        wanted = said(real, cwd)
    with app_server([sys.executable, "-m", "treadle", "app-server"], tmp_path / "ours") as ours:
        assert said(ours, cwd) == wanted
