"""Threads that another agent program answers, and sub-agents that are such threads: what clients see of them, what the
engine is told, asked and allowed, and what is left when it is interrupted, killed or gone."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from kit.agents_model import AgentsModel, call, do, spawn, wait
from kit.app_program import stdio_server
from system.agent.scene import Json, Scene, scene
from system.runners.fake_engine import SESSION, fake
from treadle.errors import RpcError
from treadle.hooks import HookResult, PreToolUse, PythonHook
from treadle.server import AppServer
from treadle.testing import AppServerHarness, MockModel

pytestmark = [pytest.mark.anyio, pytest.mark.this_machine]
OPEN = {"approvalPolicy": "on-request", "sandbox": "danger-full-access"}

# Writes down how it was called and what it was told, and answers with the prompt.
ECHO = """
prompt = sys.stdin.read()
with open(os.path.join(HERE, "calls.jsonl"), "a") as file:
    file.write(json.dumps(dict(args=sys.argv[1:], prompt=prompt, cwd=os.getcwd())) + "\\n")
"""
CODEX = (
    ECHO
    + """
start()
say(type="item.started", item=dict(id="c1", type="command_execution", command="ls", status="in_progress"))
say(type="item.completed", item=dict(id="c1", type="command_execution", command="ls", aggregated_output="a.txt",
    exit_code=0, status="completed"))
answer("answer to " + prompt[-40:])
done(input_tokens=100, cached_input_tokens=10, output_tokens=5)
"""
)
# Asks whether it may run a command, in the words of claude, and tells what it was answered.
CLAUDE = """
def hear():
    line = sys.stdin.readline()
    return json.loads(line) if line else None

hello = hear()["request"]
assert hello["subtype"] == "initialize"
prompt = hear()["message"]["content"]
say(type="system", subtype="init", session_id=SESSION, model="m", cwd=os.getcwd())
tool, given = json.loads(prompt.split("DO:")[1]) if "DO:" in prompt else (None, None)
allowed = None
if tool:
    say(type="assistant", message=dict(content=[dict(type="tool_use", id="t1", name=tool, input=given)]))
    allowed = True
    if hello["hooks"]:
        [hook] = hello["hooks"]["PreToolUse"]
        about = dict(tool_name=tool, tool_input=given, tool_use_id="t1", hook_event_name="PreToolUse")
        say(type="control_request", request_id="q0",
            request=dict(subtype="hook_callback", callback_id=hook["hookCallbackIds"][0], input=about))
        reply = hear()["response"]["response"]
        allowed = reply.get("hookSpecificOutput", {}).get("permissionDecision") != "deny"
    if allowed and tool != "Read":
        say(type="control_request", request_id="q1",
            request=dict(subtype="can_use_tool", tool_name=tool, input=given, tool_use_id="t1"))
        reply = hear()["response"]["response"]
        allowed = reply["behavior"] == "allow"
    if allowed and "write" in given:
        try:
            open(given["write"], "w").write("written")
        except OSError as error:
            allowed = error.strerror
    say(type="user", message=dict(content=[dict(type="tool_result", tool_use_id="t1", content="done",
        is_error=not allowed)]))
said = f"allowed: {allowed}" if tool else f"heard: {prompt}"
say(type="assistant", message=dict(content=[dict(type="text", text=said)]))
say(type="result", subtype="success", is_error=False, result=said, total_cost_usd=0.25,
    usage=dict(input_tokens=7, output_tokens=3))
hear()
"""
# Acts after it has named its session: when that is published, the session is stored.
HANGS = (
    ECHO
    + """
start()
mark("pid", str(os.getpid()))
say(type="item.started", item=dict(id="c1", type="command_execution", command="ls", status="in_progress"))
hang()
"""
)


class Engines:
    """The programs of engines that are found first, and what they noted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, name: str, script: str) -> None:
        fake(self.folder, dedent(script), name)

    async def begun(self) -> Path:
        """What is there as long as a program runs that has marked its `pid`."""
        while not (self.folder / "pid").exists():
            await asyncio.sleep(0.01)
        return Path(f"/proc/{(self.folder / 'pid').read_text()}")

    @property
    def calls(self) -> list[Json]:
        return [json.loads(line) for line in (self.folder / "calls.jsonl").read_text().splitlines()]


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engines:
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    made = Engines(folder)
    made.make("codex", CODEX)
    made.make("claude", CLAUDE)
    return made


@asynccontextmanager
async def stage_of(tmp_path: Path, **more: Any) -> AsyncIterator[Scene]:
    async with scene(tmp_path, **more) as stage:
        yield stage


def texts(stage: Scene) -> list[str]:
    return [item["text"] for item in stage.completed("agentMessage")]


async def test_a_turn_is_a_run_of_the_engine(tmp_path: Path, engines: Engines) -> None:
    async with stage_of(tmp_path) as stage:
        thread = await stage.start(modelProvider="engine:codex", **OPEN)
        turn = await stage.run(thread, "what is here?")
        assert turn["status"] == "completed"
        [asked] = engines.calls
        assert asked["prompt"] == "what is here?"
        assert asked["cwd"] == str(stage.workspace)
        [command] = stage.completed("commandExecution")
        assert (command["command"], command["aggregatedOutput"], command["exitCode"]) == ("ls", "a.txt", 0)
        assert texts(stage) == ["answer to what is here?"]
        usage = stage.client.told("thread/tokenUsage/updated")[-1]["params"]["tokenUsage"]
        assert (usage["total"]["inputTokens"], usage["total"]["outputTokens"]) == (100, 5)
        assert usage["modelContextWindow"] is None
        [read] = [each["items"] for each in await stage.read(thread)]
        assert [item["type"] for item in read] == ["userMessage", "commandExecution", "agentMessage"]


async def test_what_an_engine_has_changed_in_files_is_taken_back(tmp_path: Path, engines: Engines) -> None:
    engines.make("codex", f'{CODEX}\nopen("made", "w").write("made"); os.unlink("there")\n')
    async with stage_of(tmp_path) as stage:
        (stage.workspace / "there").write_text("there")
        thread = await stage.start(modelProvider="engine:codex", **OPEN)
        turn = await stage.run(thread)
        assert [path.name for path in stage.workspace.iterdir()] == ["made"]
        given = {"threadId": thread, "beforeTurnId": turn["id"], "files": True}
        answer = await stage.client.request("thread/revert", given)
        assert [each["action"] for each in answer["files"]["changes"]] == ["delete", "recreate"]
        assert [path.name for path in stage.workspace.iterdir()] == ["there"]


async def test_the_next_turn_goes_on_with_the_session_and_is_told_only_what_is_new(
    tmp_path: Path, engines: Engines
) -> None:
    async with stage_of(tmp_path) as stage:
        thread = await stage.start(modelProvider="engine:codex", **OPEN)
        await stage.run(thread, "first")
        await stage.run(thread, "second")
    first, second = engines.calls
    assert SESSION not in first["args"]
    assert SESSION in second["args"]
    assert second["prompt"] == "second"


async def test_a_fork_is_told_the_conversation_and_leaves_the_session_to_its_origin(
    tmp_path: Path, engines: Engines
) -> None:
    async with stage_of(tmp_path) as stage:
        thread = await stage.start(modelProvider="engine:codex", **OPEN)
        await stage.run(thread, "my name is Ada")
        fork = (await stage.client.request("thread/fork", {"threadId": thread}))["thread"]["id"]
        await stage.run(fork, "what is my name?")
    told = engines.calls[1]
    assert SESSION not in told["args"]
    assert "[USER]\nmy name is Ada" in told["prompt"]
    assert "[ASSISTANT]\nanswer to my name is Ada" in told["prompt"]
    assert told["prompt"].endswith("what is my name?")


async def test_after_a_rollback_a_new_session_is_told_what_is_left(tmp_path: Path, engines: Engines) -> None:
    async with stage_of(tmp_path) as stage:
        thread = await stage.start(modelProvider="engine:codex", **OPEN)
        await stage.run(thread, "keep this")
        await stage.run(thread, "forget this")
        await stage.client.request("thread/rollback", {"threadId": thread, "numTurns": 1})
        await stage.run(thread, "go on")
    told = engines.calls[2]
    assert SESSION not in told["args"]
    assert "keep this" in told["prompt"]
    assert "forget this" not in told["prompt"]


async def test_a_session_that_is_gone_is_replaced_and_the_user_is_told(tmp_path: Path, engines: Engines) -> None:
    async with stage_of(tmp_path) as stage:
        thread = await stage.start(modelProvider="engine:codex", **OPEN)
        await stage.run(thread, "first")
        engines.make("codex", "if SESSION in sys.argv: sys.exit('no such session')\n" + CODEX)
        assert (await stage.run(thread, "second"))["status"] == "completed"
        warnings = [each["params"]["message"] for each in stage.client.told("warning")]
        assert any("The session of codex is gone" in each for each in warnings)
    assert "first" in engines.calls[-1]["prompt"]


async def test_a_run_that_fails_fails_the_turn_with_its_reason_and_leaves_the_session(
    tmp_path: Path, engines: Engines
) -> None:
    async with stage_of(tmp_path) as stage:
        thread = await stage.start(modelProvider="engine:codex", **OPEN)
        await stage.run(thread, "first")
        engines.make("codex", ECHO + "start()\nsay(type='turn.failed', error=dict(message='out of money'))\n")
        turn = await stage.run(thread, "second")
        assert turn["status"] == "failed"
        assert "out of money" in turn["error"]["message"]
        engines.make("codex", CODEX)
        await stage.run(thread, "third")
    assert SESSION in engines.calls[-1]["args"]


async def test_what_is_said_meanwhile_is_the_next_run(tmp_path: Path, engines: Engines) -> None:
    engines.make("codex", ECHO + "start()\nmark('began')\nwait_for('go')\nanswer(prompt)\ndone()\n")
    async with stage_of(tmp_path) as stage:
        thread = await stage.start(modelProvider="engine:codex", **OPEN)
        turn = await stage.begin(thread, "first")
        while not (engines.folder / "began").exists():
            await asyncio.sleep(0.01)
        await stage.steer(thread, turn, "second")
        (engines.folder / "go").touch()
        await stage.end(turn)
        assert texts(stage) == ["first", "second"]
    assert [each["prompt"] for each in engines.calls] == ["first", "second"]


async def test_an_interrupt_ends_the_program_and_the_session_goes_on(tmp_path: Path, engines: Engines) -> None:
    engines.make("codex", HANGS)
    async with stage_of(tmp_path) as stage:
        thread = await stage.start(modelProvider="engine:codex", **OPEN)
        turn = await stage.begin(thread, "first")
        await stage.client.wait_for("item/started", lambda params: params["item"]["type"] == "commandExecution")
        pid = await engines.begun()
        await stage.interrupt(thread, turn)
        assert (await stage.end(turn))["status"] == "interrupted"
        assert not pid.exists()
        engines.make("codex", CODEX)
        await stage.run(thread, "second")
    assert SESSION in engines.calls[-1]["args"]


async def test_another_server_goes_on_with_the_session(tmp_path: Path, engines: Engines) -> None:
    async with stage_of(tmp_path) as stage:
        thread = await stage.start(modelProvider="engine:codex", **OPEN)
        await stage.run(thread, "first")
    async with stage_of(tmp_path) as stage:
        await stage.client.request("thread/resume", {"threadId": thread})
        await stage.run(thread, "second")
    assert SESSION in engines.calls[-1]["args"]
    assert engines.calls[-1]["prompt"] == "second"


async def test_a_model_goes_on_where_an_engine_was(tmp_path: Path, engines: Engines) -> None:
    async with stage_of(tmp_path) as stage:
        thread = await stage.start(modelProvider="engine:codex", **OPEN)
        await stage.run(thread, "first")
        await stage.client.request("thread/unsubscribe", {"threadId": thread})
        stage.model.enqueue_assistant_message("from the model")
        await stage.client.request("thread/resume", {"threadId": thread, "modelProvider": "mock_provider"})
        await stage.run(thread, "second")
        said = stage.model.requests()[-1]
        assert "first" in said.input_texts("user")[0]
        assert "answer to first" in str(said.input)


# --- what it asks -----------------------------------------------------------------------------------------------------

COMMAND = "item/commandExecution/requestApproval"
FILE = "item/fileChange/requestApproval"
ELICITATION = "mcpServer/elicitation/request"


def using(tool: str, **given: Any) -> str:
    return f"DO:{json.dumps([tool, given])}"


async def ask_claude(stage: Scene, prompt: str, answer: Json, policy: str = "untrusted") -> tuple[str, Json]:
    stage.client.answer = lambda ask: answer
    thread = await stage.start(modelProvider="engine:claude", approvalPolicy=policy, sandbox="danger-full-access")
    return thread, await stage.run(thread, prompt)


async def test_a_command_is_asked_about_as_one_of_ours(tmp_path: Path, engines: Engines) -> None:
    async with stage_of(tmp_path) as stage:
        _, turn = await ask_claude(stage, using("Bash", command="make it"), {"decision": "accept"})
        assert turn["status"] == "completed"
        [asked] = stage.client.told(COMMAND)
        assert (asked["params"]["command"], asked["params"]["cwd"]) == ("make it", str(stage.workspace))
        [item] = stage.completed("commandExecution")
        assert item["id"] == asked["params"]["itemId"]
        assert item["status"] == "completed"
        assert texts(stage) == ["allowed: True"]
        cost = stage.client.told("thread/tokenUsage/updated")[-1]["params"]["tokenUsage"]["cost"]
        assert cost == {"turnUsd": 0.25, "threadUsd": 0.25}


@pytest.mark.parametrize("answer", [{"decision": "decline"}, {"decision": "perhaps"}, RpcError(-32000, "broken")])
async def test_what_is_no_yes_is_a_no(tmp_path: Path, engines: Engines, answer: Any) -> None:
    async with stage_of(tmp_path) as stage:
        _, turn = await ask_claude(stage, using("Bash", command="make it"), answer)
        assert turn["status"] == "completed"
        assert stage.completed("commandExecution")[0]["status"] == "declined"
        assert texts(stage) == ["allowed: False"]


async def test_cancel_ends_the_turn(tmp_path: Path, engines: Engines) -> None:
    async with stage_of(tmp_path) as stage:
        _, turn = await ask_claude(stage, using("Bash", command="make it"), {"decision": "cancel"})
        assert turn["status"] == "interrupted"


async def test_a_yes_for_the_session_is_one_for_that_command(tmp_path: Path, engines: Engines) -> None:
    async with stage_of(tmp_path) as stage:
        thread, _ = await ask_claude(stage, using("Bash", command="make it"), {"decision": "acceptForSession"})
        await stage.run(thread, using("Bash", command="make it"))
        assert len(stage.client.told(COMMAND)) == 1
        await stage.run(thread, using("Bash", command="make more"))
        assert len(stage.client.told(COMMAND)) == 2


async def test_edits_and_other_tools_are_asked_about_in_their_own_ways(tmp_path: Path, engines: Engines) -> None:
    async with stage_of(tmp_path) as stage:
        _, turn = await ask_claude(stage, using("Edit", file_path="a.py"), {"decision": "accept"})
        assert turn["status"] == "completed"
        [asked] = stage.client.told(FILE)
        [item] = stage.completed("fileChange")
        assert (item["id"], item["changes"][0]["path"]) == (asked["params"]["itemId"], "a.py")
        await ask_claude(stage, using("Dance", steps=3), {"action": "accept", "content": {}})
        [asked] = stage.client.told(ELICITATION)
        assert asked["params"]["_meta"]["tool_params"] == {"steps": 3}
        assert texts(stage) == ["allowed: True"] * 2


async def test_nobody_is_asked_where_the_policy_asks_nobody(tmp_path: Path, engines: Engines) -> None:
    async with stage_of(tmp_path) as stage:
        await ask_claude(stage, using("Bash", command="make it"), {"decision": "decline"}, policy="never")
        assert stage.client.told(COMMAND) == []
        assert texts(stage) == ["allowed: True"]


@asynccontextmanager
async def hooked_scene(tmp_path: Path, event: str, function: Any, **more: Any) -> AsyncIterator[Scene]:
    with MockModel() as model, AppServerHarness(tmp_path, model=model) as harness:
        hooks = {event: PythonHook(function, **more)}
        async with (
            AppServer(home=harness.home, cwd=str(harness.workspace), hooks=hooks) as server,
            harness.connect(server=server) as client,
        ):
            yield Scene(harness, server, client)


async def test_a_hook_refuses_what_it_wants_to_be_otherwise(tmp_path: Path, engines: Engines) -> None:
    def change(_: PreToolUse) -> HookResult:
        return HookResult(updated_input={"command": "make less"})

    async with hooked_scene(tmp_path, "PreToolUse", change) as stage:
        await ask_claude(stage, using("Bash", command="make it"), {"decision": "accept"}, policy="never")
        assert texts(stage) == ["allowed: False"]
        assert stage.completed("commandExecution")[0]["status"] == "declined"


async def test_a_hook_hears_of_every_call_of_claude_and_the_user_of_those_that_it_asks_about(
    tmp_path: Path, engines: Engines
) -> None:
    heard: list[tuple[str, Any]] = []

    def look(call: PreToolUse) -> HookResult | None:
        heard.append((call.tool_name, call.tool_input))
        return HookResult(block="not this file") if "secret" in str(call.tool_input) else None

    async with hooked_scene(tmp_path, "PreToolUse", look, guard=True) as stage:
        for given in (using("Read", file_path="a"), using("Read", file_path="secret"), using("Bash", command="make")):
            await ask_claude(stage, given, {"decision": "accept"})
        assert texts(stage) == ["allowed: True", "allowed: False", "allowed: True"]
        assert heard == [
            ("Read", {"file_path": "a"}),
            ("Read", {"file_path": "secret"}),
            ("Bash", {"command": "make"}),
        ]
        [asked] = stage.client.told(COMMAND)
        assert asked["params"]["command"] == "make"


async def test_what_a_hook_adds_is_told_also_in_the_first_run(tmp_path: Path, engines: Engines) -> None:
    async with hooked_scene(tmp_path, "SessionStart", lambda _: HookResult(context="The owner is Ada.")) as stage:
        thread = await stage.start(modelProvider="engine:codex", **OPEN)
        await stage.run(thread, "whose is it?")
    assert engines.calls[0]["prompt"] == "The owner is Ada.\n\nwhose is it?"


async def test_one_that_cannot_ask_does_not_work_for_who_wants_to_be_asked(tmp_path: Path, engines: Engines) -> None:
    async with stage_of(tmp_path) as stage:
        thread = await stage.start(
            modelProvider="engine:codex", approvalPolicy="untrusted", sandbox="danger-full-access"
        )
        turn = await stage.run(thread, "go")
        assert "wants to be asked (by the approval policy `untrusted`)" in turn["error"]["message"]
    async with hooked_scene(tmp_path / "hooked", "PreToolUse", lambda _: None, guard=True) as stage:
        thread = await stage.start(modelProvider="engine:codex", **OPEN)
        turn = await stage.run(thread, "go")
        assert "wants to be asked (by a hook that guards)" in turn["error"]["message"]
        _, turn = await ask_claude(stage, using("Bash", command="make it"), {"decision": "accept"})
        assert turn["status"] == "completed"
    assert not (engines.folder / "calls.jsonl").exists()


async def test_an_engine_does_not_plan(tmp_path: Path, engines: Engines) -> None:
    async with stage_of(tmp_path) as stage:
        thread = await stage.start(modelProvider="engine:codex", **OPEN)
        plan = {"mode": "plan", "settings": {"model": "default", "developer_instructions": None}}
        turn = await stage.run(thread, "go", collaborationMode=plan)
        assert "codex cannot plan here" in turn["error"]["message"]


# --- what it may do ---------------------------------------------------------------------------------------------------

NETWORK: Json = {
    "type": "workspaceWrite",
    "networkAccess": True,
    "excludeSlashTmp": True,
    "excludeTmpdirEnvVar": True,
}


async def test_the_sandbox_of_the_thread_is_around_the_whole_engine(tmp_path: Path, engines: Engines) -> None:
    (tmp_path / "elsewhere").mkdir()
    async with stage_of(tmp_path) as stage:
        thread = await stage.start(modelProvider="engine:claude", approvalPolicy="never")
        for name in ("workspace", "elsewhere", "claude", "home"):
            place = stage.workspace if name == "workspace" else tmp_path / name
            await stage.run(thread, using("Write", write=str(place / "made")), sandboxPolicy=NETWORK)
        assert (stage.workspace / "made").exists()
        assert (tmp_path / "claude" / "made").exists()  # its own folder, which was not there before
        assert not (tmp_path / "elsewhere" / "made").exists()
        assert not (Path(stage.server.home) / "made").exists()


async def test_a_folder_that_a_profile_closes_stays_closed(tmp_path: Path, engines: Engines) -> None:
    closed = tmp_path / "claude"
    closed.mkdir()
    profile = '[permissions.mine]\nextends = ":workspace"\n[permissions.mine.network]\nenabled = true\n'
    profile += f'[permissions.mine.filesystem]\n"{closed}" = "deny"\n'
    async with stage_of(tmp_path, extra_toml=profile) as stage:
        thread = await stage.start(modelProvider="engine:claude", permissions="mine")
        turn = await stage.run(thread, "go")
        assert f"the permissions of the thread close its folder {closed}" in turn["error"]["message"]


async def test_a_thread_without_network_has_no_engine(tmp_path: Path, engines: Engines) -> None:
    async with stage_of(tmp_path) as stage:
        thread = await stage.start(modelProvider="engine:codex", sandbox="workspace-write")
        turn = await stage.run(thread, "go")
        assert turn["status"] == "failed"
        assert "network_access = true" in turn["error"]["message"]
    assert not (engines.folder / "calls.jsonl").exists()


async def test_settings_that_allow_less_end_what_runs(tmp_path: Path, engines: Engines) -> None:
    engines.make("codex", HANGS)
    async with stage_of(tmp_path) as stage:
        thread = await stage.start(modelProvider="engine:codex", **OPEN)
        turn = await stage.begin(thread, "first")
        pid = await engines.begun()
        narrower = {"threadId": thread, "sandboxPolicy": {"type": "readOnly"}}
        await stage.client.request("thread/settings/update", narrower)
        ended = await stage.end(turn)
        assert ended["status"] == "failed"
        assert "the settings of the thread changed" in ended["error"]["message"]
        assert not pid.exists()


async def test_settings_that_allow_less_end_also_a_run_in_a_new_session(tmp_path: Path, engines: Engines) -> None:
    async with stage_of(tmp_path) as stage:
        thread = await stage.start(modelProvider="engine:codex", **OPEN)
        await stage.run(thread, "first")
        hangs = "start()\nmark('pid', str(os.getpid()))\nhang()\n"
        engines.make("codex", "if SESSION in sys.argv: sys.exit('no such session')\n" + ECHO + hangs)
        turn = await stage.begin(thread, "second")
        pid = await engines.begun()
        await stage.client.request(
            "thread/settings/update", {"threadId": thread, "sandboxPolicy": {"type": "readOnly"}}
        )
        assert "the settings of the thread changed" in (await stage.end(turn))["error"]["message"]
        assert not pid.exists()


async def test_the_last_words_of_one_that_fails_are_told_without_secrets(
    tmp_path: Path, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hunter2hunter2")
    engines.make("codex", "sys.exit('\\x1b[31mno disk\\x1b[0m for ' + os.environ['SOME_API_KEY'])\n")
    async with stage_of(tmp_path) as stage:
        thread = await stage.start(modelProvider="engine:codex", **OPEN)
        turn = await stage.run(thread, "go")
        assert "failed (rc=1). Its last words: no disk for [redacted]" in turn["error"]["message"]
        assert "hunter2" not in str(stage.client.messages)


async def test_a_thread_at_its_limit_begins_no_other_run(tmp_path: Path, engines: Engines) -> None:
    async with stage_of(tmp_path) as stage:
        thread = await stage.start(modelProvider="engine:codex", maxThreadTokens=105, **OPEN)
        assert (await stage.run(thread, "first"))["status"] == "completed"
        assert (await stage.run(thread, "second"))["error"]["limit"]["kind"] == "threadTokens"
    assert len(engines.calls) == 1


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("thread/compact/start", {}),
        ("review/start", {"target": {"type": "uncommittedChanges"}}),
        ("thread/goal/set", {"objective": "win"}),
        ("turn/start", {"input": [{"type": "text", "text": "x"}], "outputSchema": {"type": "object"}}),
    ],
)
async def test_what_an_engine_cannot_do_is_refused(tmp_path: Path, engines: Engines, method: str, params: Json) -> None:
    async with stage_of(tmp_path) as stage:
        thread = await stage.start(modelProvider="engine:codex", **OPEN)
        with pytest.raises(RpcError) as refused:
            await stage.client.request(method, {"threadId": thread, **params})
        assert refused.value.data["kind"] == "engineCannot"
        assert (await stage.run(thread, "but this"))["status"] == "completed"


async def test_an_engine_that_nobody_knows_is_no_provider(tmp_path: Path, engines: Engines) -> None:
    async with stage_of(tmp_path) as stage:
        for name in ("nothing", "treadle", ""):
            with pytest.raises(RpcError):
                await stage.start(modelProvider=f"engine:{name}")


# --- as sub-agents ----------------------------------------------------------------------------------------------------

ALLOWED = '[agents]\nengines = ["claude", "codex"]\n'


@asynccontextmanager
async def parent_of(tmp_path: Path, extra_toml: str = ALLOWED) -> AsyncIterator[Scene]:
    with AgentsModel() as model:
        async with scene(tmp_path, model=model, extra_toml=extra_toml) as stage:
            yield stage


def spawned(stage: Scene) -> list[Json]:
    started = [each["params"]["thread"] for each in stage.client.told("thread/started")]
    return [thread for thread in started if thread["parentThreadId"] is not None]


async def test_an_engine_is_a_sub_agent(tmp_path: Path, engines: Engines) -> None:
    async with parent_of(tmp_path) as stage:
        thread = await stage.start(**OPEN)
        start = call("spawn_agent", message="look around", engine="codex")
        assert (await stage.run(thread, do(start, wait("$1"), "parent ends")))["status"] == "completed"
        [child] = spawned(stage)
        assert child["modelProvider"] == "engine:codex"
        output = list(stage.model.requests()[-1].tool_outputs.values())[-1]
        assert json.loads(output)["status"] == {child["id"]: {"completed": "answer to look around"}}
        listed = await stage.client.request("thread/list", {"parentThreadId": thread})
        assert [each["id"] for each in listed["data"]] == [child["id"]]
        # And goes on, in its session.
        await stage.run(thread, do(call("send_input", target=child["id"], message="more"), wait("$1"), "ends"))
    assert [each["prompt"] for each in engines.calls] == ["look around", "more"]
    assert SESSION in engines.calls[1]["args"]


async def test_what_the_engine_asks_comes_to_the_clients_of_the_parent(tmp_path: Path, engines: Engines) -> None:
    async with parent_of(tmp_path) as stage:
        stage.client.answer = lambda ask: {"decision": "accept"}
        thread = await stage.start(approvalPolicy="untrusted", sandbox="danger-full-access")
        start = call("spawn_agent", message=using("Bash", command="make it"), engine="claude")
        await stage.run(thread, do(start, wait("$1"), "parent ends"))
        [asked] = stage.client.told(COMMAND)
        [child] = spawned(stage)
        assert asked["params"]["threadId"] == child["id"]
        assert child["agentNickname"] in asked["params"]["reason"]


async def test_a_model_may_start_only_the_engines_that_the_user_allows(tmp_path: Path, engines: Engines) -> None:
    async with parent_of(tmp_path, '[agents]\nengines = ["codex", "nothing"]\n') as stage:
        thread = await stage.start(**OPEN)
        await stage.run(thread, do(call("spawn_agent", message="x", engine="claude"), "ends"))
        assert spawned(stage) == []
        [output] = stage.model.requests()[-1].tool_outputs.values()
        assert "the engine `claude` may not be started" in output
        spec = stage.model.requests()[0].body.decode()
        assert '"enum":["codex"]' in spec
    async with parent_of(tmp_path / "other", "") as stage:
        await stage.run(await stage.start(), do("hello"))
        assert '"engine"' not in stage.model.requests()[0].body.decode()


def answers(stage: Scene) -> list[str]:
    return list(stage.model.requests()[-1].tool_outputs.values())


async def test_one_that_is_unknown_or_not_installed_is_not_started(
    tmp_path: Path, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with parent_of(tmp_path, '[agents]\nengines = ["nothing", "treadle", "pi"]\n') as stage:
        monkeypatch.setenv("PATH", str(engines.folder))
        thread = await stage.start(**OPEN)
        calls = [call("spawn_agent", message="x", engine=name) for name in ("nothing", "treadle", "pi")]
        await stage.run(thread, do(*calls, "ends"))
        unknown, own, missing = answers(stage)
        assert "model provider `engine:nothing` not found" in unknown
        assert "is this program itself" in own
        assert "the engine `pi` is not installed: pi was not found on the PATH" in missing
        assert "npm install" in missing
        assert spawned(stage) == []
        assert '"engine"' not in stage.model.requests()[0].body.decode()


@pytest.mark.parametrize("way", ["interrupt", "close", "archive", "narrow"])
async def test_one_that_is_ended_leaves_no_process(tmp_path: Path, engines: Engines, way: str) -> None:
    engines.make("codex", HANGS)
    start = call("spawn_agent", message="go", engine="codex")
    async with parent_of(tmp_path) as stage:
        ask = stage.client.request
        thread = await stage.start(**OPEN)
        if way == "interrupt":
            turn = await stage.begin(thread, do(start, wait("$1"), "ends"))
            pid = await engines.begun()
            await stage.interrupt(thread, turn)
        else:
            await stage.run(thread, do(start, "ends"))
            pid = await engines.begun()
        child = spawned(stage)[0]["id"]
        match way:
            case "close":
                await stage.run(thread, do(call("close_agent", target=child), "ends"))
            case "archive":
                await ask("thread/archive", {"threadId": thread})
            case "narrow":
                await ask("thread/settings/update", {"threadId": thread, "sandboxPolicy": {"type": "readOnly"}})
        ended = await stage.client.wait_for("turn/completed", lambda params: params["threadId"] == child)
        assert ended["params"]["turn"]["status"] == ("failed" if way == "narrow" else "interrupted")
        assert not pid.exists()


async def test_a_killed_server_leaves_no_engine_and_its_child_goes_on(
    tmp_path: Path, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines.make("codex", HANGS)
    with AgentsModel() as model, AppServerHarness(tmp_path, model=model, extra_toml=ALLOWED) as harness:
        with stdio_server(harness, env={"PATH": os.environ["PATH"]}) as program:
            program.client.initialize(experimentalApi=True)
            thread: str = program.client.start_thread(**OPEN)
            program.client.begin(thread, do(call("spawn_agent", message="first", engine="codex"), wait("$1"), "e"))
            program.client.wait_for("item/started", lambda params: params["item"]["type"] == "commandExecution")
            pid = await engines.begun()
            program.kill()
        async with asyncio.timeout(20):
            while pid.exists():
                await asyncio.sleep(0.01)
        engines.make("codex", CODEX)
        async with harness.server() as server, harness.connect(server=server) as client:
            stage = Scene(harness, server, client)
            await client.request("thread/resume", {"threadId": thread})
            [child] = (await client.request("thread/list", {"parentThreadId": thread}))["data"]
            more = call("send_input", target=child["id"], message="second")
            await stage.run(thread, do(more, wait(child["id"]), "ends"))
            assert json.loads(answers(stage)[-1])["status"] == {child["id"]: {"completed": "answer to second"}}
    assert SESSION in engines.calls[-1]["args"]


async def test_what_it_has_used_counts_for_the_budget_of_its_parent(tmp_path: Path, engines: Engines) -> None:
    async with parent_of(tmp_path) as stage:
        thread = await stage.start(**OPEN)
        await stage.client.request("thread/goal/set", {"threadId": thread, "objective": "win", "status": "paused"})
        await stage.run(thread, do(call("spawn_agent", message="x", engine="codex"), wait("$1"), "ends"))
        told = stage.client.told("thread/tokenUsage/updated")
        used = [each["params"]["tokenUsage"] for each in told if each["params"]["threadId"] == thread]
        assert used[-1]["agents"]["totalTokens"] == 105


async def test_a_role_that_only_reads_makes_the_sandbox_of_an_engine_narrower(tmp_path: Path, engines: Engines) -> None:
    async with parent_of(tmp_path) as stage:
        thread = await stage.start(**OPEN)
        explorer = call("spawn_agent", message="look", engine="codex", agent_type="explorer")
        await stage.run(thread, do(explorer, wait("$1"), "ends"))
        [ended] = json.loads(answers(stage)[-1])["status"].values()
        assert "needs the network" in ended["errored"]
    assert not (engines.folder / "calls.jsonl").exists()


async def test_an_engine_is_told_what_the_sub_agents_of_a_model_have_done(tmp_path: Path, engines: Engines) -> None:
    async with parent_of(tmp_path) as stage:
        thread = await stage.start(**OPEN)
        await stage.run(thread, do(spawn({"hold": "go", "say": "found it"}, wake=True), "ends"))
        await stage.client.request("thread/unsubscribe", {"threadId": thread})
        await stage.client.request("thread/resume", {"threadId": thread, "modelProvider": "engine:codex"})
        assert isinstance(stage.model, AgentsModel)
        stage.model.gates["go"].set()
        woken = await stage.client.wait_for(
            "item/completed",
            lambda params: params["threadId"] == thread and params["item"].get("text", "")[:6] == "answer",
        )
        await stage.end(woken["params"]["turnId"])
    [told] = engines.calls
    assert '{"completed":"found it"}' in told["prompt"]


async def test_a_role_may_be_an_engine(tmp_path: Path, engines: Engines) -> None:
    role = ALLOWED + '[agents.outsider]\ndescription = "Another one"\nengine = "codex"\nmodel = "big"\n'
    role += 'developer_instructions = "Be brief."\n'
    async with parent_of(tmp_path, role) as stage:
        thread = await stage.start(**OPEN)
        await stage.run(thread, do(spawn("x", agent_type="outsider"), wait("$1"), "ends"))
    [told] = engines.calls
    assert "<instructions>\nBe brief.\n</instructions>" in told["prompt"]
    assert told["args"][told["args"].index("--model") + 1] == "big"
