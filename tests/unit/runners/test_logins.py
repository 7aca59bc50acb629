"""Whether there is a login, by files and variables that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.runners.logins import LoginStatus, find_login


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
    assert find_login(engine, environ) == LoginStatus(False, f"no ~/{file}")
    put(tmp_path, file, "{}\n")  # after a logout
    assert find_login(engine, environ).ok is False
    put(tmp_path, file, '{"token": "very-secret-value"}')
    found = find_login(engine, environ)
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
    assert find_login(engine, environ) == LoginStatus(True, str(place / file))


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
    assert find_login(engine, {"HOME": str(tmp_path), variable: "secret"}) == LoginStatus(True, variable)
    assert find_login(engine, {"HOME": str(tmp_path), variable: " "}).ok is False


def test_codex_with_a_provider_of_its_own(tmp_path: Path) -> None:
    put(tmp_path, ".codex/config.toml", 'model_provider = "mine"\n[model_providers.mine]\nenv_key = "MY_KEY"\n')
    environ = {"HOME": str(tmp_path)}
    assert find_login("codex", environ) == LoginStatus(False, "MY_KEY of the provider mine is not set")
    assert find_login("codex", {**environ, "MY_KEY": "x"}) == LoginStatus(True, "the provider mine")
    put(tmp_path, ".codex/config.toml", "this is no [toml")
    assert find_login("codex", environ) == LoginStatus(False, "no ~/.codex/auth.json")


def test_ours_is_as_the_settings_say(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    assert find_login("treadle", environ) == LoginStatus(None, "offline model")
    provider = 'model = "m"\nmodel_provider = "mine"\n[model_providers.mine]\nname = "mine"\nbase_url = "http://127.0.0.1:9/v1"\n'
    put(tmp_path, ".treadle/config.toml", provider)
    assert find_login("treadle", environ) == LoginStatus(True, "the provider mine")
    put(tmp_path, ".treadle/config.toml", provider + 'env_key = "NO_SUCH_KEY_HERE"\n')
    found = find_login("treadle", environ)
    assert found.ok is False
    assert "NO_SUCH_KEY_HERE" in found.where
    put(tmp_path, ".treadle/config.toml", "model = 3")
    assert find_login("treadle", environ).ok is False


def test_of_other_engines_nothing_is_known(tmp_path: Path) -> None:
    assert find_login("other", {"HOME": str(tmp_path)}) == LoginStatus(None)
