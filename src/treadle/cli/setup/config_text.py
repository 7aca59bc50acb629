"""The first `config.toml`, with a comment for each setting that people ask for. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from treadle.config.toml_text import key_text, value_text
from treadle.llm.known_providers import OFFLINE, default_model


class InitialSettings(Struct, frozen=True, kw_only=True):
    """What `treadle config init` was told."""

    provider: str
    sandbox: str = "read-only"
    approval: str = "on-request"
    model: str | None = None
    base_url: str | None = None
    wire_api: str | None = None


_HEAD: Final = """\
# The settings of Treadle. `treadle config show` shows what is in force, `treadle config check` what is wrong with it.
# What is commented out is an example. Environment variables and `-c KEY=VALUE` go before this file."""

_SANDBOX: Final = """\
# What commands may do: "read-only", "workspace-write" (the folder that you work in, without network) or
# "danger-full-access" (whatever you may do)."""

_APPROVAL: Final = """\
# When you are asked: "on-request" (a command needs more than the sandbox allows), "untrusted" (before every command
# that is not known to be harmless) or "never" (what the sandbox forbids fails)."""

_REST: Final = """\
# How much the model thinks: "low", "medium" or "high".
# model_reasoning_effort = "medium"

# More for "workspace-write":
# [sandbox_workspace_write]
# network_access = true
# writable_roots = ["/another/folder"]

# Another provider; its key comes from `treadle login mine`, or from the variable that env_key names:
# [model_providers.mine]
# base_url = "https://HOST/v1"
# wire_api = "chat"
# env_key = "MY_KEY"

# Settings under a name, used with `treadle exec --profile careful`:
# [profiles.careful]
# approval_policy = "untrusted"
"""


def config_text(settings: InitialSettings) -> str:
    """The whole file."""
    parts = [
        _HEAD,
        _model_part(settings),
        f"{_SANDBOX}\nsandbox_mode = {value_text(settings.sandbox)}",
        f"{_APPROVAL}\napproval_policy = {value_text(settings.approval)}",
    ]
    rest = _REST
    table = _provider_part(settings)
    if table:  # after the last key that is in no table
        head, tables = rest.split("\n\n", 1)
        rest = f"{head}\n\n{table}\n\n{tables}"
    return "\n\n".join([*parts, rest])


def _model_part(settings: InitialSettings) -> str:
    usual = default_model(settings.provider)
    lines = ["# Who is asked, and which of its models; `treadle models` lists them, `treadle login` keeps a key."]
    lines.append(f"model_provider = {value_text(settings.provider)}")
    if settings.model is not None:
        lines.append(f"model = {value_text(settings.model)}")
    elif usual is not None and settings.provider != OFFLINE:
        lines.append(f"# model = {value_text(usual)}")
    return "\n".join(lines)


def _provider_part(settings: InitialSettings) -> str:
    values = {"base_url": settings.base_url, "wire_api": settings.wire_api}
    given = [f"{key} = {value_text(value)}" for key, value in values.items() if value is not None]
    return "\n".join([f"[model_providers.{key_text(settings.provider)}]", *given]) if given else ""
