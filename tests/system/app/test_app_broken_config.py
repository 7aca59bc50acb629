"""Settings that cannot be used: the server is there and says why, and nothing runs with others in their place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kit.app_client import AppClient
from kit.app_program import refused, stdio_server
from kit.in_process import server_here
from treadle.testing import AppServerHarness


@contextmanager
def served(harness: AppServerHarness, **env: str) -> Iterator[AppClient]:
    with stdio_server(harness, env=env) as program:
        program.client.initialize(experimentalApi=True)
        yield program.client
        program.hang_up()
        program.client.read_to_end()
        assert program.wait() == 0
        assert "Traceback" not in program.stderr, program.stderr


BROKEN = [
    ('\nmodel = "x', (2, 11), "it is no TOML"),
    ("= 5\n", (1, 1), "it is no TOML"),
    ("\n  model = 5\n", (2, 3), "model: found 5, allowed is a text"),
    ('sandbox_mode = "none"\n', (1, 1), "sandbox_mode: found `none`, allowed is one of `read-only`"),
    ('approval_policy = "sometimes"\n', (1, 1), "approval_policy: found `sometimes`, allowed is one of `untrusted`"),
    ('model_provider = "nope"\n', (1, 1), "model_provider: there is no provider `nope`"),
    (
        'model_provider = "x"\n[model_providers.x]\nbase_url = "localhost:1/v1"\n',
        (3, 1),
        "model_providers.x.base_url: it is no http or https URL",
    ),
    ('model = "\udcff"\n', (1, 10), "it is not UTF-8"),
]


@pytest.mark.parametrize(("text", "place", "says"), BROKEN)
def test_no_thread_starts(harness: AppServerHarness, text: str, place: tuple[int, int], says: str) -> None:
    path = harness.home / "config.toml"
    good = path.read_text()
    path.write_text(text, errors="surrogateescape")
    full = f"{path}:{place[0]}:{place[1]}: {says}"
    with server_here(harness) as here:
        client = here.connect(experimentalApi=True)
        warning = client.wait_for("configWarning")["params"]
        assert warning["summary"].startswith("Invalid configuration")
        assert warning["details"].startswith(full)
        assert warning["path"] == str(path)
        assert warning["range"]["start"] == {"line": place[0], "column": place[1]}
        for method, params in (
            ("thread/start", {}),
            ("command/exec", {"command": ["true"]}),
            ("process/spawn", {"command": ["true"], "cwd": "/", "processHandle": "p"}),
            ("config/read", {}),
        ):
            error = client.failure(method, params)
            assert error["code"] == -32600
            assert error["message"].startswith(f"failed to load configuration: {full}"), method
        assert error["data"]["configProblems"][0]["line"] == place[0]
        # What shows a person around does not need the settings.
        assert client.call("model/list")["data"]
        assert client.call("account/read")["account"] is None
        path.write_text(good)
        assert client.call("thread/start")["model"] == "mock-model"


def test_every_problem_is_told(harness: AppServerHarness) -> None:
    path = harness.home / "config.toml"
    path.write_text('sandbox_mode = "foo"\napproval_policy = "sometimes"\n' + path.read_text().partition("\n\n")[2])
    with served(harness) as client:
        error = client.failure("thread/start")
        details = [warning["params"]["details"] for warning in client.of("configWarning")]
        assert [text.split(": ")[1] for text in details] == ["sandbox_mode", "approval_policy"]
        assert error["message"].endswith("\n".join(details))


def test_a_thread_goes_on_when_the_file_breaks_under_it(harness: AppServerHarness) -> None:
    """As with the real one: it has its settings, and what is new is refused."""
    path = harness.home / "config.toml"
    harness.model.enqueue_assistant_message("still here")
    with served(harness) as client:
        thread = client.start_thread()
        good = path.read_text()
        path.write_text("= 5")
        assert client.failure("config/read")["code"] == -32600
        assert "it is no TOML" in client.failure("thread/start")["message"]
        path.write_text(good.replace('sandbox_mode = "', 'sandbox_mode = "not-'))
        assert client.failure("config/read")["code"] == -32600
        assert "sandbox_mode" in client.failure("thread/start")["message"]
        assert client.run(thread, "there?")["status"] == "completed"
        write = {"keyPath": "sandbox_mode", "value": "read-only", "mergeStrategy": "replace"}
        assert client.call("config/value/write", write)["status"] == "ok"
        assert client.start_thread()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"sandbox_mode": "foo"}, "the configuration of the thread: sandbox_mode: found `foo`, allowed is one of"),
        ({"approval_policy": "sometimes"}, "approval_policy: found `sometimes`, allowed is one of"),
        ({"model_provider": "nope"}, "model_provider: there is no provider `nope`"),
        ({"model_providers.x.base_url": "nowhere", "model_provider": "x"}, "base_url: it is no http or https URL"),
        ({"a..b": 1}, "it is no dotted key"),
    ],
)
def test_a_thread_with_settings_that_cannot_be_used(
    harness: AppServerHarness, config: dict[str, str], says: str
) -> None:
    with server_here(harness) as here:
        error = here.connect().failure("thread/start", {"config": config})
        assert error["code"] == -32600
        assert says in error["message"]


@pytest.mark.parametrize(
    ("setting", "listen"),
    [
        ("sandbox_mode=foo", "stdio://"),
        ("model_provider=nope", "ws://127.0.0.1:0"),
        ("novalue", "stdio://"),
        ("a..b=1", "ws://127.0.0.1:0"),
    ],
)
def test_a_wrong_setting_of_the_command_line_is_no_start(harness: AppServerHarness, setting: str, listen: str) -> None:
    text = refused(harness, "--listen", listen, "-c", setting, code=2)
    assert "\n  why: -c: " in text
    assert text.count("\n") == 3


def test_a_model_without_a_key_fails_the_turn_with_what_to_do(harness: AppServerHarness) -> None:
    (harness.home / "config.toml").write_text('model = "gpt-5.5"\n')
    with served(harness, OPENAI_API_KEY="", OPENAI_BASE_URL="") as client:
        started = client.call("thread/start")
        assert (started["model"], started["modelProvider"]) == ("gpt-5.5", "openai")
        turn = client.run(started["thread"]["id"], "hello")
        assert turn["status"] == "failed"
        assert "OPENAI_API_KEY" in turn["error"]["message"]
        assert "treadle login openai" in turn["error"]["message"]


def test_a_model_of_a_thread_or_a_turn_is_never_the_offline_one(harness: AppServerHarness) -> None:
    (harness.home / "config.toml").write_text("")
    with served(harness, OPENAI_API_KEY="", OPENAI_BASE_URL="") as client:
        assert client.call("thread/start", {"model": "gpt-5.5"})["modelProvider"] == "openai"
        thread = client.call("thread/start")["thread"]
        assert thread["modelProvider"] == "offline"
        turn = client.turn_end(client.begin(thread["id"], "hello", model="gpt-5.5"))
        assert turn["status"] == "failed"
        assert "no model `gpt-5.5`" in turn["error"]["message"]


def test_the_key_of_the_environment_is_used(harness: AppServerHarness) -> None:
    """With nothing configured, and for the built-in provider alone."""
    (harness.home / "config.toml").write_text("")
    harness.model.enqueue_assistant_message("hello")
    with served(harness, OPENAI_API_KEY="sk-of-the-environment", OPENAI_BASE_URL=harness.model.base_url) as client:
        started = client.call("thread/start")
        assert started["modelProvider"] == "openai"
        assert client.run(started["thread"]["id"], "hi")["status"] == "completed"
    assert harness.model.single_request().headers["authorization"] == "Bearer sk-of-the-environment"
    kept = b"".join(path.read_bytes() for path in harness.home.rglob("*") if path.is_file())
    assert b"sk-of-the-environment" not in kept
