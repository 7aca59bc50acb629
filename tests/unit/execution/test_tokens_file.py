"""The tokens file of an exec-server: what may stand in it, and what is refused with the whole of it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from treadle.errors import ExecDenied
from treadle.execution import PathRule, Policy, both, load_rights
from treadle.protocol.exec import Capabilities, EnvironmentInfo, Shell
from treadle.transport import NamedToken, TokenFileError, find

TOKEN = "0123456789abcdef-of-ci"
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.toml"
    path.touch(mode=0o600)
    return path


def test_a_token_is_found_by_its_file_its_digest_or_a_certificate(tmp_path: Path, file: Path) -> None:
    (tmp_path / "ci.token").touch(mode=0o600)
    (tmp_path / "ci.token").write_text(f"{TOKEN}\n")
    other = hashlib.sha256(b"another").hexdigest()
    file.write_text(
        f"""
        [tokens.ci]
        token_file = "ci.token"
        folders = ["{tmp_path}"]
        memory = "512 MiB"
        file_bytes = 4096
        [tokens.other]
        sha256 = "{other}"
        sandbox = "read-only"
        metrics = true
        [tokens.robot]
        certificate = "robot.example"
        sandbox = "none"
        [tokens.both]
        sha256 = "{other[::-1]}"
        certificate = "robot.example"
        sandbox = "none"
        """
    )
    rights, tokens = load_rights(str(file))
    assert list(rights) == [token.name for token in tokens] == ["ci", "other", "robot", "both"]
    assert tokens[0].digest == DIGEST
    limits = rights["ci"].limits
    assert limits is not None
    assert (limits.memory, limits.file_bytes, limits.pids) == (512 << 20, 4096, None)
    assert "abcdef" not in repr(tokens)

    def named(given: str | None, certificate: str | None = None) -> str | None:
        found = find(tokens, given, certificate)
        return None if found is None else found.name

    assert named(TOKEN) == "ci"
    assert named(TOKEN, "robot.example") == "ci", "with whatever certificate the listener lets in"
    assert named("another") == "other"
    assert named(None, "robot.example") == "robot"
    assert named("wrong", "robot.example") is None, "a wrong token is not made good by a certificate"
    assert named(None, "robot.example.evil") is named(None) is named("") is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "missing required field `tokens`"),
        ("tokens = 1", "Expected `object`"),
        ("[tokens]", "it has 0 tokens"),
        ("[tokens.a", "Expected"),
        ("[other]", "unknown field `other`"),
        ('[tokens.a]\nsandbox = "none"', "it needs `sha256`"),
        (f'[tokens.a]\nsha256 = "{DIGEST}"', "needs `folders`"),
        (f'[tokens.a]\nsha256 = "{DIGEST}"\nfolders = []\nsandbox = "none"', "`folders` is empty"),
        (f'[tokens.a]\nsha256 = "{DIGEST}"\nfolders = ["x"]', "'x' is no absolute path"),
        (f'[tokens.a]\nsha256 = "{DIGEST}"\nfolders = ["/no/such/folder"]', "No such file"),
        (f'[tokens.a]\nsha256 = "{DIGEST}"\nsandbox = "danger-full-access"', "Invalid enum value"),
        (f'[tokens.a]\nsha256 = "{DIGEST[:-1]}"\nsandbox = "none"', "regex"),
        (f'[tokens.a]\nsha256 = "{DIGEST}"\nsandbox = "none"\nnetwrok = false', "unknown field `netwrok`"),
        (f'[tokens.a]\nsha256 = "{DIGEST}"\nsandbox = "none"\nprocesses = 0', ">= 1"),
        (f'[tokens.a]\nsha256 = "{DIGEST}"\nsandbox = "none"\nmemory = "much"', "'much' is no size"),
        (f'[tokens.a]\nsha256 = "{DIGEST}"\nsandbox = "none"\nmemory = "0"', "'0' is no size"),
        (f'[tokens."a b"]\nsha256 = "{DIGEST}"\nsandbox = "none"', "a name has letters"),
        (f'[tokens."{"a" * 65}"]\nsha256 = "{DIGEST}"\nsandbox = "none"', "a name has letters"),
        ('[tokens.a]\ntoken_file = "none.token"\nsandbox = "none"', "cannot be read"),
        (f'[tokens.a]\ntoken_file = "x"\nsha256 = "{DIGEST}"\nsandbox = "none"', "one of them"),
        (
            f'[tokens.a]\nsha256 = "{DIGEST}"\nsandbox = "none"\n[tokens.b]\nsha256 = "{DIGEST}"\nsandbox = "none"',
            "the same token",
        ),
        (
            '[tokens.a]\ncertificate = "x"\nsandbox = "none"\n[tokens.b]\ncertificate = "x"\nsandbox = "none"',
            "the same token or certificate",
        ),
    ],
)
def test_what_cannot_be_understood_is_refused_with_the_whole_file(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    with pytest.raises(TokenFileError) as caught:
        load_rights(str(file))
    assert says in caught.value.why


def test_a_token_that_can_be_guessed_is_refused(tmp_path: Path, file: Path) -> None:
    (tmp_path / "short").touch(mode=0o600)
    (tmp_path / "short").write_text("fifteen-letters")
    file.write_text('[tokens.a]\ntoken_file = "short"\nsandbox = "none"')
    with pytest.raises(TokenFileError, match="less than 16 characters") as caught:
        load_rights(str(file))
    assert "fifteen" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_can_use_is_refused(file: Path, mode: int) -> None:
    file.write_text(f'[tokens.a]\nsha256 = "{DIGEST}"\nsandbox = "none"')
    file.chmod(mode)
    with pytest.raises(TokenFileError, match=f"its mode is {mode:04o}"):
        load_rights(str(file))


def test_a_client_inherits_no_secret_of_the_server_and_is_told_of_what_it_can_use(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    file.write_text(f'[tokens.a]\nsha256 = "{DIGEST}"\nfolders = ["{folder}"]')
    monkeypatch.setenv("MY_API_KEY", "x")
    monkeypatch.setenv("HARMLESS", "sk-0123456789abcdef")
    monkeypatch.setenv("COLOUR", "green")
    rights = load_rights(str(file))[0]["a"]
    inherited = rights.environment()
    assert inherited["COLOUR"] == "green"
    assert not {"MY_API_KEY", "HARMLESS"} & set(inherited)
    able = Capabilities(fs_watch_missing=True, http_header_env_vars=True, process_list=True)
    info = rights.info(EnvironmentInfo(shell=Shell(name="sh", path="/bin/sh"), cwd="file:///", capabilities=able))
    assert info.cwd == folder.as_uri()
    assert info.capabilities == Capabilities(process_list=True)


def test_a_folder_that_was_replaced_is_lost(file: Path, tmp_path: Path) -> None:
    """Whoever may write the directory above it could put a link there."""
    folder, victim = tmp_path / "work", tmp_path / "victim"
    folder.mkdir()
    victim.mkdir()
    file.write_text(f'[tokens.a]\nsha256 = "{DIGEST}"\nfolders = ["{folder}"]')
    rights = load_rights(str(file))[0]["a"]
    policy = rights.file_policy()
    assert policy is not None
    assert policy.access(str(folder / "x")) == "write"
    assert policy.access(str(victim)) == policy.access(f"/proc/{os.getpid()}/environ") == "none"
    folder.rename(tmp_path / "before")
    folder.symlink_to(victim)
    for ask in (rights.file_policy, rights.command_policy):
        with pytest.raises(ExecDenied, match="has lost its folder"):
            ask()
    folder.unlink()
    folder.mkdir()
    with pytest.raises(ExecDenied, match="has lost its folder"):
        rights.file_policy()


def test_of_two_policies_what_both_allow_is_allowed() -> None:
    one = Policy((PathRule("/", "read"), PathRule("/a", "write"), PathRule("/a/b", "none")), True)
    other = Policy((PathRule("/a", "read"), PathRule("/a/b/c", "write"), PathRule("/d", "write")), False)
    assert both(None, None) is None
    assert both(one, None) == both(None, one) == one
    narrow = both(one, other)
    assert narrow is not None
    assert narrow == both(other, one)
    assert [narrow.access(path) for path in ("/", "/a", "/a/x", "/a/b", "/a/b/c", "/d", "/e")] == [
        *("none", "read", "read", "none", "none", "read", "none"),
    ]
    assert narrow.network is False


def test_names_are_shown_and_digests_are_not() -> None:
    assert DIGEST not in repr(NamedToken(name="ci", digest=DIGEST))
