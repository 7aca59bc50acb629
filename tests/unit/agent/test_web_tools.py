"""When a model can search the web, by whom, and which pages may be fetched without a question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from told_tools import KNOWN
from treadle.agent import BUILT_IN, Settings, hosted_search, left, reach, specifications
from treadle.config import Config, WebSearchTable, load_config
from treadle.execution import ProfileSandbox
from treadle.protocol.app import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxSandboxPolicy,
    FunctionDynamicToolSpec,
    ReadOnlySandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from unit.agent.bare_thread import bare_thread, settings

ENDPOINT = "[tools.web_search]\nendpoint = 'http://127.0.0.1:8888'\n"
PROVIDERS = """
[model_providers.plain]
base_url = "http://127.0.0.1:1/v1"
[model_providers.searching]
base_url = "http://127.0.0.1:1/v1"
supports_standalone_web_search = true
[model_providers.chatting]
base_url = "http://127.0.0.1:1/v1"
wire_api = "chat"
supports_standalone_web_search = true
"""


def configured(tmp_path: Path, text: str = "") -> Config:
    (tmp_path / "config.toml").write_text(text)
    return load_config(tmp_path, environ={}).config


def hosted(config: Config, provider: str) -> Any:
    spec = hosted_search(config, provider)
    return None if spec is None else json.loads(bytes(spec))


def web_tools(config: Config) -> set[str]:
    return {tool.name for tool in left(BUILT_IN, config)} - set(KNOWN)


# --- the search of the provider ---------------------------------------------------------------------------------------

# As codex 0.163 and 0.166 send it.
MODES = [
    ("cached", {"type": "web_search", "external_web_access": False}),
    ("live", {"type": "web_search", "external_web_access": True}),
    ("indexed", {"type": "web_search", "external_web_access": True, "indexed_web_access": True}),
    ("disabled", None),
]


@pytest.mark.parametrize(("mode", "spec"), MODES)
def test_the_modes_as_a_provider_reads_them(tmp_path: Path, mode: str, spec: Any) -> None:
    config = configured(tmp_path, f'web_search = "{mode}"\n{PROVIDERS}')
    assert hosted(config, "openai") == spec
    assert hosted(config, "searching") == spec
    assert hosted(config, "plain") is None
    assert hosted(config, "chatting") is None
    assert hosted(config, "offline") is None
    assert hosted(config, "nobody") is None
    assert (hosted(config, "anthropic") is not None) == (mode == "live")


def test_the_settings_of_a_search_as_recorded(tmp_path: Path) -> None:
    text = """
web_search = "live"
[tools.web_search]
context_size = "high"
allowed_domains = ["e.com"]
location = { country = "DE", city = "Berlin" }
"""
    assert hosted(configured(tmp_path, text), "openai") == {
        "type": "web_search",
        "external_web_access": True,
        "filters": {"allowed_domains": ["e.com"]},
        "user_location": {"type": "approximate", "country": "DE", "city": "Berlin"},
        "search_context_size": "high",
    }


def test_the_default_is_not_live_without_a_sandbox(tmp_path: Path) -> None:
    config = configured(tmp_path, 'sandbox_mode = "danger-full-access"')
    assert hosted(config, "openai") == {"type": "web_search", "external_web_access": False}
    assert hosted(config, "anthropic") is None
    assert web_tools(config) == set()


@pytest.mark.parametrize(
    "text",
    [
        'openai_base_url = "http://gateway/v1"',
        '[model_providers.openai]\nbase_url = "http://gateway/v1"',
        "tools.web_search = false",
        "tools.web_search.enabled = false",
    ],
)
def test_another_server_in_the_place_of_openai_is_not_known_to_search(tmp_path: Path, text: str) -> None:
    assert hosted(configured(tmp_path, text), "openai") is None


def test_a_thread_and_a_profile_can_say_it(tmp_path: Path) -> None:
    config = configured(tmp_path, 'profile = "p"\n[profiles.p]\nweb_search = "live"')
    assert hosted(config, "openai")["external_web_access"] is True
    thread = config.with_thread_overrides({"web_search": "disabled"})
    assert hosted(thread, "openai") is None
    domains = config.with_thread_overrides({"tools.web_search.allowed_domains": ["a.org"]})
    assert hosted(domains, "openai")["filters"] == {"allowed_domains": ["a.org"]}


# --- our own tools ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tools"),
    [
        ("", set()),
        ('web_search = "live"', set()),
        (ENDPOINT, {"web_search"}),
        ('web_search = "cached"\n' + ENDPOINT, {"web_search"}),
        ('web_search = "indexed"\n' + ENDPOINT, {"web_search"}),
        ('web_search = "live"\n' + ENDPOINT, {"web_search", "web_fetch"}),
        ('web_search = "disabled"\n' + ENDPOINT, set()),
        ('web_search = "live"\n' + ENDPOINT + "enabled = false\n", set()),
        ('web_search = "live"\ntools.web_fetch = false\n' + ENDPOINT, {"web_search"}),
    ],
)
def test_our_own_tools_need_a_server_to_search_with(tmp_path: Path, text: str, tools: set[str]) -> None:
    assert web_tools(configured(tmp_path, text)) == tools


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("provider", "clients", "expected"),
    [
        ("plain", (), ["web_search", "web_fetch"]),
        ("openai", (), ["hosted"]),
        ("plain", ("web_search",), ["web_fetch", "web_search"]),
        ("openai", ("web_search",), ["web_fetch", "web_search"]),
        ("openai", ("other",), ["hosted"]),
    ],
)
async def test_one_search_is_enough(
    tmp_path: Path, provider: str, clients: tuple[str, ...], expected: list[str]
) -> None:
    configured(tmp_path, f'web_search = "live"\n{ENDPOINT}{PROVIDERS}')
    tools = tuple(FunctionDynamicToolSpec(name=name, description="", input_schema={}) for name in clients)
    async with bare_thread(tmp_path) as (thread, _):
        given = settings(model_provider=provider, dynamic_tools=tools)
        thread.state = structs.replace(thread.state, settings=given)
        specs = [json.loads(bytes(spec)) for spec in specifications(thread)]
    names = [spec.get("name", "hosted") for spec in specs]
    assert [name for name in names if name.startswith("web_") or name == "hosted"] == expected


# --- which pages ------------------------------------------------------------------------------------------------------

PROFILE = ProfileSandbox(
    rules=(), domains=(("docs.example", True), ("*.wiki.example", True), ("bad.wiki.example", False))
)


def by(sandbox: Any, host: str = "e.com", **table: Any) -> str:
    given: Settings = settings(sandbox=sandbox)
    return reach(host, given, WebSearchTable(**table))


@pytest.mark.parametrize(
    ("sandbox", "expected"),
    [
        (ReadOnlySandboxPolicy(), "unnamed"),
        (ReadOnlySandboxPolicy(network_access=True), "open"),
        (WorkspaceWriteSandboxPolicy(), "unnamed"),
        (WorkspaceWriteSandboxPolicy(network_access=True), "open"),
        (DangerFullAccessSandboxPolicy(), "open"),
        (ExternalSandboxSandboxPolicy(), "unnamed"),
        (ExternalSandboxSandboxPolicy(network_access="enabled"), "open"),
        (ProfileSandbox(rules=()), "unnamed"),
        (ProfileSandbox(rules=(), network_access=True), "open"),
        (ProfileSandbox(rules=(), domains=(("e.com", False),)), "denied"),
        (ProfileSandbox(rules=(), domains=(("x.com", False),)), "unnamed"),
        (ProfileSandbox(rules=(), domains=(("*", True), ("e.com", False))), "denied"),
        (ProfileSandbox(rules=(), domains=(("*", True),)), "named"),
        (PROFILE, "denied"),
    ],
)
def test_what_the_permissions_of_a_thread_say(sandbox: Any, expected: str) -> None:
    assert by(sandbox) == expected
    # Named domains are a limit and an answer, whatever commands may do.
    assert by(sandbox, allowed_domains=("com",)) == ("denied" if expected == "denied" else "named")
    assert by(sandbox, allowed_domains=("org",)) == "denied"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("docs.example", "named"),
        ("x.docs.example", "denied"),
        ("a.wiki.example", "named"),
        ("wiki.example", "denied"),
        ("bad.wiki.example", "denied"),
        ("evilwiki.example", "denied"),
    ],
)
def test_the_domains_of_a_profile(host: str, expected: str) -> None:
    assert by(PROFILE, host) == expected


def test_the_domains_of_a_profile_as_they_are_written(tmp_path: Path) -> None:
    text = """
[permissions.p]
extends = ":workspace"
[permissions.p.network]
domains = { "Docs.Example." = "allow", "**.wiki.example" = "allow", "x.wiki.example" = "deny" }
[permissions.closed.network]
enabled = false
domains = { "docs.example" = "allow", "x.example" = "deny" }
"""
    config = configured(tmp_path, text)
    open_ = config.profile_permissions("p").sandbox
    assert [by(open_, host) for host in ("docs.example", "wiki.example", "x.wiki.example", "y.example")] == [
        *("named", "named", "denied", "denied")
    ]
    closed = config.profile_permissions("closed").sandbox
    assert [by(closed, host) for host in ("docs.example", "x.example", "y.example")] == ["unnamed", "denied", "unnamed"]
