"""What people's commands can meet: every error is what, why and what to type; no traceback, no secret.

A row is a command line and what has to be in its three lines. `{home}` and `{port}` stand for the home, and a port that
is taken.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from system.test_cli_models import listing
from system.test_cli_run import DEADLINE, Stage
from treadle.cli import main
from treadle.testing import MockModel

SECRET = "very-s3cret-value"
VARIABLES = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL", "TREADLE_MODEL", "CODEX_HOME")


def broken_toml(home: Path) -> None:
    (home / "config.toml").write_text('model = "a"\nsandbox_mode = [\n')


def wrong_value(home: Path) -> None:
    (home / "config.toml").write_text('sandbox_mode = "loose"\n')


def warned(home: Path) -> None:
    (home / "config.toml").write_text("modle = 1\n")


def no_database(home: Path) -> None:
    (home / "threads.db").mkdir()


def other_database(home: Path) -> None:
    (home / "threads.db").write_text("this is no database " * 100)


def odd_files(home: Path) -> None:
    (home / "schema.json").write_text("{")
    (home / "token").write_text("two words")
    (home / "token").chmod(0o600)


class Row(NamedTuple):
    """`told` are parts of what, why and what to type."""

    words: str
    code: int
    told: tuple[str, str, str]
    before: Callable[[Path], None] = lambda home: None


def told(what: str, why: str, do: str) -> tuple[str, str, str]:
    return what, why, do


NO_SUCH_THREAD = "0199a213-81c0-7800-8aa1-bbab2a035a53"
ROWS = [
    # words
    Row("exce hi", 2, told("there is no command 'exce'", "the commands are exec", "treadle exec")),
    Row("config shwo", 2, told("there is no command 'shwo'", "the commands are", "treadle config show")),
    Row("exec --sandbx x hi", 2, told("there is no option --sandbx", "does not know it", "did you mean --sandbox?")),
    Row("exec --sandbox x hi", 2, told("--sandbox cannot be used", "'x' is not one of 'read-only'", "exec --help")),
    Row("config get", 2, told("missing argument 'KEY'", "treadle config get [OPTIONS] KEY", "config get --help")),
    Row("exec one two", 2, told("too many words", "there is also 'two'", "put quotes around it")),
    Row("exec --oss hi", 2, told("--oss is not offered", "codex has it", "-c model_provider=ollama")),
    Row("exec resume", 2, told("which thread?", "no id behind resume", "treadle exec resume ID")),
    Row("doctor nix", 2, told("there is no engine 'nix'", "there are codex", "treadle doctor")),
    Row("run -e nix hi", 2, told("'nix'", "there are codex", "treadle engines")),
    Row("run --resume nix hi", 2, told("'nix' is no session", "no engine writes them so", "give ENGINE:ID")),
    Row("app-server --nix", 2, told("unrecognized arguments: --nix", "usage: treadle app-server", "--help")),
    # settings
    Row("exec hi", 2, told("settings cannot be used", "config.toml:3:1: it is no TOML", "correct line 3"), broken_toml),
    Row("exec hi", 2, told("settings cannot be used", "config.toml:1:1: sandbox_mode", "correct line 1"), wrong_value),
    Row("config check", 2, told("settings cannot be used", "found `loose`", "treadle config check"), wrong_value),
    Row("exec --strict-config hi", 2, told("no effect", "did you mean `model`", "without --strict-config"), warned),
    Row("exec -c sandbox_mode=x hi", 2, told("settings cannot be used", "-c: sandbox_mode", "correct that -c")),
    Row("app-server -c model=3", 2, told("settings cannot be used", "-c: model: found 3", "correct that -c")),
    Row("config set sandbox_mode x", 2, told("was not changed", "found `x`, allowed is", "treadle config show --all")),
    Row("config init", 2, told("nobody to answer", "not a terminal", "--yes")),
    Row("config init --yes", 2, told("there is a {home}/config.toml", "not written over", "--force"), wrong_value),
    # models and keys
    Row("exec -m gpt-5.5 hi", 1, told("gpt-5.5 cannot be asked", "no key for OpenAI", "treadle login openai, or set")),
    Row(
        "exec -c model_provider=anthropic hi",
        1,
        told("cannot be asked", "ANTHROPIC_API_KEY", "treadle login anthropic"),
    ),
    Row("exec -c model_provider=nix hi", 1, told("model cannot be used", "no provider `nix`", "treadle login status")),
    Row("exec -c model_provider=azure hi", 1, told("model cannot be used", "where your server is", "treadle login")),
    Row("models --provider nix", 1, told("model cannot be used", "no provider `nix`", "treadle login status")),
    Row("models --provider refusing", 1, told("refusing does not list its models", "401", "treadle login refusing")),
    Row("models --provider absent", 1, told("absent does not list", "refuses connections", "start the server at http")),
    Row("login", 2, told("which provider is the key for?", "there are openai", "treadle login PROVIDER")),
    Row(
        "login nix", 2, told("there is no provider 'nix'", "there are openai", "treadle config set model_providers.nix")
    ),
    Row(f"login sk-{SECRET}", 2, told("does not belong on the command line", "every user", "treadle login PROVIDER")),
    Row("login nix 0ld-f00", 2, told("does not belong on", "every user", "treadle login nix, which asks for the key")),
    Row("login openai", 2, told("there is no key for openai", "standard input is empty", "treadle login openai")),
    Row("logout", 1, told("nothing to forget", "no key is stored in {home}", "treadle login status")),
    # files and threads
    Row("exec --image gone.png -- hi", 2, told("gone.png cannot be read", "No such file", "--image FILE")),
    Row("exec --output-schema gone hi", 2, told("gone cannot be read", "No such file", "--output-schema FILE")),
    Row("exec --output-schema {home}/schema.json hi", 2, told("is no JSON", "line 1", "json.tool"), odd_files),
    Row("exec --cd gone hi", 2, told("gone is no directory", "does not exist", "--cd DIR")),
    Row("exec -o gone/out hi", 2, told("gone/out cannot be written", "its directory is not there", "-o FILE")),
    Row(f"exec resume {NO_SUCH_THREAD} hi", 1, told("cannot be resumed", "no rollout found", "resume --last")),
    Row(
        "exec resume nix hi", 1, told("there is no thread called 'nix'", "neither the id nor the name", "resume --last")
    ),
    Row("exec hi", 2, told("refused it", "{home}/threads.db", "treadle doctor"), no_database),
    Row("exec hi", 2, told("refused it", "threads.db is no database", "treadle doctor"), other_database),
    # servers
    Row("app-server --listen nix", 1, told("--listen cannot be used", "'nix' is not an address", "ws://127.0.0.1:0")),
    Row("app-server --listen ws://127.0.0.1:{port}", 1, told("cannot listen", "Address already in use", "a free port")),
    Row("exec-server --listen ws://127.0.0.1:{port}", 1, told("cannot listen", "already in use", "a free port")),
    Row(
        "exec-server --listen ws://127.0.0.1:0 --token-file {home}/token",
        1,
        told("the token file {home}/token cannot be used", "one word", "openssl rand -hex 32"),
        odd_files,
    ),
]


@pytest.fixture(scope="module")
def refusing() -> Iterator[str]:
    with listing(401) as (url, _):
        yield url


@pytest.fixture(scope="module")
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MY_SECRET_KEY", SECRET)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.words.replace(" ", "_"))
def test_what_why_and_what_to_type(
    row: Row,
    home: Path,
    refusing: str,
    taken: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    row.before(home)
    filled = row.words.format(home=home, port=taken)
    words = filled.split() + _providers(filled, refusing)
    if words[0].endswith("-server"):  # it changes its process: signals, memory, logging
        done = subprocess.run(
            [sys.executable, "-m", "treadle", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        code, error = done.returncode, done.stderr
    else:
        with open("/dev/null") as nothing:
            monkeypatch.setattr("sys.stdin", nothing)
            code = main(words)
        error = capfd.readouterr().err
    assert code == row.code
    lines = error.splitlines()
    assert [line[:7] for line in lines] == ["treadle", "  why: ", "  try: "], error
    for line, part in zip(lines, row.told, strict=True):
        assert part.format(home=home) in line
    assert SECRET not in error


def _providers(words: str, refusing: str) -> list[str]:
    """For the rows that ask one."""
    if not words.startswith("models --provider") or words.endswith("nix"):
        return []
    tables = {"refusing": refusing, "absent": "http://127.0.0.1:9/v1"}
    return [word for name, url in tables.items() for word in ("-c", f"model_providers.{name}.base_url={url}")]


def test_debug_adds_the_traceback_without_secrets(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    token = "another-s3cret-value"
    words = ["-c", f"model_providers.x.experimental_bearer_token={token}", "-c", f"model_provider={token}"]
    (home / "keys.json").write_text('{"x": "kept-s3cret-value"}')
    plain = ["models", *words]
    assert main(plain) == 1
    assert "Traceback" not in capfd.readouterr().err
    assert main([*plain, "--debug"]) == 1
    error = capfd.readouterr().err
    assert "Traceback (most recent call last)" in error
    assert "s3cret" not in error
    assert main(["models", "--provider", "kept-s3cret-value", "--debug"]) == 1
    assert "s3cret" not in capfd.readouterr().err


def test_an_error_that_nobody_thought_of_is_a_bug_and_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError(f"odd {SECRET}")

    monkeypatch.setattr("treadle.cli.setup.provider_status.load_config", fail)
    assert main(["models"]) == 1
    error = capfd.readouterr().err
    assert error.splitlines() == [
        "treadle models: this is a bug in Treadle",
        "  why: ZeroDivisionError: odd [redacted]",
        "  try: the same again with --debug, and report what it prints",
    ]


def test_a_home_that_is_none_and_a_program_that_is_not_there(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    (tmp_path / "file").touch()
    stage.env["PATH"] = str(stage.programs)
    for words, env, parts in (
        (["exec", "hi"], {"TREADLE_HOME": str(tmp_path / "file")}, ("is not a directory", "TREADLE_HOME")),
        (["run", "-e", "codex", "hi"], {}, ("codex was not found on the PATH", "npm install -g @openai/codex")),
        (["exec"], {}, ("neither the command line nor", 'treadle exec "explain this project"')),
    ):
        done = stage.run(*words, **env)
        lines = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (2, "")
        assert [line[:7] for line in lines] == ["treadle", "  why: ", "  try: "], done.stderr
        assert parts[0] in lines[1]
        assert parts[1] in lines[2]


@pytest.mark.parametrize("flags", [(), ("--quiet",)])
def test_a_turn_that_fails_says_what_to_type(tmp_path: Path, flags: tuple[str, ...]) -> None:
    stage = Stage(tmp_path)
    stage.env["MINE"] = SECRET
    with MockModel() as model:
        table = f'model_providers.mine={{base_url="{model.base_url}", env_key="MINE", request_max_retries=0}}'
        model.enqueue_error(401, {"error": {"message": f"bad key {SECRET}"}})
        words = ("exec", "-c", table, "-c", "model_provider=mine", "-m", "m", *flags, "hi")
        refused = stage.run(*words)
    absent = stage.run(*words)
    assert (refused.returncode, absent.returncode) == (1, 1)
    assert "treadle login mine, or set MINE\n" in refused.stderr
    assert "start the server at http://127.0.0.1" in absent.stderr
    assert SECRET not in refused.stderr + absent.stderr
