"""What every runtime of the host does: one suite over all of them. Another one is one more line in `RUNTIMES`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from system.runners.fake_engine import fake
from treadle.host import AppServerRuntime, EngineRuntime, LocalRuntime, LocalWire, Runtime
from treadle.runners import CodexRunner
from treadle.testing import EngineHome, EngineModel, RuntimePlay, check_runtime

pytestmark = pytest.mark.anyio

Make: TypeAlias = Callable[[EngineHome], Callable[[], Runtime]]

# Answers, fails and hangs as `EngineModel` does, in the words of `codex exec --json`.
FAKE = """
prompt = sys.stdin.read().strip().splitlines()[-1]
start()
if "GATE" in prompt:
    hang()
if "HTTP:400" in prompt:
    say(type="turn.failed", error=dict(message="HTTP 400: a bad request"))
    sys.exit(1)
say(type="item.started", item=dict(id="item_1", type="command_execution", command="ls", status="in_progress"))
say(type="item.completed", item=dict(id="item_1", type="command_execution", command="ls", status="completed"))
answer("pong: " + prompt)
done(input_tokens=10, output_tokens=2)
"""


def local(wire: LocalWire) -> Make:
    provider = "anthropic" if wire == "anthropic" else "openai"
    return lambda stage: (
        lambda: LocalRuntime(wire, provider=provider, api_key="mock-key", base_url=stage.model.base_url)
    )


def native(stage: EngineHome) -> Callable[[], Runtime]:
    return lambda: EngineRuntime("treadle", env=stage.env("treadle"), cwd=stage.project)


def fake_engine(stage: EngineHome) -> Callable[[], Runtime]:
    program = fake(stage.home, FAKE)
    return lambda: EngineRuntime(CodexRunner(program, cwd=stage.project))


def app_server(stage: EngineHome) -> Callable[[], Runtime]:
    return lambda: AppServerRuntime(provider="openai", api_key="mock-key", base_url=stage.model.base_url)


RUNTIMES: dict[str, Make] = {
    "app_server": app_server,
    "responses": local("responses"),
    "chat_completions": local("chat_completions"),
    "anthropic": local("anthropic"),
    "treadle": native,
    "fake engine": fake_engine,
}


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineHome]:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "treadle"))
    with EngineModel() as model:
        yield EngineHome(tmp_path / "stage", model)


@pytest.mark.parametrize("name", RUNTIMES)
async def test_runtime(name: str, stage: EngineHome) -> None:
    await check_runtime(RUNTIMES[name](stage))


async def test_offline_runtime(stage: EngineHome) -> None:
    await check_runtime(lambda: LocalRuntime(provider="offline"), RuntimePlay(answer=None, fails=None, hangs=None))
