"""The provider and the model that are passed to `Codex`."""

from __future__ import annotations

import copy
import logging
import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

from treadle import AsyncCodex, Codex, CodexConfig, CodexError, TurnFailed
from treadle.client import KEY_VARIABLE
from treadle.client.provider_settings import with_provider
from treadle.errors import ArgumentError
from treadle.testing import MockModel

KEY = "a-key-that-nobody-may-see"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"provider": "vllm"}, "/v1/chat/completions"),
        ({"provider": "ollama"}, "/v1/chat/completions"),
        ({"provider": "gateway", "wire_api": "chat", "api_key": KEY}, "/v1/chat/completions"),
        ({"provider": "gateway", "wire_api": "anthropic", "api_key": KEY}, "/v1/messages"),
        ({"provider": "gateway"}, "/v1/responses"),
        ({"api_key": KEY}, "/v1/responses"),
    ],
)
def test_a_server_of_ones_own_is_asked_for_the_model(given: dict[str, Any], path: str) -> None:
    with MockModel() as model:
        model.enqueue_assistant_message("Hello.")
        with Codex(base_url=model.base_url, model="a-model", **given) as codex:
            assert codex.thread_start(ephemeral=True).run("hi").final_response == "Hello."
        (request,) = model.requests()
    assert (request.path, request.json["model"]) == (path, "a-model")
    assert (KEY in str(request.headers)) is ("api_key" in given)


@pytest.mark.anyio
async def test_the_asyncio_client_takes_the_same() -> None:
    with MockModel() as model:
        model.enqueue_assistant_message("Hello.")
        async with AsyncCodex(provider="vllm", base_url=model.base_url, model="m") as codex:
            assert (await (await codex.thread_start(ephemeral=True)).run("hi")).final_response == "Hello."


def test_the_key_is_seen_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with MockModel() as model:
        model.enqueue_error(401, f"wrong key {KEY}")
        with Codex(provider="gateway", base_url=model.base_url, api_key=KEY, model="m") as codex:
            config = codex._client.config
            with pytest.raises(TurnFailed) as caught:
                codex.thread_start(ephemeral=True).run("hi")
    error = "".join(traceback.format_exception(caught.value))
    assert "wrong key" in error
    assert config.env == {KEY_VARIABLE: KEY}
    shown = [
        repr(config),
        repr(codex),
        str(vars(caught.value)),
        error,
        caplog.text,
        str(pickle.loads(pickle.dumps(config)).env),
    ]
    assert [text for text in shown if KEY in text] == []
    assert copy.copy(config) == config


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"provider": "http://gpu-box:8000/v1"}, "base_url"),
        ({"provider": ""}, "empty"),
        ({"api_key": ""}, "empty"),
        ({"model": 3}, "must be a str"),
        ({"provider": "vllm", "wire_api": "smoke"}, "'chat'"),
        ({"config": CodexConfig(url="ws://127.0.0.1:1"), "model": "m"}, "CodexConfig.url"),
        ({"config": CodexConfig(launch_args_override=("x",)), "api_key": KEY}, "CodexConfig.launch_args_override"),
    ],
)
def test_what_cannot_be_used_is_refused_where_it_is_given(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words) as caught:
        Codex(**given)
    assert KEY not in str(caught.value)


def test_a_provider_that_is_not_configured_is_an_error_at_once() -> None:
    with pytest.raises(CodexError, match=r"add a table \[model_providers.gateway\] with its base_url"):
        Codex(provider="gateway", model="m")


@pytest.mark.parametrize(
    ("program", "given", "settings"),
    [
        ("/opt/bin/treadle", {}, ['model_provider="vllm"', 'model_providers.vllm.base_url="http://h/v1"']),
        ("codex", {}, ['model_provider="treadle_vllm"', 'model_providers.treadle_vllm.wire_api="responses"']),
        ("codex", {"wire_api": "chat"}, ['model_providers.treadle_vllm.wire_api="chat"']),
    ],
)
def test_a_child_is_told_what_it_understands(program: str, given: dict[str, str], settings: list[str]) -> None:
    config = with_provider(CodexConfig(codex_bin=program), provider="vllm", base_url="http://h/v1", **given)
    assert config is not None
    assert [text for text in settings if text not in config.config_overrides] == []


def test_a_model_alone_leaves_the_provider_to_the_settings() -> None:
    config = with_provider(CodexConfig(config_overrides=("a=1",)), model='m"x')
    assert config is not None
    assert config.config_overrides == ("a=1", 'model="m\\"x"')
    assert with_provider(None, model=None, provider=None) is None
