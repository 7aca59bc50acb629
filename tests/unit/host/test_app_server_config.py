"""Which server is started, and what it is told."""

from __future__ import annotations

import pytest

from treadle.client import KEY_VARIABLE, CodexConfig
from treadle.errors import ArgumentValueError
from treadle.host import login_advice, server_config
from treadle.own_python import treadle_command

KEY = "sk-0123456789abcdef"
NOTHING = {"provider": None, "api_key": None, "base_url": None}


def test_without_anything_it_is_our_own_server_as_a_process() -> None:
    config = server_config(None, **NOTHING)
    assert config.launch_args_override == tuple(treadle_command("app-server", "--listen", "stdio://"))


def test_a_config_of_the_caller_wins() -> None:
    given = CodexConfig(codex_bin="codex", cwd="/", env={"A": "b"})
    assert server_config(given, **NOTHING) == given
    assert server_config(CodexConfig(), **NOTHING).launch_args_override is None


@pytest.mark.parametrize(
    "config", [None, CodexConfig(), CodexConfig(codex_bin="codex")], ids=["child", "local", "codex"]
)
def test_the_key_is_in_the_environment_alone(config: CodexConfig | None) -> None:
    made = server_config(config, provider="anthropic", api_key=KEY, base_url="http://127.0.0.1:1/v1")
    assert made.env is not None
    assert made.env[KEY_VARIABLE] == KEY
    words = [*(made.launch_args_override or ()), *made.config_overrides]
    assert not any(KEY in str(word) for word in words)
    name = "treadle_anthropic" if config is not None and config.codex_bin else "anthropic"
    assert f'model_provider="{name}"' in words
    assert f'model_providers.{name}.base_url="http://127.0.0.1:1/v1"' in words
    assert f'model_providers.{name}.env_key="{KEY_VARIABLE}"' in words
    assert KEY not in repr(made)


def test_the_real_codex_is_told_all_that_is_known_of_a_provider() -> None:
    made = server_config(CodexConfig(codex_bin="codex"), provider="openai", api_key=KEY, base_url=None)
    assert 'model_providers.treadle_openai.base_url="https://api.openai.com/v1"' in made.config_overrides
    assert not any("requires_openai_auth" in text for text in made.config_overrides)
    assert f'shell_environment_policy.set.{KEY_VARIABLE}=""' in made.config_overrides


@pytest.mark.parametrize("config", [CodexConfig(url="ws://h"), CodexConfig(launch_args_override=("x",))])
def test_a_server_that_cannot_be_told_is_refused(config: CodexConfig) -> None:
    with pytest.raises(ArgumentValueError, match=r"config\.toml"):
        server_config(config, provider=None, api_key=KEY, base_url=None)


@pytest.mark.parametrize(
    ("config", "provider", "key", "words"),
    [
        (None, None, None, "Set OPENAI_API_KEY"),
        (None, "anthropic", None, "Set ANTHROPIC_API_KEY"),
        (CodexConfig(), None, None, "Set OPENAI_API_KEY"),
        (CodexConfig(codex_bin="codex"), None, None, "`codex login`"),
        (CodexConfig(url="ws://127.0.0.1:1"), None, None, "where the server runs"),
        (None, None, KEY, "another api_key"),
        (CodexConfig(codex_bin="codex"), None, KEY, "another api_key"),
    ],
)
def test_who_is_not_logged_in_is_told_what_helps_with_this_server(
    config: CodexConfig | None, provider: str | None, key: str | None, words: str
) -> None:
    assert words in login_advice(config, provider=provider, has_key=key is not None)
