"""`treadle config …`, in this process: what is written, shown and refused."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from treadle.cli import InitialSettings, config_text, main
from treadle.config import load_config
from treadle.llm import KNOWN, OFFLINE

NAMES = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "CODEX_API_KEY", "TREADLE_MODEL", "TREADLE_MODEL_PROVIDER")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (*NAMES, "OPENAI_BASE_URL", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


PROVIDERS = [name for name, known in KNOWN.items() if known.missing is None] + [OFFLINE]


@pytest.mark.parametrize("provider", [*PROVIDERS, "mine", "azure", "with space"])
def test_what_init_writes_is_taken_without_a_warning(tmp_path: Path, provider: str) -> None:
    own = provider not in PROVIDERS
    for sandbox, approval, model in itertools.product(
        ("read-only", "workspace-write", "danger-full-access"), ("on-request", "untrusted", "never"), (None, 'a"b')
    ):
        settings = InitialSettings(
            provider=provider,
            model="m" if own else model,
            sandbox=sandbox,
            approval=approval,
            base_url="http://h/v1" if own else None,
            wire_api="chat" if own else None,
        )
        (tmp_path / "config.toml").write_text(config_text(settings))
        loaded = load_config(tmp_path, environ={})
        assert loaded.warnings == ()
        config = loaded.config
        assert (config.model_provider, config.sandbox_mode, config.approval_policy) == (provider, sandbox, approval)
        assert config.chosen.model == (OFFLINE if provider == OFFLINE else settings.model or config.chosen.model)


def test_examples_in_the_file_are_right_when_they_are_uncommented(tmp_path: Path) -> None:
    text = config_text(InitialSettings(provider="anthropic"))
    lines = [line[2:] if line.startswith("# ") and _is_toml(line[2:]) else line for line in text.splitlines()]
    (tmp_path / "config.toml").write_text("\n".join(lines))
    loaded = load_config(tmp_path, environ={})
    assert loaded.warnings == ()
    assert {"mine"} < set(loaded.config.providers)
    assert loaded.config.sandbox_workspace_write.network_access


def _is_toml(line: str) -> bool:
    return line.startswith("[") or " = " in line.split("(")[0]


def test_init_with_flags(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "init", "--provider", "anthropic", "--sandbox", "workspace-write", "--yes"]) == 0
    out = capsys.readouterr().out
    assert f"{home / 'config.toml'} is written\n  the model is claude-opus-5-5" in out
    assert "next: treadle login anthropic" in out
    assert (home / "config.toml").stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700


def test_init_does_not_write_over_a_file_unless_it_is_told_to(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home.mkdir()
    (home / "config.toml").write_text("broken = [")
    assert main(["config", "init", "--yes"]) == 2
    assert (home / "config.toml").read_text() == "broken = ["
    assert len(capsys.readouterr().err.splitlines()) == 3
    assert main(["config", "init", "--yes", "--force", "--provider", "offline"]) == 0
    assert (home / "config.toml.old").read_text() == "broken = ["
    assert load_config(home, environ={}).config.is_offline


@pytest.mark.parametrize("flags", [["--provider", "azure"], ["--provider", "nix"], ["--base-url", "ftp://x"]])
def test_init_writes_nothing_that_cannot_be_used(
    home: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "init", "--yes", "--provider", "openai", *flags]) == 2
    assert not (home / "config.toml").exists()
    assert [line[:7] for line in capsys.readouterr().err.splitlines()] == ["treadle", "  why: ", "  try: "]


def test_a_table_that_gets_empty_goes_unless_it_is_the_profile_in_use(home: Path) -> None:
    home.mkdir()
    text = 'profile = "quick"\n\n[profiles.quick]\nmodel = "m"\n'
    (home / "config.toml").write_text(f"{text}\n[sandbox_workspace_write]\nnetwork_access = true\n")
    assert main(["config", "unset", "sandbox_workspace_write.network_access"]) == 0
    assert main(["config", "unset", "profiles.quick.model"]) == 0
    assert (home / "config.toml").read_text() == 'profile = "quick"\n\n[profiles.quick]\n\n'
    assert main(["config", "check"]) == 0


def test_values_are_set_read_and_removed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "init", "--yes", "--provider", "offline"]) == 0
    before = (home / "config.toml").read_text()
    for key, value, printed in (
        ("model_reasoning_effort", "high", "high"),
        ("sandbox_workspace_write.network_access", "true", "true"),
        ("project_doc_fallback_filenames", '["A.md"]', '["A.md"]'),
        ('model_providers."a b".base_url', "http://h/v1", "http://h/v1"),
        ('model_providers."a b"', '{ base_url = "http://h/v1" }', '{ base_url = "http://h/v1" }'),
    ):
        assert main(["config", "set", key, value]) == 0
        capsys.readouterr()
        assert main(["config", "get", key]) == 0
        assert capsys.readouterr().out == f"{printed}\n"
        assert main(["config", "unset", key]) == 0
        assert main(["config", "get", key]) in (0, 1)
        assert capsys.readouterr().out.splitlines()[-1:] != [printed]
    after = (home / "config.toml").read_text().splitlines()
    assert [line for line in after if line.startswith("#")] == [
        line for line in before.splitlines() if line.startswith("#")
    ]
    assert main(["config", "get", "sandbox_mode"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "read-only"


def test_a_setting_that_others_have_to_follow_is_written(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "set", "offline", "false"]) == 0
    written, but, why = capsys.readouterr().out.splitlines()
    assert written == f"offline = false in {home / 'config.toml'}"
    assert but == "  but the settings cannot be used yet:"
    assert "set OPENAI_API_KEY or ANTHROPIC_API_KEY" in why
    assert (home / "config.toml").read_text() == "offline = false\n"


def test_a_key_that_no_provider_has_is_named_when_it_is_set(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "set", "model_providers.x.base_ur", "http://h/v1"]) == 0
    assert "did you mean `model_providers.x.base_url`?" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["set", "modle", "x"], "there is no setting modle"),
        (["set", "features.shel_tool", "false"], "did you mean features.shell_tool?"),
        (
            ["set", "sandbox_workspace_write.network_acess", "true"],
            "did you mean sandbox_workspace_write.network_access?",
        ),
        (["set", "sandbox_mode", "loose"], "sandbox_mode"),
        (["set", "model_providers.x.experimental_bearer_token", "very-s3cret"], "a secret does not belong"),
        (["set", "model_providers.x.http_headers.authorization", "very-s3cret"], "a secret does not belong"),
        (["set", "model_providers.x.query_params.api-key", "very-s3cret"], "a secret does not belong"),
        (["get", "nothing.like.this"], "there is no setting nothing"),
        (["get", "a..b"], "is no key"),
        (["get", "a\udcff"], "has half a character"),
        (["set", "a\udcff", "x"], "has half a character"),
        (["set", "model", "a\udcff"], "has half a character"),
        (["unset", "a\udcff"], "has half a character"),
        (["shwo"], "there is no command 'shwo'"),
    ],
)
def test_what_is_refused(home: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", *words]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert [line[:7] for line in error.splitlines()] == ["treadle", "  why: ", "  try: "]
    assert "s3cret" not in error
    assert not (home / "config.toml").exists()


def test_settings_are_shown_with_where_they_come_from_and_without_secrets(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    (home / "config.toml").write_text(
        'model_provider = "x"\nprofile = "p"\nmodel_auto_compact_token_limit = 5\n'
        '[profiles.p]\napproval_policy = "never"\n'
        '[model_providers.x]\nbase_url = "http://user:s3cret-1@h/v1?s3cret=2"\nexperimental_bearer_token = "s3cret-3"\n'
        'env_http_headers = { authorization = "X_VARIABLE" }\nhttp_headers = { cookie = "s3cret-4" }\n'
        'query_params = { code = "s3cret-5" }\n'
    )
    monkeypatch.setenv("TREADLE_MODEL", "from-env")
    assert main(["config", "show", "--json", "-c", "sandbox_mode=workspace-write"]) == 0
    text = capsys.readouterr().out
    assert "s3cret" not in text
    found = {key: (one["value"], one["source"]) for key, one in json.loads(text)["settings"].items()}
    assert found["model"] == ("from-env", "the environment variable TREADLE_MODEL")
    assert found["sandbox_mode"] == ("workspace-write", "-c")
    assert found["approval_policy"] == ("never", "the profile `p`")
    assert found["model_auto_compact_token_limit"] == (5, "config.toml")
    assert found["model_providers.x.base_url"] == ("http://h/v1", "config.toml")
    assert found["model_providers.x.experimental_bearer_token"] == ("…", "config.toml")
    assert found["model_providers.x.env_http_headers.authorization"][0] == "X_VARIABLE"
    assert main(["config", "show", "--all"]) == 0
    shown = capsys.readouterr().out
    assert "s3cret" not in shown
    assert "hide_agent_reasoning = false" in shown
    for key in ("experimental_bearer_token", "http_headers", "query_params", "query_params.code", "base_url"):
        assert main(["config", "get", f"model_providers.x.{key}"]) == 2
        assert "s3cret" not in "".join(capsys.readouterr())


def test_a_harmless_parameter_can_be_set_and_is_not_shown(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "set", "model_providers.x.query_params.api-version", "2025-04-01-preview"]) == 0
    assert "2025-04-01-preview" not in "".join(capsys.readouterr())
    assert 'api-version = "2025-04-01-preview"' in (home / "config.toml").read_text()


def test_check_says_what_holds(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check"]) == 0
    assert "treadle config init" in capsys.readouterr().out
    home.mkdir()
    (home / "config.toml").write_text("modle = 3\n")
    assert main(["config", "check"]) == 0
    assert "did you mean `model`?" in capsys.readouterr().out
    (home / "config.toml").write_text("model = 3\n")
    assert main(["config", "check"]) == 2
    assert f"{home / 'config.toml'}:1:" in capsys.readouterr().err
    assert main(["config", "path"]) == 0
    assert capsys.readouterr().out == f"{home / 'config.toml'}\n"
