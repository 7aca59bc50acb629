"""Sandboxes for another machine: what is sent there says nothing of this one."""

from __future__ import annotations

import pytest

from treadle.errors import SandboxRefused
from treadle.execution import ProfileRule, ProfileSandbox, unresolved_sandbox


@pytest.mark.parametrize("ours", [True, None])
def test_a_pattern_below_the_temporary_directory_is_refused(ours: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be that of this machine, and nothing would be denied on the other one."""
    monkeypatch.setenv("TMPDIR", "/here/alone")
    rules = (ProfileRule(":root", "write"), ProfileRule(":tmpdir/**/*.env", "deny", glob=True))
    with pytest.raises(SandboxRefused, match="cannot be sent to another machine"):
        unresolved_sandbox(ProfileSandbox(rules=rules), "/there", {}, ours=ours)


def test_a_pattern_below_the_workspace_is_that_of_the_other_machine() -> None:
    rules = (ProfileRule(":workspace_roots", "write"), ProfileRule(":workspace_roots/**/*.env", "deny", glob=True))
    sandbox = unresolved_sandbox(ProfileSandbox(rules=rules), "/there", {"/there": "/real/there"}, ours=True)
    assert sandbox is not None
    assert sandbox.permissions.file_system is not None
    assert [entry.path.pattern for entry in sandbox.permissions.file_system.entries] == [None, "/real/there/**/*.env"]
