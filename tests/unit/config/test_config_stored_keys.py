"""A key for each provider: how it is kept, which key a request gets, and that none is shown or goes to another."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from threading import Thread

import pytest

from treadle.config import ConfigError, Credential, FoundKey, Login, StoredKeys, find_credential, find_key, key_source
from treadle.llm import ModelError, ProviderConfig, endpoint, known_provider

KEY = "sk-ant-s3cret"
OTHER = "sk-or-s3cret"
OPENAI_KEY = "sk-openai-s3cret"


def provider(name: str) -> ProviderConfig:
    found = known_provider(name)
    assert found is not None
    return found


def sent(config: ProviderConfig, home: Path, environ: Mapping[str, str]) -> str:
    source = key_source(config, Login(home), environ)
    return endpoint(config, "/r", {}, login_key=source, environ=environ).headers.get("authorization", "")


def test_keys_are_kept_for_their_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    keys = StoredKeys(home)
    assert (keys.get("anthropic"), keys.providers(), keys.remove("anthropic")) == (None, [], False)
    keys.set("anthropic", f" {KEY}\n")
    keys.set("openrouter", OTHER)
    assert json.loads((home / "keys.json").read_text()) == {"anthropic": KEY, "openrouter": OTHER}
    assert (home / "keys.json").stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700
    assert keys.remove("anthropic")
    assert StoredKeys(home).providers() == ["openrouter"]
    assert os.listdir(home) == ["keys.json"]


def test_a_file_that_others_could_read_is_made_private(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("{}")
    (tmp_path / "keys.json").chmod(0o644)
    StoredKeys(tmp_path).set("anthropic", KEY)
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600


def test_logins_at_the_same_time_lose_no_key(tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(20)]
    threads = [Thread(target=StoredKeys(tmp_path).set, args=(name, KEY)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert StoredKeys(tmp_path).providers() == sorted(names)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"anthropic": 1}', b"\xff", b"[" * 100_000])
def test_an_odd_file_has_no_keys_and_is_not_overwritten(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "keys.json").write_bytes(content)
    keys = StoredKeys(tmp_path)
    assert (keys.get("anthropic"), keys.providers()) == (None, [])
    with pytest.raises(ConfigError, match="move it away"):
        keys.check()
    with pytest.raises(ConfigError, match="move it away"):
        keys.set("anthropic", KEY)
    assert (tmp_path / "keys.json").read_bytes() == content


def test_a_pipe_or_a_directory_is_no_file_of_keys(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "keys.json")
    assert StoredKeys(tmp_path).providers() == []
    (tmp_path / "keys.json").unlink()
    (tmp_path / "keys.json").mkdir()
    with pytest.raises(ConfigError):
        StoredKeys(tmp_path).set("anthropic", KEY)


@pytest.mark.parametrize("key", ["", " ", "a b", "kéy", "a\0"])
def test_what_is_no_key_is_refused_and_not_repeated(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match="copy it again") as caught:
        StoredKeys(tmp_path).set("anthropic", key)
    assert not key.strip() or key not in str(caught.value)


def test_a_variable_goes_before_what_is_kept(tmp_path: Path) -> None:
    StoredKeys(tmp_path).set("openrouter", OTHER)
    Login(tmp_path).set_api_key(OPENAI_KEY)
    router, openai = provider("openrouter"), provider("openai")
    assert sent(router, tmp_path, {}) == f"Bearer {OTHER}"
    assert sent(router, tmp_path, {"OPENROUTER_API_KEY": "from-env"}) == "Bearer from-env"
    assert sent(openai, tmp_path, {}) == f"Bearer {OPENAI_KEY}"
    assert sent(openai, tmp_path, {"OPENAI_API_KEY": "from-env"}) == "Bearer from-env"


def test_the_tokens_of_a_client_go_before_a_variable(tmp_path: Path) -> None:
    login = Login(tmp_path)
    login.set_chatgpt_tokens("brought", None)
    assert key_source(provider("openai"), login, {"OPENAI_API_KEY": "from-env"})() == "brought"


def test_no_key_goes_to_another_provider(tmp_path: Path) -> None:
    Login(tmp_path).set_api_key(OPENAI_KEY)
    StoredKeys(tmp_path).set("anthropic", KEY)
    environ = {"OPENAI_API_KEY": "from-env"}
    own = ProviderConfig(id="mine", base_url="http://127.0.0.1:9/v1")
    assert sent(own, tmp_path, environ) == ""
    gateway = ProviderConfig(id="mine", base_url="http://127.0.0.1:9/v1", requires_openai_auth=True)
    assert sent(gateway, tmp_path, environ) == f"Bearer {OPENAI_KEY}"
    with pytest.raises(ModelError, match="treadle login openrouter"):
        sent(provider("openrouter"), tmp_path, environ)


def test_a_provider_of_ones_own_gets_the_key_kept_for_it(tmp_path: Path) -> None:
    StoredKeys(tmp_path).set("mine", OTHER)
    for config in (
        ProviderConfig(id="mine", base_url="http://127.0.0.1:9/v1"),
        ProviderConfig(id="mine", base_url="http://127.0.0.1:9/v1", env_key="NOT_SET"),
        ProviderConfig(id="mine", base_url="http://127.0.0.1:9/v1", requires_openai_auth=True),
    ):
        assert sent(config, tmp_path, {}) == f"Bearer {OTHER}"


def test_where_a_key_comes_from_is_told_without_it(tmp_path: Path) -> None:
    keys, login = StoredKeys(tmp_path), Login(tmp_path)
    keys.set("anthropic", KEY)
    login.set_api_key(OPENAI_KEY)
    mine = ProviderConfig(id="mine", base_url="http://h/v1")

    def found(config: ProviderConfig, environ: Mapping[str, str] | None = None) -> tuple[str, str] | None:
        credential = find_credential(config, login, environ or {})
        shown = repr(credential) + repr(keys) + repr(login)
        assert KEY not in shown
        assert OPENAI_KEY not in shown
        return None if credential is None else (credential.kind, credential.where)

    assert found(provider("anthropic")) == ("file", str(tmp_path / "keys.json"))
    assert found(provider("anthropic"), {"ANTHROPIC_API_KEY": "k"}) == ("variable", "ANTHROPIC_API_KEY")
    assert found(provider("openai")) == ("file", str(tmp_path / "auth.json"))
    assert found(provider("openai"), {"OPENAI_API_KEY": "k"}) == ("variable", "OPENAI_API_KEY")
    assert found(mine) is None
    token = ProviderConfig(id="mine", base_url="http://h/v1", experimental_bearer_token="t")
    assert found(token) == ("config", "model_providers.mine.experimental_bearer_token")
    headers = ProviderConfig(id="mine", base_url="http://h/v1", env_http_headers={"Api-Key": "MINE"})
    assert (found(headers), found(headers, {"MINE": "k"})) == (None, ("variable", "MINE"))
    assert Credential("file", "f", KEY).__rich_repr__() == [("kind", "file"), ("where", "f")]


def test_with_nothing_named_a_kept_key_decides(tmp_path: Path) -> None:
    keys = StoredKeys(tmp_path)
    keys.set("mine", OTHER)  # nobody knows its server
    keys.set("azure", OTHER)  # nor its model
    assert find_key(tmp_path, {}).provider == "offline"
    keys.set("openrouter", OTHER)
    assert find_key(tmp_path, {}) == FoundKey("openrouter", "you are logged in to openrouter")
    keys.set("anthropic", KEY)
    assert find_key(tmp_path, {}) == FoundKey("anthropic", "you are logged in to anthropic")
    assert find_key(tmp_path, {"OPENAI_API_KEY": "k"}).provider == "openai"
    Login(tmp_path).set_api_key(OPENAI_KEY)
    assert find_key(tmp_path, {}) == FoundKey("openai", "you are logged in")
