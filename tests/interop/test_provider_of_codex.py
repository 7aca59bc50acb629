"""The provider that is passed to `Codex`, when the server is the real codex: the model is asked where it was said."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle import Codex, CodexConfig
from treadle.testing import MockModel

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


@pytest.mark.parametrize("provider", ["vllm", "ollama", "gateway"])
def test_a_server_of_ones_own_is_asked(codex_bin: Path, tmp_path: Path, provider: str) -> None:
    (tmp_path / "home").mkdir()
    config = CodexConfig(codex_bin=str(codex_bin), env={"CODEX_HOME": str(tmp_path / "home")}, cwd=str(tmp_path))
    with MockModel(on_empty=lambda request: "Hello.") as model:
        with Codex(config, provider=provider, base_url=model.base_url, api_key="a-key", model="a-model") as codex:
            result = codex.thread_start(ephemeral=True).run("hi")
        request = model.requests()[-1]
    assert result.final_response == "Hello."
    assert (request.path, request.json["model"]) == ("/v1/responses", "a-model")
    assert request.header("authorization") == "Bearer a-key"
    assert result.turn_usage is not None
    assert (result.turn_usage.total_tokens, result.turn_usage.cost_usd) == (2, None)
