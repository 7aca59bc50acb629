"""The published conformance tests of MCP on our client (`conformance_client.py`), one run for each scenario."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from interop.peers import installed

pytestmark = pytest.mark.interop
PROGRAM: Final = Path(__file__).with_name("conformance_client.py")
DEADLINE_S: Final = 90

SCENARIOS: Final = (
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/resource-mismatch",
    "auth/2025-03-26-oauth-metadata-backcompat",
    "auth/2025-03-26-oauth-endpoint-fallback",
)
NOT_OURS: Final = {
    "auth/metadata-var2": "its metadata names another issuer than where it is, which RFC 8414 has us refuse",
    "auth/metadata-var3": "likewise; both are mended in 0.1.16, which takes Node.js 22",
    "auth/basic-cimd": "it only warns: there is no page of ours that a client id could be the address of",
    "auth/pre-registration": "a client with a secret: ours are public clients, and a secret in config.toml is none",
    "auth/client-credentials-jwt": "an extension for programs without a user",
    "auth/client-credentials-basic": "likewise",
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_our_client_conforms(tmp_path: Path, scenario: str) -> None:
    client = shlex.join([sys.executable, str(PROGRAM)])
    # Run by two workers at a time, with all the others: its own deadline is half a minute.
    command = [str(installed("mcp-conformance")), "client", "--command", client, "--timeout", "60000"]
    done = subprocess.run(
        [*command, "--scenario", scenario, "--output-dir", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_scenario_is_known() -> None:
    listed = subprocess.run(
        [str(installed("mcp-conformance")), "list", "--client"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    names = [line.strip().removeprefix("- ") for line in listed.stdout.splitlines() if line.startswith("  - ")]
    assert sorted(names) == sorted((*SCENARIOS, *NOT_OURS))
