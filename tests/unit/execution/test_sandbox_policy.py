"""What the wire's sandbox object means, and what is refused."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import INVALID_REQUEST, ExecError
from treadle.execution import (
    MAX_RULES,
    Access,
    ConfinedCommand,
    Installation,
    PathRule,
    Policy,
    bubblewrap_argv,
    confine,
    filter_program,
    landlock_argv,
    looks_denied,
    policy_from_wire,
    uri_from_path,
)
from treadle.protocol.exec import Sandbox

Json = dict[str, object]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path))


def special(kind: str, access: str, **more: object) -> Json:
    return {"path": {"type": "special", "value": {"kind": kind, **more}}, "access": access}


def at(path: Path | str, access: str, **more: object) -> Json:
    return {"path": {"type": "path", "path": uri_from_path(path)}, "access": access, **more}


def wire(*entries: Json, network: str = "restricted", **more: object) -> Sandbox:
    files: Json = {"type": "restricted", "entries": list(entries)}
    permissions: Json = {"type": "managed", "network": network, "file_system": files}
    return msgspec.convert({"permissions": permissions, **more}, Sandbox)


def parsed(*entries: Json, **more: object) -> Policy:
    policy = policy_from_wire(wire(*entries, **more))  # type: ignore[arg-type]
    assert policy is not None
    return policy


def refusal(*entries: Json, **more: object) -> str:
    with pytest.raises(ExecError) as caught:
        policy_from_wire(wire(*entries, **more))  # type: ignore[arg-type]
    assert caught.value.code == INVALID_REQUEST
    return caught.value.message


def command(*argv: str, env: dict[str, str] | None = None, arg0: str | None = None) -> ConfinedCommand:
    return ConfinedCommand(argv, arg0, "/", False, env or {})


# --- what the object means ---


@pytest.mark.parametrize(
    "permissions",
    [
        {"type": "disabled"},
        {"type": "external", "network": "restricted"},
        {"type": "managed", "network": "enabled", "file_system": {"type": "unrestricted"}},
    ],
)
def test_no_confinement_was_asked_for(permissions: Json) -> None:
    assert policy_from_wire(msgspec.convert({"permissions": permissions}, Sandbox)) is None
    assert policy_from_wire(None) is None


@pytest.mark.parametrize("network", ["restricted", None])
def test_only_the_network_is_restricted(network: str | None) -> None:
    permissions = {"type": "managed", "network": network, "file_system": {"type": "unrestricted"}}
    policy = policy_from_wire(msgspec.convert({"permissions": permissions}, Sandbox))
    assert policy == Policy((PathRule("/", "write"),), network=False)


def test_the_usual_request(root: Path) -> None:
    (root / ".git").mkdir()
    policy = parsed(
        special("root", "read"),
        special("project_roots", "write"),
        special("project_roots", "read", subpath=".git") | {"missing_path_behavior": "skip"},
        special("project_roots", "read", subpath=".codex") | {"missing_path_behavior": "skip"},
        workspaceRoots=[uri_from_path(root)],
    )
    assert policy.rules == (PathRule("/", "read"), PathRule(str(root), "write"), PathRule(f"{root}/.git", "read"))
    assert not policy.network
    assert policy.access(f"{root}/src/a.py") == "write"
    assert policy.access(f"{root}/.git/config") == "read"
    assert policy.access(f"{root}/.gitignore") == "write"
    assert policy.access("/etc/passwd") == "read"


def test_network_can_be_granted() -> None:
    assert parsed(special("root", "read"), network="enabled").network


def test_every_workspace_root_counts(root: Path) -> None:
    (root / "a").mkdir()
    (root / "b").mkdir()
    roots = [uri_from_path(root / "a"), uri_from_path(root / "b")]
    policy = parsed(special("project_roots", "write"), workspaceRoots=roots)
    assert policy.rules == (PathRule(f"{root}/a", "write"), PathRule(f"{root}/b", "write"))


def test_temporary_directories(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(root))
    assert parsed(special("tmpdir", "write")).rules == (PathRule(str(root), "write"),)
    assert parsed(special("tmpdir", "write"), temporaryDirectories=[]).rules == ()
    (root / "t").mkdir()
    given_ones = [uri_from_path(root / "t")]
    assert parsed(special("tmpdir", "write"), temporaryDirectories=given_ones).rules == (
        PathRule(f"{root}/t", "write"),
    )
    monkeypatch.delenv("TMPDIR")
    assert parsed(special("tmpdir", "write")).rules == ()


def test_minimal_is_the_system_and_nothing_personal(root: Path) -> None:
    policy = parsed(special("minimal", "read"))
    assert policy.access("/usr/lib") == "read"
    assert policy.access("/dev/null") == "read"
    for path in (str(root), "/home/someone", "/root", "/var/lib", "/dev/sda", "/"):
        assert policy.access(path) == "none"


def test_equal_paths_the_later_wins_but_a_denial_is_final(root: Path) -> None:
    assert parsed(at(root, "read"), at(root, "write")).access(str(root)) == "write"
    assert parsed(at(root, "write"), at(root, "read")).access(str(root)) == "read"
    assert parsed(at(root, "deny"), at(root, "write")).access(str(root)) == "none"


def test_a_missing_path_grants_nothing_but_still_protects(root: Path) -> None:
    gone = root / "gone"
    assert parsed(at(gone, "write")).rules == ()
    assert parsed(at(gone, "read")).rules == (PathRule(str(gone), "read"),)
    assert parsed(at(gone, "none")).rules == (PathRule(str(gone), "none"),)
    assert parsed(at(gone, "none", missing_path_behavior="skip")).rules == ()


def test_rules_are_canonical(root: Path) -> None:
    (root / "real").mkdir()
    (root / "link").symlink_to("real")
    assert parsed(at(root / "link", "write")).rules == (PathRule(f"{root}/real", "write"),)


# --- what is refused ---


def test_a_link_in_a_writable_directory_cannot_widen_a_grant(root: Path) -> None:
    (root / "w").mkdir()
    (root / "w/build").symlink_to("/etc")
    message = refusal(at(root / "w", "write"), at(root / "w/build", "write"))
    assert "entry 1" in message
    assert "symbolic link" in message


def test_a_chain_of_links_is_followed_to_the_writable_one(root: Path) -> None:
    (root / "w").mkdir()
    (root / "w/inner").symlink_to("/etc")
    (root / "outer").symlink_to("w/inner")
    assert "w/inner" in refusal(at(root / "w", "write"), at(root / "outer", "write"))


def test_a_link_cannot_stand_for_a_protected_directory(root: Path) -> None:
    (root / "store").mkdir()
    (root / ".git").symlink_to("store")
    assert "symbolic link" in refusal(at(root, "write"), at(root / ".git", "read"))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"path": {"type": "glob_pattern", "pattern": "**/.env"}, "access": "none"}, "glob_pattern"),
        ({"path": {"type": "regex"}, "access": "read"}, "unknown path type 'regex'"),
        ({"path": {"type": "path"}, "access": "read"}, "without a path"),
        ({"path": {"type": "special"}, "access": "read"}, "without a value"),
        (special("home", "read"), "unknown special kind 'home'"),
        (special("root", "append"), "unknown access 'append'"),
        (special("root", "read", subpath="etc"), "subpath"),
        (special("root", "read") | {"missing_path_behavior": "create"}, "missing_path_behavior"),
        (special("project_roots", "read", subpath="../x"), "leaves the project root"),
        (special("project_roots", "read", subpath="/x"), "leaves the project root"),
    ],
)
def test_what_cannot_be_enforced_is_refused(entry: Json, words: str) -> None:
    message = refusal(special("slash_tmp", "read"), entry, workspaceRoots=["file:///usr"])
    assert "entry 1" in message
    assert words in message
    assert "rather than run unconfined" in message


@pytest.mark.parametrize("path", ["etc", "relative/x", "https://host/x"])
def test_a_path_that_is_no_file_uri_is_refused(path: str) -> None:
    entry: Json = {"path": {"type": "path", "path": path}, "access": "read"}
    with pytest.raises(ExecError):
        policy_from_wire(wire(entry))


def test_a_relative_tmpdir_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "tmp")
    assert "relative" in refusal(special("tmpdir", "write"))


def test_managed_without_file_system_is_refused() -> None:
    permissions = {"type": "managed", "network": "enabled"}
    with pytest.raises(ExecError, match="no file_system"):
        policy_from_wire(msgspec.convert({"permissions": permissions}, Sandbox))


def test_the_number_of_rules_is_bounded() -> None:
    assert "more than" in refusal(*[special("root", "read")] * (MAX_RULES + 1))


# --- longest prefix ---

PATHS = st.lists(st.sampled_from(["a", "b", "a-", "ab"]), max_size=4).map(lambda parts: "/" + "/".join(parts))
ACCESSES: st.SearchStrategy[Access] = st.sampled_from(["none", "read", "write"])


@given(st.dictionaries(PATHS, ACCESSES, max_size=6), PATHS)
def test_the_nearest_rule_decides(rules: dict[str, Access], path: str) -> None:
    policy = Policy(tuple(PathRule(key, rules[key]) for key in sorted(rules)), network=False)
    expected: Access = "none"
    parts = path.split("/")[1:] if path != "/" else []
    for depth in range(len(parts) + 1):
        expected = rules.get("/" + "/".join(parts[:depth]), expected)
    assert policy.access(path) == expected


# --- command lines ---


@pytest.mark.parametrize("name", ["", "a=b"])
def test_an_impossible_variable_is_refused(name: str) -> None:
    policy = Policy((PathRule("/", "read"),), network=False)
    with pytest.raises(ExecError, match="environment variable"):
        confine(policy, argv=["true"], arg0=None, cwd="/", env={name: "x"}, tty=False)


def mounts(policy: Policy) -> str:
    found = Installation("/usr/bin/bwrap", "/proc/1/fd/3", "/proc/1/fd/4")
    return " ".join(bubblewrap_argv(policy, command("true"), found=found))


def test_bubblewrap_covers_directories_before_what_is_in_them(root: Path) -> None:
    (root / "w/.git/hooks").mkdir(parents=True)
    rules = (PathRule("/", "read"), PathRule(f"{root}/w", "write"), PathRule(f"{root}/w/.git", "read"))
    line = mounts(Policy((*rules, PathRule(f"{root}/w/.git/hooks", "write")), network=False))
    order = [f"--ro-bind / / --dev /dev --proc /proc --bind {root}/w {root}/w", f"--ro-bind {root}/w/.git "]
    places = [line.index(part) for part in [*order, f"--bind {root}/w/.git/hooks "]]
    assert places == sorted(places)


def test_bubblewrap_pins_what_could_be_renamed_around_a_protected_path(root: Path) -> None:
    (root / "a/b/.git").mkdir(parents=True)
    rules = (PathRule("/", "read"), PathRule(str(root), "write"), PathRule(f"{root}/a/b/.git", "read"))
    line = mounts(Policy(rules, network=False))
    assert f"--bind {root}/a {root}/a --bind {root}/a/b {root}/a/b --ro-bind {root}/a/b/.git" in line


def test_bubblewrap_refuses_to_protect_what_does_not_exist(root: Path) -> None:
    policy = Policy(
        (PathRule("/", "read"), PathRule(str(root), "write"), PathRule(f"{root}/.git", "read")), network=False
    )
    with pytest.raises(ExecError, match="does not exist"):
        mounts(policy)
    assert not (root / ".git").exists()


def test_bubblewrap_has_no_network_unless_granted() -> None:
    assert "--unshare-net" in mounts(Policy((PathRule("/", "read"),), network=False))
    granted = mounts(Policy((PathRule("/", "read"),), network=True))
    assert "--unshare-net" not in granted


@pytest.mark.parametrize(("network", "filter_path"), [(False, "/proc/1/fd/3"), (True, "/proc/1/fd/4")])
def test_bubblewrap_always_has_a_filter(network: bool, filter_path: str) -> None:
    line = mounts(Policy((PathRule("/", "read"),), network=network))
    assert f'9<"$0" {filter_path} ' in line
    assert "--seccomp 9" in line


@pytest.mark.parametrize(("outer", "inner"), [("write", "read"), ("write", "none")])
def test_landlock_refuses_to_take_away(root: Path, outer: Access, inner: Access) -> None:
    policy = Policy((PathRule(str(root), outer), PathRule(f"{root}/x", inner)), network=True)
    with pytest.raises(ExecError, match="install bubblewrap"):
        landlock_argv(policy, command("true"), version=7)


@pytest.mark.parametrize(
    ("version", "handled"), [(1, "8191,0,0"), (2, "16383,0,0"), (3, "32767,0,0"), (4, "32767,3,0"), (7, "65535,3,3")]
)
def test_landlock_handles_all_that_the_kernel_knows(version: int, handled: str) -> None:
    line = landlock_argv(Policy((PathRule("/", "read"),), network=False), command("true"), version=version)
    assert line[line.index("--landlock") + 1] == handled


@pytest.mark.parametrize(("version", "truncate"), [(2, False), (3, True)])
def test_old_landlock_gets_truncate_from_the_filter(version: int, truncate: bool) -> None:
    line = landlock_argv(Policy((PathRule("/", "read"),), network=True), command("true"), version=version)
    wanted = filter_program(network=True, truncate=truncate, namespaces=False, changes=False)
    assert line[line.index("--filter") + 1] == wanted.hex()


def granted(policy: Policy) -> set[str]:
    line = landlock_argv(policy, command("true"), version=7)
    return {value.partition(",")[2] for option, value in pairwise(line) if option in ("--grant", "--offer")}


def test_landlock_grants_no_terminals_and_no_disks_with_the_rest_of_the_root() -> None:
    paths = granted(Policy((PathRule("/", "read"),), network=False))
    assert "/usr" in paths
    assert {path for path in paths if path.startswith("/dev")} <= {
        *("/dev/full", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero")
    }


def test_landlock_grants_devices_to_who_asks_for_them() -> None:
    assert "/dev/pts" in granted(Policy((PathRule("/", "read"), PathRule("/dev/pts", "write")), network=True))


# --- the guess ---


@pytest.mark.parametrize(
    ("code", "tail", "denied"),
    [
        (1, b"touch: cannot touch 'x': Read-only file system\n", True),
        (1, b"PermissionError: [Errno 13] Permission denied", True),
        (2, b"socket: operation NOT permitted", True),
        (0, b"Permission denied", False),
        (1, b"no such thing", False),
        (159, b"", True),
    ],
)
def test_looks_denied(code: int, tail: bytes, denied: bool) -> None:
    assert looks_denied(code, tail) is denied
