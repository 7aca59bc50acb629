"""Loading: defaults, layers, what is refused, what is only warned about, and that nothing secret is shown."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.agent import BUILT_IN
from treadle.config import (
    IGNORED,
    SILENT,
    AutoReview,
    Config,
    ConfigError,
    FileSettings,
    LoadedConfig,
    Login,
    ModelUnusable,
    WebSearchLocation,
    WebSearchTable,
    files_mark,
    load_config,
    read_values,
    write_values,
)
from treadle.llm import KNOWN, known_provider
from treadle.protocol.app import (
    ConfigEdit,
    DangerFullAccessSandboxPolicy,
    GranularAskForApproval,
    ReadOnlySandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)

SECRET = "s3cret-value"
GRANULAR = "sandbox_approval = true, rules = true, mcp_elicitations = true"
PROVIDER = '[model_providers.mine]\nbase_url = "http://models.example/v1"\n'


def load(
    home: Path, text: str | None = None, overrides: Iterable[str] = (), environ: Mapping[str, str] | None = None
) -> LoadedConfig:
    if text is not None:
        (home / "config.toml").write_text(text)
    return load_config(home, overrides=overrides, environ=environ or {})


def refused(home: Path, text: str, overrides: Iterable[str] = ()) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(home, text, overrides)
    return caught.value


# --- defaults --------------------------------------------------------------------------------------------------------


def test_nothing_configured_is_offline_and_careful(tmp_path: Path) -> None:
    loaded = load(tmp_path / "not-there")
    config = loaded.config
    assert loaded.warnings == ()
    assert (config.model, config.model_provider, config.is_offline, config.provider) == (
        "offline",
        "offline",
        True,
        None,
    )
    assert (config.approval_policy, config.approvals_reviewer) == ("on-request", "user")
    assert config.permissions().sandbox == ReadOnlySandboxPolicy()
    assert config.project_doc_max_bytes == 32 * 1024
    assert config.base_instructions() is None
    assert not config.shell_environment_policy.ignore_default_excludes
    assert not (tmp_path / "not-there").exists()


def test_an_empty_file_is_as_none(tmp_path: Path) -> None:
    loaded = load(tmp_path, "\n # nothing\n")
    assert loaded.config.is_offline
    assert loaded.warnings == ()


def test_the_file_that_the_official_sdk_writes(tmp_path: Path) -> None:
    text = """
model = "mock-model"
approval_policy = "never"
sandbox_mode = "read-only"

model_provider = "mock_provider"

[model_providers.mock_provider]
name = "Mock provider for test"
base_url = "http://127.0.0.1:1234/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
requires_openai_auth = true
"""
    loaded = load(tmp_path, text)
    assert loaded.warnings == ()
    provider = loaded.config.provider
    assert provider is not None
    assert (provider.id, provider.base_url, provider.request_max_retries) == (
        "mock_provider",
        "http://127.0.0.1:1234/v1",
        0,
    )
    assert provider.requires_openai_auth
    assert (loaded.config.model, loaded.config.approval_policy) == ("mock-model", "never")


def test_all_that_has_an_effect_is_read(tmp_path: Path) -> None:
    text = """
approvals_reviewer = "auto_review"
approval_policy = { granular = { sandbox_approval = true, rules = false, mcp_elicitations = true } }
sandbox_mode = "workspace-write"
model_reasoning_effort = "high"
model_reasoning_summary = "concise"
model_context_window = 1000
model_auto_compact_token_limit = 900
developer_instructions = "be kind"
instructions = "base"
compact_prompt = "sum up"
project_doc_max_bytes = 0
project_doc_fallback_filenames = ["CLAUDE.md"]
tool_output_token_limit = 5
personality = "friendly"
service_tier = "fast"
[sandbox_workspace_write]
writable_roots = ["/data", "below"]
network_access = true
exclude_slash_tmp = true
exclude_tmpdir_env_var = true
[shell_environment_policy]
inherit = "core"
ignore_default_excludes = true
exclude = ["AWS_*"]
set = { CI = "1" }
include_only = ["PATH"]
"""
    loaded = load(tmp_path, text)
    config = loaded.config
    assert loaded.warnings == ()
    assert isinstance(config.approval_policy, GranularAskForApproval)
    assert not config.approval_policy.granular.rules
    assert config.permissions().sandbox == WorkspaceWriteSandboxPolicy(
        writable_roots=("/data", str(tmp_path / "below")),
        network_access=True,
        exclude_slash_tmp=True,
        exclude_tmpdir_env_var=True,
    )
    assert (config.model_reasoning_effort, config.model_reasoning_summary) == ("high", "concise")
    assert (config.base_instructions(), config.developer_instructions) == ("base", "be kind")
    assert config.shell_environment_policy.set == {"CI": "1"}
    assert config.project_doc_fallback_filenames == ("CLAUDE.md",)


def test_full_access_is_only_what_it_says(tmp_path: Path) -> None:
    assert load(tmp_path, 'sandbox_mode = "danger-full-access"').config.permissions().sandbox == (
        DangerFullAccessSandboxPolicy()
    )


# --- layers ----------------------------------------------------------------------------------------------------------


def test_each_layer_wins_over_the_one_below(tmp_path: Path) -> None:
    text = f'model = "file"\nmodel_provider = "mine"\n{PROVIDER}'
    assert load(tmp_path, text).config.model == "file"
    environ = {"TREADLE_MODEL": "environment", "TREADLE_MODEL_PROVIDER": "openai"}
    config = load(tmp_path, environ=environ).config
    assert (config.model, config.model_provider) == ("environment", "openai")
    config = load(tmp_path, environ=environ, overrides=["model=flag", "model_provider=mine"]).config
    assert (config.model, config.model_provider) == ("flag", "mine")
    assert config.with_thread_overrides({"model": "thread"}).model == "thread"
    assert config.model == "flag"


def test_threads_lay_tables_over_tables(tmp_path: Path) -> None:
    text = '[sandbox_workspace_write]\nwritable_roots = ["/a"]\n'
    config = load(tmp_path, text).config
    thread = config.with_thread_overrides(
        {"sandbox_mode": "workspace-write", "sandbox_workspace_write.network_access": True, "model": None}
    )
    assert thread.permissions().sandbox == WorkspaceWriteSandboxPolicy(writable_roots=("/a",), network_access=True)
    again = thread.with_thread_overrides({"sandbox_workspace_write": {"writable_roots": []}})
    assert again.permissions().sandbox == WorkspaceWriteSandboxPolicy(network_access=True)
    assert config.with_thread_overrides({}) == config


def test_a_thread_may_bring_its_provider(tmp_path: Path) -> None:
    config = load(tmp_path).config.with_thread_overrides(
        {"model_provider": "new", "model_providers.new": {"base_url": "http://n/v1"}, "model": "m"}
    )
    assert config.provider is not None
    assert config.provider.base_url == "http://n/v1"


def test_a_profile_is_laid_over_the_file_only(tmp_path: Path) -> None:
    text = """
model = "top"
profile = "deep"
[profiles.deep]
model = "deep"
model_reasoning_effort = "high"
[profiles.quick]
model_reasoning_effort = "low"
"""
    assert load(tmp_path, text).config.model == "deep"
    assert load(tmp_path, environ={"TREADLE_MODEL": "environment"}).config.model == "environment"
    quick = load(tmp_path, overrides=["profile=quick"]).config
    assert (quick.model, quick.model_reasoning_effort) == ("top", "low")
    assert load(tmp_path).config.with_thread_overrides({"profile": "quick"}).model == "top"


def test_a_profile_that_is_not_there_is_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, '\nprofile = "deep"')
    assert (error.key, error.line, error.column) == ("profile", 2, 1)
    assert "[profiles.deep]" in error.problem
    assert refused(tmp_path, 'profile = "deep"\nprofiles.deep = 1').key == "profile"
    assert refused(tmp_path, "profile = 1").key == "profile"
    assert refused(tmp_path, 'profile = "deep"\nprofiles = 1').key == "profile"


def test_a_wrong_value_in_a_profile_is_named_there(tmp_path: Path) -> None:
    error = refused(tmp_path, 'profile = "p"\n[profiles.p]\nsandbox_mode = "none"')
    assert (error.key, error.line) == ("profiles.p.sandbox_mode", 3)


# --- providers -------------------------------------------------------------------------------------------------------


def test_openai_is_built_in(tmp_path: Path) -> None:
    config = load(tmp_path, 'model_provider = "openai"').config
    provider = config.provider
    assert provider is not None
    assert (provider.base_url, provider.env_key, provider.requires_openai_auth) == (
        "https://api.openai.com/v1",
        None,
        True,
    )
    assert (config.model, config.is_offline) == ("gpt-6.1-sol", False)


def test_the_address_of_openai_can_be_changed(tmp_path: Path) -> None:
    def url(text: str, environ: dict[str, str]) -> str:
        provider = load(tmp_path, text, environ=environ).config.provider
        assert provider is not None
        return provider.base_url

    text = 'model_provider = "openai"\nopenai_base_url = "http://file/v1"\n'
    assert url(text, {}) == "http://file/v1"
    assert url(text, {"OPENAI_BASE_URL": "http://environment/v1"}) == "http://environment/v1"
    assert url(f'{text}[model_providers.openai]\nbase_url = "http://table/v1"', {}) == "http://table/v1"


def test_a_bad_address_from_the_environment_is_named_so(tmp_path: Path) -> None:
    environ = {"OPENAI_BASE_URL": "nowhere"}
    with pytest.raises(ConfigError, match="the environment variable OPENAI_BASE_URL: openai_base_url: it is no http"):
        load(tmp_path, 'model_provider = "openai"', environ=environ)
    (warning,) = load(tmp_path, "", environ=environ).warnings
    assert warning.path is None


def test_a_bad_provider_that_is_not_used_is_a_warning(tmp_path: Path) -> None:
    text = f'model_provider = "mine"\n{PROVIDER}[model_providers.bad]\nbase_url = 3\n'
    loaded = load(tmp_path, text)
    assert [(warning.key, warning.line) for warning in loaded.warnings] == [("model_providers.bad.base_url", 5)]
    assert set(loaded.config.providers) - set(KNOWN) == {"mine"}
    with pytest.raises(ConfigError, match=r"model_providers\.bad"):
        loaded.config.with_thread_overrides({"model_provider": "bad"})
    assert refused(tmp_path, text, ["model_provider=bad"]).key == "model_providers.bad.base_url"


@pytest.mark.parametrize("tables", ["model_providers = 1", "[model_providers]\nmine = 1"])
def test_providers_are_tables(tmp_path: Path, tables: str) -> None:
    error = refused(tmp_path, f'model_provider = "mine"\n{tables}')
    assert "found a whole number, allowed is a table" in error.problem


def test_a_provider_that_is_not_there_is_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, f'model_provider = "other"\n{PROVIDER}')
    assert error.key == "model_provider"
    assert error.path == str(tmp_path / "config.toml")
    assert isinstance(error, ModelUnusable)
    names = "`anthropic`, `azure`, `lmstudio`, `mine`, `offline`, `ollama`, `openai`, `openrouter`, `vllm`"
    assert error.problem.endswith(f"choose one of {names}")


def test_a_model_without_a_provider_is_never_offline(tmp_path: Path) -> None:
    config = load(tmp_path, 'model = "gpt"').config
    assert (config.model, config.model_provider) == ("gpt", "openai")
    assert load(tmp_path, "", ["model=gpt"]).config.model_provider == "openai"
    assert load(tmp_path, "", environ={"TREADLE_MODEL": "gpt"}).config.model_provider == "openai"
    assert load(tmp_path, "").config.with_thread_overrides({"model": "gpt"}).model_provider == "openai"
    assert load(tmp_path, 'model = "offline"').config.is_offline


def test_a_key_alone_means_openai(tmp_path: Path) -> None:
    config = load(tmp_path, "", environ={"OPENAI_API_KEY": "sk-1"}).config
    assert (config.model, config.model_provider) == ("gpt-6.1-sol", "openai")
    assert load(tmp_path, 'model_provider = "offline"', environ={"OPENAI_API_KEY": "sk-1"}).config.is_offline
    assert load(tmp_path, "", environ={"OPENAI_API_KEY": " "}).config.is_offline
    Login(tmp_path).set_api_key("sk-2")
    assert load(tmp_path, "").config.model_provider == "openai"
    Login(tmp_path).logout()
    assert load(tmp_path, "").config.is_offline


def test_a_thread_that_names_a_model_does_not_get_the_offline_one(tmp_path: Path) -> None:
    config = load(tmp_path, PROVIDER).config
    assert config.is_offline

    def choice(config: Config, model: str | None, provider: str | None) -> tuple[str, str]:
        chosen = config.model_choice(model, provider)
        return chosen.model, chosen.provider

    assert choice(config, "gpt", None) == ("gpt", "openai")
    assert choice(config, None, "mine") == ("gpt-6.1-sol", "mine")
    assert choice(config, "gpt", "offline") == ("offline", "offline")
    assert choice(config, None, None) == ("offline", "offline")
    own = load(tmp_path, f'model = "m"\nmodel_provider = "mine"\n{PROVIDER}').config
    assert choice(own, "gpt", None) == ("gpt", "mine")
    assert choice(own, None, "openai") == ("m", "openai")


@pytest.mark.parametrize(
    ("text", "overrides", "environ", "because"),
    [
        ('model_provider = "ollama"', [], {}, "config.toml names it"),
        ('profile = "p"\n[profiles.p]\nmodel_provider = "ollama"', [], {}, "the profile `p` names it"),
        ("", ["model_provider=ollama"], {}, "-c names it"),
        (
            "",
            [],
            {"TREADLE_MODEL_PROVIDER": "ollama"},
            "the environment variable TREADLE_MODEL_PROVIDER names it",
        ),
        ("", [], {"OPENAI_API_KEY": "k"}, "OPENAI_API_KEY is set"),
        ('model = "claude-opus-5-5"', [], {}, "the model is one of Claude's"),
    ],
)
def test_it_is_known_why_a_provider_was_chosen(
    tmp_path: Path, text: str, overrides: list[str], environ: dict[str, str], because: str
) -> None:
    assert load(tmp_path, text, overrides, environ=environ).config.chosen.because == because


def test_a_built_in_provider_is_there_by_its_name(tmp_path: Path) -> None:
    for name in KNOWN:
        if name != "azure":
            provider = load(tmp_path, f'model_provider = "{name}"').config.provider
            assert provider == known_provider(name)


def test_a_table_is_laid_over_the_built_in_provider(tmp_path: Path) -> None:
    text = 'model_provider = "ollama"\n[model_providers.ollama]\nbase_url = "http://box:11434/v1"'
    provider = load(tmp_path, text).config.provider
    assert provider is not None
    assert (provider.base_url, provider.wire_api, provider.name) == ("http://box:11434/v1", "chat", "Ollama")


def test_azure_says_what_it_needs(tmp_path: Path) -> None:
    error = refused(tmp_path, 'model_provider = "azure"\nmodel = "mine"')
    assert isinstance(error, ModelUnusable)
    assert "[model_providers.azure] with base_url = " in error.problem
    table = '[model_providers.azure]\nbase_url = "https://r.openai.azure.com/openai/v1"'
    error = refused(tmp_path, f'model_provider = "azure"\n{table}')
    assert (error.key, "set model to the name of yours" in error.problem) == ("model", True)
    provider = load(tmp_path, f'model_provider = "azure"\nmodel = "mine"\n{table}').config.provider
    assert provider is not None
    assert (provider.env_key, provider.wire_api) == ("AZURE_OPENAI_API_KEY", "responses")


def test_claude_behind_a_gateway_is_the_gateways(tmp_path: Path) -> None:
    text = 'model = "claude-opus-5-5"'
    assert load(tmp_path, text).config.model_provider == "anthropic"
    for gateway in ('openai_base_url = "http://g/v1"', '[model_providers.openai]\nbase_url = "http://g/v1"'):
        assert load(tmp_path, f"{text}\n{gateway}").config.model_provider == "openai"


def test_an_unknown_profile_names_those_there_are(tmp_path: Path) -> None:
    profiles = '[profiles.fast]\nmodel = "a"\n[profiles.deep]\nmodel = "b"\n'
    problem = refused(tmp_path, profiles, ["profile=fsat"]).problem
    assert problem == "there is no table [profiles.fsat]; add the table, or choose one of `deep`, `fast`"


def test_a_profile_switches_all_of_it(tmp_path: Path) -> None:
    text = """model = "a"
[profiles.local]
model_provider = "ollama"
model = "qwen3-coder:30b"
model_reasoning_effort = "low"
models."qwen3-coder:30b".context_window = 32768
"""
    config = load(tmp_path, text, ["profile=local"]).config
    assert (config.model, config.model_provider, config.model_reasoning_effort) == ("qwen3-coder:30b", "ollama", "low")
    assert config.models["qwen3-coder:30b"].context_window == 32768
    assert load(tmp_path, text).config.model_provider == "openai"


# --- what is warned about --------------------------------------------------------------------------------------------


def test_unknown_keys_warn_and_known_ones_do_not(tmp_path: Path) -> None:
    text = f"""
modle = 1
notify = ["x"]
model_provider = "mine"
{PROVIDER}zeta = 1
aws = 1
[sandbox_workspace_write]
eta = 1
[mcp_servers.x]
command = "y"
"""
    warnings = load(tmp_path, text).warnings
    assert [(warning.key, warning.line) for warning in warnings] == [
        ("modle", 2),
        ("sandbox_workspace_write.eta", 10),
        ("model_providers.mine.aws", None),
        ("model_providers.mine.zeta", 7),
    ]
    assert "did you mean `model`" in warnings[0].message


def test_the_automatic_reviewer_has_a_table(tmp_path: Path) -> None:
    given = load(tmp_path, '[auto_review]\ntimeout_ms = 5\nmodel = "small"\npolicy = "p"\nextra_policy = "q"\n').config
    assert given.auto_review == AutoReview(timeout_ms=5, model="small", policy="p", extra_policy="q")
    assert load(tmp_path, "").config.auto_review == AutoReview(timeout_ms=90_000)
    assert "auto_review.timeout_ms" in str(refused(tmp_path, "auto_review.timeout_ms = 0"))


def test_keys_of_codex_that_change_something_are_named_in_one_warning(tmp_path: Path) -> None:
    text = f"""
hooks = {{}}
notify = ["x"]
memories = {{ use_memories = true }}
model_provider = "mine"
{PROVIDER}aws = {{ region = "x" }}
capabilities = 1
[permissions.x]
[projects."/p"]
trust_level = "untrusted"
[tui]
theme = "dark"
[history]
persistence = "none"
[shell_environment_policy]
filters = 1
[auto_review]
circuit_break_action = "strict"
"""
    (warning,) = load(tmp_path, text).warnings
    names = "`auto_review.circuit_break_action`, `memories`, `model_providers.mine.aws`, `projects`"
    assert str(warning) == (
        f"{tmp_path / 'config.toml'}: of the keys that Codex reads, these have no effect here: {names}, "
        "`shell_environment_policy.filters`"
    )


def test_a_flag_that_is_near_to_one_of_ours_and_switched_off_is_no_reason_for_a_warning(tmp_path: Path) -> None:
    assert load(tmp_path, "[features]\nmulti_agent_v2 = false\n").warnings == ()
    (warning,) = load(tmp_path, "[features]\nmulti_agent_v2 = true\n").warnings
    assert "have no effect here: `features.multi_agent_v2`" in str(warning)


def test_trusted_folders_are_no_reason_for_a_warning(tmp_path: Path) -> None:
    trusted = '[projects."/p"]\ntrust_level = "trusted"\n'
    assert load(tmp_path, trusted).warnings == ()
    untrusted = '[projects."/q"]\ntrust_level = "untrusted"\n'
    (warning,) = load(tmp_path, trusted + untrusted).warnings
    assert "`projects`" in str(warning)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("modle = 1", "did you mean `model`?"),
        ("sandbox_mod = 1", "did you mean `sandbox_mode`?"),
        ("mcp_server = 1", "did you mean `mcp_servers`?"),
        ("model_provider_s = 1", "did you mean `model_provider`?"),
        ("sandbox_workspace_write.network_acess = true", "did you mean `sandbox_workspace_write.network_access`?"),
        ("zeta = 1", "it is ignored"),
        ("tools.view_imag.enabled = false", "did you mean `tools.view_image`?"),
        ("tools.view_image.enabld = false", "did you mean `tools.view_image.enabled`?"),
        ("tools.shel.enabled = false", "it is ignored"),
        ("features.shel_tool = false", "did you mean `features.shell_tool`?"),
        ("permissions.mine.filesystm = {}", "did you mean `permissions.mine.filesystem`?"),
        (
            f"approval_policy.granular = {{ {GRANULAR}, skill_aproval = true }}",
            "did you mean `approval_policy.granular.skill_approval`?",
        ),
    ],
)
def test_an_unknown_key_is_met_with_the_nearest_known_one(tmp_path: Path, line: str, hint: str) -> None:
    (warning,) = load(tmp_path, f"\n{line}").warnings
    assert warning.line == 2
    assert warning.message.endswith(hint)


def test_a_misspelt_key_of_a_provider_that_cannot_be_used_is_named_too(tmp_path: Path) -> None:
    warnings = load(tmp_path, '[model_providers.x]\nbase_ur = "http://h/v1"').warnings
    assert [warning.key for warning in warnings] == ["model_providers.x.base_ur", "model_providers.x"]
    assert warnings[0].message.endswith("did you mean `model_providers.x.base_url`?")


def test_every_tool_can_be_switched_by_each_of_its_names(tmp_path: Path) -> None:
    names = {name for tool in BUILT_IN for name in (tool.name, tool.settings_name) if name is not None}
    lines = "".join(f"{name} = false\n" for name in sorted(names))
    loaded = load(tmp_path, f"[tools]\n{lines}")
    assert loaded.warnings == ()
    assert set(loaded.config.tools) == names


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ('web_search = "on"', "one of `disabled`, `cached`, `indexed`, `live`"),
        ("web_search = true", "one of `disabled`, `cached`, `indexed`, `live`"),
        ('tools.web_search = "live"', "true, false, or a table"),
        ('tools.web_search.endpoint = "ftp://search"', "tools.web_search.endpoint: found a text, allowed is an `http`"),
        ('tools.web_search.endpoint = "http://me:secret@search"', "URL without credentials or query"),
        ('tools.web_search.endpoint = "http://search/?key=secret"', "URL without credentials or query"),
        ('tools.web_search.context_size = "huge"', "`low`, `medium`, `high`"),
        ('tools.web_search.location = "Berlin"', "a table with `country`"),
    ],
)
def test_a_search_that_cannot_be_is_refused(tmp_path: Path, line: str, allowed: str) -> None:
    error = str(refused(tmp_path, line))
    assert allowed in error
    assert "secret" not in error


def test_a_search_by_its_keys(tmp_path: Path) -> None:
    assert load(tmp_path, "").config.web_search == "cached"
    text = """
web_search = "live"
[tools.web_search]
context_size = "high"
allowed_domains = ["e.com"]
location = { country = "DE", city = "Berlin" }
endpoint = "http://127.0.0.1:8888"
private_hosts = ["wiki"]
"""
    loaded = load(tmp_path, text)
    assert loaded.warnings == ()
    assert loaded.config.web_search == "live"
    assert loaded.config.tools["web_search"] == WebSearchTable(
        context_size="high",
        allowed_domains=("e.com",),
        location=WebSearchLocation(country="DE", city="Berlin"),
        endpoint="http://127.0.0.1:8888",
        private_hosts=("wiki",),
    )
    (warning,) = load(tmp_path, "[tools.web_search]\nendpont = 1").warnings
    assert "did you mean `tools.web_search.endpoint`?" in str(warning)
    assert load(tmp_path, 'sandbox_mode = "danger-full-access"').config.web_search == "cached"


def test_no_key_is_both_used_and_unused() -> None:
    lists = (IGNORED, SILENT, frozenset(FileSettings.__struct_fields__))
    assert len(frozenset.union(*lists)) == sum(map(len, lists))


def test_unknown_keys_of_the_command_line_say_so(tmp_path: Path) -> None:
    (warning,) = load(tmp_path, overrides=["zeta=1"]).warnings
    assert (warning.path, warning.key) == (None, "zeta")
    assert warning.message.startswith("-c: ")


def test_the_retired_policy_is_replaced_by_its_successor(tmp_path: Path) -> None:
    loaded = load(tmp_path, 'approval_policy = "on-failure"')
    assert loaded.config.approval_policy == "on-request"
    assert [warning.key for warning in loaded.warnings] == ["approval_policy"]


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "key", "found", "allowed"),
    [
        ("model = 3", "model", "found 3", "a text that is not empty"),
        ('model = ""', "model", "found an empty text", "a text that is not empty"),
        ('approval_policy = "maybe"', "approval_policy", "found `maybe`", "`untrusted`, `on-request`, `never`"),
        ("approval_policy = { granular = {} }", "approval_policy", "found a table", "a table `granular`"),
        ("sandbox_mode = true", "sandbox_mode", "found true", "`read-only`, `workspace-write`, `danger-full-access`"),
        ("sandbox_workspace_write = 1", "sandbox_workspace_write", "found a whole number", "a table"),
        (
            "sandbox_workspace_write.network_access = 'yes'",
            "sandbox_workspace_write.network_access",
            "found a text",
            "true or false",
        ),
        (
            "sandbox_workspace_write.writable_roots = '/x'",
            "sandbox_workspace_write.writable_roots",
            "found a text",
            "a list of texts",
        ),
        ("shell_environment_policy.set = { A = 1 }", "shell_environment_policy.set", "found a table", "of texts"),
        ("model_context_window = 0", "model_context_window", "found 0", "a whole number from 1"),
        ("model_context_window = 1.5", "model_context_window", "found a number", "a whole number from 1"),
        ("project_doc_max_bytes = -1", "project_doc_max_bytes", "found -1", "a whole number from 0"),
        ("personality = 1979-05-27", "personality", "found a date", "`friendly`"),
        ("hide_agent_reasoning = 1", "hide_agent_reasoning", "found 1", "true or false"),
        ("project_doc_fallback_filenames = [1]", "project_doc_fallback_filenames", "found a list", "a list of texts"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(tmp_path: Path, line: str, key: str, found: str, allowed: str) -> None:
    error = refused(tmp_path, f"# first\n  {line}\n")
    assert (error.path, error.key, error.line, error.column) == (str(tmp_path / "config.toml"), key, 2, 3)
    assert error.problem.startswith(found)
    assert allowed in error.problem
    assert str(error) == f"{error.path}:2:3: {key}: {error.problem}"


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    text = """approval_policy = "sometimes"
sandbox_mode = "foo"
model_provider = "mine"
[sandbox_workspace_write]
network_access = "yes"
writable_roots = 1
[model_providers.mine]
base_url = "localhost:1234/v1"
wire_api = "smoke"
request_max_retries = "many"
"""
    error = refused(tmp_path, text, ["model_reasoning_summary=x"])
    path = str(tmp_path / "config.toml")
    assert [(problem.path, problem.line, problem.key, problem.source) for problem in error.problems] == [
        (path, 1, "approval_policy", None),
        (path, 2, "sandbox_mode", None),
        (path, 5, "sandbox_workspace_write.network_access", None),
        (path, 6, "sandbox_workspace_write.writable_roots", None),
        (None, None, "model_reasoning_summary", "-c"),
        (path, 10, "model_providers.mine.request_max_retries", None),
        (path, 8, "model_providers.mine.base_url", None),
        (path, 9, "model_providers.mine.wire_api", None),
    ]
    assert str(error).splitlines() == [str(problem) for problem in error.problems]
    assert (error.key, error.line) == ("approval_policy", 1)
    assert all("allowed is" in problem.problem or "write it as" in problem.problem for problem in error.problems)
    assert error.blames("-c")
    assert copy.copy(error).problems == error.problems


def test_a_file_that_is_no_toml_does_not_hide_the_rest(tmp_path: Path) -> None:
    overrides = ["sandbox_mode=foo", "novalue", "a..b=1", "model_provider=in_the_file"]
    error = refused(tmp_path, "model = \n", overrides)
    assert [(problem.line, problem.source, problem.key) for problem in error.problems] == [
        (1, None, None),
        (None, "-c", None),
        (None, "-c", "a..b"),
        (None, "-c", "sandbox_mode"),
    ]
    assert "novalue" in error.problems[1].problem


def test_an_instructions_file_that_is_not_there_is_refused_at_once(tmp_path: Path) -> None:
    error = refused(tmp_path, '\nmodel_instructions_file = "none.md"')
    assert (error.key, error.line) == ("model_instructions_file", 2)


def test_a_wrong_value_from_elsewhere_says_from_where(tmp_path: Path) -> None:
    error = refused(tmp_path, "", ["sandbox_mode=none"])
    assert (error.path, error.source, error.key) == (None, "-c", "sandbox_mode")
    with pytest.raises(ConfigError, match="the configuration of the thread: sandbox_mode"):
        load(tmp_path).config.with_thread_overrides({"sandbox_mode": "none"})
    with pytest.raises(ConfigError, match="the environment variable TREADLE_MODEL_PROVIDER: model_provider"):
        load(tmp_path, environ={"TREADLE_MODEL_PROVIDER": "none"})


def test_a_file_that_is_no_toml_is_refused_with_line_and_column(tmp_path: Path) -> None:
    error = refused(tmp_path, f'a = 1\nb = "{SECRET}\n')
    assert (error.path, error.line) == (str(tmp_path / "config.toml"), 2)
    assert error.column == len(f'b = "{SECRET}') + 1
    assert SECRET not in str(error)
    assert refused(tmp_path, "x = [").line == 1
    assert refused(tmp_path, "x = " + "[" * 10_000).problem.startswith("it is no TOML")


def test_odd_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(b"a = 1\nb = '\xff'\n")
    with pytest.raises(ConfigError, match="UTF-8") as caught:
        load(tmp_path)
    assert (caught.value.line, caught.value.column) == (2, 6)
    file.unlink()
    file.mkdir()
    with pytest.raises(ConfigError, match=r"not a regular file|cannot be read"):
        load(tmp_path)
    file.rmdir()
    file.symlink_to("nowhere")
    with pytest.raises(ConfigError, match="symbolic link to nothing"):
        load(tmp_path)


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes(b'\xef\xbb\xbfsandbox_mode = "read-only"\n')
    assert load(tmp_path).config.sandbox_mode == "read-only"


@given(st.dictionaries(st.sampled_from(FileSettings.__struct_fields__), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
), max_size=3))  # fmt: skip
def test_any_table_is_read_or_refused_by_key(table: dict[str, Any]) -> None:
    reading = read_values(table)
    refused = {problem.path[0] for problem in reading.invalid}
    assert refused | reading.values.keys() == table.keys()
    assert all("allowed is" in problem.problem for problem in reading.invalid)


# --- instructions of a file, and secrets -----------------------------------------------------------------------------


def test_a_file_replaces_the_base_instructions(tmp_path: Path) -> None:
    (tmp_path / "base.md").write_text("mine")
    config = load(tmp_path, 'model_instructions_file = "base.md"\ninstructions = "text"').config
    assert config.base_instructions() == "mine"
    (tmp_path / "base.md").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        config.base_instructions()
    (tmp_path / "base.md").unlink()
    with pytest.raises(ConfigError, match="there is no such file") as caught:
        config.base_instructions()
    assert (caught.value.key, caught.value.line) == ("model_instructions_file", 1)


def test_a_link_in_the_place_of_that_file_does_not_lead_into_the_home(tmp_path: Path) -> None:
    """A command may write where the file is, and the model gets what it says."""
    home, project = tmp_path / "home", tmp_path / "project"
    for folder in (home, project):
        folder.mkdir()
    (home / "auth.json").write_text("sk-secret")
    (project / "base.md").write_text("mine")
    config = load(home, f'model_instructions_file = "{project}/base.md"').config
    assert config.base_instructions() == "mine"
    (project / "base.md").unlink()
    (project / "base.md").symlink_to(home / "auth.json")
    with pytest.raises(ConfigError, match="may not read"):
        config.base_instructions()


def _shown(config: Config) -> str:
    parts = (config, config.layers, config.providers, config.shell_environment_policy, config.__rich_repr__())
    return " ".join(map(repr, parts))


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    text = f"""
model_provider = "mine"
developer_instructions = "{SECRET}"
{PROVIDER}experimental_bearer_token = "{SECRET}"
http_headers = {{ X-Key = "{SECRET}" }}
{SECRET.replace("-", "_")} = 1
[shell_environment_policy]
set = {{ TOKEN = "{SECRET}" }}
"""
    loaded = load(tmp_path, text)
    assert SECRET not in _shown(loaded.config) + repr(loaded)
    thread = loaded.config.with_thread_overrides({"model_providers.mine.experimental_bearer_token": SECRET})
    assert SECRET not in _shown(thread)


@pytest.mark.parametrize(
    "line",
    [
        f'experimental_bearer_token = ["{SECRET}"]',
        f'http_headers = {{ a = ["{SECRET}"] }}',
        f'http_headers = "{SECRET}"',
        f'env_key = {{ a = "{SECRET}" }}',
        f'http_headers = {{ "a b" = "{SECRET}" }}',
    ],
)
def test_secrets_are_in_no_error(tmp_path: Path, line: str) -> None:
    error = refused(tmp_path, f'model_provider = "mine"\n{PROVIDER}{line}')
    assert SECRET not in f"{error!r} {error}"
    (warning,) = load(tmp_path, overrides=["model_provider=offline"]).warnings
    assert SECRET not in repr(warning)
    assert SECRET not in str(refused(tmp_path, f'shell_environment_policy.set.TOKEN = ["{SECRET}"]'))


def test_the_mark_of_the_files_changes_faster_than_the_clock_of_a_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fine = os.stat

    def coarse(path: str) -> Any:
        found = fine(path)
        names = ("st_mode", "st_dev", "st_ino", "st_size")
        seconds = {name: getattr(found, name) // 10**9 * 10**9 for name in ("st_mtime_ns", "st_ctime_ns")}
        return SimpleNamespace(**{name: getattr(found, name) for name in names}, **seconds)

    marks = []
    with monkeypatch.context() as patched:
        patched.setattr("treadle.config.configuration.os.stat", coarse)
        for policy in ("untrusted", "never    ") * 100:
            (tmp_path / "config.toml").write_text(f'approval_policy = "{policy}"')
            marks.append(files_mark(tmp_path))
    assert all(one != other for one, other in pairwise(marks))


def test_the_mark_of_the_files_sees_that_they_come_and_go(tmp_path: Path) -> None:
    marks = [files_mark(tmp_path)]
    for name in ("config.toml", "auth.json", "keys.json"):
        (tmp_path / name).write_text("{}")
        marks.append(files_mark(tmp_path))
    (tmp_path / "config.toml").unlink()
    marks.append(files_mark(tmp_path))
    (tmp_path / "config.toml").mkdir()
    marks.append(files_mark(tmp_path))
    assert all(one != other for one, other in pairwise(marks))


def test_web_sockets_are_not_used_and_who_asks_for_them_is_told(tmp_path: Path) -> None:
    table = 'model_provider = "x"\nmodel = "m"\n[model_providers.x]\nbase_url = "http://127.0.0.1:9"\n'
    assert load(tmp_path, f"{table}supports_websockets = false\n").warnings == ()
    (warning,) = load(tmp_path, f"{table}supports_websockets = true\n").warnings
    assert "no effect here: `model_providers.x.supports_websockets`" in warning.message


# --- the offline model -----------------------------------------------------------------------------------------------


def test_the_offline_model_is_forbidden_unless_there_is_another(tmp_path: Path) -> None:
    with pytest.raises(ModelUnusable, match="offline: it is false, and only the offline model could answer") as caught:
        load(tmp_path, "\noffline = false\n")
    assert (caught.value.line, caught.value.key) == (2, "offline")
    assert load(tmp_path, "offline = false\n", environ={"OPENAI_API_KEY": "k"}).config.model_provider == "openai"
    with pytest.raises(ModelUnusable):
        load(tmp_path, "offline = false\n", overrides=["model_provider=offline"], environ={"OPENAI_API_KEY": "k"})


def test_the_offline_model_is_used_where_it_is_asked_for(tmp_path: Path) -> None:
    config = load(tmp_path, 'offline = true\nmodel = "gpt-5.5"\n', environ={"OPENAI_API_KEY": "k"}).config
    assert (config.model, config.model_provider, config.chosen.because) == ("offline", "offline", "`offline` is true")
    assert config.model_choice("gpt-5.5", None).provider == "openai"


def test_the_offline_model_may_be_forbidden_before_there_is_a_key(tmp_path: Path) -> None:
    edit = ConfigEdit(key_path="offline", merge_strategy="replace", value=False)
    write_values(tmp_path, [edit])
    assert (tmp_path / "config.toml").read_text() == "offline = false\n"
