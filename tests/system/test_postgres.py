"""Threads in PostgreSQL: what is left when a server is killed or stopped, or the database goes away and comes back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.postgres import Postgres, running_postgres
from kit.processes import DEADLINE_S
from treadle import Codex
from treadle.store import PATIENCE_S, EphemeralStore, Store, StoreError, open_postgres, open_sqlite, open_store, scripts
from treadle.testing import A, AppServerHarness, B, commit, event, history, item, thread, turn

pytestmark = pytest.mark.anyio

# Writes numbered events, and prints the number of each that is committed.
FLOOD = f"""
import asyncio, os, sys
from treadle.store import open_store
from treadle.testing import commit, event, item, thread, turn

A = {A!r}

async def main():
    async with await open_store(sys.argv[1]) as store:
        await commit(store, thread(A))
        fence = (await store.claim(A, 0)).fence
        await store.commit(A, fence, [turn(1, A, status="inProgress")])
        room, number = asyncio.Semaphore(64), 0

        def written(number, error):
            os.write(1, f"{{number}} {{error.kind if error else 'ok'}}\\n".encode())
            room.release()

        while True:
            await room.acquire()
            number += 1
            writes = [event(number, A), item(number, A)]
            store.submit(A, fence, writes, lambda error, number=number: written(number, error), number - 1)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres(fsync=True) as server:
        yield server


@contextmanager
def flooding(url: str, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    with output.open("wb") as file, subprocess.Popen([sys.executable, "-c", FLOOD, url], stdout=file) as child:
        try:
            deadline = time.monotonic() + DEADLINE_S
            while output.read_bytes().count(b"\n") < 200:
                assert child.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.01)
            yield child
        finally:
            child.kill()


def committed(output: Path) -> list[int]:
    lines = [line.split() for line in output.read_text().splitlines()]
    return [int(number) for number, outcome in lines if outcome == "ok"]


async def taken_over(store: Store) -> tuple[int, float]:
    """The fence of the heir, and how long the claim took."""
    began = time.monotonic()
    while True:
        try:
            return (await store.claim(A, -1)).fence, time.monotonic() - began
        except StoreError as error:
            if error.kind not in ("claimed", "busy") or time.monotonic() - began > DEADLINE_S:
                raise


async def numbers(store: Store) -> list[int]:
    found: list[int] = []
    while page := (await store.events(A, found[-1] if found else 0, 1000)).events:
        found += [each.seq for each in page]
    return found


async def test_a_server_that_is_killed_loses_nothing_that_it_reported(postgres: Postgres, tmp_path: Path) -> None:
    url, output = postgres.url("killed"), tmp_path / "output"
    with flooding(url, output) as child:
        child.kill()
        child.wait(DEADLINE_S)
        async with await open_postgres(url) as store:
            fence, _ = await taken_over(store)
            found = await numbers(store)
            assert found == list(range(1, len(found) + 1))
            assert set(committed(output)) <= set(found)
            assert [each.number for each in await store.items(A)] == found
            assert [each.status for each in await store.turns(A)] == ["interrupted"]
            await store.commit(A, fence, [event(len(found) + 1)])


async def test_a_server_that_is_stopped_loses_its_threads_and_writes_nothing_more(
    postgres: Postgres, tmp_path: Path
) -> None:
    url, output = postgres.url("stopped"), tmp_path / "output"
    with flooding(url, output) as child:
        os.kill(child.pid, signal.SIGSTOP)
        async with await open_postgres(url) as store:
            # Wherever it stands, no lock of it is in the way.
            fence, _ = await taken_over(store)
            last = len(await numbers(store))
            await store.commit(A, fence, [event(last + 1, frame=b'"of the heir"')])
            os.kill(child.pid, signal.SIGCONT)
            deadline = time.monotonic() + DEADLINE_S
            while b"stale" not in output.read_bytes():
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            assert set(committed(output)) == set(range(1, last + 1))
            assert await numbers(store) == list(range(1, last + 2))
            assert (await store.events(A, last, 9)).events[0].frame == b'"of the heir"'


async def test_a_database_that_crashes_and_comes_back_loses_and_doubles_nothing(
    postgres: Postgres, tmp_path: Path
) -> None:
    url = postgres.url("crashed")
    async with await open_postgres(url) as store:
        await commit(store, thread())
        fence = (await store.claim(A, 0)).fence
        outcomes: dict[int, str] = {}
        ended = asyncio.Event()

        def done(error: StoreError | None, number: int) -> None:
            outcomes[number] = error.kind if error else "ok"
            if len(outcomes) == 3_000:
                ended.set()

        for number in range(1, 3_001):
            store.submit(A, fence, [event(number), item(number)], partial(done, number=number), number - 1)
            if number == 1_500:
                while len(outcomes) < 200:
                    await asyncio.sleep(0.001)
                await asyncio.to_thread(postgres.stop)
                restart = asyncio.get_running_loop().run_in_executor(None, postgres.start)
        await restart
        await asyncio.wait_for(ended.wait(), DEADLINE_S + PATIENCE_S)
        assert list(outcomes) == list(range(1, 3_001))
        assert set(outcomes.values()) == {"ok"}
        assert await numbers(store) == list(range(1, 3_001))
        # Still its own: nobody had to be told, and nobody could take it meanwhile.
        await store.commit(A, fence, [event(3_001)])
        async with await open_postgres(url) as other:
            with pytest.raises(StoreError) as refused:
                await other.claim(A, -1)
            assert refused.value.kind == "claimed"


async def test_a_database_that_does_not_come_back_is_said_in_time(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("treadle.store.postgres.writer.PATIENCE_S", 0.5)
    with running_postgres() as server:
        store = await open_postgres(server.url())
        await commit(store, thread())
        server.stop()
        errors: list[StoreError | None] = []
        store.submit(A, 0, [event(1)], errors.append)
        with pytest.raises(StoreError) as refused:
            await store.load(A)
        assert refused.value.kind == "unreachable"
        with pytest.raises(StoreError) as lost:
            await store.commit(A, 0, [event(2)])
        # The first was sent on a connection that had ended; nobody can know of it more than that.
        assert (errors[0] and errors[0].kind) in ("unknown", "unreachable")
        assert lost.value.kind == "unreachable"
        server.start()
        loaded = await store.load(A)
        assert loaded is not None
        again = await store.claim(A, -1)
        await store.commit(A, again.fence, [event(loaded.counters.seq + 1)])
        await store.close()


async def test_tables_of_the_next_version_can_be_used_as_long_as_they_allow_it(postgres: Postgres) -> None:
    import asyncpg

    url, known = postgres.url("versions"), len(scripts())
    async with await open_postgres(url) as running:
        connection = await asyncpg.connect(postgres.url().partition("&schema")[0])
        await connection.execute("ALTER TABLE versions.threads ADD COLUMN later text DEFAULT 'x'")
        await connection.execute(f"UPDATE versions.format SET version = {known + 1}")
        await commit(running, thread(), event(1))
        async with await open_postgres(url) as another:
            assert await another.load(A) == await running.load(A)
            await commit(another, thread(B))
        await connection.execute(f"UPDATE versions.format SET oldest = {known + 1}")
        await connection.close()
        with pytest.raises(StoreError, match="newer Treadle"):
            await open_postgres(url)


async def test_a_thread_that_somebody_has_locked_holds_up_no_other(postgres: Postgres) -> None:
    import asyncpg

    async with await open_postgres(postgres.url("locked")) as store:
        await commit(store, thread(), thread(B))
        connection = await asyncpg.connect(postgres.url().partition("&schema")[0])
        async with connection.transaction():
            await connection.execute("SELECT 1 FROM locked.threads WHERE id = $1 FOR UPDATE", A)
            writes = [store.commit(A, 0, [event(1)]), store.commit(B, 0, [event(1, B)])]
            outcomes = await asyncio.gather(*writes, return_exceptions=True)
        await connection.close()
        assert [error.kind if isinstance(error, StoreError) else error for error in outcomes] == ["busy", None]
        await store.commit(A, 0, [event(1)])


async def test_a_standby_that_takes_over_is_another_epoch(postgres: Postgres) -> None:
    with tempfile.TemporaryDirectory(prefix="treadle-standby-", ignore_cleanup_errors=True) as folder:
        async with await open_postgres(postgres.url("followed")) as store:
            await commit(store, thread(), event(1))
            before = store.epoch
        standby = postgres.standby(Path(folder))
        standby.start()
        try:
            standby.promote()
            async with await open_postgres(standby.url("followed")) as store:
                assert store.epoch != before
                page = await store.events(A, 0, 9)
                assert (page.epoch, page.last_seq) == (store.epoch, 1)
        finally:
            standby.stop()


async def test_a_full_disk_is_said_and_loses_nothing(postgres: Postgres) -> None:
    import asyncpg

    async with await open_postgres(postgres.url("full")) as store:
        await commit(store, thread(), event(1))
        connection = await asyncpg.connect(postgres.url().partition("&schema")[0])
        # What PostgreSQL raises when a table cannot grow.
        await connection.execute(
            'CREATE FUNCTION "full".no_room() RETURNS trigger LANGUAGE plpgsql AS '
            "$$ BEGIN RAISE EXCEPTION USING errcode = 'disk_full'; END $$"
        )
        await connection.execute(
            'CREATE TRIGGER no_room BEFORE INSERT ON "full".events EXECUTE FUNCTION "full".no_room()'
        )
        with pytest.raises(StoreError, match="make room") as refused:
            await store.commit(A, 0, [item(1), event(2)])
        assert refused.value.kind == "full"
        assert ((await store.events(A, 0, 9)).last_seq, await store.items(A)) == (1, [])
        await connection.execute('DROP TRIGGER no_room ON "full".events')
        await connection.close()
        await store.commit(A, 0, [item(1), event(2)])


async def test_without_its_driver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(StoreError, match=r"pip install 'treadle\[postgres\]'"):
        await open_store("postgres://db/threads")


async def test_servers_that_start_together_make_the_tables_once(postgres: Postgres) -> None:
    stores = await asyncio.gather(*(open_postgres(postgres.url("together")) for _ in range(8)))
    assert len(await stores[0].servers()) == 8
    for store in stores:
        await store.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgres://me:hunter2@127.0.0.1:1/db", "PGPASSWORD"),
        ("postgres://me@127.0.0.1:1/db?password=hunter2", "PGPASSWORD"),
        ("postgres://me@127.0.0.1:1/db?schema=a;drop", "schema"),
        ("postgres://me@127.0.0.1:1", "names no database"),
        ("postgres://me@127.0.0.1:1/db", "cannot be reached"),
        ("mysql://db", "there is no store for mysql"),
    ],
)
async def test_locations_that_cannot_be_used(url: str, says: str) -> None:
    with pytest.raises(StoreError, match=says) as refused:
        await open_store(url)
    assert "hunter2" not in str(refused.value)


async def test_a_package_can_offer_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    async def opened(url: str) -> Store:
        assert url == "mine://place"
        return EphemeralStore()

    offered = SimpleNamespace(load=lambda: opened)
    monkeypatch.setattr("treadle.own_python.plug_ins", lambda group: {"treadle.stores": {"mine": [offered]}}[group])
    async with await open_store("mine://place") as store:  # type: ignore[attr-defined]
        await commit(store, thread())
    with pytest.raises(StoreError, match="no store for other://"):
        await open_store("other://place")


async def test_the_location_has_no_secret(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    async with await open_postgres(postgres.url("quiet")) as store:
        assert store.location == "postgresql://treadle@/postgres?schema=quiet"


def test_commands_do_not_inherit_the_password(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PGPASSWORD": "hunter2", "PGPASSFILE": "/none", "PGAPPNAME": "mine"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TREADLE_STORE", postgres.url("kept"))
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_function_call("exec_command", {"cmd": "env | grep PG"})
        harness.model.enqueue_assistant_message("Seen.")
        with Codex(harness.codex_config()) as codex:
            codex.thread_start().run("look")
        (seen,) = [each["output"] for each in harness.model.requests()[-1].input if "output" in each]
        assert "PGAPPNAME=mine" in seen
        assert "PGPASS" not in seen


def treadle(home: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TREADLE_HOME": str(home), **variables}
    command = [sys.executable, "-m", "treadle", "store", *words]
    return subprocess.run(command, env=env, cwd=home, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def test_threads_are_copied_checked_and_go_on_there(postgres: Postgres, tmp_path: Path) -> None:
    url = postgres.url("copied")
    with AppServerHarness(tmp_path) as harness:
        harness.model.enqueue_assistant_message("One.")
        with Codex(harness.codex_config()) as codex:
            began = codex.thread_start()
            began.run("first")
        assert treadle(harness.home, "check").stdout == "1 thread whole, 0 damaged\n"
        done = treadle(harness.home, "copy", str(harness.home), url)
        assert (done.returncode, done.stdout) == (0, "1 thread copied, 0 there already\n"), done.stderr
        done = treadle(harness.home, "copy", f"sqlite://{harness.home}", url)
        assert (done.returncode, done.stdout) == (0, "0 threads copied, 1 there already\n"), done.stderr
        assert treadle(harness.home, "check", TREADLE_STORE=url).stdout == "1 thread whole, 0 damaged\n"
        refused = treadle(harness.home, "backup", str(tmp_path / "copy"), TREADLE_STORE=url)
        assert "pg_dump" in refused.stderr
        harness.model.enqueue_assistant_message("Two.")
        homes = {"CODEX_HOME": str(harness.home), "TREADLE_HOME": str(harness.home)}
        with Codex(harness.codex_config(env={**homes, "TREADLE_STORE": url})) as codex:
            assert codex.thread_resume(began.id).run("second").final_response == "Two."
        assert "One." in harness.model.requests()[-1].input_texts("assistant")
        # It has gone on there, so it is another now, and stays.
        done = treadle(harness.home, "copy", str(harness.home), url)
        assert (done.returncode, "differs" in done.stderr) == (1, True)


async def test_a_copy_that_was_stopped_is_made_anew(postgres: Postgres, tmp_path: Path) -> None:
    from treadle.store import copy_threads, digest

    home = tmp_path / "home"
    async with await open_sqlite(home) as source, await open_postgres(postgres.url("halves")) as target:
        for each in (A, B):
            writes = [turn(1, each), item(1, each, text="a \0 text"), history(1, each), event(3, each)]
            await commit(source, thread(each), *writes)
        await commit(target, thread(A, originator="treadle store copy: unfinished", listed=False), item(9, A))
        found: dict[str, str] = {}
        await copy_threads(source, target, found.__setitem__)
        assert found == {A: "copied", B: "copied"}
        for each in (A, B):
            assert await digest(source, each) == await digest(target, each)
        await source.claim(A, -1)
        async with await open_sqlite(home) as another:
            await copy_threads(another, target, found.__setitem__)
        assert found == {A: "in use", B: "there"}
