"""MCP servers of a thread's own `config` object: they stay with the thread, and a bad one is refused with its name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kit.app_client import AppClient
from kit.in_process import ServerHere, server_here
from treadle.errors import INVALID_REQUEST
from treadle.testing import AppServerHarness

OWN: dict[str, Any] = {"own": {"command": "own-server", "args": ["a"]}}
FILE = '\n[mcp_servers.file]\ncommand = "file-server"\n[mcp_servers.broken]\nargs = 1\n'


def servers_of(here: ServerHere, thread_id: str) -> dict[str, list[str]]:
    """The usable servers of a loaded thread, with their command and arguments."""

    def look() -> dict[str, list[str]]:
        thread = here.server.threads.get(thread_id)
        assert thread is not None
        config = here.server.config_for(thread.settings)
        usable = {name: one for name, one in config.mcp_servers.items() if one.enabled}
        return {name: [one.command or "", *one.args] for name, one in usable.items()}

    return here.call(look)


@pytest.fixture
def file_servers(harness: AppServerHarness) -> None:
    path = harness.home / "config.toml"
    path.write_text(path.read_text() + FILE)


@pytest.fixture
def here(harness: AppServerHarness, file_servers: None) -> Iterator[ServerHere]:
    with server_here(harness) as server:
        yield server


@pytest.mark.parametrize("config", [{"mcp_servers": OWN}, {"mcp_servers.own": OWN["own"]}], ids=["nested", "dotted"])
def test_a_thread_keeps_its_servers_in_resume_and_fork(
    harness: AppServerHarness, file_servers: None, config: dict[str, Any]
) -> None:
    both = {"file": ["file-server"], "own": ["own-server", "a"]}
    harness.model.enqueue_assistant_message("stored")
    with server_here(harness) as here:
        client = here.connect()
        thread = client.start_thread(config=config)
        assert servers_of(here, thread) == both
        assert servers_of(here, client.start_thread()) == {"file": ["file-server"]}
        assert client.run(thread)["status"] == "completed"
    with server_here(harness) as here:  # another server, which knows only what is stored
        client = here.connect()
        client.call("thread/resume", {"threadId": thread})
        assert servers_of(here, thread) == both
        fork = client.call("thread/fork", {"threadId": thread})["thread"]["id"]
        assert servers_of(here, fork) == both


def test_a_request_for_a_stored_thread_may_name_other_servers(here: ServerHere) -> None:
    client = here.connect()
    thread = client.start_thread(config={"mcp_servers": OWN})
    other = {"mcp_servers": {"other": {"command": "other-server"}, "file": {"enabled": False}}}
    fork = client.call("thread/fork", {"threadId": thread, "config": other})["thread"]["id"]
    assert servers_of(here, fork) == {"other": ["other-server"]}
    client.call("thread/resume", {"threadId": thread, "config": other})
    assert servers_of(here, thread) == {"other": ["other-server"]}


def test_a_config_without_servers_leaves_those_of_the_thread(here: ServerHere) -> None:
    client = here.connect()
    thread = client.start_thread(config={"mcp_servers": OWN, "model_reasoning_summary": "concise"})
    client.call("thread/resume", {"threadId": thread, "config": {"compact_prompt": "short"}})
    assert list(servers_of(here, thread)) == ["file", "own"]


def test_a_bad_server_of_a_request_is_refused(here: ServerHere) -> None:
    client = here.connect()
    bad = {"mcp_servers": {"bad": {"args": ["x"]}}}
    thread = client.start_thread()
    for method, params in (
        ("thread/start", {}),
        ("thread/resume", {"threadId": thread}),
        ("thread/fork", {"threadId": thread}),
    ):
        error = client.failure(method, {**params, "config": bad})
        assert error["code"] == INVALID_REQUEST
        assert error["message"] == (
            "failed to load configuration: the configuration of the thread: mcp_servers.bad: it has neither a command "
            "nor a url; add one of them"
        )
    assert list(servers_of(here, thread)) == ["file"]


def test_a_thread_goes_on_when_the_file_has_lost_its_server(harness: AppServerHarness, here: ServerHere) -> None:
    client = here.connect()
    thread = client.start_thread(config={"mcp_servers": {"file": {"startup_timeout_sec": 5}}})
    path = harness.home / "config.toml"
    path.write_text(path.read_text().replace(FILE, ""))
    harness.model.enqueue_assistant_message("still here")
    assert client.run(thread)["status"] == "completed"
    assert servers_of(here, thread) == {}


def test_a_bad_server_of_the_file_is_a_warning_with_its_line(harness: AppServerHarness, here: ServerHere) -> None:
    client: AppClient = here.connect()
    warning = client.wait_for("configWarning")["params"]
    line = (harness.home / "config.toml").read_text().splitlines().index("args = 1") + 1
    assert "the MCP server `broken` cannot be used" in warning["summary"]
    assert warning["range"]["start"] == {"line": line, "column": 1}
    client.start_thread()
