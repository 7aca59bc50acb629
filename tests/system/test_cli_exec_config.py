"""`treadle exec` with settings that cannot be used: all that is wrong on standard error, nothing run.

The exit code is 2 for settings that are wrong, and 1 for a model that was asked for and cannot be had.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from kit.warm_python import run_python
from treadle.testing import AppServerHarness

DEADLINE = 60
PREFIXES = ("TREADLE", "OPENAI", "ANTHROPIC", "CODEX")


def run(home: Path, *words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIXES)}
    cwd = home.parent / "project"
    cwd.mkdir(exist_ok=True)
    return run_python(["-m", "treadle", *words], cwd=cwd, env={**kept, "TREADLE_HOME": str(home), **(env or {})})


def refused(done: subprocess.CompletedProcess[str], home: Path, code: int = 2) -> str:
    assert (done.returncode, done.stdout) == (code, ""), done
    assert done.stderr.startswith("treadle exec: ")
    assert "Traceback" not in done.stderr
    assert not (home / "threads.db").exists()
    return done.stderr.removeprefix("treadle exec: ")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ('model = "x\n', "1:11", "it is no TOML"),
        ('\napproval_policy = "sometimes"', "2:1", "approval_policy: found `sometimes`, allowed is one of `untrusted`"),
        (
            'model_provider = "x"\n[model_providers.x]\nbase_url = "h:1"',
            "3:1",
            "it is no http or https URL; write it as",
        ),
        ("model = 3", "1:1", "model: found 3, allowed is a text"),
    ],
)
def test_a_broken_file(home: Path, text: str, place: str, says: str) -> None:
    path = home / "config.toml"
    path.write_text(text)
    said = refused(run(home, "exec", "look around"), home)
    what, why, do = said.splitlines()
    assert what == "the settings cannot be used, so nothing was run"
    assert why.startswith(f"  why: {path}:{place}: ")
    assert says in why
    assert do == f"  try: correct line {place.partition(':')[0]} of {path}, then: treadle config check"


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("sandbox_mode=foo", "-c: sandbox_mode: found `foo`, allowed is one of `read-only`, `workspace-write`"),
        ("novalue", "-c: `novalue` has no value; write -c key=value"),
        ("a..b=1", "-c: a..b: it is no dotted key"),
    ],
)
def test_a_wrong_setting_of_the_command_line(home: Path, setting: str, says: str) -> None:
    for words in (["exec", "-c", setting], ["-c", setting, "exec"]):
        assert f"\n  why: {says}" in refused(run(home, *words, "look around"), home)


def test_all_at_once(home: Path) -> None:
    (home / "config.toml").write_text('sandbox_mode = "foo"\napproval_policy = "sometimes"\n')
    said = refused(run(home, "exec", "-c", "personality=x", "hi", env={"TREADLE_MODEL_PROVIDER": "nope"}), home)
    lines = said.splitlines()
    assert lines[0] == "the settings cannot be used, so nothing was run"
    keys = ["config.toml:1:1: sandbox_mode", "config.toml:2:1: approval_policy", "-c: personality", "model_provider"]
    assert [key in line for key, line in zip(keys, lines[1:-1], strict=True)] == [True] * 4, said


def test_a_model_without_a_provider_and_a_key(home: Path) -> None:
    for words in (["exec", "-m", "gpt-5.5", "hi"], ["exec", "-c", "model=gpt-5.5", "hi"]):
        said = refused(run(home, *words), home, 1)
        what, why, do = said.splitlines()
        assert what == "gpt-5.5 cannot be asked"
        assert why.startswith("  why: there is no key for OpenAI. ")
        assert do == "  try: treadle login openai, or set OPENAI_API_KEY"
    (home / "config.toml").write_text(
        'model = "m"\nmodel_provider = "x"\n[model_providers.x]\nbase_url = "http://x/v1"\nenv_key = "MY_KEY"\n'
    )
    assert "`MY_KEY`, which is not set" in refused(run(home, "exec", "hi"), home, 1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["-c", "model_provider=nope"],
            "why: -c: model_provider: there is no provider `nope`; add a table",
        ),
        (["-c", "model_provider=anthropic"], "claude-opus-5-5 cannot be asked\n  why: provider `anthropic` needs the "),
        (
            ["-m", "claude-sonnet-5-5"],
            "claude-sonnet-5-5 cannot be asked\n  why: provider `anthropic` needs the environment v",
        ),
        (["-c", "model_provider=azure", "-m", "mine"], "-c: model_provider: `azure` has to be told where your server"),
    ],
)
def test_a_provider_that_was_named_is_not_replaced(home: Path, words: list[str], says: str) -> None:
    assert says in refused(run(home, "exec", *words, "look around"), home, 1)


def test_the_first_line_says_which_model_and_why(home: Path) -> None:
    first = run(home, "exec", "look around").stderr.splitlines()[0]
    why = "neither OPENAI_API_KEY nor ANTHROPIC_API_KEY is set, and nobody is logged in"
    assert first == f"model    offline (offline, because {why})"
    first = run(home, "exec", "-c", "model_provider=offline", "look around").stderr.splitlines()[0]
    assert first == "model    offline (offline, because -c names it)"


def test_a_model_with_a_key_is_openais(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        (harness.home / "config.toml").unlink()
        env = {"OPENAI_API_KEY": "sk-of-the-environment", "OPENAI_BASE_URL": harness.model.base_url}
        for words in (["-m", "gpt-5.5", "hi"], ["hi"]):  # also with nothing named at all
            harness.model.enqueue_assistant_message("A real answer.")
            done = run(harness.home, "exec", *words, env=env)
            assert done.returncode == 0, done.stderr
            assert "A real answer." in done.stdout
            assert "(openai, because " in done.stderr.splitlines()[0]
        models = [request.json["model"] for request in harness.model.requests()]
        assert models[0] == "gpt-5.5"
        assert "sk-of-the-environment" not in done.stdout + done.stderr


def test_the_offline_model_by_name(home: Path) -> None:
    (home / "config.toml").write_text('model = "gpt-5.5"\nmodel_provider = "offline"\n')
    done = run(home, "exec", "look around", env={"OPENAI_API_KEY": "sk-1"})
    assert done.returncode == 0, done.stderr
    assert "I am Treadle's offline model" in done.stdout


def test_keys_without_effect_are_named_on_one_line(home: Path) -> None:
    text = 'modle = 1\napps = {x = 1}\n[memories]\nuse_memories = true\n[tui]\ntheme = "dark"\n'
    (home / "config.toml").write_text(text)
    done = run(home, "exec", "look around")
    assert done.returncode == 0
    path = home / "config.toml"
    assert done.stderr.splitlines()[:2] == [
        f"treadle exec: warning: {path}:1:1: the key `modle` is not known; it is ignored; did you mean `model`?",
        f"treadle exec: warning: {path}: of the keys that Codex reads, these have no effect here: `apps`, `memories`",
    ]
    assert done.stderr.count("memories") == 1
    assert "mcp_servers" not in done.stdout
