"""Watching for what is missing: by inotify and by looking, one notice each, and nothing left behind."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle.execution import OVERFLOW, Change, Inotify, MissingWatches, lookups, os_error
from treadle.execution.files import file_watching

pytestmark = pytest.mark.anyio

DEADLINE = 60


class Seen:
    """The notices, and a way to wait for one."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._event = asyncio.Event()

    def __call__(self, number: int) -> None:
        self.numbers.append(number)
        self._event.set()

    async def wait_for(self, number: int) -> None:
        async with asyncio.timeout(DEADLINE):
            while number not in self.numbers:
                self._event.clear()
                await self._event.wait()


def no_inotify() -> Inotify:
    raise os_error(errno.EMFILE)


class FullInotify(Inotify):
    """One that has no watches left."""

    def add(self, directory: str) -> int:
        raise os_error(errno.ENOSPC)


def information(inotify: Inotify) -> str:
    return Path(f"/proc/self/fdinfo/{inotify.descriptor}").read_text()


@pytest.fixture(params=["inotify", "no instance", "no watches"])
def mechanism(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "no instance":
        monkeypatch.setattr(file_watching, "Inotify", no_inotify)
    if request.param == "no watches":
        monkeypatch.setattr(file_watching, "Inotify", FullInotify)
    return str(request.param)


@pytest.fixture
async def seen() -> Seen:
    return Seen()


@pytest.fixture
async def watches(mechanism: str, seen: Seen) -> Iterator[MissingWatches]:  # type: ignore[misc]
    # When inotify is to be tested, looking must not be what makes the test pass.
    table = MissingWatches(seen, poll_seconds=10_000 if mechanism == "inotify" else 0.01)
    yield table
    table.close()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path))


async def test_a_file_appears(watches: MissingWatches, seen: Seen, base: Path) -> None:
    assert watches.add(1, [f"{base}/a", f"{base}/b"])
    assert watches.add(2, [f"{base}/never"])
    (base / "unrelated").touch()
    (base / "b").touch()
    await seen.wait_for(1)
    (base / "a").touch()
    (base / "never").touch()
    await seen.wait_for(2)
    assert seen.numbers == [1, 2]
    assert len(watches) == 0


async def test_a_file_is_moved_in(watches: MissingWatches, seen: Seen, base: Path) -> None:
    (base / "elsewhere").touch()
    assert watches.add(1, [f"{base}/a"])
    (base / "elsewhere").rename(base / "a")
    await seen.wait_for(1)


async def test_a_deep_path_appears_step_by_step(watches: MissingWatches, seen: Seen, base: Path) -> None:
    assert watches.add(1, [f"{base}/x/y/z"])
    for number, part in enumerate(("x", "x/y"), 100):
        assert watches.add(number, [f"{base}/{part}"])
        (base / part).mkdir()
        await seen.wait_for(number)
    assert 1 not in seen.numbers
    (base / "x" / "y" / "z").touch()
    await seen.wait_for(1)


async def test_a_deep_path_appears_at_once(watches: MissingWatches, seen: Seen, base: Path) -> None:
    (base / "made" / "y").mkdir(parents=True)
    (base / "made" / "y" / "z").touch()
    assert watches.add(1, [f"{base}/x/y/z"])
    (base / "made").rename(base / "x")
    await seen.wait_for(1)


async def test_an_ancestor_is_moved_away_and_comes_back_full(watches: MissingWatches, seen: Seen, base: Path) -> None:
    (base / "x" / "y").mkdir(parents=True)
    assert watches.add(1, [f"{base}/x/y/z"])
    assert watches.add(2, [f"{base}/gone"])
    (base / "x").rename(base / "gone")
    await seen.wait_for(2)
    (base / "gone" / "y" / "z").touch()
    assert 1 not in seen.numbers
    (base / "gone").rename(base / "x")
    await seen.wait_for(1)


async def test_what_was_present_goes_away(watches: MissingWatches, seen: Seen, base: Path) -> None:
    (base / "a").touch()
    assert watches.add(1, [f"{base}/m"], f"{base}/a")
    (base / "a").unlink()
    await seen.wait_for(1)


async def test_a_dangling_link_gets_its_target(watches: MissingWatches, seen: Seen, base: Path) -> None:
    (base / "far").mkdir()
    (base / "hop").symlink_to("far/target")
    (base / "link").symlink_to("hop")
    assert watches.add(1, [f"{base}/link"])
    (base / "far" / "target").touch()
    await seen.wait_for(1)


async def test_a_link_is_pointed_elsewhere(watches: MissingWatches, seen: Seen, base: Path) -> None:
    (base / "full").mkdir()
    (base / "full" / "f").touch()
    (base / "empty").mkdir()
    (base / "current").symlink_to("empty")
    assert watches.add(1, [f"{base}/current/f"])
    (base / "next").symlink_to("full")
    (base / "next").rename(base / "current")
    await seen.wait_for(1)


async def test_when_nothing_is_watched(watches: MissingWatches, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (base / "a").touch()
    assert not watches.add(1, [])
    assert not watches.add(1, [f"{base}/a"])
    assert not watches.add(1, [f"{base}/m", f"{base}/a"])
    assert not watches.add(1, [f"{base}/m"], f"{base}/nothere")
    assert not watches.add(1, [f"{base}/m{number}" for number in range(file_watching.MAX_PATHS + 1)])
    monkeypatch.setattr(file_watching, "MAX_WATCHES", 1)
    assert watches.add(1, [f"{base}/m"])
    assert not watches.add(2, [f"{base}/m"])


async def test_ids_are_used_up(
    watches: MissingWatches, seen: Seen, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert watches.add(1, [f"{base}/m"])
    assert not watches.add(1, [f"{base}/n"])
    (base / "m").touch()
    await seen.wait_for(1)
    assert not watches.add(1, [f"{base}/n"])
    monkeypatch.setattr(file_watching, "MAX_IDS", 1)
    assert not watches.add(2, [f"{base}/n"])


async def test_close_releases_everything(seen: Seen, mechanism: str, base: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    table = MissingWatches(seen, poll_seconds=0.01)
    assert table.add(1, [f"{base}/m"])
    table.close()
    table.close()
    other = MissingWatches(seen, poll_seconds=0.01)
    assert other.add(2, [f"{base}/m"])
    (base / "m").touch()
    await seen.wait_for(2)
    other.close()
    assert seen.numbers == [2]
    assert not table.add(3, [f"{base}/n"])
    assert len(os.listdir("/proc/self/fd")) == before


async def test_watches_that_are_done_leave_no_inotify_watch(seen: Seen, base: Path) -> None:
    table = MissingWatches(seen, poll_seconds=10_000)
    assert table.add(1, [f"{base}/x/m", f"{base}/y/m"])
    assert table.add(2, [f"{base}/x"])
    (base / "x").mkdir()
    await seen.wait_for(2)
    (base / "y").mkdir()
    (base / "y" / "m").touch()
    await seen.wait_for(1)
    assert table._interest == {}
    assert table._inotify is not None
    assert "inotify wd" not in information(table._inotify)
    table.close()


async def test_lost_records_make_every_watch_look(seen: Seen, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(Inotify):
        def read(self) -> list[Change]:
            super().read()
            return [Change(OVERFLOW, "", ended=False)]

    monkeypatch.setattr(file_watching, "Inotify", Forgetful)
    table = MissingWatches(seen, poll_seconds=10_000)
    assert table.add(1, [f"{base}/m"])
    (base / "m").touch()
    await seen.wait_for(1)
    table.close()


def test_lookups_are_those_of_the_kernel(base: Path) -> None:
    (base / "d").mkdir()
    (base / "link").symlink_to("./d/../d")
    (base / "loop").symlink_to("loop")
    inside = [pair for pair in lookups(f"{base}/link/m/n") if pair[0].startswith(str(base))]
    assert inside == [(str(base), "link"), (str(base), "d"), (str(base), "d"), (f"{base}/d", "m")]
    assert len(list(lookups(f"{base}/loop"))) < 100
