"""The real claude, opencode, pi and codex as sub-agents: what they do is in the sandbox of the parent, what claude asks
comes to the clients of the parent, and an interrupted one leaves no process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from interop.peers import installed
from interop.runners.driving import DEADLINE_S, appears
from kit.agents_model import AgentsModel, call, do
from system.agent import scene as agent_scene
from system.agent.scene import Json, Scene, scene
from treadle.hooks import HookResult, PreToolUse, PythonHook, read_python_hooks
from treadle.runners import process_start_time
from treadle.testing import EngineHome, EngineModel, EngineName, harness

pytestmark = [pytest.mark.interop, pytest.mark.anyio]

ENGINES: tuple[EngineName, ...] = ("claude", "opencode", "pi", "codex")
# The folder for temporary files of the programs is another one than that in which the test is.
SANDBOX: Json = {
    "type": "workspaceWrite",
    "networkAccess": True,
    "excludeSlashTmp": True,
    "excludeTmpdirEnvVar": False,
}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[EngineHome]:
    with EngineModel() as model:
        yield EngineHome(tmp_path / "engines", model)


@asynccontextmanager
async def parent_of(
    tmp_path: Path, home: EngineHome, engine: EngineName, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scene]:
    program = installed(engine)
    env = home.env(engine)
    env["PATH"] = f"{program.parent}:{env['PATH']}"
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "treadle"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    # On a busy machine such a program takes many times as long as alone.
    monkeypatch.setattr(harness, "WAIT_S", DEADLINE_S)
    monkeypatch.setattr(agent_scene, "DEADLINE", DEADLINE_S)
    with AgentsModel() as model:
        async with scene(tmp_path, model=model, extra_toml=f'[agents]\nengines = ["{engine}"]\n') as stage:
            yield stage


def wait(child: str) -> Json:
    return call("wait_agent", targets=[child], timeout_ms=DEADLINE_S * 1000)


def start(engine: EngineName, message: str) -> Json:
    return call("spawn_agent", message=message, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
async def test_what_it_does_is_in_the_sandbox_of_the_parent(
    engine: EngineName, tmp_path: Path, home: EngineHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    settings = home.home / ".codex" / "config.toml"
    settings.write_text(settings.read_text().replace('sandbox_mode = "danger-full-access"', ""))
    async with parent_of(tmp_path, home, engine, monkeypatch) as stage:
        thread = await stage.start(approvalPolicy="never")
        tasks = [f"RUN:echo in > {stage.workspace}/made; cat made", f"RUN:echo out > {outside}/made"]
        (stage.workspace / "AGENTS.md").write_text("The owner is Ada.")
        steps = [step for number, task in enumerate(tasks, 1) for step in (start(engine, task), wait(f"${number}"))]
        await stage.run(thread, do(*steps, "ends"), sandboxPolicy=SANDBOX)
        assert (stage.workspace / "made").read_text() == "in\n"
        assert not (outside / "made").exists()
        outputs = [json.loads(each) for each in stage.model.requests()[-1].tool_outputs.values()]
        [ended] = outputs[1]["status"].values()
        assert ended["completed"].endswith("in")
        assert stage.completed("commandExecution")[0]["status"] == "completed"
        requests = "".join(request.body.decode() for request in home.model.requests())
        assert ("The owner is Ada." in requests) is (engine != "claude")  # which reads CLAUDE.md


async def test_what_claude_asks_comes_to_the_clients_of_the_parent(
    tmp_path: Path, home: EngineHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with parent_of(tmp_path, home, "claude", monkeypatch) as stage:
        answers = iter(["accept", "decline"])
        stage.client.answer = lambda ask: {"decision": next(answers)}
        thread = await stage.start(approvalPolicy="untrusted")
        task = f"RUN:echo in > {stage.workspace}/made"
        steps = (start("claude", task), wait("$1"), start("claude", task.replace("made", "more")), wait("$2"))
        await stage.run(thread, do(*steps, "ends"), sandboxPolicy=SANDBOX)
        first, second = stage.client.told("item/commandExecution/requestApproval")
        assert "more" in second["params"]["command"]
        assert "asks" in first["params"]["reason"]
        assert (stage.workspace / "made").exists()
        assert not (stage.workspace / "more").exists()


async def test_a_hook_of_ours_guards_what_claude_allows_by_itself(
    tmp_path: Path, home: EngineHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with parent_of(tmp_path, home, "claude", monkeypatch) as stage:
        (stage.workspace / "secret").write_text("hunter2")
        (stage.workspace / "open").write_text("not so secret")

        def guard(call: PreToolUse) -> HookResult | None:
            return HookResult(block="not this file") if "secret" in str(call.tool_input) else None

        [hook] = read_python_hooks({"PreToolUse": PythonHook(guard, matcher="Bash", guard=True)})
        stage.server.hooks = (hook,)
        thread = await stage.start(approvalPolicy="on-request", sandbox="danger-full-access")
        steps = [start("claude", "RUN:cat open"), wait("$1"), start("claude", "RUN:cat secret"), wait("$2")]
        await stage.run(thread, do(*steps, "ends"))
        outputs = list(stage.model.requests()[-1].tool_outputs.values())
        assert "not so secret" in outputs[1]
        assert "hunter2" not in outputs[3]
        assert "not this file" in outputs[3]
        assert stage.client.told("item/commandExecution/requestApproval") == []


async def test_interrupting_the_parent_ends_it_with_all_that_it_has_started(
    tmp_path: Path, home: EngineHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with parent_of(tmp_path, home, "claude", monkeypatch) as stage:
        thread = await stage.start(approvalPolicy="never", sandbox="danger-full-access")
        task = f"RUN:echo $$ > {stage.workspace}/pid; exec sleep 1000"
        turn = await stage.begin(thread, do(start("claude", task), wait("$1"), "ends"))
        pid = int(await appears(stage.workspace / "pid"))
        assert process_start_time(pid)
        await stage.interrupt(thread, turn)
        await stage.client.wait_for("turn/completed", lambda params: params["threadId"] != thread)
        assert not process_start_time(pid)
