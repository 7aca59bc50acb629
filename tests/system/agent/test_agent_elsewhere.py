"""Threads on an exec-server: what a turn asks there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from kit.exec_program import running
from system.agent.scene import Json, scene, shell
from treadle.execution import RemoteBackend
from treadle.testing import ToolCall

pytestmark = pytest.mark.anyio


class Traffic:
    """The requests to the executor; `trips` counts how often something was asked while nothing was on its way."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self.trips = 0
        self._open = 0

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        inner = RemoteBackend._call_now

        async def call(backend: RemoteBackend, method: str, params: Struct, result: type[Any]) -> Any:
            self.methods.append(method)
            self.trips += self._open == 0
            self._open += 1
            try:
                return await inner(backend, method, params, result)
            finally:
                self._open -= 1

        monkeypatch.setattr(RemoteBackend, "_call_now", call)

    def clear(self) -> None:
        self.methods, self.trips = [], 0


@pytest.fixture
def traffic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Traffic]:
    folder = tmp_path / "executor"
    (folder / "user").mkdir(parents=True)
    address = f"unix://{folder / 'socket'}"
    with running(folder, "--listen", address, env={"HOME": str(folder / "user")}):
        monkeypatch.setenv("CODEX_EXEC_SERVER_URL", address)
        found = Traffic()
        found.watch(monkeypatch)
        yield found


def _project(folder: Path) -> None:
    for number in range(5):
        skill = folder / ".agents" / "skills" / f"skill-{number}"
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text(f"---\nname: skill-{number}\ndescription: Does thing {number}.\n---\nDo it.\n")
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "AGENTS.md").write_text("Be brief.")


async def test_a_turn_looks_at_a_project_in_one_round_trip(tmp_path: Path, traffic: Traffic) -> None:
    async with scene(tmp_path) as stage:
        _project(stage.workspace)
        for _ in range(2):
            stage.model.enqueue_assistant_message("done")
        thread = await stage.start()
        await stage.run(thread)
        traffic.clear()
        await stage.run(thread)
        assert traffic.trips == 1
        assert traffic.methods.count("fs/look") == 1
        assert {"fs/getMetadata", "fs/readFile", "fs/open"}.isdisjoint(traffic.methods)
        assert len(traffic.methods) < 6


async def test_what_has_changed_is_read(tmp_path: Path, traffic: Traffic) -> None:
    async with scene(tmp_path) as stage:
        _project(stage.workspace)
        thread = await stage.start()

        async def told() -> str:
            stage.model.enqueue_assistant_message("done")
            await stage.run(thread)
            return str(stage.model.requests()[-1].input)

        assert "Be brief." in await told()
        (stage.workspace / "AGENTS.md").write_text("Be kind, always.")
        assert "Be kind, always." in await told()
        (Path(stage.server.home) / "AGENTS.md").write_text("Words of the user.")
        assert "Words of the user." in await told()
        (stage.workspace / ".agents" / "skills" / "skill-0" / "SKILL.md").unlink()
        text = await told()
        assert "Does thing 0." not in text
        assert "Does thing 1." in text


async def test_a_command_is_one_round_trip(tmp_path: Path, traffic: Traffic) -> None:
    """The turn does not look at its project again before each request to the model."""
    async with scene(tmp_path) as stage:
        thread = await stage.start()
        for number in range(3):
            stage.model.enqueue_calls(ToolCall("exec_command", shell("true"), f"c{number}"))
        stage.model.enqueue_assistant_message("done")
        await stage.run(thread)
        before = traffic.methods.index("process/start")
        asked = [method for method in traffic.methods[before:] if method != "process/start"]
        assert traffic.methods.count("process/start") == 3
        assert asked == [], "within a second nothing else is asked"


async def test_a_thread_moves_to_another_machine_and_back(tmp_path: Path, traffic: Traffic) -> None:
    """The directory that clients are shown is on their machine."""
    async with scene(tmp_path) as stage:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        url = f"unix://{tmp_path / 'executor' / 'socket'}"
        await stage.client.request("environment/add", {"environmentId": "box", "execServerUrl": url})
        answer: Json = await stage.client.request(
            "thread/start", {"environments": [{"environmentId": "box", "cwd": str(elsewhere)}]}
        )
        thread = answer["thread"]["id"]
        assert answer["cwd"] == str(stage.workspace)
        shown = []
        for name, place in (("local", elsewhere), ("box", stage.workspace)):
            stage.model.enqueue_assistant_message("done")
            await stage.run(thread, environments=[{"environmentId": name, "cwd": str(place)}])
            shown.append((await stage.client.request("thread/read", {"threadId": thread}))["thread"]["cwd"])
        assert shown == [str(elsewhere), str(elsewhere)]
