"""`EngineHome`: a home for agent programs in which all of them are set up to use one mock model.

Owns the configuration files and the environment. Starts nothing: a program gets `env(engine)` and works in `project`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from treadle.arguments import one_of, path
from treadle.testing.engine_model import EngineModel

EngineName: TypeAlias = Literal["codex", "claude", "opencode", "pi", "treadle"]
ENGINES: Final[tuple[EngineName, ...]] = get_args(EngineName)

_MODEL: Final = "mock-model"
# A model that codex knows, or it warns; later ones call tools in another format.
_CODEX_MODEL: Final = "gpt-5.5"
_KEY: Final = "mock-key"


class EngineHome:
    """A folder with a `home` and an empty `project`, for any of codex, claude, opencode, pi and treadle.

    Nothing outside of the folder is read or written by a program that gets the environment and works in the project,
    as long as its prompts do not say so: commands are run without a sandbox.

    Args:
        folder: The folder to make it in; it may have to be made.
        model: The model that the programs use.
    """

    def __init__(self, folder: str | os.PathLike[str], model: EngineModel) -> None:
        root = Path(path("folder", folder)).absolute()
        self.model: EngineModel = model
        self.home: Path = root / "home"
        self.project: Path = root / "project"
        self.project.mkdir(parents=True, exist_ok=True)
        url = self.model.base_url
        pi = {"defaultProvider": "mock", "defaultModel": _MODEL}
        files = {
            ".codex/config.toml": _toml(url, 'env_key = "MOCK_API_KEY"', "", "[analytics]", "enabled = false"),
            ".treadle/config.toml": _toml(url),
            ".config/opencode/opencode.json": json.dumps(_opencode(url), indent=1),
            ".pi/agent/models.json": json.dumps({"providers": {"mock": _pi_provider(url)}}, indent=1),
            ".pi/agent/settings.json": json.dumps(pi, indent=1),
        }
        for name, content in files.items():
            file = self.home / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")

    def env(self, engine: EngineName) -> dict[str, str]:
        """The whole environment for a program. Laid over another one, it still keeps the program in this home.

        Args:
            engine: The program.
        """
        one_of("engine", engine, ENGINES)
        home = self.home
        own: Mapping[EngineName, dict[str, str]] = {
            "codex": {"CODEX_HOME": str(home / ".codex"), "MOCK_API_KEY": _KEY},
            "treadle": {"TREADLE_HOME": str(home / ".treadle")},
            "claude": {
                "CLAUDE_CONFIG_DIR": str(home / ".claude"),
                "ANTHROPIC_BASE_URL": self.model.root_url,
                "ANTHROPIC_API_KEY": _KEY,
                "ANTHROPIC_MODEL": _MODEL,
                "CLAUDE_CODE_MAX_RETRIES": "3",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
            },
            "opencode": {
                "OPENCODE_CONFIG": str(home / ".config/opencode/opencode.json"),
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
                "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            },
            "pi": {"PI_CODING_AGENT_DIR": str(home / ".pi/agent"), "PI_OFFLINE": "1", "CI": "1"},
        }
        folders = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state", "CACHE": ".cache"}
        return {
            "HOME": str(self.home),
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "NO_COLOR": "1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            **{f"XDG_{kind}_HOME": str(self.home / name) for kind, name in folders.items()},
            **own[engine],
        }


def _toml(url: str, *more: str) -> str:
    return f"""model = "{_CODEX_MODEL}"
model_provider = "mock"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[model_providers.mock]
name = "mock"
base_url = "{url}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 3
stream_idle_timeout_ms = 15000
""" + "".join(f"{line}\n" for line in more)


def _opencode(url: str) -> dict[str, Any]:
    model = {"name": _MODEL, "tool_call": True, "limit": {"context": 128_000, "output": 8192}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "mock",
        "options": {"baseURL": url, "apiKey": _KEY},
        "models": {_MODEL: model},
    }
    return {
        "model": f"mock/{_MODEL}",
        "small_model": f"mock/{_MODEL}",
        "autoupdate": False,
        "share": "disabled",
        "enabled_providers": ["mock"],
        "permission": {"*": "allow"},
        "provider": {"mock": provider},
    }


def _pi_provider(url: str) -> dict[str, Any]:
    model = {
        "id": _MODEL,
        "name": "mock",
        "reasoning": False,
        "input": ["text"],
        "contextWindow": 128_000,
        "maxTokens": 8192,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
    }
    compat = {"supportsDeveloperRole": False, "supportsReasoningEffort": False}
    return {"baseUrl": url, "api": "openai-completions", "apiKey": _KEY, "compat": compat, "models": [model]}
