"""Where the paths of a thread led, and what is made of it when they lead elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from treadle.agent import State, read_state
from treadle.errors import ExecError
from treadle.execution import Pins, pin, pinned_paths
from treadle.protocol.app import ReadOnlySandboxPolicy, WorkspaceWriteSandboxPolicy
from unit.agent.bare_thread import bare_thread, settings

pytestmark = pytest.mark.anyio


def policy(*roots: Path | str) -> WorkspaceWriteSandboxPolicy:
    return WorkspaceWriteSandboxPolicy(
        writable_roots=tuple(map(str, roots)), exclude_slash_tmp=True, exclude_tmpdir_env_var=True
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    (tmp_path / "other").mkdir()
    return Path(os.path.realpath(tmp_path))


def pins(root: Path, *roots: Path) -> Pins:
    return Pins(pin(policy(*roots), str(root / "ws")))


def test_what_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    assert pinned_paths(ReadOnlySandboxPolicy(), "/ws") == ["/ws"]
    assert pinned_paths(WorkspaceWriteSandboxPolicy(), "/ws") == ["/ws", "/tmp", "/var/tmp"]
    assert pinned_paths(WorkspaceWriteSandboxPolicy(), "/ws", temporary=False) == ["/ws"]
    assert pinned_paths(policy("/a", "b", "/ws"), "/ws") == ["/ws", "/a", "/ws/b"]
    monkeypatch.setenv("TMPDIR", "relative")
    assert pinned_paths(WorkspaceWriteSandboxPolicy(), "/ws") == ["/ws", "/tmp"]


def test_a_path_keeps_its_meaning_when_settings_change(root: Path) -> None:
    ws, link = str(root / "ws"), root / "link"
    before = pins(root, link)
    assert before[str(link)] == str(link)  # nothing is there yet
    link.symlink_to("other")
    wider = policy(link, root / "other")
    after = before.changed(wider, ws, pin(wider, ws))
    assert after.on_record() == {ws: ws, str(link): str(link), str(root / "other"): str(root / "other")}
    with pytest.raises(ExecError, match="leads to"):
        after.check(wider, ws)
    narrower = after.changed(policy(), ws, {})
    assert narrower.on_record() == {ws: ws}
    again = narrower.changed(wider, ws, pin(wider, ws))  # it was given up, so this is a new wish
    assert again[str(link)] == str(root / "other")


def test_a_record_knows_names_but_not_directories(root: Path) -> None:
    ws = str(root / "ws")
    known = Pins.known(pins(root).on_record())
    (root / "ws").rename(root / "old")
    (root / "ws").mkdir()
    known.check(policy(), ws)  # the name is all that was known, and from here on it is this directory
    (root / "ws").rename(root / "older")
    (root / "ws").mkdir()
    with pytest.raises(ExecError, match="is not the directory any more"):
        known.check(policy(), ws)


def test_a_directory_that_is_gone_for_a_while(root: Path) -> None:
    kept = pins(root, root / "other")
    (root / "other").rename(root / "away")
    kept.check(policy(root / "other"), str(root / "ws"))
    (root / "away").rename(root / "other")
    kept.check(policy(root / "other"), str(root / "ws"))


async def test_a_record_from_before_has_no_roots() -> None:
    old = msgspec.json.decode(msgspec.json.encode(State(settings=settings())))
    del old["roots"]
    assert read_state(msgspec.json.encode(old), None).roots is None


async def test_a_change_of_settings_is_kept_with_its_roots(tmp_path: Path, root: Path) -> None:
    async with bare_thread(tmp_path) as (thread, _):
        changes = {"cwd": str(root / "ws"), "sandbox": policy()}
        assert await thread.look_at_roots({"model": "x"}) == {}
        found = await thread.look_at_roots(changes)
        (root / "ws").rename(root / "old")
        (root / "ws").symlink_to("other")
        thread.change_settings(changes, found)
        assert read_state(thread.save().state, None).roots == {str(root / "ws"): str(root / "ws")}
        with pytest.raises(ExecError, match="leads to"):
            thread.pins.check(thread.settings.sandbox, thread.settings.cwd)
        await thread.journal.flush()
