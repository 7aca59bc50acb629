"""Which model a server asks and why: said where a person reads it, and told to clients that ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.app_client import joined
from kit.app_program import listening_server
from treadle.testing import AppServerHarness

KEYS = {"OPENAI_API_KEY": "sk-not-to-be-shown", "ANTHROPIC_API_KEY": "sk-nor-this"}
NO_KEYS = dict.fromkeys(KEYS, "")
NOTHING = "neither OPENAI_API_KEY nor ANTHROPIC_API_KEY is set, and nobody is logged in"


@pytest.mark.parametrize(
    ("env", "provider", "why"),
    [
        (KEYS, "openai", "OPENAI_API_KEY is set"),
        ({**KEYS, "OPENAI_API_KEY": ""}, "anthropic", "ANTHROPIC_API_KEY is set"),
        (NO_KEYS, "offline", NOTHING),
    ],
)
def test_a_server_that_listens_says_which_and_why(tmp_path: Path, env: dict[str, str], provider: str, why: str) -> None:
    with AppServerHarness(tmp_path) as harness:
        (harness.home / "config.toml").unlink()
        with listening_server(harness, env=env) as program:
            program.wait_for_log(f"({provider}, because {why})\n")
            assert "treadle app-server: model " in program.stderr
            with joined(program.url) as client:
                config = client.call("config/read", {})["config"]
            assert (config["model_provider"], config["model_provider_reason"]) == (provider, why)
            assert "sk-no" not in program.stderr
