"""A server whose settings cannot be used, seen from the SDK: an exception with what is wrong, never an answer."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from treadle import (
    AsyncCodex,
    Codex,
    CodexConfig,
    ConfigurationError,
    InvalidRequestError,
    TransportClosedError,
    TurnFailed,
)
from treadle.client.sdk_errors import rpc_error

TEXT = 'sandbox_mode = "foo"\n\napproval_policy = "sometimes"\n'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "config.toml").write_text(TEXT)
    return folder


def _program() -> str:
    return os.path.join(os.path.dirname(sys.executable), "treadle")


def _config(home: Path, *, child: bool, overrides: tuple[str, ...] = ()) -> CodexConfig:
    env = {"TREADLE_HOME": str(home), "OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""}
    return CodexConfig(codex_bin=_program() if child else None, env=env, config_overrides=overrides)


def _judge(error: ConfigurationError, home: Path) -> None:
    path = str(home / "config.toml")
    assert [(problem.path, problem.line, problem.key) for problem in error.problems] == [
        (path, 1, "sandbox_mode"),
        (path, 3, "approval_policy"),
    ]
    assert isinstance(error, InvalidRequestError)
    assert all(str(problem) in str(error) for problem in error.problems)
    assert "allowed is one of" in error.problems[0].problem


@pytest.mark.parametrize("child", [False, True])
def test_no_thread_starts(home: Path, child: bool) -> None:
    with Codex(_config(home, child=child)) as codex:
        with pytest.raises(ConfigurationError) as caught:
            codex.thread_start()
        _judge(caught.value, home)
        (home / "config.toml").write_text("")
        assert codex.thread_start().run("hello").final_response


@pytest.mark.anyio
@pytest.mark.parametrize("child", [False, True])
async def test_no_thread_starts_in_the_other_face(home: Path, child: bool) -> None:
    async with AsyncCodex(_config(home, child=child)) as codex:
        with pytest.raises(ConfigurationError) as caught:
            await codex.thread_start()
        _judge(caught.value, home)


def test_a_wrong_override_is_no_start(home: Path) -> None:
    (home / "config.toml").unlink()
    with pytest.raises(ConfigurationError, match="-c: sandbox_mode: found `foo`") as caught:
        Codex(_config(home, child=False, overrides=("sandbox_mode=foo",)))
    (problem,) = caught.value.problems
    assert (problem.source, problem.key) == ("-c", "sandbox_mode")
    with pytest.raises(TransportClosedError, match="-c: sandbox_mode: found `foo`") as ended:
        Codex(_config(home, child=True, overrides=("sandbox_mode=foo",)))
    assert ended.value.exit_code == 2


@pytest.mark.anyio
async def test_a_wrong_override_is_no_start_in_the_other_face(home: Path) -> None:
    with pytest.raises(ConfigurationError, match="-c: sandbox_mode: found `foo`"):
        async with AsyncCodex(_config(home, child=False, overrides=("sandbox_mode=foo",))):
            pass


def test_settings_of_a_thread(home: Path) -> None:
    (home / "config.toml").unlink()
    with Codex(_config(home, child=False)) as codex:
        with pytest.raises(ConfigurationError) as caught:
            codex.thread_start(config={"sandbox_mode": "foo"})
        assert caught.value.problems[0].source == "the configuration of the thread"


def test_a_model_is_never_the_offline_one(home: Path) -> None:
    (home / "config.toml").unlink()
    with Codex(_config(home, child=False)) as codex:
        thread = codex.thread_start(model="gpt-5.5")
        with pytest.raises(TurnFailed, match="OPENAI_API_KEY"):
            thread.run("hello")


def test_problems_that_we_cannot_read_do_not_hide_the_error() -> None:
    error = rpc_error(-32600, "broken", {"configProblems": 5})
    assert isinstance(error, ConfigurationError)
    assert error.problems == ()
