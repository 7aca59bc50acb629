"""`EngineHome`: the files and the environment that point every agent program to the mock model."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle import Codex, CodexConfig
from treadle.testing import ENGINES, EngineHome, EngineModel, EngineName


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[EngineHome]:
    with EngineModel() as model:
        yield EngineHome(tmp_path / "new" / "stage", model)


def test_every_file_names_the_model(stage: EngineHome) -> None:
    url = stage.model.base_url
    for name in (".codex", ".treadle"):
        settings = tomllib.loads((stage.home / name / "config.toml").read_text())
        assert settings["model_providers"][settings["model_provider"]]["base_url"] == url
    opencode = json.loads((stage.home / ".config/opencode/opencode.json").read_text())
    assert opencode["provider"]["mock"]["options"]["baseURL"] == url
    pi = json.loads((stage.home / ".pi/agent/models.json").read_text())
    assert pi["providers"]["mock"]["baseUrl"] == url
    assert f"{stage.env('claude')['ANTHROPIC_BASE_URL']}/v1" == url


@pytest.mark.parametrize("engine", ENGINES)
def test_no_folder_in_the_environment_is_outside(
    stage: EngineHome, engine: EngineName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret")
    env = stage.env(engine)
    path = env.pop("PATH")
    assert path
    folders = {name: value for name, value in env.items() if value.startswith("/")}
    assert folders.keys() >= {"HOME", "XDG_CONFIG_HOME"}
    assert all(Path(value).is_relative_to(stage.home) for value in folders.values()), folders
    assert "s3cret" not in env.values()


def test_an_unknown_engine_is_named(stage: EngineHome) -> None:
    with pytest.raises(ValueError, match="codex"):
        stage.env("nobody")  # type: ignore[arg-type]


def test_our_own_agent_works_in_it(stage: EngineHome) -> None:
    with Codex(CodexConfig(cwd=str(stage.project), env=stage.env("treadle"))) as codex:
        thread = codex.thread_start()
        assert "done" in (thread.run("RUN:echo hi > made.txt; echo done").final_response or "")
        assert "users=" in (thread.run("USERS?").final_response or "")
    assert (stage.project / "made.txt").read_text() == "hi\n"
