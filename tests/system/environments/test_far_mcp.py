"""MCP servers with an `environment_id`: they run on the other machine; they end, and are lost, as they are here."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.exec_program import running
from kit.server_process import ServerProcess
from system.agent.scene import Scene
from system.environments.far import until
from system.environments.relay import Relay, relay
from system.mcp.mcp_scene import call, heard, mcp_scene, probe_table, processes, run_calls, statuses

pytestmark = [pytest.mark.anyio, pytest.mark.this_machine]

HEAD = "[mcp_servers.probe]"
VARIABLES = 'env_vars = ["NEAR", { name = "WHERE", source = "remote" }]'


@contextmanager
def executor(folder: Path) -> Iterator[ServerProcess]:
    (folder / "user").mkdir(parents=True, exist_ok=True)
    env = {"HOME": str(folder / "user"), "WHERE": "there", "NEAR": "not this one", "TOLD": "nobody"}
    with running(folder, "--listen", f"unix://{folder / 'socket'}", env=env) as server:
        yield server


@asynccontextmanager
async def far_probe(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[Scene, Relay]]:
    """A thread's probe behind a relay to the executor in `there`."""
    there = tmp_path / "there"
    there.mkdir(exist_ok=True)
    async with relay(tmp_path, there / "socket") as passing:
        box = {f"environments.box.{key}": each for key, each in {"url": passing.url, **settings}.items()}
        table = probe_table(tmp_path, environment_id="box").replace(HEAD, f"{HEAD}\n{VARIABLES}")
        async with mcp_scene(tmp_path, table, **box) as stage:
            yield stage, passing


async def on_box(stage: Scene, cwd: Path) -> str:
    return await stage.start(environments=[{"environmentId": "box", "cwd": str(cwd)}])


async def test_it_runs_there_with_the_variables_of_that_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEAR", "here")
    there = tmp_path / "there"
    with executor(there):
        async with far_probe(tmp_path) as (stage, _):
            (work := tmp_path / "work").mkdir()
            facts = []
            for thread in (await on_box(stage, work), await stage.start()):
                told = await run_calls(stage, thread, call("environment", call_id="c"))
                facts.append(json.loads(told["c"].partition("Output:")[2]))
            assert statuses(stage)[:2] == [("probe", "starting"), ("probe", "ready")]
            # One of a thread that works elsewhere begins where the machine does.
            assert [fact["cwd"] for fact in facts] == [str(work), str(there)]
            env = facts[0]["env"]
            assert (env["HOME"], env["WHERE"], env["NEAR"]) == (str(there / "user"), "there", "here")
            assert "TOLD" not in env
            assert env["HOME"] != os.environ["HOME"]
            pids = processes(tmp_path)
        await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


async def test_the_workspace_there_are_its_roots(tmp_path: Path) -> None:
    with executor(tmp_path / "there"):
        async with far_probe(tmp_path) as (stage, _):
            (work := tmp_path / "work").mkdir()
            told = await run_calls(stage, await on_box(stage, work), call("roots", call_id="c"))
            assert work.as_uri() in told["c"]
            told = await run_calls(stage, await stage.start(), call("roots", call_id="c"))
            assert stage.workspace.as_uri() not in told["c"], "that is on another machine than the server"


async def test_one_that_died_is_started_again_there(tmp_path: Path) -> None:
    with executor(tmp_path / "there"):
        async with far_probe(tmp_path) as (stage, _):
            thread = await on_box(stage, stage.workspace)
            told = await run_calls(stage, thread, call("die", call_id="c"))
            assert "ended" in told["c"]
            assert "hello" in (await run_calls(stage, thread, call("echo", "hello", "c")))["c"]
            assert len(set(processes(tmp_path))) == 2


async def test_a_lost_connection_is_not_noticed(tmp_path: Path) -> None:
    with executor(tmp_path / "there"):
        async with far_probe(tmp_path) as (stage, passing):
            thread = await on_box(stage, stage.workspace)
            stage.model.enqueue_calls(call("sleep", "2", "c"))
            stage.model.enqueue_assistant_message("done")
            turn = await stage.begin(thread)
            await until(lambda: heard(tmp_path, "tools/call"))
            passing.cut()
            assert (await stage.end(turn))["status"] == "completed"
            assert "slept" in stage.model.requests()[-1].tool_outputs["c"]
            assert "hello" in (await run_calls(stage, thread, call("echo", "hello", "d")))["d"]
            assert len(set(processes(tmp_path))) == 1


async def test_a_machine_that_is_gone_fails_the_call_and_one_that_is_back_starts_it_again(tmp_path: Path) -> None:
    async with far_probe(tmp_path, recovery_s=0.5) as (stage, passing):
        with executor(tmp_path / "there"):
            thread = await on_box(stage, stage.workspace)
            stage.model.enqueue_calls(call("sleep", "1000", "c"))
            stage.model.enqueue_assistant_message("done")
            turn = await stage.begin(thread)
            await until(lambda: heard(tmp_path, "tools/call"))
        passing.cut()
        assert (await stage.end(turn))["status"] == "completed"
        assert "the server was lost" in stage.model.requests()[-1].tool_outputs["c"]
        (tmp_path / "there/socket").unlink(missing_ok=True)
        with executor(tmp_path / "there"):
            assert "hello" in (await run_calls(stage, thread, call("echo", "hello", "d")))["d"]
            assert len(set(processes(tmp_path))) == 2


async def test_an_environment_that_nobody_knows_is_said(tmp_path: Path) -> None:
    async with mcp_scene(tmp_path, probe_table(tmp_path, environment_id="nix")) as stage:
        stage.model.enqueue_assistant_message("done")
        assert (await stage.run(await stage.start()))["status"] == "completed"
        told = stage.client.told("mcpServer/startupStatus/updated")
        assert "unknown turn environment id `nix`" in told[-1]["params"]["error"]
