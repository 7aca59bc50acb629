"""Home, settings, login, models, project instructions, and the prompts that we send to a model.

It owns the configuration and where each value came from. It starts nothing and sends nothing. The names below are
imported on first use: a start without a config file never loads the TOML parser.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.config.config_edits import write_values
    from treadle.config.configuration import Config, Loaded, built_in_config, load_config
    from treadle.config.document import Document, Written, read_document
    from treadle.config.effective_config import config_view
    from treadle.config.file_settings import ShellEnvironment, WorkspaceWrite
    from treadle.config.home_directory import find_home
    from treadle.config.instructions import InstructionFile, find_instructions
    from treadle.config.login import Login
    from treadle.config.model_catalogue import InvalidCursor, ModelFacts, list_models, model_facts
    from treadle.config.problems import ConfigError, ConfigProblem, ConfigWarning, ConfigWriteError, ModelUnusable
    from treadle.config.prompts import (
        BASE_INSTRUCTIONS,
        COMPACT_PROMPT,
        SUMMARY_PREFIX,
        environment_text,
        goal_text,
        instructions_text,
        permissions_text,
    )

_MODULES = {
    "config_edits": ("write_values",),
    "document": ("Document", "Written", "read_document"),
    "home_directory": ("find_home",),
    "instructions": ("InstructionFile", "find_instructions"),
    "login": ("Login",),
    "model_catalogue": ("InvalidCursor", "ModelFacts", "list_models", "model_facts"),
    "problems": ("ConfigError", "ConfigProblem", "ConfigWarning", "ConfigWriteError", "ModelUnusable"),
    "prompts": (
        "BASE_INSTRUCTIONS",
        "COMPACT_PROMPT",
        "SUMMARY_PREFIX",
        "environment_text",
        "goal_text",
        "instructions_text",
        "permissions_text",
    ),
    "configuration": ("Config", "Loaded", "built_in_config", "load_config"),
    "file_settings": ("ShellEnvironment", "WorkspaceWrite"),
    "effective_config": ("config_view",),
}
_HOME = {name: f"treadle.config.{module}" for module, names in _MODULES.items() for name in names}

__all__ = [
    "BASE_INSTRUCTIONS",
    "COMPACT_PROMPT",
    "SUMMARY_PREFIX",
    "Config",
    "ConfigError",
    "ConfigProblem",
    "ConfigWarning",
    "ConfigWriteError",
    "Document",
    "InstructionFile",
    "InvalidCursor",
    "Loaded",
    "Login",
    "ModelFacts",
    "ModelUnusable",
    "ShellEnvironment",
    "WorkspaceWrite",
    "Written",
    "built_in_config",
    "config_view",
    "environment_text",
    "find_home",
    "find_instructions",
    "goal_text",
    "instructions_text",
    "list_models",
    "load_config",
    "model_facts",
    "permissions_text",
    "read_document",
    "write_values",
]


def __getattr__(name: str) -> object:
    if name in _HOME:
        value = globals()[name] = getattr(import_module(_HOME[name]), name)  # the next look-up does not come here
        return value
    raise AttributeError(f"module 'treadle.config' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
