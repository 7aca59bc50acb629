"""The login: keys, tokens, odd files, and that nothing secret is shown."""

from __future__ import annotations

import json
import os
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.config import ConfigError, Login
from treadle.protocol.app import ApiKeyAccount, ChatgptAccount

KEY = "sk-s3cret-key"


def jwt(claims: Any) -> str:
    body = urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


def test_nobody_is_logged_in_at_first(tmp_path: Path) -> None:
    login = Login(tmp_path)
    assert (login.api_key(), login.account(), login.auth_mode(), login.warning()) == (None, None, None, None)
    assert not login.logout()


def test_a_key_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    login = Login(home)
    login.set_api_key(f" {KEY}\n")
    assert json.loads((home / "auth.json").read_text()) == {"auth_mode": "apikey", "OPENAI_API_KEY": KEY}
    assert (home / "auth.json").stat().st_mode & 0o777 == 0o600
    for each in (login, Login(home)):
        assert (each.api_key(), each.account(), each.auth_mode()) == (KEY, ApiKeyAccount(), "apikey")
        assert each.plan_type() is None
    assert os.listdir(home) == ["auth.json"]


def test_a_key_that_replaces_another_makes_the_file_private(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text("{}")
    (tmp_path / "auth.json").chmod(0o644)
    Login(tmp_path).set_api_key(KEY)
    assert (tmp_path / "auth.json").stat().st_mode & 0o777 == 0o600


def test_a_login_of_another_program_is_seen(tmp_path: Path) -> None:
    login, other = Login(tmp_path), Login(tmp_path)
    assert login.api_key() is None
    other.set_api_key(KEY)
    assert login.api_key() == KEY
    other.set_api_key(KEY + "-2")
    assert login.api_key() == KEY + "-2"
    other.logout()
    assert login.api_key() is None


def test_logout_forgets_everything(tmp_path: Path) -> None:
    login = Login(tmp_path)
    login.set_api_key(KEY)
    login.set_chatgpt_tokens("a.b.c", "account")
    assert login.logout()
    assert (login.api_key(), login.account()) == (None, None)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("key", ["", "  ", "a b", "a\nb", "kéy", "a\0"])
def test_what_is_no_key_is_refused_and_not_repeated(tmp_path: Path, key: str) -> None:
    login = Login(tmp_path)
    with pytest.raises(ConfigError, match="copy it again") as caught:
        login.set_api_key(key)
    assert key.strip() == "" or key not in str(caught.value)
    with pytest.raises(ConfigError, match="access token"):
        login.set_chatgpt_tokens(key, None)
    assert os.listdir(tmp_path) == []


def test_tokens_of_a_client_say_who_it_is_and_are_not_written(tmp_path: Path) -> None:
    token = jwt({"email": "a@b.c", "https://api.openai.com/auth": {"chatgpt_plan_type": "pro"}})
    login = Login(tmp_path)
    login.set_api_key(KEY)
    login.set_chatgpt_tokens(token, "account")
    assert (login.api_key(), login.account_id(), login.auth_mode()) == (token, "account", "chatgptAuthTokens")
    assert login.account() == ChatgptAccount(plan_type="pro", email="a@b.c")
    assert token not in (tmp_path / "auth.json").read_text()
    login.set_chatgpt_tokens(token, "account", "team")
    assert login.plan_type() == "team"
    login.set_api_key(KEY)
    assert login.account() == ApiKeyAccount()


def test_claims_may_be_in_other_places(tmp_path: Path) -> None:
    claims = {
        "https://api.openai.com/profile": {"email": "a@b.c"},
        "https://api.openai.com/auth": {"chatgpt_account_id": "from-claims"},
    }
    login = Login(tmp_path)
    login.set_chatgpt_tokens(jwt(claims), None)
    assert login.account() == ChatgptAccount(plan_type="unknown", email="a@b.c")
    assert login.account_id() == "from-claims"


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["email", "https://api.openai.com/auth", "https://api.openai.com/profile", "chatgpt_plan_type"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@given(JSON.map(jwt) | st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1))
def test_any_token_has_an_account(token: str) -> None:
    login = Login(Path("/nonexistent"))
    login.set_chatgpt_tokens(token, "account")
    account = login.account()
    assert isinstance(account, ChatgptAccount)
    assert isinstance(account.plan_type, str)
    assert account.email is None or isinstance(account.email, str)


def test_the_chatgpt_login_of_codex_is_read(tmp_path: Path) -> None:
    tokens = {
        "id_token": jwt({"email": "a@b.c", "https://api.openai.com/auth": {"chatgpt_plan_type": "plus"}}),
        "access_token": jwt({}),
        "refresh_token": "r",
        "account_id": "account",
    }
    stored = {"auth_mode": "chatgpt", "OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": "2026-01-01"}
    (tmp_path / "auth.json").write_text(json.dumps(stored))
    login = Login(tmp_path)
    assert login.account() == ChatgptAccount(plan_type="plus", email="a@b.c")
    assert (login.api_key(), login.account_id()) == (tokens["access_token"], "account")
    (tmp_path / "auth.json").write_text(json.dumps({**stored, "auth_mode": None, "OPENAI_API_KEY": KEY}))
    assert login.api_key() == KEY


@pytest.mark.parametrize(
    ("stored", "warned"),
    [
        (b"", True),
        (b"{", True),
        (b"[]", True),
        (b"\xff", True),
        (b'{"OPENAI_API_KEY": 1}', True),
        (b'{"tokens": "sk-s3cret-key"}', True),
        (b"[" * 100_000, True),
        (b"{}", False),
        (b'{"OPENAI_API_KEY": " "}', False),
        (b'{"auth_mode": "chatgpt", "OPENAI_API_KEY": "sk"}', False),
        (b'{"auth_mode": "new", "OPENAI_API_KEY": "sk"}', False),
        (b'{"tokens": {}}', False),
    ],
)
def test_an_odd_file_is_no_login(tmp_path: Path, stored: bytes, warned: bool) -> None:
    (tmp_path / "auth.json").write_bytes(stored)
    login = Login(tmp_path)
    assert (login.api_key(), login.account()) == (None, None)
    assert (login.warning() is not None) == warned
    assert KEY not in str(login.warning())
    login.set_api_key(KEY)
    assert (login.api_key(), login.warning()) == (KEY, None)


def test_a_directory_or_a_pipe_is_no_login(tmp_path: Path) -> None:
    (tmp_path / "auth.json").mkdir()
    login = Login(tmp_path)
    assert login.api_key() is None
    assert login.warning() is not None
    with pytest.raises(ConfigError, match="cannot be stored"):
        login.set_api_key(KEY)
    with pytest.raises(ConfigError, match="cannot be removed"):
        login.logout()
    (tmp_path / "auth.json").rmdir()
    os.mkfifo(tmp_path / "auth.json")
    assert login.api_key() is None


def test_nothing_secret_is_shown(tmp_path: Path) -> None:
    login = Login(tmp_path)
    login.set_api_key(KEY)
    login.api_key()
    token = jwt({"email": "a@b.c"})
    login.set_chatgpt_tokens(token, "account")
    shown = repr(login) + repr(vars(login)) + repr(login.account())
    assert KEY not in shown
    assert token not in shown
