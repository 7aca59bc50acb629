"""What the workspace roots of a client make of a sandbox: never more than it names, and the working directory only if
it is one of them."""

from __future__ import annotations

import pytest

from treadle.execution import Confinement, ProfileRule, ProfileSandbox, as_policy, may_write, pinned_paths, with_roots
from treadle.protocol.app import DangerFullAccessSandboxPolicy, ReadOnlySandboxPolicy, WorkspaceWriteSandboxPolicy

PLAIN = WorkspaceWriteSandboxPolicy(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
PROFILE = ProfileSandbox(rules=(ProfileRule(":root", "read"), ProfileRule(":workspace_roots", "write")))


def written(sandbox: Confinement) -> list[str]:
    """What commands in `/ws` can write."""
    if isinstance(sandbox, ProfileSandbox):
        return sandbox.writable_paths("/ws")
    return pinned_paths(sandbox, "/ws") if may_write(sandbox) else []


@pytest.mark.parametrize("sandbox", [PLAIN, PROFILE])
@pytest.mark.parametrize("roots", [("/ws",), ("/ws", "/a"), ("/a", "/ws"), ("/a",), ("/a", "/b"), ()])
def test_the_roots_and_nothing_else_can_be_written(sandbox: Confinement, roots: tuple[str, ...]) -> None:
    confined = with_roots(sandbox, "/ws", roots)
    assert set(written(confined)) == set(roots)
    assert may_write(confined) is bool(roots)
    shown = as_policy(confined)
    if not roots:
        assert shown == ReadOnlySandboxPolicy(network_access=False)
    else:
        assert isinstance(shown, WorkspaceWriteSandboxPolicy)
        assert set(shown.writable_roots) == set(roots) - {"/ws"}


@pytest.mark.parametrize("roots", [("/ws", "/a"), ("/a",)])
def test_what_the_policy_opens_beside_the_workspace_stays(
    roots: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/tmpdir")
    policy = WorkspaceWriteSandboxPolicy(writable_roots=("/more", "below"), network_access=True)
    confined = with_roots(policy, "/ws", roots)
    assert set(written(confined)) == {*roots, "/more", "/ws/below", "/tmp", "/tmpdir"}
    assert not isinstance(confined, DangerFullAccessSandboxPolicy | ReadOnlySandboxPolicy)
    assert confined.network_access is True


@pytest.mark.parametrize("sandbox", [ReadOnlySandboxPolicy(), DangerFullAccessSandboxPolicy()])
def test_a_sandbox_without_a_workspace_stays_as_it_is(sandbox: Confinement) -> None:
    assert with_roots(sandbox, "/ws", ("/a",)) == sandbox


def test_rules_below_the_roots_hold_in_each_of_them() -> None:
    profile = ProfileSandbox(
        rules=(*PROFILE.rules, ProfileRule(":workspace_roots/docs", "read")), workspace_roots=("/own",)
    )
    confined = with_roots(profile, "/ws", ("/a",))
    assert isinstance(confined, ProfileSandbox)
    assert confined.paths(":workspace_roots/docs", "/ws") == ["/a/docs", "/own/docs"]
    assert written(confined.without_writing()) == []
    assert confined.without_writing().excludes_cwd
