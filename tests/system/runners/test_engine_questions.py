"""An engine that asks before it uses a tool: who is asked, what is answered, and what happens to the deadlines."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from system.runners.fake_engine import fake
from treadle.runners import ApprovalAnswer, ApprovalAsk, ClaudeRunner, CodexRunner, Event, Timeouts, process_start_time

pytestmark = pytest.mark.anyio
DEADLINE_S = 60.0

# Asks and waits in the words of `claude`; its answer is what it was told.
CLAUDE = """
def hear():
    line = sys.stdin.readline()
    return json.loads(line) if line else None

def begin():
    assert hear()["request"]["subtype"] == "initialize"
    prompt = hear()["message"]["content"]
    say(type="system", subtype="init", session_id=SESSION, model="m", cwd=HERE)
    return prompt

def ask(id="q1", subtype="can_use_tool"):
    request = dict(subtype=subtype, tool_name="Bash", input={"command": "ls"})
    say(type="control_request", request_id=id, request=request)

def end(answer):
    say(type="result", subtype="success", is_error=False, result=json.dumps(answer))

"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_HOME", str(tmp_path / "home"))


def claude(tmp_path: Path, script: str, **choices: Any) -> ClaudeRunner:
    return ClaudeRunner(fake(tmp_path, CLAUDE + dedent(script), "claude"), **choices)


async def drain(run: AsyncIterator[Event]) -> list[Any]:
    async with asyncio.timeout(DEADLINE_S):
        return [event async for event in run]


async def yes(ask: ApprovalAsk) -> bool:
    return True


async def test_a_question_and_its_answer(tmp_path: Path) -> None:
    asked = []

    async def approve(ask: ApprovalAsk) -> ApprovalAnswer:
        asked.append((ask.tool, dict(ask.input)))
        return ApprovalAnswer(allow=True, input={"command": "pwd"})

    script = "prompt = begin(); ask(); end([prompt, hear()['response']])"
    prompt = "a megabyte " * 100_000
    completed = (await drain(claude(tmp_path, script, approve=approve).run(prompt)))[-1]
    heard, response = json.loads(completed.answer)
    assert heard == prompt
    assert response["response"] == {"behavior": "allow", "updatedInput": {"command": "pwd"}}
    assert asked == [("Bash", {"command": "ls"})]


async def test_the_input_is_open_until_the_result_and_closed_after_it(tmp_path: Path) -> None:
    script = "begin(); end('x'); mark('eof', str(hear())); sys.exit(0)"
    made = claude(tmp_path, script, approve=yes, timeouts=Timeouts(linger=DEADLINE_S))
    assert (await drain(made.run("x")))[-1].ok
    assert (tmp_path / "eof").read_text() == "None"


@pytest.mark.parametrize("answer", [False, None, "yes", 1, ApprovalAnswer(allow=False)])
async def test_what_is_not_yes_is_no(tmp_path: Path, answer: Any) -> None:
    async def approve(ask: ApprovalAsk) -> Any:
        return answer

    made = claude(tmp_path, "begin(); ask(); end(hear()['response']['response']['behavior'])", approve=approve)
    assert (await drain(made.run("x")))[-1].answer == '"deny"'


async def fails(ask: ApprovalAsk) -> bool:
    raise RuntimeError("the chat is down")


async def cannot_be_written(ask: ApprovalAsk) -> ApprovalAnswer:
    return ApprovalAnswer(allow=True, input={"command": object()})


@pytest.mark.parametrize("approve", [fails, cannot_be_written])
async def test_a_callback_that_fails_is_a_no(tmp_path: Path, caplog: pytest.LogCaptureFixture, approve: Any) -> None:
    made = claude(tmp_path, "begin(); ask(); end(hear()['response']['response'])", approve=approve)
    with caplog.at_level(logging.ERROR):
        completed = (await drain(made.run("x")))[-1]
    assert json.loads(completed.answer) == {"behavior": "deny", "message": "nobody could be asked"}
    assert "the approval callback failed" in caplog.text


async def test_while_somebody_thinks_about_the_answer_nothing_is_late(tmp_path: Path) -> None:
    late = asyncio.Event()

    async def approve(ask: ApprovalAsk) -> bool:
        asyncio.get_running_loop().call_later(0.6, late.set)
        return await late.wait()

    made = claude(tmp_path, "begin(); ask(); end(hear()['response'])", approve=approve, timeouts=Timeouts(idle=0.3))
    completed = (await drain(made.run("x")))[-1]
    assert (completed.ok, completed.error) == (True, None)


async def test_the_whole_run_has_its_deadline_even_so(tmp_path: Path) -> None:
    async def approve(ask: ApprovalAsk) -> bool:
        await asyncio.Event().wait()
        return True

    made = claude(tmp_path, "begin(); ask(); hear()", approve=approve, timeouts=Timeouts(total=0.5, grace=0.1))
    assert "did not end within 0.5 s" in (await drain(made.run("x")))[-1].error


async def test_a_question_that_is_withdrawn(tmp_path: Path) -> None:
    asked, withdrawn = asyncio.Event(), asyncio.Event()

    async def approve(ask: ApprovalAsk) -> bool:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()
            (tmp_path / "withdrawn").touch()
        return True

    script = """
    begin()
    ask()
    wait_for("asked")
    say(type="control_cancel_request", request_id="q1")
    wait_for("withdrawn")
    say(type="control_cancel_request", request_id="q1")
    say(type="control_cancel_request", request_id="never asked")
    end("went on")
    mark("then", str(hear()))
    """
    run = claude(tmp_path, script, approve=approve, timeouts=Timeouts(linger=DEADLINE_S)).run("x")
    ended = asyncio.ensure_future(drain(run))
    async with asyncio.timeout(DEADLINE_S):
        await asked.wait()
    (tmp_path / "asked").touch()
    assert (await ended)[-1].answer == '"went on"'
    assert withdrawn.is_set()
    assert (tmp_path / "then").read_text() == "None"  # nothing was answered


async def test_questions_that_are_no_business_of_ours_are_answered_all_the_same(tmp_path: Path) -> None:
    made = claude(tmp_path, "begin(); ask(subtype='mcp_message'); end(hear()['response'])", approve=yes)
    response = json.loads((await drain(made.run("x")))[-1].answer)
    assert (response["subtype"], response["request_id"]) == ("error", "q1")


async def test_more_questions_at_once_than_anybody_answers(tmp_path: Path) -> None:
    everybody = asyncio.Event()

    async def approve(ask: ApprovalAsk) -> bool:
        return await everybody.wait()

    script = """
    begin()
    for number in range(70):
        ask(str(number))
    heard = [hear()["response"] for _ in range(6)]
    mark("refused")
    heard += [hear()["response"] for _ in range(64)]
    end({response["request_id"]: response["response"]["behavior"] for response in heard})
    """
    ended = asyncio.ensure_future(drain(claude(tmp_path, script, approve=approve).run("x")))
    async with asyncio.timeout(DEADLINE_S):
        while not (tmp_path / "refused").exists():
            await asyncio.sleep(0.01)
    everybody.set()
    said = json.loads((await ended)[-1].answer)
    assert [said[str(number)] for number in range(70)] == ["allow"] * 64 + ["deny"] * 6


async def test_without_anybody_to_ask_the_prompt_is_plain(tmp_path: Path) -> None:
    script = (
        "text = sys.stdin.read(); say(type='system', subtype='init', session_id=SESSION); end([text, sys.argv[1:]])"
    )
    text, words = json.loads((await drain(claude(tmp_path, script).run("plain\n")))[-1].answer)
    assert text == "plain\n"
    assert words == ["-p", "--output-format", "stream-json", "--verbose"]


async def test_an_engine_that_cannot_ask_says_so(tmp_path: Path) -> None:
    (completed,) = await drain(CodexRunner(fake(tmp_path, "mark('ran')"), approve=yes).run("x"))
    assert "cannot ask for approval" in completed.error
    assert not (tmp_path / "ran").exists()


async def test_the_first_signal_is_the_one_that_claude_understands(tmp_path: Path) -> None:
    script = """
    signal.signal(signal.SIGINT, lambda *_: (end_badly(), sys.exit(0)))
    def end_badly():
        say(type="result", subtype="error_during_execution", is_error=True, errors=["[ede_diagnostic] x"])
    sys.stdin.read()
    say(type="system", subtype="init", session_id=SESSION)
    hang()
    """
    run = claude(tmp_path, script, timeouts=Timeouts(grace=DEADLINE_S)).run("x")
    await anext(run)
    run.cancel()
    (completed,) = await drain(run)
    assert (completed.ok, completed.error) == (False, "cancelled")


async def test_a_callback_that_does_not_want_to_end_keeps_nothing_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.runners.engine_process.CALLBACK_S", 0.1)
    asked, let_go = asyncio.Event(), asyncio.Event()

    async def approve(ask: ApprovalAsk) -> bool:
        asked.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        return True

    run = claude(tmp_path, "mark('me', str(os.getpid())); begin(); ask(); hang()", approve=approve).run("x")
    reading = asyncio.ensure_future(drain(run))
    try:
        async with asyncio.timeout(DEADLINE_S):
            await asked.wait()
        pid = int((tmp_path / "me").read_text())
        run.cancel()
        assert (await reading)[-1].error == "cancelled"
        assert process_start_time(pid) == 0
    finally:
        let_go.set()
