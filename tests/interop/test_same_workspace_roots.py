"""Our app-server and the real one mean the same by workspace roots: what they say, and what commands can write."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from interop import test_client_methods_both as both
from interop.peers import installed
from interop.programs import codex_config
from interop.scripted_model import Script, exec_command
from interop.test_client_methods_both import Server, server
from interop.test_same_permission_profiles import CONFIG
from kit.wire_client import Json

pytestmark = pytest.mark.interop

POLICY = {"type": "workspaceWrite", "networkAccess": False, "excludeTmpdirEnvVar": True, "excludeSlashTmp": True}


class Story:
    """What one of the servers answers, with its own folders by their names."""

    def __init__(self, of: Server) -> None:
        self.of = of
        self.work, self.other, self.third = (str(of.cwd / name) for name in ("work", "other", "third"))
        for folder in (self.work, f"{self.work}/docs", self.other, self.third):
            Path(folder).mkdir()

    def said(self, answer: Any) -> Any:
        """Of an answer what roots are about."""
        if isinstance(answer, int):
            return answer
        sandbox = {**answer["sandbox"], "writableRoots": sorted(answer["sandbox"].get("writableRoots", ()))}
        names = ("activePermissionProfile", "cwd", "runtimeWorkspaceRoots")
        return self.named([sandbox, *(answer[name] for name in names)])

    def named(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self.named(member) for name, member in value.items()}
        if isinstance(value, list):
            return [self.named(member) for member in value]
        return value.replace(str(self.of.cwd), "…") if isinstance(value, str) else value

    def start(self, **params: Any) -> tuple[str, Any]:
        answer = self.of.ask("thread/start", **{"cwd": self.work, **params})
        return answer["thread"]["id"], self.said(answer)

    def resume(self, thread: str, **params: Any) -> Any:
        return self.said(self.of.ask("thread/resume", threadId=thread, **params))

    def writable(self, thread: str, **params: Any) -> list[str] | int:
        """Which of the folders a command of the next turn can write."""
        folders = f"{self.work} {self.work}/docs {self.other} {self.third}"

        def script() -> Script:
            yield [exec_command(f"for d in {folders}; do if (echo x > $d/x) 2>/dev/null; then echo $d; fi; done")]
            yield "done"

        self.of.model.script = script()
        said = [{"type": "text", "text": "go"}]
        begun = self.of.ask("turn/start", threadId=thread, input=said, **params)
        if isinstance(begun, int):
            return begun
        turn = begun["turn"]["id"]
        self.of.client.wait_for("turn/completed", lambda told: told["turn"]["id"] == turn)
        ended: list[Json] = [message["params"] for message in self.of.client.of("item/completed")]
        (output,) = [
            told["item"]["aggregatedOutput"]
            for told in ended
            if told["turnId"] == turn and told["item"]["type"] == "commandExecution"
        ]
        return [self.named(line) for line in (output or "").split()]


def of_turns(story: Story) -> Any:
    thread, started = story.start()
    work, other, third = story.work, story.other, story.third
    environment = {"environmentId": "local", "cwd": work, "runtimeWorkspaceRoots": [third]}
    changes: list[Json] = [
        {},
        {"runtimeWorkspaceRoots": [other]},
        {"runtimeWorkspaceRoots": [work, other]},
        {"cwd": third},
        {"cwd": work, "runtimeWorkspaceRoots": [other, f"{other}/", f"{third}/../third"]},
        {"runtimeWorkspaceRoots": []},
        {"runtimeWorkspaceRoots": ["relative"]},
        {"sandboxPolicy": {**POLICY, "writableRoots": [third]}, "runtimeWorkspaceRoots": [other]},
        {"permissions": "child", "runtimeWorkspaceRoots": [work]},
        {"environments": [environment]},
    ]
    return started, [(story.writable(thread, **change), story.resume(thread)) for change in changes]


def of_threads(story: Story) -> Any:
    roots = {"runtimeWorkspaceRoots": [story.other]}
    threads = [
        story.start(**roots),
        story.start(**roots, sandbox="workspace-write"),
        story.start(**roots, sandbox="read-only"),
        story.start(**roots, permissions="child"),
        story.start(runtimeWorkspaceRoots=[]),
    ]
    wrong = story.of.ask("thread/start", cwd=story.work, runtimeWorkspaceRoots=["relative"])
    return [(said, story.writable(thread)) for thread, said in threads], wrong


def of_resuming(story: Story) -> Any:
    """Of a thread that nobody uses. What is given for one in use counts here, and is ignored there."""
    thread, _ = story.start()
    story.writable(thread)
    answers = []
    for change in ({}, {"cwd": story.third}, {"permissions": ":read-only"}, {"sandbox": "workspace-write"}):
        story.of.ask("thread/unsubscribe", threadId=thread)
        answers.append((story.resume(thread, **change), story.writable(thread)))
    return answers


@pytest.fixture
def folder() -> Iterator[Path]:
    """The real server confines nothing when its home is below `/tmp`."""
    with TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.mark.parametrize("tell", [of_turns, of_threads, of_resuming])
def test_both_mean_the_same(tell: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles = CONFIG.replace('default_permissions = "base"', "")

    def config(url: str) -> str:
        return (
            f'default_permissions = "base"\n{codex_config(url)}'.replace('sandbox_mode = "danger-full-access"\n', "")
            + profiles
        )

    monkeypatch.setattr(both, "codex_config", config)
    with server([str(installed("codex-npm")), "app-server"], folder / "real") as real:
        wanted = tell(Story(real))
    with server([sys.executable, "-m", "treadle", "app-server"], folder / "ours") as ours:
        assert tell(Story(ours)) == wanted
