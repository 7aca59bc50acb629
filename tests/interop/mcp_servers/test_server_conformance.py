"""The published conformance tests of MCP (`@modelcontextprotocol/conformance`) against our server over HTTP."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from interop.mcp_servers.conformance_tools import ConformanceTools
from interop.peers import installed
from kit.app_program import listening_server
from kit.mcp_http import sessions_here
from treadle.testing import AppServerHarness

pytestmark = pytest.mark.interop
DEADLINE_S: Final = 120.0

# Those that need no tools of their own.
PLAIN: Final = ("server-initialize", "logging-set-level", "ping", "tools-list", "server-sse-multiple-streams")
WITH_TOOLS: Final = (
    *PLAIN,
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-with-logging",
    "tools-call-error",
    "tools-call-with-progress",
    "tools-call-elicitation",
    "json-schema-2020-12",
    "elicitation-sep1034-defaults",
    "elicitation-sep1330-enums",
)
# It has events to resume from, and resumes; but ends no stream in the midst of a call, which the scenario warns of.
POLLING: Final = "server-sse-polling"
NOT_APPLICABLE: Final[Mapping[str, str]] = {
    "completion-complete": "there is nothing to complete: no prompts, no resource templates",
    "tools-call-sampling": "it has a model of its own, and asks none of its client",
    **{
        f"resources-{name}": "it has no resources"
        for name in ("list", "read-text", "read-binary", "templates-read", "subscribe", "unsubscribe")
    },
    **{
        f"prompts-{name}": "it has no prompts"
        for name in ("list", "get-simple", "get-with-args", "get-embedded-resource", "get-with-image")
    },
    "dns-rebinding-protection": "every request with an Origin is refused, also one of localhost, which it wants taken",
}


def conformance(*words: str) -> str:
    done = subprocess.run(
        [installed("mcp-conformance"), *words],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)


def passes(url: str, scenario: str, warnings: int = 0) -> None:
    report = conformance("server", "--url", f"{url}/mcp", "--scenario", scenario)
    assert re.search(rf"^Passed: (\d+)/\1, 0 failed, {warnings} warnings$", report, re.MULTILINE), report


def test_every_scenario_is_named_here() -> None:
    listed = re.findall(r"^  - (\S+)$", conformance("list", "--server"), re.MULTILINE)
    assert sorted(listed) == sorted((*WITH_TOOLS, POLLING, *NOT_APPLICABLE))


@pytest.mark.parametrize("scenario", PLAIN)
def test_the_app_server(tmp_path: Path, scenario: str) -> None:
    with AppServerHarness(tmp_path) as harness, listening_server(harness) as program:
        passes(program.url.replace("ws://", "http://"), scenario)


@pytest.mark.parametrize("scenario", WITH_TOOLS)
def test_the_conversation_with_the_tools_that_the_tests_want(scenario: str) -> None:
    with sessions_here(ConformanceTools()) as url:
        passes(url.replace("ws://", "http://"), scenario)


def test_a_stream_can_be_resumed() -> None:
    with sessions_here(ConformanceTools()) as url:
        passes(url.replace("ws://", "http://"), POLLING, warnings=1)
