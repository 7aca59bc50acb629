"""A home is backed up, pruned and vacuumed, while servers use it where that is allowed."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sqlite3
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from kit.app_program import listening_server
from kit.processes import DEADLINE_S
from kit.warm_python import run_python
from treadle import Codex, CodexConfig
from treadle.logs import AuditLog, audit
from treadle.server import AppServer
from treadle.store import StoreError, back_up, open_store, vacuum
from treadle.testing import AppServerHarness

TOMORROW_MS = 2**52  # everything was last used before


def treadle(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TREADLE_HOME": str(home)}
    return run_python(["-m", "treadle", "store", *words], cwd=home.parent, env=env)


def conversed(harness: AppServerHarness, *texts: str) -> list[str]:
    """Threads with a turn each."""
    with Codex(harness.codex_config()) as codex:
        threads = []
        for text in texts:
            harness.model.enqueue_assistant_message(f"You said: {text}")
            thread = codex.thread_start()
            thread.run(text)
            threads.append(thread.id)
        return threads


def aged(home: Path, *ids: str) -> None:
    with sqlite3.connect(home / "threads.db") as database:
        for each in ids:
            database.execute("UPDATE threads SET recency_at = 1000, updated_at = 1000 WHERE id = ?", (each,))
    database.close()


# --- backup ---


def test_a_backup_of_a_running_home_is_a_home(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness, listening_server(harness) as server:
        home, copy = harness.home, tmp_path / "copy"
        (home / "skills" / "mine").mkdir(parents=True)
        (home / "skills" / "mine" / "SKILL.md").write_text("how")
        (home / "skills" / "theirs").symlink_to("/nowhere")
        for name in ("auth.json", "keys.json"):
            (home / name).write_text("{}")
        with Codex(CodexConfig(url=server.url)) as codex:
            thread = codex.thread_start()
            stop = threading.Event()
            turns: list[str] = []

            def go_on() -> None:
                while not stop.is_set():
                    harness.model.enqueue_assistant_message("noted")
                    thread.run(f"note {len(turns)}")
                    turns.append(thread.id)

            busy = threading.Thread(target=go_on)
            busy.start()
            try:
                while len(turns) < 3:
                    stop.wait(0.01)
                before = len(turns)
                assert back_up(str(home), str(copy)) > 100_000
            finally:
                stop.set()
                busy.join()
            after = len(turns)
        assert not list(tmp_path.glob(".copy.*"))
        assert sorted(path.name for path in copy.iterdir()) == ["config.toml", "skills", "threads.db"]
        for path in copy.rglob("*"):
            assert path.is_symlink() or not stat.S_IMODE(path.stat().st_mode) & 0o077, path
        assert os.readlink(copy / "skills" / "theirs") == "/nowhere"
        with Codex(CodexConfig(env={**harness.environ(), "TREADLE_HOME": str(copy)})) as restored:
            (found,) = restored.thread_list().data
            read = restored.thread_resume(found.id).read(include_turns=True).thread
            assert found.id == thread.id
            assert before <= len(read.turns) <= after
            harness.model.enqueue_assistant_message("I go on.")
            assert restored.thread_resume(found.id).run("And now?").final_response == "I go on."


def test_a_backup_has_keys_only_when_they_are_asked_for_and_replaces_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    asyncio.run(made(home))
    (home / "keys.json").write_text('{"openrouter": "a key"}')
    assert treadle(home, "backup", str(tmp_path / "plain")).returncode == 0
    assert treadle(home, "backup", "--with-keys", str(tmp_path / "whole")).returncode == 0
    assert not (tmp_path / "plain" / "keys.json").exists()
    assert (tmp_path / "whole" / "keys.json").read_text() == '{"openrouter": "a key"}'
    again = treadle(home, "backup", str(tmp_path / "plain"))
    assert again.returncode == 1
    assert "is there already" in again.stderr
    nothing = treadle(tmp_path / "plain" / "none", "backup", str(tmp_path / "other"))
    assert (nothing.returncode, "nothing to back up" in nothing.stderr) == (1, True)


async def made(home: Path) -> None:
    await (await open_store(home)).close()


def test_a_backup_in_the_home_that_it_is_of_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    asyncio.run(made(home))
    (home / "skills").mkdir()
    (tmp_path / "link").symlink_to(home / "skills")
    for place in (home / "copy", home / "skills" / "copy", tmp_path / "link" / "copy"):
        with pytest.raises(StoreError, match="lost with"):
            back_up(str(home), str(place))
    assert list((home / "skills").iterdir()) == []


def test_a_backup_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    asyncio.run(made(home))

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left on device"):
        back_up(str(home), str(tmp_path / "copy"))
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_backup_that_is_killed_is_not_there_and_can_be_made_again(tmp_path: Path) -> None:
    home, copy, script = tmp_path / "home", tmp_path / "copy", tmp_path / "killed.py"
    asyncio.run(made(home))
    script.write_text(
        "import os, signal, sys\n"
        "from treadle.store import back_up\n"
        "os.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"  # the last moment
        "back_up(*sys.argv[1:])\n"
    )
    assert run_python([script, home, copy], cwd=tmp_path, env=os.environ).returncode == -signal.SIGKILL
    assert not copy.exists()
    (partial,) = tmp_path.glob(".copy.*.partial")
    assert stat.S_IMODE(partial.stat().st_mode) == 0o700
    assert treadle(home, "backup", str(copy)).returncode == 0


# --- prune ---


@pytest.mark.anyio
async def test_what_a_living_server_has_in_memory_is_not_pruned(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        seen, unseen = await asyncio.to_thread(conversed, harness, "seen", "unseen")
        store = await open_store(harness.home)
        try:
            with listening_server(harness) as server, Codex(CodexConfig(url=server.url)) as codex:
                await asyncio.to_thread(codex.thread_resume, seen)
                assert not await store.delete_unused(seen, TOMORROW_MS)
                assert await store.delete_unused(unseen, TOMORROW_MS)
                assert not await store.delete_unused(seen, TOMORROW_MS)
            assert await store.load(seen) is not None
            assert await store.delete_unused(seen, TOMORROW_MS)  # the server has ended
        finally:
            await store.close()


def test_pruning_says_what_it_would_delete_and_does_not_ask_where_nobody_is(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        old, new = conversed(harness, "an old matter", "a new one")
        aged(harness.home, old)
        dry = treadle(harness.home, "prune", "--older-than", "1d", "--dry-run")
        assert dry.stdout.splitlines()[-1] == "1 thread would be deleted"
        assert old in dry.stdout
        assert "an old matter" in dry.stdout
        refused = treadle(harness.home, "prune", "--older-than", "1d")
        assert refused.returncode == 2
        assert "--yes" in refused.stderr
        done = treadle(harness.home, "prune", "--older-than", "1d", "--yes")
        assert (done.returncode, done.stdout) == (0, "1 thread deleted\n")
        with Codex(harness.codex_config()) as codex:
            assert [thread.id for thread in codex.thread_list().data] == [new]
        for age in ("0d", "1", "d", "-1d", "1y"):
            assert treadle(harness.home, "prune", f"--older-than={age}", "--yes").returncode == 2


@pytest.mark.anyio
async def test_a_server_deletes_what_the_settings_keep_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "log", AuditLog(str(tmp_path / "audit"), required=True))
    with AppServerHarness(tmp_path) as harness:
        old, new = await asyncio.to_thread(conversed, harness, "old", "new")
        aged(harness.home, old)
        config = harness.home / "config.toml"
        config.write_text(f"{config.read_text()}\n[retention]\nmax_age_days = 30\n")
        async with harness.connect() as client:
            server = client.server
            assert isinstance(server, AppServer)
            server.warm_up()
            deleted = await client.wait_for("thread/deleted")
            assert deleted["params"]["threadId"] == old
            listed = await client.request("thread/list", {})
    assert [thread["id"] for thread in listed["data"]] == [new]
    assert f'"event":"retention","pid":{os.getpid()},"thread":"{old}","days":30' in (tmp_path / "audit").read_text()


# --- vacuum ---


def test_a_vacuum_gives_room_back_and_not_while_a_server_runs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    asyncio.run(made(home))
    with sqlite3.connect(home / "threads.db") as database:  # one of an old version, which can give nothing back
        database.execute("PRAGMA auto_vacuum = NONE")
        database.execute("VACUUM")
    with sqlite3.connect(home / "threads.db") as database:
        database.execute("CREATE TABLE much (what BLOB)")
        database.executemany("INSERT INTO much VALUES (?)", [(os.urandom(1 << 20),) for _ in range(4)])
        database.execute("DROP TABLE much")
    database.close()

    async def in_use() -> None:
        store = await open_store(home)
        try:
            with pytest.raises(StoreError, match=f"process {os.getpid()}"):
                await asyncio.to_thread(vacuum, str(home))
        finally:
            await store.close()

    asyncio.run(in_use())
    before, after = vacuum(str(home))
    assert before > 4 << 20 > after
    assert (home / "threads.db").stat().st_size == after
    with sqlite3.connect(home / "threads.db") as database:
        assert database.execute("PRAGMA auto_vacuum").fetchone() == (2,)


@pytest.mark.anyio
async def test_a_server_gives_back_the_room_of_threads_that_clients_delete(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        *threads, other = await asyncio.to_thread(conversed, harness, *["much " * 200_000] * 4, "little")
        database = harness.home / "threads.db"
        large = database.stat().st_size
        async with harness.connect() as client, asyncio.timeout(DEADLINE_S):
            for each in threads:
                await client.request("thread/delete", {"threadId": each})
            while database.stat().st_size > large / 4:
                await asyncio.sleep(0.01)
            listed = await client.request("thread/list", {})
    assert [thread["id"] for thread in listed["data"]] == [other]


@pytest.mark.anyio
async def test_the_room_of_pruned_threads_is_given_back_at_once(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness:
        (thread,) = await asyncio.to_thread(conversed, harness, "much " * 200_000)
        database = harness.home / "threads.db"
        large = database.stat().st_size
        store = await open_store(harness.home)
        assert await store.delete_unused(thread, TOMORROW_MS)
        await store.shrink()
        await store.close()
    assert large > 1 << 20
    assert database.stat().st_size < large / 4
