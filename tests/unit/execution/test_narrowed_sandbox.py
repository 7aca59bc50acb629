"""A sandbox that somebody hands on is never wider than their own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from treadle.execution import ProfileRule, ProfileSandbox, narrowed, policy_from_wire, sandbox_for
from treadle.protocol.app import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxSandboxPolicy,
    ReadOnlySandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)

PATHS = ("/", "W", "W/project", "W/project/a", "W/project/.git", "W/other", "W/other/b", "/tmp", "/etc/passwd")
_RANKS = {"none": 0, "deny": 0, "read": 1, "write": 2}
MODES: tuple[Any, ...] = (None, "read-only", "workspace-write", "danger-full-access")

workspaces = st.builds(
    WorkspaceWriteSandboxPolicy,
    writable_roots=st.lists(st.sampled_from(("W/other", "W")), max_size=2).map(tuple),
    network_access=st.booleans(),
    exclude_slash_tmp=st.booleans(),
    exclude_tmpdir_env_var=st.just(True),
)
rules = st.builds(
    ProfileRule,
    place=st.sampled_from((":root", ":workspace_roots", "W/other", "/etc", ":slash_tmp")),
    access=st.sampled_from(("read", "write", "deny")),
)
sandboxes = st.one_of(
    st.just(DangerFullAccessSandboxPolicy()),
    st.builds(ExternalSandboxSandboxPolicy),
    st.builds(ReadOnlySandboxPolicy, network_access=st.booleans()),
    workspaces,
    st.builds(ProfileSandbox, rules=st.lists(rules, max_size=4).map(tuple), network_access=st.booleans()),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `W` stands for: a directory that is not there cannot be written, whatever a rule says."""
    folder = tmp_path_factory.mktemp("w")
    for name in ("project/.git", "other"):
        (folder / name).mkdir(parents=True)
    return str(folder)


def _placed(sandbox: Any, place: str) -> Any:
    if isinstance(sandbox, WorkspaceWriteSandboxPolicy):
        roots = tuple(root.replace("W", place) for root in sandbox.writable_roots)
        return structs.replace(sandbox, writable_roots=roots)
    if isinstance(sandbox, ProfileSandbox):
        placed = (structs.replace(rule, place=rule.place.replace("W", place)) for rule in sandbox.rules)
        return structs.replace(sandbox, rules=tuple(placed))
    return sandbox


def _allowed(sandbox: Any, place: str) -> tuple[bool, list[int]]:
    """Whether the network may be used, and what may be done to some paths."""
    if isinstance(sandbox, DangerFullAccessSandboxPolicy | ExternalSandboxSandboxPolicy):
        return True, [2] * len(PATHS)
    policy = policy_from_wire(sandbox_for(sandbox, f"{place}/project"))
    assert policy is not None
    return bool(sandbox.network_access), [_RANKS[policy.access(path.replace("W", place))] for path in PATHS]


@given(sandbox=sandboxes, mode=st.sampled_from(MODES), workspace=workspaces)
def test_it_is_never_wider(place: str, sandbox: Any, mode: Any, workspace: Any) -> None:
    sandbox = _placed(sandbox, place)
    found = narrowed(sandbox, mode, _placed(workspace, place))
    if found is not None:
        network, access = _allowed(found, place)
        may_network, may_access = _allowed(sandbox, place)
        assert network <= may_network
        assert all(one <= other for one, other in zip(access, may_access, strict=True)), (access, may_access)
        if mode == "read-only":
            assert max(access) <= 1


@given(sandbox=sandboxes, first=st.sampled_from(MODES), second=st.sampled_from(MODES), workspace=workspaces)
def test_nor_that_of_a_child_of_a_child(place: str, sandbox: Any, first: Any, second: Any, workspace: Any) -> None:
    sandbox, workspace = _placed(sandbox, place), _placed(workspace, place)
    child = narrowed(sandbox, first, workspace)
    grandchild = None if child is None else narrowed(child, second, workspace)
    if grandchild is not None:
        access, may_access = _allowed(grandchild, place)[1], _allowed(sandbox, place)[1]
        assert all(one <= other for one, other in zip(access, may_access, strict=True)), (access, may_access)


@pytest.mark.parametrize("sandbox", [ReadOnlySandboxPolicy(), ProfileSandbox(rules=()), ExternalSandboxSandboxPolicy()])
def test_what_is_wider_or_unclear_is_refused(sandbox: Any) -> None:
    assert narrowed(sandbox, "workspace-write", WorkspaceWriteSandboxPolicy()) is None
    assert narrowed(sandbox, "danger-full-access", WorkspaceWriteSandboxPolicy()) is None


def test_what_may_be_narrowed() -> None:
    given, full = WorkspaceWriteSandboxPolicy(writable_roots=("/w",)), DangerFullAccessSandboxPolicy()
    other = WorkspaceWriteSandboxPolicy()
    assert narrowed(full, "workspace-write", other) is other
    assert narrowed(given, "workspace-write", other) is given
    assert narrowed(full, "read-only", other) == ReadOnlySandboxPolicy()
    assert narrowed(full, "danger-full-access", other) is full
    assert narrowed(given, "danger-full-access", other) is None
