"""`treadle threads`: what is kept is listed, shown, found, exported, put away and deleted."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import tracemalloc
from base64 import b64decode
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from msgspec import structs

from kit.agents_model import do, spawn, wait
from system.agent.test_agents import agent_scene
from system.test_cli_run_terminal import Terminal
from thread_samples import PNG
from thread_samples import command as command_item
from treadle.cli import main, thread_choice
from treadle.cli.threads import thread_library
from treadle.protocol.app import Thread, decode, encode
from treadle.server import AppServer
from treadle.store import Release, open_store
from treadle.testing import AppServerHarness, HarnessClient

DEADLINE = 60
KEY = "sk-thisisakey0123456789"
PASSWORD = 'correct "horse" battery'
SECRETS = {"LOOM_PASSWORD": PASSWORD}


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Kept:
    """A home with threads in it."""

    home: Path
    looms: str
    wool: str
    old: str

    def run(self, *words: str) -> Done:
        """In this process, as in a pipe."""
        out, err = io.StringIO(), io.StringIO()
        with mock.patch.dict(os.environ, self._environ()), redirect_stdout(out), redirect_stderr(err):
            code = main(["threads", *words])
        return Done(code, out.getvalue(), err.getvalue())

    def program(
        self, *words: str, pager: str = "cat", term: str = "xterm-256color", **options: object
    ) -> subprocess.Popen[bytes]:
        environ = {**os.environ, **self._environ(), "TERM": term, "PAGER": pager}
        command = [sys.executable, "-m", "treadle", "threads", *words]
        return subprocess.Popen(command, env=environ, **options)  # type: ignore[call-overload, no-any-return]

    def on_terminal(self, terminal: Terminal, *words: str, **options: str) -> subprocess.Popen[bytes]:
        end = terminal.slave
        return self.program(*words, **options, stdin=end, stdout=end, stderr=end, start_new_session=True)

    def _environ(self) -> dict[str, str]:
        return {"TREADLE_HOME": str(self.home), "CODEX_HOME": str(self.home), **SECRETS}


async def _fill(harness: AppServerHarness) -> list[str]:
    model = harness.model
    async with harness.connect() as client:

        async def begin(text: str, name: str | None = None) -> str:
            thread = (await client.request("thread/start", {}))["thread"]["id"]
            await client.run_turn(thread, text)
            if name is not None:
                await client.request("thread/name/set", {"threadId": thread, "name": name})
            return str(thread)

        steps = [{"step": "Look at the loom", "status": "completed"}, {"step": "Mend it", "status": "pending"}]
        model.enqueue_function_call("update_plan", {"plan": steps})
        model.enqueue_function_call("exec_command", {"cmd": "echo '<b>warp</b>'; exit 3"})
        model.enqueue_assistant_message(f"The *loom* is mended. {KEY} {PASSWORD}")
        looms = await begin("mend the <loom>", "Looms")
        model.enqueue_assistant_message("Old wool.")
        old = await begin("old things")
        await client.request("thread/archive", {"threadId": old})
        model.enqueue_assistant_message("Wool comes from sheep.")
        wool = await begin("where does wool come from?")
    return [looms, wool, old]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    with AppServerHarness(tmp_path_factory.mktemp("threads")) as harness:
        looms, wool, old = asyncio.run(_fill(harness))
        yield Kept(harness.home, looms, wool, old)


@pytest.fixture
def kept(made: Kept, tmp_path: Path) -> Kept:
    """A copy, to change."""
    shutil.copytree(made.home, tmp_path / "home")
    return Kept(tmp_path / "home", made.looms, made.wool, made.old)


# --- list ------------------------------------------------------------------------------------------------------------


def test_the_list_in_a_pipe(made: Kept) -> None:
    done = made.run("list")
    assert (done.code, done.err) == (0, "")
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert [row[0] for row in rows] == [made.wool, made.looms]
    assert [row[2] for row in rows] == ["where does wool come from?", "Looms"]
    assert rows[0][4] == "mock-model"
    assert int(rows[1][5]) > 0


def test_the_list_as_json(made: Kept) -> None:
    rows = json.loads(made.run("list", "--json").out)
    assert [row["id"] for row in rows] == [made.wool, made.looms]
    assert decode(encode(rows[0]), Thread).preview == "where does wool come from?"
    assert rows[0]["usage"]["totalTokens"] > 0


def test_fewer_archived_and_of_this_directory(made: Kept) -> None:
    assert made.run("list", "--limit", "1").out.split("\t")[0] == made.wool
    assert made.run("list", "--archived").out.split("\t")[0] == made.old
    assert made.run("list", "--cwd").out == ""
    assert json.loads(made.run("list", "--cwd", "--json").out) == []
    assert made.run("list", "--limit", "0").code == 2


def test_the_list_on_a_terminal(made: Kept) -> None:
    terminal = Terminal(columns=100)
    with made.on_terminal(terminal, "list", "--limit", "1") as program:
        terminal.read_to_end()
        assert program.wait(DEADLINE) == 0
    terminal.close()
    assert "thread" in terminal.text.splitlines()[0]
    assert made.wool[-8:] in terminal.text
    assert "just now" in terminal.text or "ago" in terminal.text
    assert "there are more: treadle threads list --limit 5" in terminal.text


# --- show, and which one is meant ------------------------------------------------------------------------------------


def test_a_thread_as_text(made: Kept) -> None:
    done = made.run("show", "Looms")
    assert (done.code, done.err) == (0, "")
    for part in ("Looms\n", "› mend the <loom>", "[x] Look at the loom", "$ echo '<b>warp</b>'; exit 3", "  exit 3"):
        assert part in done.out, part
    assert "  | <b>warp</b>\n" in done.out
    assert "The *loom* is mended. [redacted] [redacted]" in done.out
    assert "\x1b" not in done.out


def test_a_thread_on_a_terminal_through_a_pager(made: Kept) -> None:
    terminal = Terminal(columns=100, rows=50)
    with made.on_terminal(terminal, "show", "--last") as program:
        terminal.read_to_end()
        assert program.wait(DEADLINE) == 0
    terminal.close()
    assert "Wool comes from sheep." in terminal.text
    assert b"\x1b[36m\xe2\x80\xba where does wool" in terminal.seen
    assert f"go on: treadle exec resume {made.wool}" in terminal.text


@pytest.mark.parametrize(
    ("term", "shown", "keys"), [("xterm-256color", "type to search", b"looms\r"), ("dumb", "Which thread?: ", b"2\n")]
)
def test_without_a_thread_a_person_chooses_one(made: Kept, term: str, shown: str, keys: bytes) -> None:
    terminal = Terminal(columns=100)
    with made.on_terminal(terminal, "show", term=term) as program:
        terminal.wait_for("Looms")
        terminal.wait_for(shown)
        terminal.type(keys)
        terminal.read_to_end()
        assert program.wait(DEADLINE) == 0
    terminal.close()
    assert "The loom is mended." in terminal.text.replace("*", "")


def test_a_pager_that_is_left_early_is_no_error(kept: Kept) -> None:
    asyncio.run(_lengthen(kept, 300, "x" * 99 + "\n", 40))  # more than a pipe holds
    terminal = Terminal()
    with kept.on_terminal(terminal, "show", "Looms", pager="true") as program:
        terminal.read_to_end()
        assert program.wait(DEADLINE) == 0
    terminal.close()
    assert terminal.text == ""


def test_ctrl_c_is_for_the_pager(kept: Kept, tmp_path: Path) -> None:
    asyncio.run(_lengthen(kept, 300, "x" * 99 + "\n", 40))  # more than a pipe holds
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\nhead -c 10 >/dev/null; echo ready; read line <&2; exec tail -n 1\n")
    pager.chmod(0o755)
    terminal = Terminal(columns=100)
    with kept.on_terminal(terminal, "show", "Looms", pager=str(pager)) as program:
        terminal.wait_for("ready")
        program.send_signal(signal.SIGINT)
        terminal.type(b"\n")
        terminal.read_to_end()
        assert program.wait(DEADLINE) == 0
    terminal.close()
    assert "go on: treadle exec resume" in terminal.text  # all of it was written


def test_one_is_meant_by_id_beginning_name_or_last(made: Kept) -> None:
    for word in (made.looms, made.looms.upper(), made.looms[:13], made.looms[-8:], "Looms"):
        assert json.loads(made.run("show", "--json", word).out)["id"] == made.looms
    assert json.loads(made.run("show", "--json", "--last").out)["id"] == made.wool
    assert json.loads(made.run("show", "--json", made.old[:20]).out)["id"] == made.old


def test_a_beginning_that_several_have_lists_them(made: Kept) -> None:
    done = made.run("show", made.looms[:4])
    assert done.code == 2
    assert done.err.startswith(f"treadle threads: {made.looms[:4]!r} may be one of several threads:\n")
    for thread in (made.looms, made.wool, made.old):
        assert f"    {thread[-8:]}" in done.err
    assert "Looms" in done.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nothing"], 1, "there is no thread that is called 'nothing'"),
        (["01a"], 1, "why: of an id at least 4 characters"),
        (["ffffffff-ffff-7fff-8fff-ffffffffffff"], 1, "there is no thread ffffffff"),
        ([], 2, "which thread?"),
        (["Looms", "--last"], 2, "--last is a thread already"),
    ],
)
def test_what_is_not_there_is_said(made: Kept, words: list[str], code: int, said: str) -> None:
    done = made.run("show", *words)
    assert done.code == code
    assert said in done.err
    assert "try: " in done.err
    assert done.out == ""


def test_without_threads(tmp_path: Path) -> None:
    empty = Kept(tmp_path, "", "", "")
    assert empty.run("list") == Done(0, "", "")
    assert json.loads(empty.run("list", "--json").out) == []
    assert "there is no thread yet" in empty.run("show", "--last").err
    assert empty.run("search", "x").code == 1


# --- search ----------------------------------------------------------------------------------------------------------


def test_found_where_all_words_are(made: Kept) -> None:
    done = made.run("search", "sheep", "wool")
    assert done == Done(0, f"{made.wool}\twhere does wool come from?\tWool comes from sheep.\n", "")
    (hit,) = json.loads(made.run("search", "--json", "mended").out)
    assert hit["threadId"] == made.looms
    assert hit["name"] == "Looms"
    assert "[mended]" in hit["snippet"]
    assert KEY not in hit["snippet"]


def test_nothing_found_is_an_exit_code(made: Kept) -> None:
    done = made.run("search", "silk")
    assert (done.code, done.out) == (1, "")
    assert "nothing found" in done.err
    assert made.run("search", "  ").code == 2


def test_archived_threads_are_searched_when_asked(made: Kept) -> None:
    assert made.old not in made.run("search", "wool").out
    assert made.run("search", "--archived", "old", "wool").out == f"{made.old}\told things\tOld wool.\n"


def test_words_are_marked_on_a_terminal(made: Kept) -> None:
    terminal = Terminal(columns=100)
    with made.on_terminal(terminal, "search", "sheep") as program:
        terminal.read_to_end()
        assert program.wait(DEADLINE) == 0
    terminal.close()
    assert b"\x1b[1;4msheep\x1b[0m" in terminal.seen


# --- export ----------------------------------------------------------------------------------------------------------


def test_the_format_is_that_of_the_name(made: Kept, tmp_path: Path) -> None:
    for name, begins in (("t.html", "<!doctype html>"), ("t.md", "# Looms"), ("t.json", '{"id":"')):
        target = tmp_path / name
        done = made.run("export", "Looms", "-o", str(target))
        assert done == Done(0, "", f"written: {target}\n")
        assert target.read_text().startswith(begins)
    assert made.run("export", "Looms", "-o", str(tmp_path / "t.pdf")).code == 2
    assert made.run("export", "Looms", "-o", str(tmp_path / "t.pdf"), "--format", "html").code == 0


def test_an_export_has_everything_but_secrets(made: Kept) -> None:
    page = made.run("export", "Looms", "--format", "html").out
    for part in ("mend the &lt;loom&gt;", "&lt;b&gt;warp&lt;/b&gt;", "exit 3", "Look at the loom", "<em>loom</em>"):
        assert part in page, part
    for kind in ("html", "md", "json"):
        text = made.run("export", "Looms", "-f", kind).out
        assert "[redacted]" in text
        for secret in (KEY, PASSWORD, "horse"):
            assert secret not in text


def test_a_page_has_pictures_as_the_model_saw_them(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path / "home") as harness:
        sent, viewed = harness.workspace / "sent.png", harness.workspace / "viewed.png"

        async def turns() -> None:
            async with harness.connect() as client:
                thread = (await client.request("thread/start", {}))["thread"]["id"]
                for number in range(3):
                    sent.write_bytes(PNG + b"sent %d" % number)
                    viewed.write_bytes(PNG + b"viewed %d" % number)
                    harness.model.enqueue_function_call("view_image", {"path": "viewed.png"})
                    harness.model.enqueue_assistant_message("I see.")
                    given = [{"type": "localImage", "path": str(sent)}]
                    await client.run_turn(thread, f"look {number}", input=given)
                    if number == 1:
                        await client.request("thread/rollback", {"threadId": thread, "numTurns": 1})

        asyncio.run(turns())
        # What the paths lead to now was never shown to the model.
        secret = harness.workspace / "secret.png"
        secret.write_bytes(PNG + b"secret")
        for path in (sent, viewed):
            path.unlink()
            path.symlink_to(secret)
        page = Kept(harness.home, "", "", "").run("export", "--last", "--format", "html").out
    shown = [b64decode(found).removeprefix(PNG) for found in re.findall(r'src="data:image/png;base64,([^"]+)"', page)]
    assert shown == [b"sent 0", b"viewed 0", b"sent 2", b"viewed 2"]


def test_json_is_what_the_server_says(made: Kept) -> None:
    exported = decode(made.run("export", "--last", "--format", "json").out.encode(), Thread)

    async def ask() -> Thread:
        async with AppServer(home=made.home) as server:
            client = HarnessClient(server)
            await client.request("initialize", {"clientInfo": {"name": "test", "version": "1"}})
            read = await client.request("thread/read", {"threadId": made.wool, "includeTurns": True})
            return decode(json.dumps(read["thread"]).encode(), Thread)

    assert exported == asyncio.run(ask())


def test_standard_output_is_markdown_unless_said(made: Kept) -> None:
    assert made.run("export", "Looms").out.startswith("# Looms\n")
    assert made.run("export", "Looms", "-o", "-").out.startswith("# Looms\n")


def test_nothing_is_replaced_without_force(made: Kept, tmp_path: Path) -> None:
    target = tmp_path / "t.md"
    target.write_text("mine")
    done = made.run("export", "Looms", "-o", str(target))
    assert done.code == 2
    assert "try: another name, or --force" in done.err
    assert target.read_text() == "mine"
    assert made.run("export", "Looms", "-o", str(target), "--force").code == 0
    assert target.read_text().startswith("# Looms")


def test_who_reads_only_the_beginning_ends_it(made: Kept) -> None:
    with made.program("export", "Looms", "--format", "html", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.close()
        assert program.stderr is not None
        said = program.stderr.read().decode()
        assert program.wait(DEADLINE) == 141
    assert said == ""


def test_pages_of_any_size_give_the_same(kept: Kept) -> None:
    asyncio.run(_lengthen(kept, 60, "x", 1))
    asked = (("list", "--json"), ("show", "Looms"), ("export", "Looms", "-f", "json"), ("show", kept.looms[:4]))
    whole = [kept.run(*words) for words in asked]
    with (
        mock.patch.object(thread_choice, "_PAGE", 1),
        mock.patch.multiple(thread_library, _ITEMS=1, _EVENTS=1, _TURNS=1),
    ):
        assert [kept.run(*words) for words in asked] == whole


def test_a_long_thread_is_never_in_memory(kept: Kept, tmp_path: Path) -> None:
    count, size = 1_000, 12_000
    asyncio.run(_lengthen(kept, count, "x" * 99 + "\n", size // 100))
    target = tmp_path / "long.html"
    export = ("export", "Looms", "-o", str(target), "--force")
    assert kept.run(*export).code == 0  # what is imported and compiled on the way stays, however long the thread is
    tracemalloc.start()
    try:
        assert kept.run(*export).code == 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert target.stat().st_size > count * size
    assert peak < count * size / 2


async def _lengthen(kept: Kept, count: int, line: str, lines: int) -> None:
    """Add commands to the last turn."""
    store = await open_store(kept.home)
    claim = await store.claim(kept.looms, -1)
    assert claim.news is not None
    items = await store.items(kept.looms)
    item = command_item("make", line * lines)
    records = [
        structs.replace(items[-1], number=items[-1].number + number, id=f"c{number}", type=item.type, data=encode(item))
        for number in range(1, count + 1)
    ]
    await store.commit(kept.looms, claim.fence, [*records, Release(kept.looms)])
    await store.close()


# --- archive and delete ----------------------------------------------------------------------------------------------


def test_put_away_and_taken_back(kept: Kept) -> None:
    assert kept.run("archive", "Looms") == Done(0, f"archived {kept.looms[-8:]}  Looms\n", "")
    assert kept.looms not in kept.run("list").out
    assert kept.looms in kept.run("list", "--archived").out
    assert kept.run("archive", "Looms").code == 1
    assert kept.run("archive", kept.looms).code == 1
    assert kept.run("unarchive", kept.looms[:20]).code == 0
    assert kept.looms in kept.run("list").out


def test_several_or_none(kept: Kept) -> None:
    done = kept.run("archive", "Looms", "nothing")
    assert done.code == 1
    assert kept.looms in kept.run("list").out  # one that is not there stops it before anything is done
    done = kept.run("archive", "Looms", kept.wool[:13], kept.wool)
    assert len(done.out.splitlines()) == 2
    assert kept.run("list").out == ""


def test_nothing_is_deleted_where_nobody_can_be_asked(kept: Kept) -> None:
    done = kept.run("delete", "Looms")
    assert done.code == 2
    assert "1 thread would be lost for good" in done.err
    assert "--yes" in done.err
    assert kept.looms in kept.run("list").out
    assert kept.run("delete", "--yes", "Looms", kept.old) == Done(
        0, f"deleted {kept.looms[-8:]}  Looms\ndeleted {kept.old[-8:]}  old things\n", ""
    )
    assert kept.looms not in kept.run("list").out
    assert kept.run("list", "--archived").out == ""


@pytest.mark.parametrize(("answer", "code", "stays"), [(b"\n", 1, True), (b"y\n", 0, False)])
def test_it_asks_and_says_what_is_lost(kept: Kept, answer: bytes, code: int, stays: bool) -> None:
    terminal = Terminal(columns=100)
    with kept.on_terminal(terminal, "delete", "Looms") as program:
        terminal.wait_for("Delete?")
        assert "lost for good" in terminal.text
        assert "Looms  (1 turn, begun " in terminal.text
        terminal.type(answer)
        terminal.read_to_end()
        assert program.wait(DEADLINE) == code
    terminal.close()
    assert (kept.looms in kept.run("list").out) == stays
    assert ("nothing was deleted" in terminal.text) == stays


def test_the_question_says_how_many_sub_agents_go_too(tmp_path: Path) -> None:
    async def fill() -> Path:
        async with agent_scene(tmp_path) as on:
            await on.stage.run(await on.stage.start(), do(spawn("c"), wait("$1"), "e"))
            return on.stage.harness.home

    terminal = Terminal(columns=100)
    with Kept(asyncio.run(fill()), "", "", "").on_terminal(terminal, "delete", "--last") as program:
        terminal.wait_for("Delete?")
        assert ", with 1 sub-agent)" in terminal.text
        terminal.type(b"\n")
        terminal.read_to_end()
        assert program.wait(DEADLINE) == 1
    terminal.close()


def _interrupted(program: subprocess.Popen[bytes]) -> int:
    """Python overlooks a signal that comes just before it begins to read; whoever sits there presses Ctrl-C again."""
    for _ in range(10):
        program.send_signal(signal.SIGINT)
        try:
            return program.wait(DEADLINE / 10)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError("ten times Ctrl-C did not end it")


def test_ctrl_c_at_the_question_deletes_nothing(kept: Kept) -> None:
    terminal = Terminal(columns=100)
    with kept.on_terminal(terminal, "delete", "Looms") as program:
        terminal.wait_for("Delete?")
        assert _interrupted(program) == 130
    terminal.close()
    assert kept.looms in kept.run("list").out


def test_a_turn_that_runs_in_another_server_is_seen(tmp_path: Path) -> None:
    gate = threading.Event()

    async def watch(harness: AppServerHarness) -> tuple[Done, Done]:
        async with harness.connect() as client:
            thread = (await client.request("thread/start", {}))["thread"]["id"]
            harness.model.enqueue_assistant_message("Done at last.", gate=gate)
            asked = {"threadId": thread, "input": [{"type": "text", "text": "take your time"}]}
            turn = (await client.request("turn/start", asked))["turn"]["id"]
            await client.wait_for("item/completed")
            kept = Kept(harness.home, thread, "", "")
            try:
                shown = await asyncio.to_thread(_as_program, kept, "show", "--last")
                deleted = await asyncio.to_thread(_as_program, kept, "delete", "--yes", "--last")
            finally:
                gate.set()
            assert (await client.turn_end(turn))["turn"]["status"] == "completed"
            return shown, deleted

    with AppServerHarness(tmp_path) as harness:
        shown, deleted = asyncio.run(watch(harness))
    assert shown.code == 0
    assert "› take your time" in shown.out
    assert "still running" in shown.out
    assert deleted.code == 1
    assert "could not be deleted\n  why: another server" in deleted.err


def _as_program(kept: Kept, *words: str) -> Done:
    with kept.program(*words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        out, err = program.communicate(timeout=DEADLINE)
        return Done(program.wait(DEADLINE), out.decode(), err.decode())


# --- completion ------------------------------------------------------------------------------------------------------


def test_a_shell_offers_the_newest_with_their_titles(made: Kept) -> None:
    environ = {
        **os.environ,
        "TREADLE_HOME": str(made.home),
        "_TREADLE_COMPLETE": "zsh_complete",
        "COMP_WORDS": "treadle threads show ",
        "COMP_CWORD": "3",
    }
    program = shutil.which("treadle", path=str(Path(sys.executable).parent))
    assert program is not None
    done = subprocess.run([program], env=environ, capture_output=True, text=True, timeout=DEADLINE, check=False)
    lines = done.stdout.splitlines()
    assert lines[1] == made.wool[-8:]
    assert lines[2] == "where does wool come from?"
    assert made.looms[-8:] in lines
    assert "Looms" in lines
    assert done.stderr == ""
