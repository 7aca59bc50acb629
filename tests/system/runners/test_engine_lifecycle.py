"""A run is a process, from its start until nothing of it is left: with programs that do everything wrong."""

from __future__ import annotations

import asyncio
import gc
import json
import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from system.runners.fake_engine import OTHER, SESSION, fake
from treadle import ArgumentError
from treadle.runners import (
    ActionEvent,
    CodexRunner,
    CompletedEvent,
    Event,
    ResumeToken,
    Run,
    RunOptions,
    SessionState,
    StartedEvent,
    Timeouts,
    process_start_time,
)

pytestmark = pytest.mark.anyio
DEADLINE_S = 60.0
TOKEN = ResumeToken("codex", SESSION)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


async def drain(run: AsyncIterator[Event]) -> list[Any]:
    async with asyncio.timeout(DEADLINE_S):
        return [event async for event in run]


async def appears(path: Path) -> str:
    async with asyncio.timeout(DEADLINE_S):
        while not path.exists():
            await asyncio.sleep(0.01)
    return path.read_text()


async def gone(pid: int, born: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while process_start_time(pid) == born:
            await asyncio.sleep(0.01)


def runner(tmp_path: Path, script: str, **choices: Any) -> CodexRunner:
    return CodexRunner(fake(tmp_path, script), **choices)


async def test_a_run(tmp_path: Path) -> None:
    events = await drain(
        runner(tmp_path, "start(); answer(sys.stdin.read()); done(input_tokens=3)").run("say it\n twice")
    )
    assert [type(event) for event in events] == [StartedEvent, ActionEvent, CompletedEvent]
    assert events[-1] == CompletedEvent("codex", True, "say it\n twice", TOKEN, usage={"input_tokens": 3})


async def test_what_the_program_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_OUTSIDE", "1")
    script = """
    start()
    names = ("FROM_OUTSIDE", "MINE", "RUNS", "PWD")
    answer(json.dumps([sys.argv[1:], os.getcwd(), [os.environ.get(name) for name in names]]))
    done()
    """
    (tmp_path / "work").mkdir()
    made = runner(tmp_path, script, extra_args=["-c", "a=b"], env={"MINE": "2", "RUNS": "old"}, cwd=tmp_path)
    options = RunOptions(model="m", cwd=tmp_path / "work", env={"RUNS": "3"})
    answer = (await drain(made.run("x", TOKEN, options)))[-1].answer
    args = ["-c", "a=b", "--model", "m", "exec", "--json", "--skip-git-repo-check", "--color=never"]
    work = str(tmp_path / "work")
    assert json.loads(answer) == [[*args, "resume", SESSION, "-"], work, ["1", "2", "3", work]]


# --- programs that cannot be run, or do not want to be told ---


async def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    for command in ("no-such-codex", str(tmp_path / "codex")):
        (completed,) = await drain(CodexRunner(command).run("x"))
        assert completed.error.startswith("codex is not installed")
        assert "npm install -g @openai/codex" in completed.error


async def test_a_program_that_is_not_on_a_path_with_a_closed_folder(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    (tmp_path / "open").mkdir()
    path = {"PATH": f"{tmp_path}/closed:{tmp_path}/open"}
    (completed,) = await drain(CodexRunner("codex", env=path).run("x"))
    assert completed.error.startswith("codex is not installed")
    (tmp_path / "open" / "codex").write_text("no program")
    (completed,) = await drain(CodexRunner("codex", env=path).run("x"))
    assert "could not be started: Permission denied" in completed.error


async def test_a_program_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "codex").write_text("no program")
    for command in (tmp_path, tmp_path / "codex"):
        (completed,) = await drain(CodexRunner(str(command)).run("x"))
        assert not completed.ok
        assert "could not be started" in completed.error


async def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    (completed,) = await drain(runner(tmp_path, "start()", cwd=tmp_path / "gone").run("x"))
    assert str(tmp_path / "gone") in completed.error


async def test_a_folder_whose_file_system_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(function: object) -> bool:
        raise TimeoutError

    monkeypatch.setattr("treadle.runners.engine_process.read_in_thread", never)
    (completed,) = await drain(runner(tmp_path, "start()", cwd=tmp_path).run("x"))
    assert "does not answer" in completed.error


@pytest.mark.parametrize("value", ["--last", "-", "", "sid", f"{SESSION} --full-auto", "../x", f"{SESSION}\n"])
async def test_what_is_no_session_never_reaches_a_command_line(tmp_path: Path, value: str) -> None:
    made = runner(tmp_path, "mark('ran'); start(); done()")
    (completed,) = await drain(made.run("x", ResumeToken("codex", value)))
    assert not completed.ok
    assert "is no session of codex" in completed.error
    assert not (tmp_path / "ran").exists()


async def test_a_prompt_that_nobody_reads(tmp_path: Path) -> None:
    made = runner(tmp_path, "os.close(0); start(); answer('deaf'); done()")
    assert (await drain(made.run("x" * (1 << 20))))[-1].answer == "deaf"


async def test_a_megabyte_both_ways_at_once(tmp_path: Path) -> None:
    script = """
    start()
    for _ in range(20):
        answer("y" * 50000)
    text = sys.stdin.read()
    answer(f"{len(text)} {text[-5:]}")
    done()
    """
    prompt = "x" * (1 << 20) + "✓end"
    events = await drain(runner(tmp_path, script).run(prompt))
    assert events[-1].answer == f"{len(prompt)} {prompt[-5:]}"


async def test_what_it_says_beside_its_lines_stays_out_of_the_events(tmp_path: Path) -> None:
    run = runner(tmp_path, "start(); sys.stderr.write('sk-secret-123 boom\\n'); sys.exit(7)").run("x")
    events = await drain(run)
    assert events[-1].error == "codex exec failed (rc=7)."
    assert "boom" not in repr(events)
    assert "boom" in run.stderr


async def test_what_it_says_beside_its_lines_is_bounded_and_blocks_nothing(tmp_path: Path) -> None:
    run = runner(tmp_path, "start(); sys.stderr.write('e' * (1 << 21)); answer('x'); done()").run("x")
    assert (await drain(run))[-1].ok
    assert len(run.stderr) <= 16 << 10


# --- the end ---


async def test_a_last_line_without_its_end(tmp_path: Path) -> None:
    script = """
    start()
    answer("kept")
    sys.stdout.write('{"type": "turn.completed", "usage": {"output_tokens": 5}}')
    """
    completed = (await drain(runner(tmp_path, script).run("x")))[-1]
    assert (completed.answer, completed.usage) == ("kept", {"output_tokens": 5})


KEEPER = """
subprocess.Popen(["/bin/sh", "-c", "echo $$ > {here}/pid.new; mv {here}/pid.new {here}/pid; exec sleep 1000"]{how})
wait_for("pid")
"""


@pytest.mark.parametrize(
    "how", ["", ", start_new_session=True", ", start_new_session=True, stdout=subprocess.DEVNULL, stderr=-3"]
)
async def test_a_grandchild_neither_holds_up_the_end_nor_outlives_it(tmp_path: Path, how: str) -> None:
    keeper = KEEPER.format(here=tmp_path, how=how)
    run = runner(tmp_path, f"start()\n{keeper}\nanswer('x')\ndone()").run("x")
    async with asyncio.timeout(DEADLINE_S):
        async for event in run:
            if isinstance(event, CompletedEvent):
                assert event.ok
                assert process_start_time(int((tmp_path / "pid").read_text())) == 0  # it is gone before anybody is told
                return
    pytest.fail("no end")


async def test_a_process_that_lingers_after_its_last_word_is_ended(tmp_path: Path) -> None:
    made = runner(tmp_path, "start(); answer('x'); done(); mark('said'); hang()", timeouts=Timeouts(linger=0.1))
    events = await drain(made.run("x"))
    assert events[-1].ok
    assert [event for event in events if isinstance(event, ActionEvent) and event.action.kind == "warning"] == []


async def test_one_that_lingers_and_does_not_listen(tmp_path: Path) -> None:
    script = "signal.signal(signal.SIGTERM, signal.SIG_IGN); start(); answer('x'); done(); hang()"
    made = runner(tmp_path, script, timeouts=Timeouts(linger=0.1, grace=0.1))
    assert (await drain(made.run("x")))[-1].ok


async def test_limits_may_be_infinite(tmp_path: Path) -> None:
    names = ("total", "idle", "linger", "grace")
    for name in names:
        wrongs: tuple[Any, ...] = (-1, math.nan, "3")
        for wrong in wrongs:
            with pytest.raises(ArgumentError, match=f"{name} must be a number of seconds"):
                Timeouts(**{name: wrong})
    limits = Timeouts(**dict.fromkeys(names, math.inf))
    completed = (await drain(runner(tmp_path, "start(); answer('x'); done()", timeouts=limits).run("x")))[-1]
    assert (completed.ok, completed.answer) == (True, "x")


@pytest.mark.parametrize(
    ("limits", "words"),
    [(Timeouts(idle=0.3), "no sign of life for 0.3 s"), (Timeouts(total=0.3), "did not end within 0.3 s")],
)
async def test_deadlines(tmp_path: Path, limits: Timeouts, words: str) -> None:
    completed = (await drain(runner(tmp_path, "start(); hang()", timeouts=limits).run("x")))[-1]
    assert not completed.ok
    assert words in completed.error


async def test_signs_of_life_put_off_the_idle_deadline(tmp_path: Path) -> None:
    script = """
    start()
    for number in range(8):
        time.sleep(0.25)
        say(type="item.updated", item=dict(id="item_1", type="hologram"))
    answer("alive")
    done()
    """
    made = runner(tmp_path, script, timeouts=Timeouts(idle=1.5))
    assert (await drain(made.run("x")))[-1].answer == "alive"


WAIT = 'say(type="error", message="Waiting for provider `mine`: its limit of requests is used up (3 waiting)")'
# The start of the program counts, too, and may take a second on a busy machine.
PATIENCE_S = 3.0


async def test_a_wait_that_was_announced_is_no_silence(tmp_path: Path) -> None:
    script = f"start(); {WAIT}; time.sleep({PATIENCE_S + 0.5}); answer('at last'); done()"
    made = runner(tmp_path, script, timeouts=Timeouts(idle=PATIENCE_S))
    assert (await drain(made.run("x")))[-1].answer == "at last"


async def test_silence_after_a_wait_that_was_announced(tmp_path: Path) -> None:
    said = 'say(type="item.updated", item=dict(id="1", type="x"))'
    script = f"start(); {WAIT}; time.sleep(0.5); {said}; hang()"
    completed = (await drain(runner(tmp_path, script, timeouts=Timeouts(idle=0.3)).run("x")))[-1]
    assert "no sign of life" in completed.error


async def test_a_wait_that_was_announced_has_an_end(tmp_path: Path) -> None:
    limits = Timeouts(idle=PATIENCE_S, total=PATIENCE_S + 1)
    completed = (await drain(runner(tmp_path, f"start(); {WAIT}; hang()", timeouts=limits).run("x")))[-1]
    assert "did not end within 4 s" in completed.error


async def test_a_slow_reader_is_no_silence(tmp_path: Path) -> None:
    run = runner(
        tmp_path, "start(); wait_for('go'); time.sleep(0.3); answer('x'); done()", timeouts=Timeouts(idle=1.0)
    ).run("x")
    first = await anext(run)
    assert isinstance(first, StartedEvent)
    await asyncio.sleep(1.2)
    (tmp_path / "go").touch()
    assert (await drain(run))[-1].ok


async def test_another_session_than_asked_for(tmp_path: Path) -> None:
    made = runner(tmp_path, f"start({OTHER!r}); hang()")
    (completed,) = await drain(made.run("x", TOKEN))
    assert OTHER in completed.error
    assert completed.resume == TOKEN


async def test_the_helper_is_killed(tmp_path: Path) -> None:
    from treadle.runners import shared_supervisor

    run = runner(tmp_path, "start(); hang()").run("x")
    await anext(run)
    process = (await shared_supervisor())._process
    assert process is not None
    process.kill()
    completed = (await drain(run))[-1]
    assert not completed.ok
    assert (await drain(runner(tmp_path, "start(); answer('again'); done()").run("x")))[-1].answer == "again"


# --- cancelling ---


async def until(run: Run, path: Path) -> None:
    assert isinstance(await anext(run), StartedEvent)
    await appears(path)


async def test_cancel(tmp_path: Path) -> None:
    keeper = KEEPER.format(here=tmp_path, how=", start_new_session=True")
    run = runner(tmp_path, f"start()\n{keeper}\nmark('up')\nhang()").run("x")
    await until(run, tmp_path / "up")
    pid = int((tmp_path / "pid").read_text())
    born = process_start_time(pid)
    assert born
    run.cancel()
    completed = (await drain(run))[-1]
    assert (completed.ok, completed.error, completed.resume) == (False, "cancelled", TOKEN)
    assert process_start_time(pid) != born


async def test_cancel_listens_to_the_last_words(tmp_path: Path) -> None:
    script = """
    def stop(*_):
        answer("so far")
        done(output_tokens=2)
        sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
    start()
    mark("up")
    hang()
    """
    run = runner(tmp_path, script).run("x")
    await until(run, tmp_path / "up")
    run.cancel()
    completed = (await drain(run))[-1]
    # It was asked to stop and said that it was done: then it was.
    assert (completed.ok, completed.answer, completed.usage) == (True, "so far", {"output_tokens": 2})


async def test_cancel_of_one_that_does_not_listen(tmp_path: Path) -> None:
    script = "signal.signal(signal.SIGTERM, signal.SIG_IGN); start(); mark('up'); hang()"
    run = runner(tmp_path, script, timeouts=Timeouts(grace=0.2)).run("x")
    await until(run, tmp_path / "up")
    run.cancel()
    assert (await drain(run))[-1].error == "cancelled"


async def test_cancel_before_the_first_event_is_asked_for(tmp_path: Path) -> None:
    run = runner(tmp_path, "start(); hang()").run("x")
    run.cancel()
    assert (await drain(run))[-1].error == "cancelled"


def leaving() -> list[Any]:
    async def by_break(run: Run) -> None:
        async for _ in run:
            break

    async def by_aclose(run: Run) -> None:
        await anext(run)
        await run.aclose()

    async def by_exception(run: Run) -> None:
        try:
            async for _ in run:
                raise KeyError
        except KeyError:
            return

    async def by_cancellation(run: Run) -> None:
        started = asyncio.Event()

        async def read() -> None:
            async for _ in run:
                started.set()

        reading = asyncio.create_task(read())
        await started.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    return [by_break, by_aclose, by_exception, by_cancellation]


@pytest.mark.parametrize("leave", leaving(), ids=lambda leave: leave.__name__)
async def test_who_leaves_early_leaves_nothing(tmp_path: Path, leave: Callable[[Run], Any]) -> None:
    keeper = KEEPER.format(here=tmp_path, how=", start_new_session=True")
    script = f"""
if os.path.exists(HERE + "/go"):
    start(); answer("free"); done(); sys.exit()
{keeper}
mark("me", str(os.getpid()))
start()
hang()
"""
    made = runner(tmp_path, script)
    await leave(made.run("x"))
    gc.collect()  # nothing of it may hang on a cycle; here only for interpreters without reference counts
    born = {int((tmp_path / name).read_text()): 0 for name in ("me", "pid")}
    born = {pid: process_start_time(pid) for pid in born}
    for pid, ticks in born.items():
        if ticks:
            await gone(pid, ticks)
    (tmp_path / "go").touch()
    assert (await drain(made.run("again", TOKEN)))[-1].answer == "free"  # the lock is free, and so is this task
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_who_leaves_is_not_held_up_by_output_that_nobody_reads(tmp_path: Path) -> None:
    script = """
    def stop(*_):
        mark("heard")
        os._exit(0)
    signal.signal(signal.SIGTERM, stop)
    start()
    while True:
        answer("x" * 10000)
    """
    run = runner(tmp_path, script, timeouts=Timeouts(grace=30)).run("x")
    await anext(run)
    async with asyncio.timeout(DEADLINE_S):
        await run.aclose()
    assert (tmp_path / "heard").exists()


# --- sessions ---


async def test_a_resume_does_not_even_start_before_the_new_session_has_ended(tmp_path: Path) -> None:
    script = """
    if "resume" in sys.argv:
        mark("resumed")
        start(); answer("second"); done(); sys.exit()
    start()
    wait_for("gate")
    answer("first")
    done()
    """
    made = runner(tmp_path, script)
    first = made.run("1")
    assert isinstance(await anext(first), StartedEvent)
    second = asyncio.ensure_future(drain(made.run("2", TOKEN)))
    await asyncio.sleep(0.2)
    assert not (tmp_path / "resumed").exists()
    (tmp_path / "gate").touch()
    assert (await drain(first))[-1].answer == "first"
    assert (await second)[-1].answer == "second"


async def test_two_new_runs_that_are_the_same_session(tmp_path: Path) -> None:
    script = "start(); mark(str(os.getpid())); wait_for('gate'); answer('x'); done()"
    made = runner(tmp_path, script)
    seen: list[int] = []

    async def read(number: int) -> None:
        async for event in made.run("x"):
            if event.type == "started":
                seen.append(number)  # noqa: PERF401

    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        for number in (1, 2):
            group.create_task(read(number))
        while len([path for path in tmp_path.iterdir() if path.name.isdigit()]) < 2 or not seen:
            await asyncio.sleep(0.01)
        assert len(seen) == 1
        (tmp_path / "gate").touch()
    assert sorted(seen) == [1, 2]


async def test_usage_of_a_session_is_counted_from_run_to_run(tmp_path: Path) -> None:
    script = """
    before = int(open(HERE + "/used").read()) if os.path.exists(HERE + "/used") else 0
    mark("used", str(before + 10))
    start(); answer("x"); done(input_tokens=before + 10)
    """
    made = runner(tmp_path, script)
    assert (await drain(made.run("1")))[-1].usage == {"input_tokens": 10}
    assert (await drain(made.run("2", TOKEN)))[-1].usage == {"input_tokens": 10}
    failing = CodexRunner(fake(tmp_path, "sys.exit(1)", "broken"))
    await drain(failing.run("3", TOKEN))
    assert (await drain(runner(tmp_path, script).run("4", TOKEN)))[-1].usage == {"input_tokens": 10}


async def test_what_a_dead_program_left_behind_is_waited_for(tmp_path: Path) -> None:
    left = await asyncio.create_subprocess_exec("sleep", "1000")
    try:
        SessionState(left.pid, process_start_time(left.pid)).store(TOKEN)
        made = runner(tmp_path, "mark('ran'); start(); answer('x'); done()")
        waiting = asyncio.ensure_future(drain(made.run("x", TOKEN)))
        await asyncio.sleep(0.2)
        assert not (tmp_path / "ran").exists()
    finally:
        left.kill()
        await left.wait()
    assert (await waiting)[-1].ok


# --- many ---


async def test_two_hundred_at_once_lose_nothing(tmp_path: Path) -> None:
    script = tmp_path / "codex"
    script.write_text(
        "#!/bin/sh\nread id\n"
        'echo "{\\"type\\":\\"thread.started\\",\\"thread_id\\":\\"$id\\"}"\n'
        'for i in 1 2 3 4 5 6 7 8 9; do echo "{\\"type\\":\\"item.completed\\",\\"item\\":'
        '{\\"id\\":\\"item_$i\\",\\"type\\":\\"web_search\\",\\"query\\":\\"$i\\"}}"; done\n'
        'echo "{\\"type\\":\\"item.completed\\",\\"item\\":{\\"id\\":\\"a\\",\\"type\\":\\"agent_message\\",'
        '\\"text\\":\\"$id\\"}}"\n'
        'echo "{\\"type\\":\\"turn.completed\\",\\"usage\\":{}}"\n'
    )
    script.chmod(0o755)
    made = CodexRunner(str(script))

    async def one(number: int) -> None:
        session = f"00000000-0000-7000-8000-{number:012d}"
        events = [event async for event in made.run(session + "\n")]
        assert [event.action.title for event in events if isinstance(event, ActionEvent)] == [*"123456789"]
        assert events[-1] == CompletedEvent("codex", True, session, ResumeToken("codex", session), usage={})

    async with asyncio.timeout(110), asyncio.TaskGroup() as group:
        for number in range(200):
            group.create_task(one(number))
