"""Which commands may go on after a change of settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from treadle.agent import Authority, Grant, Settings, confined_to, rules_of, same_authority
from treadle.protocol.app import (
    DangerFullAccessSandboxPolicy,
    GranularAskForApproval,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from treadle.tools import CommandSession
from unit.agent.bare_thread import settings

FULL = DangerFullAccessSandboxPolicy()
READ_ONLY = ReadOnlySandboxPolicy()
ONLINE = ReadOnlySandboxPolicy(network_access=True)
WORKSPACE = WorkspaceWriteSandboxPolicy(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
WITH_TMP = WorkspaceWriteSandboxPolicy(exclude_tmpdir_env_var=True)


class Running:
    """What of a session counts here."""

    def __init__(self, number: int = 1) -> None:
        self.id = number
        self.closed = False


def _goes_on(before: Settings, after: Settings, *, unconfined: bool = False) -> bool:
    authority, session = Authority(), cast(CommandSession, Running())
    authority.started(session, 0, before, None if unconfined else rules_of(confined_to(before), before))
    assert authority.over(after) == [], "nothing has changed yet"
    authority.forget()
    over = authority.over(after)
    assert over == [] or (over == [session] and authority.was_ended(1))
    assert authority.over(after) == [], "each is told once"
    return not over


@pytest.mark.parametrize(
    ("before", "after", "goes_on"),
    [
        (FULL, FULL, True),
        (FULL, WORKSPACE, False),
        (FULL, READ_ONLY, False),
        (WORKSPACE, FULL, True),
        (WORKSPACE, WORKSPACE, True),
        (WORKSPACE, WITH_TMP, True),
        (WITH_TMP, WORKSPACE, False),
        (WORKSPACE, READ_ONLY, False),
        (READ_ONLY, WORKSPACE, True),
        (READ_ONLY, ONLINE, True),
        (ONLINE, READ_ONLY, False),
        (ONLINE, WORKSPACE, False),
    ],
)
def test_less_goes_on_and_more_does_not(
    tmp_path: Path, before: SandboxPolicy, after: SandboxPolicy, goes_on: bool
) -> None:
    cwd = str(tmp_path)
    assert _goes_on(settings(cwd=cwd, sandbox=before), settings(cwd=cwd, sandbox=after)) is goes_on


def test_another_directory_is_another_right(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    wide, narrow = settings(cwd=str(tmp_path), sandbox=WORKSPACE), settings(cwd=str(inner), sandbox=WORKSPACE)
    assert _goes_on(narrow, wide)
    assert not _goes_on(wide, narrow)


def test_what_it_may_do_is_what_it_could_when_it_was_started(tmp_path: Path) -> None:
    """A link that is put in the place of its directory later does not make it a command of the other one."""
    old, new = tmp_path / "old", tmp_path / "new"
    for directory in (old, new):
        directory.mkdir()
    authority, session = Authority(), cast(CommandSession, Running())
    before = settings(cwd=str(old), sandbox=WORKSPACE)
    authority.started(session, 0, before, rules_of(confined_to(before), before))
    old.rename(tmp_path / "away")
    old.symlink_to(new)
    authority.forget()
    assert authority.over(settings(cwd=str(new), sandbox=WORKSPACE)) == [session]


@pytest.mark.parametrize("sandbox", [READ_ONLY, WORKSPACE])
def test_outside_of_the_sandbox_is_more_than_any(tmp_path: Path, sandbox: SandboxPolicy) -> None:
    confined = settings(cwd=str(tmp_path), sandbox=sandbox)
    assert not _goes_on(confined, confined, unconfined=True)
    assert _goes_on(confined, settings(cwd=str(tmp_path), sandbox=FULL), unconfined=True)


def test_what_would_have_been_asked_for_ends() -> None:
    for policy in ("never", "on-request"):
        assert not _goes_on(settings(approval_policy=policy), settings(approval_policy="untrusted"))
        assert _goes_on(settings(approval_policy="untrusted"), settings(approval_policy=policy))
    assert _goes_on(settings(approval_policy="untrusted"), settings(approval_policy="untrusted", cwd="/usr"))


def test_one_that_was_allowed_after_the_change_goes_on(tmp_path: Path) -> None:
    authority, confined = Authority(), settings(cwd=str(tmp_path), sandbox=READ_ONLY)
    authority.forget()
    authority.started(cast(CommandSession, Running()), authority.epoch, confined, None)
    assert authority.over(confined) == []


def test_one_that_was_started_during_the_change_does_not(tmp_path: Path) -> None:
    authority, confined = Authority(), settings(cwd=str(tmp_path), sandbox=READ_ONLY)
    authority.forget()
    session = cast(CommandSession, Running())
    authority.started(session, authority.epoch - 1, settings(), None)
    assert authority.over(confined) == [session]


def test_a_number_is_the_one_of_the_latest_command() -> None:
    authority = Authority()
    authority.started(cast(CommandSession, Running()), 0, settings(), None)
    authority.forget()
    authority.over(settings(sandbox=READ_ONLY))
    assert authority.was_ended(1)
    authority.started(cast(CommandSession, Running()), 1, settings(), None)
    assert not authority.was_ended(1)


def test_not_all_that_ever_ended_is_remembered() -> None:
    authority = Authority()
    for number in range(100):
        authority.started(cast(CommandSession, Running(number)), 0, settings(), None)
    authority.forget()
    assert len(authority.over(settings(sandbox=READ_ONLY))) == 100
    assert [number for number in range(100) if authority.was_ended(number)] == list(range(36, 100))


def test_grants_are_forgotten() -> None:
    authority = Authority()
    authority.commands.add(Grant(argv=("a",), environment="local", cwd="/", tty=False, env=b"", unconfined=False))
    authority.forget()
    assert not authority.commands
    assert not authority.files


CHANGES: dict[str, Any] = {
    "approval_policy": "untrusted",
    "approvals_reviewer": "auto_review",
    "sandbox": READ_ONLY,
    "cwd": "/usr",
    "config": {"shell_environment_policy": {"inherit": "none"}},
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_authority_hangs_on(name: str) -> None:
    assert not same_authority(settings(), settings(**{name: CHANGES[name]}))


def test_what_it_does_not_hang_on() -> None:
    assert same_authority(settings(), settings(model="n", effort="high", personality="friendly"))
    granular = GranularAskForApproval.model_validate(
        {"granular": {"sandbox_approval": True, "rules": True, "mcp_elicitations": True}}
    )
    assert same_authority(settings(approval_policy=granular), settings(approval_policy=granular))


def test_what_was_denied_and_overruled_is_remembered_for_a_while() -> None:
    authority = Authority()
    for number in range(200):
        authority.denied(f"review {number}", f"item {number}", f"action {number}")
        assert authority.overrule(f"review {number}") == f"item {number}"
        authority.denied(f"other {number}", "item", "other")
    assert authority.overrule("other 0") is None
    assert not authority.use_overruling("action 0")
    assert authority.use_overruling("action 199")
    assert not authority.use_overruling("action 199")
