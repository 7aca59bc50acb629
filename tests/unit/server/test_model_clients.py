"""Which model client a thread gets, and how many are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from treadle.agent import Settings, new_settings
from treadle.errors import TreadleError
from treadle.llm import OfflineModel
from treadle.protocol.app import ThreadStartParams
from treadle.server import AppServer, model_clients

pytestmark = pytest.mark.anyio

PROVIDER = """
model_provider = "one"
model = "m"
[model_providers.one]
base_url = "http://127.0.0.1:9/one"
[model_providers.two]
base_url = "http://127.0.0.1:9/two"
"""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[AppServer]:
    (tmp_path / "config.toml").write_text(PROVIDER)
    made = AppServer(home=tmp_path, cwd=str(tmp_path), environ={})
    yield made
    await made.close()


def settings(server: AppServer, **params: Any) -> Settings:
    return new_settings(ThreadStartParams(**params), server.config, "/")


async def test_threads_of_a_provider_share_its_client(server: AppServer) -> None:
    one, same = (server.model_for(settings(server)) for _ in range(2))
    assert one is same
    assert server.model_for(settings(server, model_provider="two")) is not one


async def test_a_thread_with_settings_of_its_own_has_a_client_of_its_own(server: AppServer) -> None:
    own = settings(server, config={"model_providers.one.stream_idle_timeout_ms": 12})
    assert server.model_for(own) is not server.model_for(settings(server))
    assert server.model_for(own) is server.model_for(own)
    assert server.config_for(own) is server.config_for(own)


async def test_the_client_that_was_not_used_for_the_longest_time_goes(
    server: AppServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_clients, "MAX_MODELS", 2)
    kept = settings(server)
    first = server.model_for(kept)
    for number in range(4):
        server.model_for(settings(server, config={"model_providers.one.stream_idle_timeout_ms": 10 + number}))
        assert server.model_for(kept) is first  # it was used in between


async def test_a_provider_that_is_not_configured_is_named(server: AppServer) -> None:
    with pytest.raises(TreadleError, match=r"add \[model_providers.three\] to config.toml"):
        server.model_for(structs.replace(settings(server), model_provider="three"))


async def test_the_offline_provider_has_one_model(server: AppServer) -> None:
    offline = settings(server, model_provider="offline")
    assert isinstance(server.model_for(offline), OfflineModel)
    with pytest.raises(TreadleError, match="has no model `gpt`"):
        server.model_for(structs.replace(offline, model="gpt"))
