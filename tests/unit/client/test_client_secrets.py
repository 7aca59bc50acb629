"""What a `repr`, a pickle or an error of the SDK shows, and what it does not."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import pickle
from typing import Any

import pytest

from treadle.client import (
    AppServerClient,
    AsyncAppServerClient,
    AsyncCodex,
    AsyncThread,
    AsyncTurnHandle,
    ChatgptLoginHandle,
    CodexConfig,
    CodexError,
    DeviceCodeLoginHandle,
    EventsLost,
    MissingMetadata,
    OutputError,
    RequestTimeout,
    Thread,
    TransportClosedError,
    TurnConflict,
    TurnFailed,
    TurnHandle,
    rpc_error,
)
from treadle.secrets import kept_url

SECRET = "s3cr3t-of-the-house"

SECRET_OVERRIDES = [
    f'model_providers.house.experimental_bearer_token="{SECRET}"',
    f'model_providers.house.http_headers={{Authorization = "Bearer {SECRET}"}}',
    f'model_providers.house.http_headers={{"X-Api-Key" = "{SECRET}"}}',
    f'model_providers.house.query_params={{code = "{SECRET}"}}',
    f'mcp_servers.house.env={{API_KEY = "{SECRET}"}}',
    f'mcp_servers.house={{command = "x", env = {{TOKEN = "{SECRET}"}}}}',
]


def full() -> CodexConfig:
    return CodexConfig(
        url="ws://127.0.0.1:1",
        token=SECRET,
        env={"HOUSE_API_KEY": SECRET, "HOUSE_PASSWORD": SECRET, "LANG": "C"},
        config_overrides=(*SECRET_OVERRIDES[:1], "model=gpt"),
        cwd="/somewhere",
        request_timeout=5.0,
    )


# --- configs ---


def test_the_repr_of_a_config_shows_no_secret() -> None:
    shown = repr(full())
    assert SECRET not in shown
    for word in ("ws://127.0.0.1:1", "HOUSE_API_KEY", "'LANG': '…'", "experimental_bearer_token", "model=gpt"):
        assert word in shown


def test_a_pickle_of_a_config_holds_no_secret_and_all_the_rest() -> None:
    data = pickle.dumps(full())
    assert SECRET.encode() not in data
    found = pickle.loads(data)
    assert found == CodexConfig(
        url="ws://127.0.0.1:1",
        env={"LANG": "C"},
        config_overrides=("model=gpt",),
        cwd="/somewhere",
        request_timeout=5.0,
    )


@pytest.mark.parametrize("override", SECRET_OVERRIDES)
def test_an_override_that_sets_a_secret_is_not_shown(override: str) -> None:
    config = CodexConfig(config_overrides=(override,))
    assert SECRET not in repr(config)
    assert SECRET.encode() not in pickle.dumps(config)


@pytest.mark.parametrize("name", ["SERVICE_KEY", "MY_SECRET", "GITHUB_TOKEN", "PGPASSWORD", "PGPASSFILE_PASSWD"])
def test_variables_with_a_telling_name_are_not_shown(name: str) -> None:
    config = CodexConfig(env={name: SECRET})
    assert SECRET not in repr(config)
    assert SECRET.encode() not in pickle.dumps(config)


@pytest.mark.parametrize("value", ["sk-proj-abcdefgh12345678", "Bearer abcdefgh12345678", "ghp_abcdefgh12345678"])
def test_values_of_the_shape_of_a_key_are_not_shown(value: str) -> None:
    """Whatever they are called; in a command line, too."""
    for config in (CodexConfig(env={"HARMLESS": value}), CodexConfig(launch_args_override=("codex", "-c", value))):
        assert "abcdefgh12345678" not in repr(config)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, dataclasses.replace])
def test_a_copy_of_a_config_is_whole(duplicate: Any) -> None:
    """It stays in the process, so it has no reason to lose the token."""
    assert duplicate(full()) == full()


# --- clients and what hangs on them ---


def test_clients_show_nothing_and_cannot_be_pickled() -> None:
    codex = AsyncCodex(full())
    blocking = AppServerClient(full())
    things = [
        codex,
        blocking,
        AsyncAppServerClient(full()),
        AsyncThread(codex, "thread"),
        AsyncTurnHandle(codex, "thread", "turn"),
        Thread(blocking, "thread"),
        TurnHandle(blocking, "thread", "turn"),
    ]
    for thing in things:
        assert SECRET not in repr(thing)
        with pytest.raises(TypeError, match="cannot be pickled: pickle its CodexConfig"):
            pickle.dumps(thing)


def test_handles_show_what_they_are_and_nothing_else() -> None:
    client, codex = AppServerClient(full()), AsyncCodex(full())
    assert repr(Thread(client, "thread-1")) == "Thread(id='thread-1')"
    assert repr(AsyncThread(codex, "thread-1")) == "AsyncThread(id='thread-1')"
    assert repr(TurnHandle(client, "thread-1", "turn-1")) == "TurnHandle(thread_id='thread-1', id='turn-1')"
    assert repr(AsyncTurnHandle(codex, "t", "turn-1")) == "AsyncTurnHandle(thread_id='t', id='turn-1')"
    assert repr(ChatgptLoginHandle(client, "1", f"https://x/?state={SECRET}")) == "ChatgptLoginHandle(login_id='1')"
    device = DeviceCodeLoginHandle(client, "1", "https://x/device", SECRET)
    assert repr(device) == "DeviceCodeLoginHandle(login_id='1', verification_url='https://x/device')"


@pytest.mark.parametrize(
    "url", [f"ws://127.0.0.1:1/{SECRET}", f"wss://me:{SECRET}@x:1", f"ws://127.0.0.1:1?t={SECRET}"]
)
def test_an_address_is_shown_without_what_may_be_a_secret(url: str) -> None:
    config = CodexConfig(url=url)
    assert SECRET not in repr(config)
    assert "://" in repr(config)
    with pytest.raises(CodexError) as caught:
        AppServerClient(config).start()
    assert SECRET not in str(caught.value)
    with pytest.raises(CodexError) as caught:
        asyncio.run(AsyncAppServerClient(config).start())
    assert SECRET not in str(caught.value)


# --- errors ---

ERRORS = [
    CodexError("a"),
    TransportClosedError("gone", exit_code=7, stderr_tail="last words"),
    rpc_error(-32600, "no", {"why": "because"}),
    rpc_error(-32001, "busy"),
    rpc_error(5, "odd"),
    TurnFailed("failed", None),
    TurnConflict("in use"),
    MissingMetadata("who?"),
    RequestTimeout("late"),
    EventsLost("lost"),
    OutputError("wrong shape", "the text"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("again", [lambda it: pickle.loads(pickle.dumps(it)), copy.copy], ids=["pickle", "copy"])
def test_errors_survive_a_pickle(error: CodexError, again: Any) -> None:
    """As they must when a worker process reports them."""
    found = again(error)
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)


def test_a_token_without_a_url_is_refused_without_showing_it() -> None:
    with pytest.raises(CodexError) as caught:
        CodexConfig(token=SECRET).check()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        (f"ws://127.0.0.1:4500/{'0a' * 32}", "ws://127.0.0.1:4500"),
        (f"ws://[::1]:4500/{'0a' * 32}/", "ws://[::1]:4500"),
        ("wss://host/exec/v1", "wss://host/exec/v1"),
        ("ws://host", "ws://host"),
        (f"unix:///run/{'0a' * 32}", f"unix:///run/{'0a' * 32}"),
    ],
)
def test_a_url_is_kept_without_the_secret_of_a_server(url: str, kept: str) -> None:
    assert kept_url(url) == kept
