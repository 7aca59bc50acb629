"""`EngineRuntime` on programs: what they are asked, what they may, and what is left of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from system.runners.fake_engine import SESSION, fake
from treadle.host import (
    Ask,
    Choice,
    EngineRuntime,
    ItemCompleted,
    Opening,
    RuntimeEvent,
    RuntimeFault,
    ThreadNamed,
    TurnEnded,
    UsageReported,
)
from treadle.runners import ClaudeRunner, CodexRunner, process_start_time
from treadle.testing import deny

pytestmark = pytest.mark.anyio
DEADLINE_S = 60.0

# Answers with what it was told and with the words of its command line.
ECHO = "start(); answer(json.dumps([sys.stdin.read(), sys.argv[1:]])); done(input_tokens=10, output_tokens=1)"

ASKS = """
def hear():
    return json.loads(sys.stdin.readline())

hear()
hear()
say(type="system", subtype="init", session_id=SESSION, model="m", cwd=HERE)
heard = []
for number, (tool, given) in enumerate(QUESTIONS):
    request = dict(subtype="can_use_tool", tool_name=tool, input=given)
    say(type="control_request", request_id=str(number), request=request)
    heard.append(hear()["response"]["response"]["behavior"])
say(type="result", subtype="success", is_error=False, result=json.dumps(heard))
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))


@asynccontextmanager
async def opened(
    runtime: EngineRuntime, opening: Opening | None = None, ask: Any = deny
) -> AsyncIterator[EngineRuntime]:
    async with asyncio.timeout(DEADLINE_S):
        await runtime.open(opening or Opening(), ask)
        try:
            yield runtime
        finally:
            await runtime.close()


def codex(tmp_path: Path, script: str) -> EngineRuntime:
    return EngineRuntime(CodexRunner(fake(tmp_path, script), cwd=tmp_path))


async def turn(runtime: EngineRuntime, said: Any = "hi", **options: Any) -> list[RuntimeEvent]:
    await runtime.start_turn(said, options)
    return await rest(runtime)


async def rest(runtime: EngineRuntime) -> list[RuntimeEvent]:
    events: list[RuntimeEvent] = []
    while not events or not isinstance(events[-1], TurnEnded):
        events.append(await runtime.next_event())
    return events


def said(events: list[RuntimeEvent]) -> Any:
    items: list[Any] = [event.item for event in events if isinstance(event, ItemCompleted)]
    return json.loads(items[-1].text)


def end(events: list[RuntimeEvent]) -> TurnEnded:
    assert isinstance(events[-1], TurnEnded)
    return events[-1]


async def appears(path: Path) -> str:
    while not path.exists():
        await asyncio.sleep(0.01)
    return path.read_text()


async def test_a_new_session_is_told_what_it_has_to_know_and_the_next_turn_goes_on_with_it(tmp_path: Path) -> None:
    history = ({"role": "user", "content": "my name is Ada"}, {"role": "assistant", "content": "hello Ada"})
    opening = Opening(instructions="be kind", history=history, model="the-model")
    async with opened(codex(tmp_path, ECHO), opening) as runtime:
        first = await turn(runtime)
        second = await turn(runtime, "and now?")
    assert ThreadNamed(SESSION) in first
    prompt, words = said(first)
    assert prompt.endswith("\n\nhi")
    assert all(part in prompt for part in ("be kind", "my name is Ada", "hello Ada"))
    assert "the-model" in words
    assert SESSION not in words
    prompt, words = said(second)
    assert prompt == "and now?"
    assert SESSION in words


async def test_a_session_is_resumed_without_being_told_again(tmp_path: Path) -> None:
    opening = Opening(resume=SESSION, instructions="be kind", history=({"role": "user", "content": "x"},))
    async with opened(codex(tmp_path, ECHO), opening) as runtime:
        prompt, words = said(await turn(runtime))
    assert prompt == "hi"
    assert SESSION in words


async def test_usage_adds_up_over_the_runs(tmp_path: Path) -> None:
    script = "start(); answer('x'); done(input_tokens=10, cached_input_tokens=4, output_tokens=1)"
    runner = ClaudeRunner(fake(tmp_path, _claude(10, 4, 1, 0.5), "claude"), cwd=tmp_path)
    async with opened(EngineRuntime(runner)) as runtime:
        totals = [event.total for _ in range(2) for event in await turn(runtime) if isinstance(event, UsageReported)]
    assert [(total.input_tokens, total.cached_input_tokens, total.total_tokens) for total in totals] == [
        (14, 4, 15),
        (28, 8, 30),
    ]
    assert [total.cost_usd for total in totals] == [0.5, 1.0]
    # What is counted for the whole session is the total itself.
    async with opened(codex(tmp_path, script), Opening(resume=SESSION)) as runtime:
        totals = [event.total for event in await turn(runtime) if isinstance(event, UsageReported)]
    assert [(total.input_tokens, total.cost_usd) for total in totals] == [(10, None)]


def _claude(fresh: int, cached: int, output: int, cost: float) -> str:
    used = {"input_tokens": fresh, "cache_read_input_tokens": cached, "output_tokens": output}
    return f"""
    sys.stdin.readline(); sys.stdin.readline()
    say(type="system", subtype="init", session_id=SESSION, model="m", cwd=HERE)
    say(type="result", subtype="success", is_error=False, result="x", usage={used!r}, total_cost_usd={cost})
    """


async def test_what_an_engine_cannot_be_given(tmp_path: Path) -> None:
    picture = {"type": "local_image", "path": "/pictures/dot.png"}
    parts = [{"type": "text", "text": "look"}, picture, {"type": "image_url", "image_url": {"url": "data:,"}}]
    async with opened(codex(tmp_path, ECHO)) as runtime:
        prompt = said(await turn(runtime, parts))[0]
        assert await runtime.compact() is False
    assert "/pictures/dot.png" in prompt
    assert "codex cannot be shown images" in prompt
    with pytest.raises(RuntimeFault, match="sandbox"):
        await codex(tmp_path, ECHO).open(Opening(sandbox="read-only"), deny)


async def test_questions_of_an_engine_and_a_yes_for_the_session(tmp_path: Path) -> None:
    asked: list[Ask] = []
    answers: dict[str, Choice] = {"ls": "session", "rm x": "deny", "write a.py": "once", "Skill": "deny"}

    async def ask(question: Ask) -> Choice:
        asked.append(question)
        return answers[question.title]

    questions = [
        ("Bash", {"command": "ls"}),
        ("Bash", {"command": "ls"}),
        ("Bash", {"command": "rm x"}),
        ("Write", {"file_path": str(tmp_path / "a.py"), "content": "x"}),
        ("Skill", {}),
    ]
    program = fake(tmp_path, f"QUESTIONS = {questions!r}\n{dedent(ASKS)}", "claude")
    async with opened(EngineRuntime(ClaudeRunner(program, cwd=tmp_path)), ask=ask) as runtime:
        heard = said(await turn(runtime))
    assert heard == ["allow", "allow", "deny", "allow", "deny"]
    assert [(each.kind, each.title) for each in asked] == [
        ("command", "ls"),
        ("command", "rm x"),
        ("patch", "write a.py"),
        ("tool", "Skill"),
    ]
    assert asked[0].command == "ls"
    assert asked[2].paths == (str(tmp_path / "a.py"),)
    assert {each.thread_id for each in asked} == {SESSION}


async def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    runtime = EngineRuntime("opencode", command=str(tmp_path / "opencode"))
    async with opened(runtime):
        fault = end(await turn(runtime)).fault
    assert fault is not None
    assert fault.kind == "missing"
    assert "Install it with: " in fault.advice


async def test_an_engine_that_is_killed(tmp_path: Path) -> None:
    script = """
    start()
    print("out of memory", file=sys.stderr, flush=True)
    mark("pid", str(os.getpid()))
    hang()
    """
    async with opened(codex(tmp_path, script)) as runtime:
        await runtime.start_turn("hi", {})
        os.kill(int(await appears(tmp_path / "pid")), signal.SIGKILL)
        fault = end(await rest(runtime)).fault
    assert fault is not None
    assert (fault.kind, fault.exit_code, fault.stderr_tail) == ("dead", 137, "out of memory")
    assert not fault.retire


async def test_a_session_that_is_not_found_any_more(tmp_path: Path) -> None:
    script = "sys.stderr.write('no rollout found'); sys.exit(1)"
    async with opened(codex(tmp_path, script), Opening(resume=SESSION)) as runtime:
        fault = end(await turn(runtime)).fault
    assert fault is not None
    assert (fault.kind, fault.retire) == ("dead", True)
    assert "no rollout found" in fault.stderr_tail


async def test_a_probe_comes_back_only_from_an_engine_that_is_not_stopped(tmp_path: Path) -> None:
    script = "start(); mark('pid', str(os.getpid())); wait_for('go'); answer('x'); done()"
    async with opened(codex(tmp_path, script)) as runtime:
        await runtime.start_turn("hi", {})
        pid = int(await appears(tmp_path / "pid"))
        await runtime.probe()
        os.kill(pid, signal.SIGSTOP)
        while _state(pid) != "T":
            await asyncio.sleep(0.01)
        probe = asyncio.ensure_future(runtime.probe())
        _, waiting = await asyncio.wait([probe], timeout=0.2)
        assert waiting
        os.kill(pid, signal.SIGCONT)
        await probe
        (tmp_path / "go").touch()
        assert end(await rest(runtime)).status == "completed"


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("how", ["interrupt", "close"])
async def test_nothing_is_left_of_an_engine(tmp_path: Path, how: str) -> None:
    script = """
    start()
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    mark("pids", f"{os.getpid()} {child.pid}")
    hang()
    """
    async with opened(codex(tmp_path, script)) as runtime:
        await runtime.start_turn("hi", {})
        pids = [int(pid) for pid in (await appears(tmp_path / "pids")).split()]
        assert all(process_start_time(pid) for pid in pids)
        if how == "interrupt":
            await runtime.interrupt()
            assert end(await rest(runtime)) == TurnEnded("interrupted")
        else:
            await runtime.close()
        assert [process_start_time(pid) for pid in pids] == [0, 0]
