"""Whether there is a login, by files and variables that are there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from treadle.runners import Engine, LoginStatus, ResumeLine, find_engine, login_status


def put(home: Path, name: str, text: str) -> None:
    file = home / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    ("engine", "file"),
    [
        ("codex", ".codex/auth.json"),
        ("claude", ".claude/.credentials.json"),
        ("opencode", ".local/share/opencode/auth.json"),
        ("pi", ".pi/agent/auth.json"),
    ],
)
def test_a_file_with_a_login(engine: str, file: str, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    assert find_engine(engine).login(environ) == LoginStatus(False, f"no ~/{file}")
    put(tmp_path, file, "{}\n")  # after a logout
    assert find_engine(engine).login(environ).ok is False
    put(tmp_path, file, '{"token": "very-secret-value"}')
    found = find_engine(engine).login(environ)
    assert found == LoginStatus(True, f"~/{file}")
    assert "very-secret" not in repr(found)


@pytest.mark.parametrize(
    ("engine", "variable", "file"),
    [
        ("codex", "CODEX_HOME", "auth.json"),
        ("claude", "CLAUDE_CONFIG_DIR", ".credentials.json"),
        ("opencode", "XDG_DATA_HOME", "opencode/auth.json"),
        ("pi", "PI_CODING_AGENT_DIR", "auth.json"),
    ],
)
def test_a_home_somewhere_else(engine: str, variable: str, file: str, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    put(place, file, '{"a": 1}')
    environ = {"HOME": str(tmp_path / "home"), variable: str(place)}
    assert find_engine(engine).login(environ) == LoginStatus(True, str(place / file))


@pytest.mark.parametrize(
    ("engine", "variable"),
    [
        ("codex", "CODEX_API_KEY"),
        ("claude", "ANTHROPIC_AUTH_TOKEN"),
        ("opencode", "OPENAI_API_KEY"),
        ("pi", "GEMINI_API_KEY"),
    ],
)
def test_a_variable(engine: str, variable: str, tmp_path: Path) -> None:
    assert find_engine(engine).login({"HOME": str(tmp_path), variable: "secret"}) == LoginStatus(True, variable)
    assert find_engine(engine).login({"HOME": str(tmp_path), variable: " "}).ok is False


def test_codex_with_a_provider_of_its_own(tmp_path: Path) -> None:
    put(tmp_path, ".codex/config.toml", 'model_provider = "mine"\n[model_providers.mine]\nenv_key = "MY_KEY"\n')
    environ = {"HOME": str(tmp_path)}
    assert find_engine("codex").login(environ) == LoginStatus(False, "MY_KEY of the provider mine is not set")
    assert find_engine("codex").login({**environ, "MY_KEY": "x"}) == LoginStatus(True, "the provider mine")
    put(tmp_path, ".codex/config.toml", "this is no [toml")
    assert find_engine("codex").login(environ) == LoginStatus(False, "no ~/.codex/auth.json")


def test_ours_is_as_the_settings_say(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    assert find_engine("treadle").login(environ) == LoginStatus(None, "offline model")
    provider = 'model = "m"\nmodel_provider = "mine"\n[model_providers.mine]\nname = "mine"\nbase_url = "http://127.0.0.1:9/v1"\n'
    put(tmp_path, ".treadle/config.toml", provider)
    assert find_engine("treadle").login(environ) == LoginStatus(True, "the provider mine")
    put(tmp_path, ".treadle/config.toml", provider + 'env_key = "NO_SUCH_KEY_HERE"\n')
    found = find_engine("treadle").login(environ)
    assert found.ok is False
    assert "NO_SUCH_KEY_HERE" in found.where
    put(tmp_path, ".treadle/config.toml", "model = 3")
    assert find_engine("treadle").login(environ).ok is False


def test_of_an_engine_that_says_nothing_about_its_login_nothing_is_known() -> None:
    engine = Engine(
        name="plain",
        program="plain",
        install="pip install plain",
        arguments=lambda request: [],
        start=lambda request: None,
        translate=lambda state, line: (),
        finish=lambda state, ending, completed: (),
        resume=ResumeLine("plain", "plain {}", "plain"),
    )
    assert login_status(engine, {}) == LoginStatus(None)
    assert (engine.log_in, engine.tested) == (None, None)


def test_a_login_that_cannot_be_looked_for_is_unknown(caplog: pytest.LogCaptureFixture) -> None:
    def broken(environ: Mapping[str, str]) -> LoginStatus:
        raise ZeroDivisionError

    assert login_status(replace(find_engine("codex"), login=broken), {}) == LoginStatus(None)
    assert "the login of codex could not be looked for" in caplog.text
