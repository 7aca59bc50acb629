"""Home, settings, login, models, project instructions, and the prompts that we send to a model.

The package owns the configuration and where each value came from. It starts nothing and sends nothing. The names below
are imported on first use: a start without a config file never loads the TOML parser.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from treadle.internal_names import internal_name

if TYPE_CHECKING:
    from treadle.config.config_access import config_view, write_value, write_values
    from treadle.config.configuration import Config, LoadedConfig, built_in_config, files_mark, load_config
    from treadle.config.file_settings import ShellEnvironment, WorkspaceWrite
    from treadle.config.home_files import Document, Written, find_home, read_document
    from treadle.config.instructions import InstructionFile, find_instructions
    from treadle.config.login import Login
    from treadle.config.model_catalogue import InvalidCursor, ModelFacts, list_models, model_facts
    from treadle.config.problems import ConfigError, ConfigProblem, ConfigWarning, ConfigWriteError, ModelUnusable
    from treadle.config.prompts import (
        BASE_INSTRUCTIONS,
        COMPACT_PROMPT,
        PERSONALITIES,
        SUMMARY_PREFIX,
        environment_text,
        environments_text,
        goal_text,
        instructions_text,
        moved_text,
        permissions_text,
    )

_MODULES = {
    "config_access": ("config_view", "write_value", "write_values"),
    "home_files": ("Document", "Written", "find_home", "read_document"),
    "instructions": ("InstructionFile", "find_instructions"),
    "login": ("Login",),
    "model_catalogue": ("InvalidCursor", "ModelFacts", "list_models", "model_facts"),
    "problems": ("ConfigError", "ConfigProblem", "ConfigWarning", "ConfigWriteError", "ModelUnusable"),
    "prompts": (
        "BASE_INSTRUCTIONS",
        "COMPACT_PROMPT",
        "PERSONALITIES",
        "SUMMARY_PREFIX",
        "environment_text",
        "environments_text",
        "goal_text",
        "instructions_text",
        "moved_text",
        "permissions_text",
    ),
    "configuration": ("Config", "LoadedConfig", "built_in_config", "files_mark", "load_config"),
    "file_settings": ("ShellEnvironment", "WorkspaceWrite"),
}
_HOME = {name: f"treadle.config.{module}" for module, names in _MODULES.items() for name in names}

__all__ = [
    "BASE_INSTRUCTIONS",
    "COMPACT_PROMPT",
    "PERSONALITIES",
    "SUMMARY_PREFIX",
    "Config",
    "ConfigError",
    "ConfigProblem",
    "ConfigWarning",
    "ConfigWriteError",
    "Document",
    "InstructionFile",
    "InvalidCursor",
    "LoadedConfig",
    "Login",
    "ModelFacts",
    "ModelUnusable",
    "ShellEnvironment",
    "WorkspaceWrite",
    "Written",
    "built_in_config",
    "config_view",
    "environment_text",
    "environments_text",
    "files_mark",
    "find_home",
    "find_instructions",
    "goal_text",
    "instructions_text",
    "list_models",
    "load_config",
    "model_facts",
    "moved_text",
    "permissions_text",
    "read_document",
    "write_value",
    "write_values",
]


def __getattr__(name: str) -> object:
    if name in _HOME:
        value = globals()[name] = getattr(import_module(_HOME[name]), name)  # the next look-up does not come here
        return value
    return internal_name(__name__, name)


def __dir__() -> list[str]:
    return sorted(__all__)


# fmt: off
# isort: off
if TYPE_CHECKING:  # for tests: see treadle.internal_names
    from treadle.config.config_access import remember_tool_approval
    from treadle.config.configuration import check_document, secret_variables
    from treadle.config.environment_settings import EnvironmentConfig
    from treadle.config.file_settings import AutoReview, ELSEWHERE, ELSEWHERE_IN_TABLE, FileSettings, IGNORED, SILENT
    from treadle.config.file_settings import SkillRule, SkillSettings, TerminalSettings, WebSearchLocation
    from treadle.config.file_settings import WebSearchTable, read_values
    from treadle.config.layers import FoundKey, Layers, VARIABLES, expand, join_key, lookup, merge, nest
    from treadle.config.layers import parse_override, parse_overrides, split_key
    from treadle.config.login import Credential, StoredKeys, find_credential, key_source
    from treadle.config.mcp_settings import ApprovalMode, EnvVar, McpServerConfig, McpServerTable, McpToolTable
    from treadle.config.mcp_settings import OAuthTable, read_mcp_servers
    from treadle.config.model_catalogue import CATALOG, models
    from treadle.config.model_settings import ModelChoice, choose_model, find_key
    from treadle.config.permission_profiles import BUILT_IN, ProfileError, profile_permissions, user_profiles
    from treadle.config.prompts import REVIEW_PROMPT
    from treadle.config.toml_edit import TomlError, locate, parse, remove_empty, remove_value, same, scan
    from treadle.config.toml_edit import section_lines, set_value, string_text, value_text
