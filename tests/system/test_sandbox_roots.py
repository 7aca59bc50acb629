"""Directories that are swapped, names that are missing, paths that are hidden: real commands under both mechanisms."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kit.sandboxes import usable
from system.test_sandbox import DEADLINE, Place, finish, prepare, shell, started
from treadle.errors import ExecError
from treadle.execution import Mechanism, MountTable, PathRule, Placeholders, Policy, policy_from_wire, uri_from_path
from treadle.protocol.exec import (
    FileSystemPermissions,
    Permissions,
    Sandbox,
    SandboxEntry,
    SandboxPath,
    SandboxPathValue,
)

ROUNDS = 30
# Two names change places, over and over, until stdin ends.
SWAPPER = """
import ctypes, select, sys
libc, (one, two) = ctypes.CDLL(None), [name.encode() for name in sys.argv[1:]]
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(20):
        assert libc.renameat2(-100, one, -100, two, 2) == 0
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    root = Path(os.path.realpath(tmp_path))
    (root / "work").mkdir()
    return Place(root, root / "work")


def entry(path: Path, access: str) -> SandboxEntry:
    return SandboxEntry(path=SandboxPath(type="path", path=uri_from_path(path)), access=access)


def wire(*entries: SandboxEntry) -> Sandbox:
    root = SandboxEntry(path=SandboxPath(type="special", value=SandboxPathValue(kind="root")), access="read")
    files = FileSystemPermissions(type="restricted", entries=(root, *entries))
    permissions = Permissions(type="managed", network="restricted", file_system=files)
    return Sandbox(permissions=permissions, canonical_paths=True)


@contextmanager
def swapping(one: Path, two: Path) -> Iterator[None]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SWAPPER, str(one), str(two)], stdin=pipe, stdout=pipe) as swapper:
        assert swapper.stdout is not None
        try:
            assert swapper.stdout.readline() == b"ready\n"
            yield
        finally:
            swapper.communicate(b"", DEADLINE)
    assert swapper.returncode == 0


# --- a directory that is swapped while the sandbox is made ---


@pytest.mark.parametrize("target", ["../victim", "{root}/victim"], ids=["relative", "absolute"])
def test_a_link_that_comes_and_goes_never_opens_another_place(mechanism: Mechanism, place: Place, target: str) -> None:
    work, victim = place.work / "ws", place.root / "victim"
    work.mkdir()
    victim.mkdir()
    (place.work / "link").symlink_to(target.format(root=place.root))
    argv = ["/bin/sh", "-c", f"echo x > {victim}/escaped; echo x > {work}/escaped; echo ran"]
    sandbox, outcomes = wire(entry(work, "write")), Counter[str]()
    checked = prepare(_policy(sandbox), argv, mechanism, place.root)
    with swapping(work, place.work / "link"):
        for number in range(ROUNDS):
            try:
                # Every other round the look at the paths lies before the first swap.
                confined = checked if number % 2 else prepare(_policy(sandbox), argv, mechanism, place.root)
                done = finish(confined, place.root)
                outcomes["ran" if done.stdout else "stopped"] += 1
            except ExecError:
                outcomes["refused"] += 1
            assert list(victim.iterdir()) == [], outcomes
    assert outcomes["refused"] + outcomes["stopped"] > 0


def _policy(sandbox: Sandbox) -> Policy:
    policy = policy_from_wire(sandbox)
    assert policy is not None
    return policy


def test_what_was_mounted_elsewhere_is_noticed_inside(bubblewrap: Mechanism, place: Place) -> None:
    (place.work / "ws").mkdir()
    (place.root / "victim").mkdir()
    policy = Policy((PathRule("/", "read"), PathRule(f"{place.work}/ws", "write")), network=False)
    confined = prepare(policy, ["/bin/sh", "-c", f"echo x > {place.root}/victim/escaped"], bubblewrap, place.root)
    (place.work / "ws").rename(place.work / "old")
    (place.work / "ws").symlink_to("../victim")
    done = finish(confined, place.root)
    assert done.returncode == 125
    assert b"was replaced while the sandbox was being set up" in done.stderr
    assert list((place.root / "victim").iterdir()) == []


def test_a_mount_that_is_missing_is_noticed_inside(bubblewrap: Mechanism, place: Place) -> None:
    (place.work / ".git").mkdir()
    confined = prepare(place.policy(PathRule(f"{place.work}/.git", "read")), ["/bin/true"], bubblewrap, place.work)
    where = confined.argv.index("--ro-bind", confined.argv.index(f"{place.work}"))
    cut = replace(confined, argv=(*confined.argv[:where], *confined.argv[where + 3 :]))
    assert finish(confined, place.work).returncode == 0
    assert finish(cut, place.work).returncode == 125


@pytest.mark.parametrize("name", ["a b", "back\\slash", "tab\there", "line\nbreak", "star*", "é#?[x]"])
def test_odd_names_are_mounted_all_the_same(mechanism: Mechanism, place: Place, name: str) -> None:
    odd = place.work / name
    odd.mkdir()
    done = shell(
        Policy((PathRule("/", "read"), PathRule(str(odd), "write")), network=False), "echo x > in", mechanism, odd
    )
    assert done.returncode == 0, done.stderr
    assert (odd / "in").exists()


def test_the_table_knows_what_is_bound(place: Place) -> None:
    line = MountTable.read().bound(str(place.work))
    assert line.endswith(f" {place.work}")
    (place.root / "link").symlink_to(place.work)
    with pytest.raises(ExecError, match="replaced"):
        MountTable.read().bound(str(place.root / "link"))


def test_where_there_is_no_proc_nothing_is_confined_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.execution.sandbox.mounts._TABLE", str(tmp_path / "mountinfo"))
    with pytest.raises(ExecError, match="it needs /proc, which is not mounted here"):
        MountTable.read()


# --- roots below other writable paths ---


def test_a_root_below_a_writable_path_stays_where_it_is(bubblewrap: Mechanism, place: Place) -> None:
    (place.work / "ws/out").mkdir(parents=True)
    policy = place.policy(PathRule(f"{place.work}/ws", "write"), PathRule(f"{place.work}/ws/out", "write"))
    script = "cd ..; mv ws old; ln -s /etc ws; cd ws; rmdir out; mv out old; ln -s /etc out; echo x > out/in"
    done = shell(policy, script, bubblewrap, place.work / "ws")
    assert done.returncode == 0, done.stderr
    assert (place.work / "ws/out/in").exists()
    assert sorted(entry.name for entry in place.work.iterdir()) == ["ws"]


# --- names that must not come into being ---


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def test_a_missing_protected_name_cannot_be_made(bubblewrap: Mechanism, place: Place) -> None:
    policy = place.policy(PathRule(f"{place.work}/.git", "read"), PathRule(f"{place.work}/sub/deep/.git", "read"))
    script = (
        "mkdir .git; mkdir -p .git/hooks; rmdir .git; mv .git x; ln -s /etc .git; mkdir -p sub/deep/.git; echo y > in"
    )
    confined = prepare(policy, ["/bin/sh", "-c", script], bubblewrap, place.work)
    done = finish(confined, place.work)
    assert done.returncode == 0, done.stderr
    assert names(place.work) == [".git", "in", "sub"]
    assert [*(place.work / ".git").iterdir(), *(place.work / "sub").iterdir()] == []
    confined.release()
    assert names(place.work) == ["in"]


def test_a_missing_protected_file_cannot_be_made(bubblewrap: Mechanism, place: Place) -> None:
    """Held by an empty file, which does not get in the way of those that read all of a kind."""
    policy = place.policy(PathRule(f"{place.work}/opencode.json", "read"))
    script = (
        "echo {} > opencode.json; rm -f opencode.json; mv opencode.json x; ln -sf in opencode.json; cat *.json > in"
    )
    confined = prepare(policy, ["/bin/sh", "-c", script], bubblewrap, place.work)
    assert finish(confined, place.work).returncode == 0
    assert names(place.work) == ["in", "opencode.json"]
    assert (place.work / "opencode.json").read_text() == ""
    confined.release()
    assert names(place.work) == ["in"]


def test_a_file_that_somebody_writes_meanwhile_is_theirs(place: Place) -> None:
    held = place.work / "opencode.json"
    placeholders = Placeholders()
    placeholders.hold(place.policy(PathRule(str(held), "read")))
    held.write_text("{}")
    placeholders.release()
    assert held.read_text() == "{}"
    Placeholders().hold(place.policy(PathRule(str(held), "read")))
    assert held.read_text() == "{}"


def test_several_commands_hold_a_name_until_the_last_has_ended(bubblewrap: Mechanism, place: Place) -> None:
    policy = place.policy(PathRule(f"{place.work}/.git", "read"))
    argv = ["/bin/sh", "-c", "read line; mkdir .git/hooks"]
    confined = [prepare(policy, argv, bubblewrap, place.work) for _ in range(2)]
    running = [started(one, place.work) for one in confined]
    for process, one in zip(running, confined, strict=True):
        _, stderr = process.communicate(b"go\n", DEADLINE)
        assert b"Read-only file system" in stderr
        assert names(place.work) == [".git"]
        one.release()
    assert names(place.work) == []


def test_what_a_killed_server_left_is_taken_over(place: Place) -> None:
    policy = place.policy(PathRule(f"{place.work}/.git", "read"))
    left, own = Placeholders(), Placeholders()
    left.hold(policy)
    for _, descriptor in left._held:
        os.close(descriptor)
    assert names(place.work) == [".git"]
    assert own.hold(policy) == policy
    own.release()
    own.release()
    assert names(place.work) == []


def test_a_name_that_somebody_uses_meanwhile_is_theirs(place: Place) -> None:
    policy = place.policy(PathRule(f"{place.work}/.git", "read"))
    for inhabited in (True, False):
        placeholders = Placeholders()
        placeholders.hold(policy)
        (place.work / ".git/HEAD").write_text("ref")
        if not inhabited:
            (place.work / ".git/HEAD").unlink()
        placeholders.release()
        assert names(place.work) == [".git"]


def test_an_empty_directory_of_the_user_stays(place: Place) -> None:
    (place.work / ".git").mkdir()
    placeholders = Placeholders()
    placeholders.hold(place.policy(PathRule(f"{place.work}/.git", "read")))
    placeholders.release()
    assert names(place.work) == [".git"]


def test_a_refused_command_leaves_nothing(bubblewrap: Mechanism, place: Place) -> None:
    policy = place.policy(PathRule(f"{place.work}/.git", "read"), PathRule("/usr/bin", "none"))
    with pytest.raises(ExecError, match="needed to start"):
        prepare(policy, ["/bin/true"], bubblewrap, place.work)
    assert names(place.work) == []


# --- hidden directories ---


def test_a_hidden_directory_in_a_readable_one(mechanism: Mechanism, place: Place) -> None:
    hidden, beside = place.root / "home", place.root / "beside"
    (hidden / "skills").mkdir(parents=True)
    (hidden / "auth.json").write_text("secret")
    (hidden / "skills/one").write_text("skill")
    beside.write_text("beside")
    policy = place.policy(PathRule(str(hidden), "none"), PathRule(f"{hidden}/skills", "read"))
    script = (
        f"cat {beside} {hidden}/skills/one /etc/passwd > x && ls / {place.root} > x || echo bad; echo x > in;"
        f"cat {hidden}/auth.json; echo x > {hidden}/auth.json; echo x > {hidden}/new; echo x > {hidden}/skills/one; "
        f"mv {hidden} {place.work}/h; cat h/auth.json; ln {hidden}/auth.json l; cat l; cat < ../home/auth.json"
    )
    done = shell(policy, script, mechanism, place.work)
    assert b"secret" not in done.stdout
    assert b"bad" not in done.stdout, done.stderr
    assert (place.work / "in").exists()
    assert names(hidden) == ["auth.json", "skills"]
    assert (hidden / "auth.json").read_text() == "secret"
    assert (hidden / "skills/one").read_text() == "skill"


def test_a_workspace_in_a_hidden_directory(mechanism: Mechanism, place: Place) -> None:
    (place.root / "token").write_text("secret")
    policy = place.policy(PathRule(str(place.root), "none"))
    done = shell(policy, f"echo x > in; cat {place.root}/token", mechanism, place.work)
    assert (place.work / "in").exists()
    assert b"secret" not in done.stdout
    assert done.returncode != 0


def test_landlock_says_what_to_do_about_a_hidden_directory_in_a_writable_one(place: Place) -> None:
    (place.work / "home").mkdir()
    with pytest.raises(ExecError, match=r"install bubblewrap .* or have it outside"):
        prepare(place.policy(PathRule(f"{place.work}/home", "none")), ["true"], usable("landlock"), place.work)
