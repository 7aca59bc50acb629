"""`treadle login`, `logout` and `login status` as programs: what is kept, what is sent, and that no key is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from system.test_cli_run import DEADLINE, Stage
from system.test_cli_run_terminal import Terminal, start
from treadle.config import load_config
from treadle.testing import MockModel

KEY = "sk-test-s3cret-key-0123456789"
OTHER = "or-s3cret-key-0123456789"
VARIABLES = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    for name in VARIABLES:
        stage.env.pop(name, None)
    return stage


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.close()


def configure(stage: Stage, model: MockModel) -> None:
    stage.home.mkdir(mode=0o700, exist_ok=True)
    table = f'[model_providers.mine]\nbase_url = "{model.base_url}"\nwire_api = "chat"\n'
    (stage.home / "config.toml").write_text(f'model_provider = "mine"\nmodel = "m"\n{table}')


def test_a_key_from_standard_input_is_kept_and_used(stage: Stage) -> None:
    with MockModel() as model:
        configure(stage, model)
        done = stage.run("login", "mine", "--check", stdin=f"{KEY}\n")
        assert done.returncode == 1, "nothing was queued"
        model.enqueue_assistant_message("ok")
        done = stage.run("login", "mine", "--with-key", "--check", stdin=f"{KEY}\n")
        assert done.returncode == 0, done.stderr
        assert "the key for mine is stored in" in done.stdout
        assert 'next: treadle exec "look around"' in done.stdout
        assert "m answers" in done.stdout
        assert KEY not in done.stdout + done.stderr
        model.enqueue_assistant_message("Hello.")
        assert stage.run("exec", "hi").stdout == "Hello.\n"
        assert {request.header("authorization") for request in model.requests()} == {f"Bearer {KEY}"}
    kept = stage.home / "keys.json"
    assert json.loads(kept.read_text()) == {"mine": KEY}
    assert kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("key", [KEY, "nothing-that-looks-like-one", "two words"])
def test_a_key_on_the_command_line_is_refused_and_not_repeated(stage: Stage, key: str) -> None:
    done = stage.run("login", "openai", key)
    assert (done.returncode, done.stdout) == (2, "")
    assert key not in done.stderr
    assert "every user of this machine can read it there" in done.stderr
    assert not (stage.home / "auth.json").exists()


def test_what_follows_the_status_may_be_a_key_too(stage: Stage) -> None:
    done = stage.run("login", "status", KEY)
    assert (done.returncode, done.stdout) == (2, "")
    assert KEY not in done.stderr
    assert "try: treadle login PROVIDER, which asks for the key" in done.stderr


def test_a_key_that_is_not_accepted_is_told_with_what_to_type(stage: Stage) -> None:
    with MockModel() as model:
        configure(stage, model)
        model.enqueue_error(401, {"error": {"message": f"bad key {KEY}"}})
        done = stage.run("login", "mine", "--check", stdin=KEY)
    what, why, do = done.stderr.splitlines()
    assert done.returncode == 1
    assert what == "treadle login: the key is stored, but mine cannot be used with it"
    assert "401" in why
    assert do == "  try: treadle login mine"
    assert KEY not in done.stdout + done.stderr


def test_a_prompt_does_not_show_what_is_typed(stage: Stage, terminal: Terminal) -> None:
    with start(stage, terminal, "login", "openai") as program:
        terminal.wait_for("Key for openai")
        terminal.type(KEY.encode() + b"\n")
        terminal.wait_for("Try it with a tiny request?")
        terminal.type(b"n\n")
        terminal.read_to_end()
        assert program.wait(timeout=DEADLINE) == 0
    assert KEY not in terminal.text
    assert json.loads((stage.home / "auth.json").read_text())["OPENAI_API_KEY"] == KEY
    assert (stage.home / "auth.json").stat().st_mode & 0o777 == 0o600


def test_ctrl_c_at_the_prompt_keeps_nothing(stage: Stage, terminal: Terminal) -> None:
    with start(stage, terminal, "login") as program:
        terminal.wait_for("Which provider")
        terminal.type(b"anthropic\n")
        terminal.wait_for("Key for anthropic")
        terminal.type(b"\x03")
        terminal.read_to_end()
        assert program.wait(timeout=DEADLINE) == 130
    assert not stage.home.exists()
    assert "Traceback" not in terminal.text


def test_config_init_asks_three_questions(stage: Stage, terminal: Terminal) -> None:
    with start(stage, terminal, "config", "init") as program:
        for question, answer in (
            ("Which provider is asked?", b"2\n"),
            ("What may commands do?", b"nonsense\nworkspace-write\n"),
            ("When are you asked?", b"\n"),
        ):
            terminal.wait_for(question)
            terminal.type(answer)
        terminal.read_to_end()
        assert program.wait(timeout=DEADLINE) == 0
    assert "'nonsense' is none of them" in terminal.text
    assert terminal.text.count("?") == 3
    assert "next: treadle login anthropic" in terminal.text
    config = load_config(stage.home, environ={}).config
    assert (config.model_provider, config.sandbox_mode, config.approval_policy) == (
        "anthropic",
        "workspace-write",
        "on-request",
    )


def test_the_status_says_where_keys_are_and_never_a_key(stage: Stage) -> None:
    done = stage.run("login", "status")
    assert (done.returncode, done.stderr) == (1, "")
    assert "– openai      no key; treadle login openai\n" in done.stdout
    assert "in use: offline, because" in done.stdout
    stage.run("login", "openai", stdin=KEY)
    stage.run("login", "openrouter", stdin=OTHER)
    stage.env["ANTHROPIC_API_KEY"] = "sk-ant-another-s3cret"
    done = stage.run("login", "status")
    assert done.returncode == 0
    assert f"✓ openai      key in the file {stage.home / 'auth.json'}\n" in done.stdout
    assert "✓ anthropic   key in the variable ANTHROPIC_API_KEY\n" in done.stdout
    shown = stage.run("login", "status", "--json").stdout
    found = {key["provider"]: (key["source"], key["used"]) for key in json.loads(shown)["providers"]}
    assert found["openrouter"] == ("file", False)
    assert found["anthropic"] == ("variable", True)
    assert found["ollama"] == (None, False)
    for part in (KEY[-8:], OTHER[-8:], "another-s3cret"):
        assert part not in done.stdout + shown


def test_a_variable_that_goes_before_what_is_kept_is_named(stage: Stage) -> None:
    done = stage.run("login", "openai", stdin=KEY, OPENAI_API_KEY="sk-from-the-environment")
    assert "but OPENAI_API_KEY is set in your environment, and goes before it" in done.stdout
    done = stage.run("logout", OPENAI_API_KEY="sk-from-the-environment")
    assert (
        done.stdout
        == "the key for openai is forgotten\n  OPENAI_API_KEY is still set in your environment: unset OPENAI_API_KEY\n"
    )


def test_logout_forgets_what_it_is_told_to(stage: Stage) -> None:
    for name, key in (("openai", KEY), ("anthropic", KEY), ("openrouter", OTHER)):
        assert stage.run("login", name, stdin=key).returncode == 0
    assert stage.run("logout").returncode == 2
    assert stage.run("logout", "anthropic").returncode == 0
    assert stage.run("logout", "anthropic").returncode == 1
    assert json.loads((stage.home / "keys.json").read_text()) == {"openrouter": OTHER}
    assert stage.run("logout", "--all").returncode == 0
    assert not (stage.home / "auth.json").exists()
    assert OTHER not in (stage.home / "keys.json").read_text()
    assert stage.run("login", "status").returncode == 1
