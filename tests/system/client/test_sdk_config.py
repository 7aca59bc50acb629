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
    ConfigurationWarning,
    InvalidRequestError,
    TransportClosedError,
    TurnFailed,
)
from treadle.client import rpc_error
from treadle.errors import ArgumentValueError

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


# --- nothing is ignored in silence -----------------------------------------------------------------------------------


@pytest.mark.parametrize("child", [False, True])
@pytest.mark.parametrize(
    ("override", "nearest"),
    [
        ("sandbox_mod=read-only", "sandbox_mode"),
        ("sandbox_workspace_write.network_acess=true", "sandbox_workspace_write.network_access"),
        ('model_providers.x={base_url="http://127.0.0.1:9", env_kei="K"}', "model_providers.x.env_key"),
        ('model_providers.x.base_ur="http://127.0.0.1:9"', "model_providers.x.base_url"),
        ('models."m".context_windw=5', "models.m.context_window"),
        ("features.shel_tool=false", "features.shell_tool"),
        ("tools.view_imag=false", "tools.view_image"),
    ],
)
def test_an_override_that_nobody_knows_is_no_start(home: Path, child: bool, override: str, nearest: str) -> None:
    (home / "config.toml").write_text("another_key = 1\n")
    with pytest.raises(ConfigurationError, match=f"it is not known; did you mean `{nearest}`") as caught:
        Codex(_config(home, child=child, overrides=("sandbox_mode=read-only", override)))
    (problem,) = caught.value.problems
    assert problem.source == "-c"


@pytest.mark.anyio
async def test_an_override_that_nobody_knows_is_no_start_in_the_other_face(home: Path) -> None:
    (home / "config.toml").unlink()
    with pytest.raises(ConfigurationError, match="-c: sandbox_mod: it is not known; did you mean `sandbox_mode`"):
        async with AsyncCodex(_config(home, child=False, overrides=("sandbox_mod=read-only",))):
            pass


def test_an_override_of_codex_that_has_no_effect_here_starts(home: Path) -> None:
    (home / "config.toml").unlink()
    config = _config(home, child=False, overrides=("tui.theme=x", "memories.use_memories=true"))
    with Codex(config) as codex, pytest.warns(ConfigurationWarning, match="have no effect here: `memories`"):
        codex.thread_start()


@pytest.mark.parametrize("child", [False, True])
def test_an_unknown_setting_is_a_warning_once(home: Path, child: bool) -> None:
    path = home / "config.toml"
    path.write_text('sandbox_mod = "read-only"\n')
    text = f"{path}:1:1: the key `sandbox_mod` is not known; it is ignored; did you mean `sandbox_mode`?"
    with Codex(_config(home, child=child)) as codex:
        with pytest.warns(ConfigurationWarning) as caught:
            codex.thread_start()
        (warned,) = caught
        assert (str(warned.message), warned.filename) == (text, __file__)
        assert codex.warnings == (text,)
        codex.thread_start()  # which would be an error if it warned again
        with pytest.warns(ConfigurationWarning, match="the configuration of the thread: the key `modle` is not known"):
            codex.thread_start(config={"modle": "x"})
        path.write_text('zeta = "read-only"\n')  # while it runs
        with pytest.warns(ConfigurationWarning, match="the key `zeta` is not known"):
            codex.thread_start()
        assert len(codex.warnings) == 3


@pytest.mark.anyio
async def test_an_unknown_setting_is_a_warning_in_the_other_face(home: Path) -> None:
    (home / "config.toml").write_text('sandbox_mod = "read-only"\n')
    async with AsyncCodex(_config(home, child=False)) as codex:
        with pytest.warns(ConfigurationWarning) as caught:
            await codex.thread_start()
        assert [warning.filename for warning in caught] == [__file__]
        assert len(codex.warnings) == 1
        await codex.thread_start()


def test_a_file_that_breaks_is_in_the_warnings(home: Path) -> None:
    (home / "config.toml").unlink()
    with Codex(_config(home, child=False)) as codex:
        thread = codex.thread_start()
        (home / "config.toml").write_text(TEXT)
        assert thread.run("hello").final_response
        assert [f"{home}/config.toml:1:1: sandbox_mode" in text for text in codex.warnings] == [True, False]


# --- the offline model -----------------------------------------------------------------------------------------------


def test_the_offline_model_can_be_forbidden(home: Path) -> None:
    (home / "config.toml").unlink()
    with pytest.raises(ConfigurationError, match=r"-c: offline: it is false, .* set OPENAI_API_KEY or") as caught:
        Codex(_config(home, child=False), offline=False)
    assert caught.value.problems[0].key == "offline"
    with pytest.raises(TransportClosedError, match="treadle login PROVIDER"):
        Codex(_config(home, child=True), offline=False)
    with Codex(_config(home, child=False, overrides=("model=gpt-5.5",)), offline=False) as codex:
        assert codex.thread_start()
        with pytest.raises(InvalidRequestError, match="the offline model is forbidden"):
            codex.thread_start(model="offline")


@pytest.mark.anyio
async def test_the_offline_model_can_be_forbidden_in_the_other_face(home: Path) -> None:
    (home / "config.toml").unlink()
    with pytest.raises(ConfigurationError, match="-c: offline: it is false"):
        async with AsyncCodex(_config(home, child=False), offline=False):
            pass


def test_the_offline_model_can_be_forbidden_in_the_file(home: Path) -> None:
    path = home / "config.toml"
    path.unlink()
    with Codex(_config(home, child=False)) as codex:
        thread = codex.thread_start()
        path.write_text("offline = false\n")
        with pytest.raises(ConfigurationError, match=f"{path}:1:1: offline: it is false"):
            codex.thread_start()
        path.write_text('offline = false\nmodel = "gpt-5.5"\n')
        with pytest.raises(TurnFailed, match="the offline model, which is forbidden"):
            thread.run("hello")
        with pytest.raises(ConfigurationError):
            codex.thread_start(config={"model": "offline"})


def test_the_offline_model_can_be_asked_for(home: Path) -> None:
    (home / "config.toml").write_text('model = "gpt-5.5"\n')
    with Codex(_config(home, child=False), offline=True) as codex:
        assert codex.thread_start().run("hello").final_response
        with pytest.raises(TurnFailed, match="OPENAI_API_KEY"):
            codex.thread_start(model="gpt-5.5").run("hello")


@pytest.mark.parametrize(
    "config", [CodexConfig(url="ws://127.0.0.1:9"), CodexConfig(launch_args_override=("treadle", "app-server"))]
)
def test_the_offline_model_of_another_server_is_its_own(config: CodexConfig) -> None:
    with pytest.raises(ArgumentValueError, match=r"set it in the config\.toml of that one"):
        Codex(config, offline=False)
