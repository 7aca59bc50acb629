"""The file with a listener's secret: who can read it, what may stand in its way, who finds it."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from treadle.transport import (
    FOLDER,
    Address,
    ResolvedAddress,
    SecretError,
    SecretFile,
    new_secret,
    resolve_address,
    write_secret,
)

ADDRESS = Address("ws", "127.0.0.1", 4500, "/")
NAME = "127.0.0.1-4500.json"


def _keep(home: Path, token: str = "t0p", address: Address = ADDRESS) -> SecretFile:
    return write_secret(str(home), address, token)


def _approach(home: Path, url: str = "ws://127.0.0.1:4500", token: str | None = None) -> ResolvedAddress:
    return resolve_address(Address.parse(url), token, {"TREADLE_HOME": str(home)})


def test_only_the_owner_can_read_it_and_it_goes_with_its_server(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    mask = os.umask(0)
    try:
        kept = _keep(home)
    finally:
        os.umask(mask)
    assert kept.path == str(home / FOLDER / NAME)
    assert stat.S_IMODE(os.stat(kept.path).st_mode) == 0o600
    assert stat.S_IMODE((home / FOLDER).stat().st_mode) == 0o700
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert _approach(home).token == "t0p"
    kept.remove()
    assert os.listdir(home / FOLDER) == []
    assert _approach(home).token is None


def test_a_folder_that_others_could_use_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    folder.chmod(0o777)
    _keep(tmp_path).remove()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_link_in_its_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / FOLDER).mkdir(mode=0o700)
    (tmp_path / FOLDER / NAME).symlink_to(victim)
    kept = _keep(tmp_path)
    assert victim.read_text() == "precious"
    assert not os.path.islink(kept.path)
    kept.remove()
    assert victim.read_text() == "precious"


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / FOLDER).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SecretError, match="cannot store the secret") as caught:
        _keep(tmp_path, "hunter2")
    assert "hunter2" not in str(caught.value)
    assert os.listdir(tmp_path / "elsewhere") == []
    assert _approach(tmp_path).token is None


def test_a_home_that_cannot_be_one_is_told(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(SecretError, match="home"):
        _keep(tmp_path / "home")


def test_what_a_killed_server_has_left_is_swept_and_what_is_in_use_is_not(tmp_path: Path) -> None:
    killed = _keep(tmp_path, address=Address("ws", "127.0.0.1", 1, "/"))
    os.close(killed._fd)  # as the system does at the end of a process
    alive = _keep(tmp_path, address=Address("ws", "127.0.0.1", 2, "/"))
    later = _keep(tmp_path)
    assert sorted(os.listdir(tmp_path / FOLDER)) == ["127.0.0.1-2.json", NAME]
    alive.remove()
    later.remove()


def test_the_file_of_the_same_address_is_replaced_and_left_to_the_new_one(tmp_path: Path) -> None:
    first = _keep(tmp_path, "first")
    second = _keep(tmp_path, "second")
    first.remove()
    assert _approach(tmp_path).token == "second"
    second.remove()


@pytest.mark.parametrize("others", [False, True])
def test_the_file_of_a_killed_server_is_not_trusted(tmp_path: Path, others: bool) -> None:
    """Also while another client looks at it."""
    killed = _keep(tmp_path)
    with open(killed.path, "rb") as other:
        os.close(killed._fd)  # as the system does at the end of a process
        if others:
            fcntl.flock(other, fcntl.LOCK_SH)
        address, token, advice = _approach(tmp_path)
    assert (address, token) == (Address.parse("ws://127.0.0.1:4500"), None)
    assert f"the one in {killed.path} is of a server that has ended" in advice


def test_where_files_cannot_be_locked_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could tell it from that of a killed server."""

    def flock(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(SecretError, match="No locks available"):
        _keep(tmp_path)
    assert os.listdir(tmp_path / FOLDER) == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666])
def test_a_file_that_others_can_read_or_write_is_not_trusted(tmp_path: Path, mode: int) -> None:
    kept = _keep(tmp_path)
    os.chmod(kept.path, mode)
    assert _approach(tmp_path).token is None
    kept.remove()


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "garbage", "empty", "large", "other address"])
def test_what_is_no_such_file_is_not_taken_for_one(tmp_path: Path, kind: str) -> None:
    other = _keep(tmp_path, address=Address("ws", "127.0.0.1", 2, "/"))
    place = tmp_path / FOLDER / NAME
    match kind:
        case "link":
            right = _keep(tmp_path)
            os.rename(right.path, tmp_path / "elsewhere")
            place.symlink_to(tmp_path / "elsewhere")
            right.remove()
        case "fifo":
            os.mkfifo(place, 0o600)
        case "folder":
            place.mkdir(0o700)
        case "other address":
            os.link(other.path, place)
        case _:
            place.write_bytes({"garbage": b"\xff{", "empty": b"", "large": b"[" * (1 << 20)}[kind])
            place.chmod(0o600)
    assert _approach(tmp_path).token is None
    other.remove()


@pytest.mark.parametrize("url", ["ws://127.0.0.1:4500", "ws://127.0.0.1:4500/", "ws://localhost:4500"])
def test_it_is_found_for_the_address_of_the_listener(tmp_path: Path, url: str) -> None:
    """A name may stand for more than the address that the listener has: then only that one is sent the secret."""
    kept = _keep(tmp_path)
    assert _approach(tmp_path, url)[:2] == (ADDRESS, "t0p")
    kept.remove()


@pytest.mark.parametrize(
    "url",
    [
        "ws://127.0.0.1:4501",
        "ws://127.0.0.2:4500",
        "ws://[::1]:4500",
        "ws://127.0.0.1:4500/other",
        "wss://127.0.0.1:4500",
        "ws://10.0.0.1:4500",
        "ws://example.org:4500",
        "unix:///run/4500",
    ],
)
def test_it_is_sent_nowhere_else(tmp_path: Path, url: str) -> None:
    kept = _keep(tmp_path)
    assert _approach(tmp_path, url)[:2] == (Address.parse(url), None)
    kept.remove()


def test_a_token_that_is_given_counts(tmp_path: Path) -> None:
    kept = _keep(tmp_path)
    assert _approach(tmp_path, token="mine").token == "mine"
    kept.remove()


def test_who_finds_none_is_told_the_ways(tmp_path: Path) -> None:
    advice = _approach(tmp_path / "other").advice
    for word in ("URL that the server printed", "pass its token", "TREADLE_HOME", str(tmp_path / "other")):
        assert word in advice
    assert "no home" in resolve_address(ADDRESS, None, {"HOME": "nowhere"}).advice


def test_secrets_are_long_and_differ() -> None:
    assert len({new_secret() for _ in range(10)}) == 10
    assert len(new_secret()) == 64
