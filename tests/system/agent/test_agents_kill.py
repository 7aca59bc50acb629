"""A tree of agents whose server dies: after every transaction of it, and by `kill -9`. Nothing is lost, told twice or
left without its parent.

What is on disk after a transaction is what a killed server leaves, so the home is copied then, and the copy is opened.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.agents_model import NOTIFICATION, AgentsModel, call, do, spawn, wait
from kit.app_program import stdio_server
from system.agent.scene import Scene, scene
from treadle.server import AppServer
from treadle.store import Transactions
from treadle.testing import AppServerHarness, RecordedRequest

pytestmark = pytest.mark.anyio

DEEP = "[agents]\nmax_depth = 2\n"
TREE = do(
    spawn(spawn("aa"), wait("$1"), "a"), spawn("b"), wait("$1"), wait("$2"), call("close_agent", target="$1"), "e"
)


def told_of(request: RecordedRequest) -> dict[str, list[str]]:
    """How a model was told of the end of each child, in order: in a notification, or in the answer of `wait_agent`."""
    told: dict[str, list[str]] = {}
    for item in request.input:
        output = str(item.get("output") or "")
        if item.get("role") == "user":
            content = item["content"]
            texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
            for text in texts:
                if text.startswith(NOTIFICATION):
                    told.setdefault(json.loads(text.splitlines()[1])["agent_path"], []).append("notification")
        elif output.startswith('{"status":{'):
            for child in json.loads(output)["status"]:
                told.setdefault(child, []).append("wait")
    return told


async def _children(stage: Scene, parent: str) -> list[str]:
    listed = await stage.client.request("thread/list", {"parentThreadId": parent})
    return [each["id"] for each in listed["data"]]


async def _check(stage: Scene, model: AgentsModel, thread: str, *, deep: bool) -> None:
    """The thread goes on, and knows how its children ended; with `deep` they do, too."""
    await stage.client.request("thread/resume", {"threadId": thread})
    before = len(model.of(thread))
    ended = await stage.run(thread, do("next"))
    assert ended["status"] == "completed"
    told = told_of(model.of(thread)[before])
    children = await _children(stage, thread)
    assert told.keys() >= set(children)
    for child, ways in told.items():
        assert ways.count("notification") <= 1, (child, ways)
        assert "notification" not in ways[ways.index("wait") :] if "wait" in ways else True, (child, ways)
        read = await stage.client.request("thread/read", {"threadId": child, "includeTurns": True})
        assert read["thread"]["parentThreadId"] == thread
        assert all(turn["status"] != "inProgress" for turn in read["thread"]["turns"])
    for child in children if deep else ():
        await _check(stage, model, child, deep=True)


async def test_after_every_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run: Callable[..., Any] = Transactions.run
    copies: list[Path] = []
    with AgentsModel() as model:
        async with scene(tmp_path / "first", model=model, extra_toml=DEEP) as stage:
            home = stage.harness.home
            thread = await stage.start()

            def run_and_copy(self: Transactions, works: Any) -> Any:
                done = run(self, works)
                copies.append(tmp_path / f"copy-{len(copies)}")
                shutil.copytree(home, copies[-1], ignore=shutil.ignore_patterns("run"))
                return done

            monkeypatch.setattr(Transactions, "run", run_and_copy)
            assert (await stage.run(thread, TREE))["status"] == "completed"
            assert len(await _children(stage, thread)) == 2
            monkeypatch.undo()
        assert len(copies) > 20
        for copy in copies:
            for deep in (False, True):  # what was told before a second death is not told again
                async with AppServer(home=copy) as server, stage.harness.connect(server=server) as client:
                    await _check(Scene(stage.harness, server, client), model, thread, deep=deep)


@pytest.mark.parametrize("requests", range(1, 7))
async def test_a_killed_server(tmp_path: Path, requests: int) -> None:
    """Killed when so many requests have reached the model."""
    with AgentsModel() as model, AppServerHarness(tmp_path, model=model, extra_toml=DEEP) as harness:
        with stdio_server(harness) as program:
            program.client.initialize(experimentalApi=True)
            thread: str = program.client.start_thread()
            program.client.begin(thread, TREE)
            model.wait_for_requests(requests)
            program.kill()
        async with harness.server() as server, harness.connect(server=server) as client:
            await _check(Scene(harness, server, client), model, thread, deep=True)
