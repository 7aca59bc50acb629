"""What we say to a model: that it is there, complete, short enough and true."""

from __future__ import annotations

import pytest

from treadle.config import environment_text, goal_text, instructions_text, permissions_text, prompts
from treadle.protocol.app import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxSandboxPolicy,
    Granular,
    GranularAskForApproval,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
    Unknown,
    WorkspaceWriteSandboxPolicy,
)
from treadle.tools import parse


def test_the_base_instructions_are_short_and_name_every_tool() -> None:
    assert 600 <= len(prompts.BASE_INSTRUCTIONS.split()) <= 910
    for tool in ("exec_command", "write_stdin", "apply_patch", "update_plan", "view_image"):
        assert f"`{tool}`" in prompts.BASE_INSTRUCTIONS


def test_the_patch_in_the_instructions_is_one() -> None:
    text = prompts.BASE_INSTRUCTIONS
    example = text[text.index("\n*** Begin Patch\n") : text.index("\n*** End Patch\n") + len("\n*** End Patch\n")]
    sections = parse(example).sections
    assert [type(section).__name__ for section in sections] == ["AddFile", "UpdateFile", "DeleteFile"]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (ReadOnlySandboxPolicy(), ["read-only", "network is closed"]),
        (ReadOnlySandboxPolicy(network_access=True), ["network can be used"]),
        (WorkspaceWriteSandboxPolicy(), ["workspace-write", "`/w`, `/tmp`, `$TMPDIR`", "network is closed"]),
        (
            WorkspaceWriteSandboxPolicy(
                writable_roots=("/w", "/data"), exclude_slash_tmp=True, exclude_tmpdir_env_var=True, network_access=True
            ),
            ["below `/w`, `/data`.", "network can be used"],
        ),
        (ExternalSandboxSandboxPolicy(network_access="enabled"), ["outside of this program", "can be used"]),
        (DangerFullAccessSandboxPolicy(), ["Sandbox: none"]),
        (Unknown({"type": "new"}), ["not known here"]),
    ],
)
def test_permissions_name_the_sandbox(policy: SandboxPolicy | Unknown, words: list[str]) -> None:
    text = permissions_text("on-request", policy, "/w")
    for word in words:
        assert word in text


def granular(sandbox_approval: bool) -> GranularAskForApproval:
    return GranularAskForApproval(
        granular=Granular(mcp_elicitations=True, rules=True, sandbox_approval=sandbox_approval)
    )


@pytest.mark.parametrize(
    ("approval", "may_ask"),
    [
        ("on-request", True),
        ("untrusted", True),
        ("never", False),
        (granular(True), True),
        (granular(False), False),
        ("of-the-future", False),
    ],
)
def test_permissions_say_whether_anybody_can_be_asked(approval: GranularAskForApproval | str, may_ask: bool) -> None:
    text = permissions_text(approval, ReadOnlySandboxPolicy(), "/w")
    assert ("`require_escalated`" in text) == may_ask


def test_full_access_asks_only_when_told_to() -> None:
    assert "without asking" in permissions_text("on-request", DangerFullAccessSandboxPolicy(), "/w")
    assert "user is asked before" in permissions_text("untrusted", DangerFullAccessSandboxPolicy(), "/w")


def test_the_environment_is_a_block_that_a_name_cannot_end() -> None:
    assert environment_text("/w", shell="bash", date="2026-11-15") == (
        "<environment_context>\n  <cwd>/w</cwd>\n  <shell>bash</shell>\n"
        "  <current_date>2026-11-15</current_date>\n</environment_context>"
    )
    assert environment_text("/</cwd>&").count("</cwd>") == 1


def test_a_goal_is_between_its_marks() -> None:
    text = goal_text("make it\nwork")
    assert "<objective>\nmake it\nwork\n</objective>" in text
    assert "`update_goal` with the status `complete`" in text
    assert "5 of 10 tokens" in goal_text("x", tokens_used=5, token_budget=10)


def test_project_instructions_name_their_file() -> None:
    assert instructions_text("/a/AGENTS.md", "be kind\n\n") == (
        '<project_instructions path="/a/AGENTS.md">\nbe kind\n</project_instructions>'
    )


def test_the_rest_is_there() -> None:
    assert "Do not call tools" in prompts.COMPACT_PROMPT
    assert prompts.SUMMARY_PREFIX.endswith(".\n")
