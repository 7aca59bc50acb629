"""Hooks that are functions, of the program that the server is part of and of installed packages."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from kit.agents_model import AgentsModel, do, spawn, wait
from system.agent.scene import scene, shell
from system.hooks.hooks_scene import FULL_ACCESS, runs, warnings
from treadle import ArgumentError, AsyncCodex, Codex, CodexConfig
from treadle.hooks import (
    HookInput,
    HookResult,
    PostToolUse,
    PreToolUse,
    PythonHook,
    SessionEnd,
    Stop,
    SubagentStop,
    UserPromptSubmit,
)
from treadle.server import AppServer
from treadle.testing import AppServerHarness, ToolCall


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[AppServerHarness]:
    with AppServerHarness(tmp_path, settings=FULL_ACCESS) as made:
        yield made


def _calls(harness: AppServerHarness, cmd: str = "echo original") -> None:
    harness.model.enqueue_calls(ToolCall("exec_command", shell(cmd), "c1"))
    harness.model.enqueue_assistant_message("done")


def _output(harness: AppServerHarness) -> str:
    return harness.model.requests()[-1].tool_outputs["c1"]


def test_a_function_refuses_in_another_thread(harness: AppServerHarness) -> None:
    seen: list[tuple[PreToolUse, str]] = []

    def check(call: PreToolUse) -> HookResult | None:
        seen.append((call, threading.current_thread().name))
        return HookResult(block="not here") if "rm" in call.tool_input["command"] else None

    _calls(harness, "rm nothing")
    with Codex(harness.codex_config(), hooks={"PreToolUse": check}) as codex:
        assert codex.thread_start().run("go").final_response == "done"
    assert _output(harness) == "Command blocked by PreToolUse hook: not here. Command: rm nothing"
    ((call, thread),) = seen
    assert (call.tool_name, call.tool_use_id, thread) == ("Bash", "c1", "hook")


@pytest.mark.anyio
async def test_async_functions_change_and_add(harness: AppServerHarness) -> None:
    async def change(call: PreToolUse) -> HookResult:
        await asyncio.sleep(0)
        return HookResult(updated_input={"command": "echo changed"}, context="look closely")

    async def after(call: PostToolUse) -> HookResult:
        return HookResult(block=f"it said {call.tool_response}")

    def again(turn: Stop) -> HookResult | None:
        return None if turn.stop_hook_active else HookResult(block="go on")

    _calls(harness)
    harness.model.enqueue_assistant_message("really done")
    hooks: dict[str, Any] = {"PreToolUse": PythonHook(change, matcher="Bash"), "PostToolUse": [after], "Stop": again}
    async with AsyncCodex(harness.codex_config(), hooks=hooks) as codex:
        result = await (await codex.thread_start()).run("go")
        assert result.final_response == "really done"
    assert harness.model.requests()[1].tool_outputs["c1"] == "it said changed\n"
    assert "look closely" in str(harness.model.requests()[1].json)


def _hangs(_: object) -> None:
    time.sleep(3600)


async def _hangs_too(_: object) -> None:
    await asyncio.sleep(3600)


def _raises(_: object) -> None:
    raise ValueError("sorry")


def _wrong(_: object) -> str:
    return "no"


def _out_of_place(_: object) -> HookResult:
    return HookResult(allow=True)


@pytest.mark.parametrize("guard", [False, True])
@pytest.mark.parametrize(
    ("function", "error"),
    [
        (_hangs, "timed out after 0.2s"),
        (_hangs_too, "timed out after 0.2s"),
        (_raises, "hook raised ValueError: sorry"),
        (_wrong, "hook returned str, not a HookResult or None"),
        (_out_of_place, "PreToolUse hook returned unsupported allow"),
    ],
)
@pytest.mark.anyio
async def test_one_that_fails_costs_its_deadline(
    tmp_path: Path, function: Callable[[object], Any], error: str, guard: bool
) -> None:
    with AppServerHarness(tmp_path, settings=FULL_ACCESS) as harness:
        hooks = {"PreToolUse": PythonHook(function, timeout=0.2, guard=guard)}
        async with (
            AppServer(home=harness.home, cwd=str(harness.workspace), hooks=hooks) as server,
            harness.connect(server=server) as client,
        ):
            _calls(harness)
            thread = (await client.request("thread/start", {}))["thread"]["id"]
            await client.run_turn(thread, "go")
            (run,) = [message["params"]["run"] for message in client.told("hook/completed")]
            assert run["status"] == "failed"
            assert error in run["entries"][0]["text"]
            assert _output(harness).startswith("Command blocked") is guard


@pytest.mark.parametrize(
    ("config", "hooks"),
    [
        (CodexConfig(codex_bin="codex"), {"Stop": _raises}),
        (CodexConfig(launch_args_override=("codex",)), {"Stop": _raises}),
        (CodexConfig(url="ws://127.0.0.1:9"), {"Stop": _raises}),
        (None, {"Nothing": _raises}),
        (None, {"Stop": 5}),
        (None, {"Stop": lambda: None}),
        (None, {"PreToolUse": PythonHook(_raises, matcher="[")}),
        (None, [_raises]),
    ],
)
def test_what_cannot_be_used_is_an_error_at_once(config: CodexConfig | None, hooks: Any) -> None:
    with pytest.raises(ArgumentError):
        Codex(config, hooks=hooks)
    with pytest.raises(ArgumentError):
        AsyncCodex(config, hooks=hooks)


def test_a_config_with_hooks_can_be_shown_and_stored() -> None:
    import pickle

    config = CodexConfig(hooks={"Stop": _raises})
    assert "hooks=['Stop']" in repr(config)
    assert pickle.loads(pickle.dumps(config)).hooks is None


@pytest.mark.anyio
async def test_hooks_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    (site / "acme-1.dist-info").mkdir(parents=True)
    (site / "acme-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    (site / "acme-1.dist-info" / "entry_points.txt").write_text("[treadle.hooks]\nacme = acme_hooks:HOOKS\n")
    (site / "acme_hooks.py").write_text(
        "from treadle.hooks import HookResult\n"
        'HOOKS = {"UserPromptSubmit": lambda given: HookResult(block="acme says no")}\n'
    )
    monkeypatch.syspath_prepend(str(site))
    text = '[hooks]\nplug_ins = ["acme", "nobody"]\n'
    async with scene(tmp_path, settings=FULL_ACCESS, extra_toml=text) as stage:
        await stage.run(await stage.start())
        assert stage.model.requests() == []
        assert runs(stage) == [("userPromptSubmit", "blocked", [("feedback", "acme says no")])]
        assert any("hooks.plug_ins: nobody cannot be used" in text for text in warnings(stage))
    sys.modules.pop("acme_hooks", None)


@pytest.mark.anyio
@pytest.mark.parametrize("leaving", ["archive", "the end of the server"])
async def test_a_session_ends_once(harness: AppServerHarness, leaving: str) -> None:
    ends: list[SessionEnd] = []
    hooks = {"SessionEnd": PythonHook(ends.append, timeout=60)}
    async with (
        AppServer(home=harness.home, cwd=str(harness.workspace), hooks=hooks) as server,
        harness.connect(server=server) as client,
    ):
        thread = (await client.request("thread/start", {}))["thread"]["id"]
        await client.request("thread/start", {})
        harness.model.enqueue_assistant_message("done")
        await client.run_turn(thread, "go")
        if leaving == "archive":
            await client.request("thread/archive", {"threadId": thread})
            assert [message["params"]["threadId"] for message in client.told("hook/completed")] == [thread]
    assert [(given.session_id, given.reason) for given in ends] == [(thread, "other")]  # the other had no turn


@pytest.mark.anyio
async def test_a_sub_agent_starts_and_stops_as_one(tmp_path: Path) -> None:
    """Its events are those of the session that it works for."""
    told: list[Any] = []

    def note(given: HookInput) -> None:
        told.append(given)

    def again(given: SubagentStop) -> HookResult | None:
        note(given)
        return None if given.stop_hook_active else HookResult(block="more")

    hooks: dict[str, Any] = {
        "SessionStart": note,
        "SubagentStart": [PythonHook(note, matcher="x"), lambda given: HookResult(context="child context")],
        "SubagentStop": PythonHook(again, matcher="explorer"),
        "Stop": note,
        "SessionEnd": note,
    }
    with AgentsModel() as model, AppServerHarness(tmp_path, model=model, settings=FULL_ACCESS) as harness:
        async with (
            AppServer(home=harness.home, cwd=str(harness.workspace), hooks=hooks) as server,
            harness.connect(server=server) as client,
        ):
            thread_id = (await client.request("thread/start", {}))["thread"]["id"]
            held = spawn({"hold": "go", "say": "as a sub-agent"}, agent_type="explorer")
            params = {"threadId": thread_id, "input": [{"type": "text", "text": do(held, wait("$1"), "done")}]}
            turn_id = (await client.request("turn/start", params))["turn"]["id"]
            await client.wait_for("item/started", lambda given: given["item"].get("tool") == "wait")
            model.gates["go"].set()
            await client.turn_end(turn_id)
            ids = [each["params"]["thread"]["id"] for each in client.told("thread/started")]
        [child_id] = [each for each in ids if each != thread_id]
        assert "child context" in str(model.of(child_id)[0].json)
    assert [given.event for given in told] == ["SessionStart", "SubagentStop", "SubagentStop", "Stop", "SessionEnd"]
    _, first, second, last, end = told  # no agent is of the type `x`
    assert (first.session_id, first.agent_id, first.agent_type) == (thread_id, child_id, "explorer")
    assert (first.stop_hook_active, second.stop_hook_active) == (False, True)
    assert (last.session_id, last.agent_id) == (thread_id, UNSET)
    assert end.session_id == thread_id


def test_a_prompt_that_a_function_adds_to(harness: AppServerHarness) -> None:
    def date(given: UserPromptSubmit) -> HookResult:
        return HookResult(context=f"they said {given.prompt}", message="for people")

    harness.model.enqueue_assistant_message("done")
    with Codex(harness.codex_config(), hooks={"UserPromptSubmit": date}) as codex:
        codex.thread_start().run("hello")
    assert "they said hello" in str(harness.model.requests()[0].json)
