"""Hooks as files say them: which count, under which key and hash, and what is said of the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.config import ELSEWHERE_IN_TABLE, load_config
from treadle.hooks import (
    EVENTS,
    STATE,
    Hook,
    HookFile,
    HookPlace,
    PreToolUse,
    SessionStart,
    Stop,
    SubagentStart,
    read_hook_files,
    read_hooks,
    trust_warnings,
    with_settings,
    with_trust,
)

FILE = "/h/hooks.json"


def _read(events: dict[str, Any]) -> HookFile:
    return read_hooks(events, FILE, "user")


def _one(event: str, handler: dict[str, Any], **group: Any) -> Hook:
    (hook,) = _read({event: [{**group, "hooks": [handler]}]}).hooks
    return hook


def _command(text: str = "true", **more: Any) -> dict[str, Any]:
    return {"type": "command", "command": text, **more}


# What codex 0.166 gives them.
HASHES = [
    ("PreToolUse", {}, _command(), "a7de97b60e1412f8e936f33ad7e97c04dfe69190d43e61d14c46265643383835"),
    (
        "PreToolUse",
        {"matcher": ""},
        _command(timeout=0),
        "e47413aa9fe8506bdfe8bf494bbf09208eb7744e4b9c15785d18c7dee7ab3e9e",
    ),
    (
        "PreToolUse",
        {"matcher": "*"},
        _command(
            "echo é </x>",
            timeout=5,
            statusMessage="s",
            additionalContextLimit=100,
            commandWindows="dir",
            **{"async": True},
        ),
        "8ffff91cfd816342c61f63a848224698d05f835ed61d39e01cd6bb41eee2b95f",
    ),
    (
        "PreToolUse",
        {"matcher": "a|b"},
        {"type": "mcp_tool", "server": "s", "tool": "t", "input": {"z": 1, "a": [True, 1.5]}, "timeout": 7},
        "88b3778c1b9541045f7caa501f3d426637cc4f1e36e958e1d18f396c0923bcb4",
    ),
    (
        "PreToolUse",
        {"matcher": "a|b"},
        {"type": "mcp_tool", "server": "s", "tool": "t"},
        "444bedfb6aaede7623548ad038ec28e08fb8a2d2b6c1183eddbb2c0e7ac2d7a4",
    ),
    (
        "PreToolUse",
        {"matcher": "a|b"},
        _command("x", guard=True, on_error="deny"),
        "d6a71128d99243104c3defbc197d31124489cd363c4a27a9217e72b01b197b4d",
    ),
    (
        "SessionEnd",
        {"matcher": "ignored"},
        _command(),
        "9187936106c0cc14a91cbcba90ea5e43a79238f90e3dfc07f3c8633b987e7512",
    ),
    (
        "SessionEnd",
        {"matcher": "ignored"},
        _command(timeout=100),
        "4f2cf827d55e0828a447abd7b522c1b1244d2a2f0314f7c3ff847e4e4a3ba6f6",
    ),
    ("Stop", {"matcher": "x"}, _command(), "2ba34c7a02841fada06b868a093d041fd3d9de81883c789a321916b0aa118851"),
    ("Interrupt", {"matcher": "x"}, _command(), "fb1ffe26e8dbd2e7fb8855d602d1545f7e1b53854ebfb71aead8f18db9e7607a"),
]


@pytest.mark.parametrize(("event", "group", "handler", "expected"), HASHES)
def test_the_hash_is_that_of_codex(event: str, group: dict[str, Any], handler: dict[str, Any], expected: str) -> None:
    assert _one(event, handler, **group).hash == f"sha256:{expected}"


def test_keys_and_order_are_those_of_codex() -> None:
    events = {
        "Stop": [{"hooks": [_command("a")]}],
        "PreToolUse": [{"hooks": [_command("b")]}, {"hooks": [{"type": "prompt"}, _command("c")]}],
    }
    read = _read(events)
    found = with_trust(read.hooks, None)
    assert [(hook.key, hook.order) for hook in found] == [
        (f"{FILE}:pre_tool_use:0:0", 0),
        (f"{FILE}:pre_tool_use:1:1", 1),
        (f"{FILE}:stop:0:0", 2),
    ]
    assert read.warnings == (f"skipping prompt hook in {FILE}: prompt hooks are not supported yet",)


@pytest.mark.parametrize(
    ("events", "warning"),
    [
        ({"Stop": {}}, "failed to parse hooks config"),
        ({"Stop": [{"hooks": [{"type": "weird"}]}]}, "failed to parse hooks config"),
        ({"Stop": [{"hooks": [_command(timeout=-1)]}]}, "failed to parse hooks config"),
        ({"PreToolUse": [{"matcher": 5, "hooks": []}]}, "failed to parse hooks config"),
        ({"Stop": [{"hooks": [_command(" ")]}]}, "skipping empty hook command"),
        ({"PreToolUse": [{"matcher": "[", "hooks": [_command()]}]}, 'invalid matcher "["'),
        ({"PreToolUse": [{"matcher": "(" * 2000, "hooks": [_command()]}]}, "invalid matcher"),
        ({"SessionEnd": [{"hooks": [{"type": "mcp_tool", "server": "s", "tool": "t"}]}]}, "skipping MCP tool hook"),
    ],
)
def test_what_does_not_count_is_said(events: dict[str, Any], warning: str) -> None:
    read = _read(events)
    assert read.hooks == ()
    assert warning in read.warnings[0]


def test_a_guard_that_cannot_be_read_refuses_everything() -> None:
    """Nobody knows what it was meant to let through."""
    hook = _one("PreToolUse", _command(guard=True), matcher="[")
    assert hook.matcher is None
    assert hook.refuses_on_error
    assert hook.problem is not None


def test_timeouts() -> None:
    assert _one("Stop", _command()).timeout_s == 600
    assert _one("SessionEnd", _command()).timeout_s == 1
    read = _read({"Interrupt": [{"hooks": [_command(timeout=60)]}]})
    assert read.hooks[0].timeout_s == 3
    assert read.warnings == (f"clamping Interrupt hook timeout to 3s in {FILE}",)


@pytest.mark.parametrize(
    ("event", "settings", "refuses"),
    [
        ("PreToolUse", {}, False),
        ("PreToolUse", {"guard": True}, True),
        ("PreToolUse", {"guard": True, "on_error": "allow"}, False),
        ("PreToolUse", {"on_error": "deny"}, True),
        ("PreToolUse", {"on_error": "deny", "async": True}, False),
        ("PermissionRequest", {"guard": True}, True),
        ("UserPromptSubmit", {"guard": True}, False),
        ("UserPromptSubmit", {"on_error": "deny"}, True),
        ("Stop", {"on_error": "deny"}, False),
    ],
)
def test_who_refuses_when_it_fails(event: str, settings: dict[str, Any], refuses: bool) -> None:
    assert _one(event, _command(**settings)).refuses_on_error is refuses


IDS: dict[str, Any] = {"session_id": "s", "cwd": "/", "turn_id": "t", "model": "m"}
MODE: dict[str, Any] = {"permission_mode": "default"}


def _call(tool: str) -> PreToolUse:
    return PreToolUse(**IDS, **MODE, tool_name=tool, tool_input={}, tool_use_id="c")


@pytest.mark.parametrize(
    ("matcher", "tool", "suits"),
    [
        (None, "Bash", True),
        ("", "Bash", True),
        ("*", "Bash", True),
        ("Bash", "Bash", True),
        ("Bas", "Bash", False),
        ("Edit|Write", "apply_patch", True),
        ("apply_patch", "apply_patch", True),
        ("Agent", "spawn_agent", True),
        ("^mcp__", "mcp__docs__read", True),
        ("mcp__docs", "mcp__docs__read", False),
        ("mcp__docs.*", "mcp__docs__read", True),
        ("sh$", "Bash", True),
    ],
)
def test_matchers(matcher: str | None, tool: str, suits: bool) -> None:
    assert _one("PreToolUse", _command(), matcher=matcher).suits(_call(tool)) is suits


def test_what_matchers_are_held_against() -> None:
    start = SessionStart(session_id="s", cwd="/", model="m", permission_mode="default", source="resume")
    assert _one("SessionStart", _command(), matcher="resume").suits(start)
    assert not _one("SessionStart", _command(), matcher="startup").suits(start)
    agent = SubagentStart(**IDS, **MODE, agent_id="a", agent_type="explorer")
    assert _one("SubagentStart", _command(), matcher="explorer").suits(agent)
    assert not _one("SubagentStart", _command(), matcher="worker").suits(agent)
    stop = Stop(**IDS, **MODE, stop_hook_active=False, last_assistant_message=None)
    assert _one("Stop", _command(), matcher="nothing").suits(stop)


def test_trust_is_for_what_was_seen() -> None:
    (hook,) = _read({"Stop": [{"hooks": [_command("a")]}]}).hooks

    def trust(state: object) -> tuple[str, bool]:
        (found,) = with_trust([hook], state)
        return found.trust, found.runs

    assert trust(None) == ("untrusted", False)
    assert trust({hook.key: {"trusted_hash": hook.hash}}) == ("trusted", True)
    assert trust({hook.key: {"trusted_hash": hook.hash, "enabled": False}}) == ("trusted", False)
    assert trust({hook.key: {"trusted_hash": "sha256:0"}}) == ("modified", False)
    states: list[Any] = [{hook.key: "yes"}, {hook.key: {"trusted_hash": True}}, []]
    for wrong in (*states, {"other": {"trusted_hash": hook.hash}}):
        assert trust(wrong)[1] is False
    (warning,) = trust_warnings(with_trust([hook], {}), "/a b")
    assert warning.endswith("treadle hooks trust --cd '/a b'")


def test_what_the_administrator_has_set_needs_no_trust_and_cannot_be_switched_off() -> None:
    (hook,) = read_hooks({"Stop": [{"hooks": [_command("a")]}]}, FILE, "system").hooks
    for state in (None, {hook.key: {"enabled": False}}, {hook.key: {"trusted_hash": "sha256:0", "enabled": False}}):
        (found,) = with_trust([hook], state)
        assert (found.trust, found.enabled, found.runs) == ("managed", True, True)


def test_the_settings_know_all_events() -> None:
    assert ELSEWHERE_IN_TABLE["hooks"] == {*EVENTS, STATE}


_KEYS = st.sampled_from(
    [*("matcher", "hooks", "type", "command", "timeout", "input", "server", "tool", "guard", "on_error"), "async"]
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=15,
)


@given(st.dictionaries(st.sampled_from([*EVENTS, "Other"]), _VALUES, max_size=3))
def test_any_file_is_read(events: dict[str, Any]) -> None:
    read = _read(events)
    for hook in with_trust(read.hooks, events):
        assert not hook.runs
        json.dumps(hook.key)


def test_hooks_that_are_given_beside_the_file_do_not_replace_its_own(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[[hooks.Stop]]\nhooks = [{type = "command", command = "mine"}]\n')
    loaded = load_config(tmp_path, overrides=['hooks.Stop = [{hooks = [{type = "command", command = "theirs"}]}]'])
    config = loaded.config.with_thread_overrides({"hooks.SessionEnd": [{"hooks": [_command()]}]})
    found = with_settings(read_hook_files(HookPlace(cwd=None, confinement=None, home=str(tmp_path))), config).hooks
    given = "/<session-flags>/config.toml"
    assert [(hook.source, hook.key) for hook in found] == [
        ("user", f"{path}:stop:0:0"),
        ("sessionFlags", f"{given}:session_end:0:0"),
        ("sessionFlags", f"{given}:stop:0:0"),
    ]
