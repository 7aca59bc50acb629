"""`HostAgent` over the wire: our app-server as a child, with a mock model behind it.

`interop/host` runs the same on the real codex.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from agent_stage import PROGRAM, AgentStage, ended, server_of, start
from host_stage import KEY, WAIT_S, alive, descendants, stop
from treadle.host import Ask, ConversationResult, ConversationStore, HostAgent, Notice, Timeouts
from treadle.testing import Usage

SOON_S = 20.0
"""What an interrupt may take on a machine that has much else to do; without one these turns take ten minutes."""
ESCALATED = {"cmd": "touch made", "sandbox_permissions": "require_escalated", "justification": "because"}
LONG = {"cmd": "touch begun; exec sleep 600", "yield_time_ms": 30_000}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SKILL = "---\nname: quoting\ndescription: How to quote.\n---\nUse single quotes.\n"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentStage]:
    made = AgentStage(tmp_path, "child")
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    yield made
    made.close_all()


def _until(fits: Callable[[], bool], what: str) -> None:
    """Wait for something outside of this process."""
    end = time.monotonic() + WAIT_S
    while not fits():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def _gone(pids: set[int]) -> None:
    _until(lambda: not any(map(alive, pids)), "a process is left")


def _family(agent: HostAgent) -> set[int]:
    server = server_of(agent)
    return {server, *descendants(server)}


def _in_a_command(stage: AgentStage, agent: HostAgent) -> Future[ConversationResult]:
    """A turn that is in the middle of one, and has told so; codex does that a moment after it has begun."""
    stage.model.enqueue_function_call("exec_command", LONG)
    turn = start(agent, "wait")
    _until((stage.workspace / "begun").exists, "the command has not begun")
    assert stage.in_a_command.wait(WAIT_S)
    return turn


def _roles(messages: list[dict[str, Any]]) -> list[str]:
    return [message["role"] for message in messages]


def _results(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "tool"]


def _sent(stage: AgentStage) -> str:
    return stage.model.requests()[-1].body.decode()


# --- a normal turn ---


def test_three_turns_have_each_message_once_here_and_in_the_store(stage: AgentStage) -> None:
    agent = stage.agent(store=stage.store, session_id="chat")
    stage.model.enqueue_function_call("exec_command", {"cmd": "echo hi; exit 3"}, call_id="c1")
    stage.model.enqueue_assistant_message("It failed.", usage=Usage(input_tokens=100, output_tokens=10))
    result = agent.run_conversation("run it")
    assert (result.final_response, result.error, result.fault) == ("It failed.", None, None)
    assert (result.completed, result.partial, result.interrupted, result.api_calls) == (True, False, False, 1)
    assert agent.session is not None
    assert (result.thread_id, bool(result.turn_id)) == (agent.session.thread_id, True)
    assert _roles(result.messages) == ["user", "assistant", "tool", "assistant"]
    assert _results(result.messages) == ["[exit 3]\nhi\n"]
    assert (agent.user_turn_count, agent.iterations_since_skill) == (1, 1)
    session = agent.session
    for text in ("again", "again"):  # the same words twice are two messages
        result = stage.say(agent, text, f"Done {text}.")
    assert agent.session is session
    said = [message["content"] for message in result.messages if message["role"] == "user"]
    assert said == ["run it", "again", "again"]
    agent.close()
    store = ConversationStore(stage.store)
    kept = store.messages("chat")
    assert [record.message for record in kept] == result.messages
    assert {record.state for record in kept} == {"done"}
    store.close()


def test_usage_is_what_the_turn_has_used(stage: AgentStage) -> None:
    usage = Usage(input_tokens=100, cached_input_tokens=60, output_tokens=10, reasoning_output_tokens=4)
    agent = stage.agent()
    stage.model.enqueue_assistant_message("first", usage=usage)
    first = agent.run_conversation("one").usage
    assert first is not None
    assert (first.input_tokens, first.cached_input_tokens, first.output_tokens, first.total_tokens) == (
        100,
        60,
        10,
        110,
    )
    stage.model.enqueue_function_call("exec_command", {"cmd": "echo hi"}, usage=usage)
    stage.model.enqueue_assistant_message("second", usage=usage)
    second = agent.run_conversation("two").usage
    assert second is not None
    assert (second.input_tokens, second.cached_input_tokens, second.total_tokens) == (200, 120, 220)
    assert (second.uncached_input_tokens, second.reasoning_output_tokens) == (80, 8)
    stage.model.enqueue_error(400, {"error": {"message": "no"}})
    failed = agent.run_conversation("three")
    assert failed.error is not None
    assert failed.usage is None or failed.usage.total_tokens == 0
    stage.model.enqueue_assistant_message("fourth", usage=usage)
    fourth = agent.run_conversation("four").usage
    assert fourth is not None
    assert fourth.total_tokens == 110


def test_images_reach_the_model(stage: AgentStage) -> None:
    agent = stage.agent(store=stage.store)
    picture = stage.folder / "dot.png"
    picture.write_bytes(base64.b64decode(PIXEL))
    parts = [
        {"type": "text", "text": "what are they?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        {"type": "local_image", "path": str(picture)},
    ]
    result = stage.say(agent, parts, "Dots.")
    assert _sent(stage).count('"input_image"') == 2
    assert _roles(result.messages) == ["user", "assistant"]


def test_words_about_an_abort_end_nothing(stage: AgentStage) -> None:
    agent = stage.agent()
    stage.model.enqueue_assistant_message("It means <turn_aborted> was seen.", phase="commentary")
    result = agent.run_conversation("<turn_aborted>what is that?</turn_aborted>")
    assert (result.completed, result.interrupted) == (True, False)
    exact = "<turn_aborted>\nThe user interrupted the previous turn.\n</turn_aborted>"
    stage.model.enqueue_function_call("exec_command", {"cmd": "echo hi"})
    stage.say(agent, exact, exact)
    assert agent.session is not None


def test_steering_reaches_the_model(stage: AgentStage) -> None:
    gate = threading.Event()
    stage.model.enqueue_assistant_message("first", gate=gate, gate_after=1)
    stage.model.enqueue_assistant_message("second")
    agent = stage.agent()
    assert agent.steer("before") is False
    turn = start(agent, "one")
    stage.model.wait_for_requests(1)
    assert "before\n\none" in _sent(stage).replace("\\n", "\n")
    assert agent.steer("and this") is True
    gate.set()
    result = ended(turn)
    assert (result.final_response, result.error) == ("second", None)
    assert "and this" in stage.model.requests()[-1].input_texts("user")
    said = [message["content"] for message in result.messages if message["role"] == "user"]
    assert said == ["before\n\none", "and this"]


# --- approvals ---


class Person:
    """Decides, and remembers what it was asked; without a choice it thinks until the test ends it."""

    def __init__(self, choice: Any = None) -> None:
        self.choice = choice
        self.asked: list[Ask] = []
        self.is_asked = threading.Event()
        self.over = threading.Event()

    def __call__(self, ask: Ask) -> Any:
        self.asked.append(ask)
        self.is_asked.set()
        if self.choice is None:
            self.over.wait(WAIT_S)
            return "once"
        return self.choice


def _wants_to_write(stage: AgentStage, agent: HostAgent) -> tuple[bool, str]:
    """Whether it was done, and what the tool's message says."""
    stage.model.enqueue_function_call("exec_command", ESCALATED)
    stage.model.enqueue_assistant_message("So be it.")
    result = agent.run_conversation("make it")
    assert (result.final_response, result.error) == ("So be it.", None)
    made = stage.workspace / "made"
    done = made.exists()
    made.unlink(missing_ok=True)
    return done, _results(result.messages)[-1]


@pytest.mark.parametrize(("choice", "questions"), [("once", 2), ("session", 1)])
def test_a_yes_is_for_once_or_for_the_session(stage: AgentStage, choice: str, questions: int) -> None:
    person = Person(choice)
    agent = stage.agent(approvals=person, sandbox="read-only")
    for _ in range(2):
        done, said = _wants_to_write(stage, agent)
        assert done
        assert "declined" not in said
    assert len(person.asked) == questions
    assert (person.asked[0].kind, person.asked[0].command) == ("command", "touch made")


@pytest.mark.parametrize("way", ["no", "a coroutine's no", "an exception", "silence", "nobody"])
def test_anything_else_is_a_no_and_the_message_says_so(stage: AgentStage, way: str) -> None:
    person = Person("deny" if way == "no" else None)

    async def refuses(ask: Ask) -> str:
        return person(ask) if person.choice else "deny"

    def breaks(ask: Ask) -> str:
        raise RuntimeError("no display")

    callback = {"a coroutine's no": refuses, "an exception": breaks, "nobody": None}.get(way, person)
    agent = stage.agent(approvals=callback, sandbox="read-only", timeouts=Timeouts(approval=0.3))
    done, said = _wants_to_write(stage, agent)
    person.over.set()
    assert not done
    assert "declined" in said


# --- interrupts ---


SLOW_LAUNCHER = """\
import os, sys, time
open({begun!r}, "w").write(str(os.getpid()))
if os.path.exists({hang!r}):
    time.sleep(600)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_an_interrupt_while_the_server_starts(stage: AgentStage) -> None:
    begun, hang = stage.folder / "begun", stage.folder / "hang"
    hang.touch()
    script = SLOW_LAUNCHER.format(begun=str(begun), hang=str(hang))
    agent = stage.agent(runtime=stage.launched_by(script), api_key=None, base_url=None)
    turn = start(agent, "one")
    _until(lambda: begun.exists() and bool(begun.read_text()), "the launcher has not started")
    asked = time.monotonic()
    agent.interrupt()
    result = ended(turn)
    assert time.monotonic() - asked < SOON_S
    assert (result.interrupted, result.completed, agent.session) == (True, False, None)
    assert result.error is not None
    assert "starting" in result.error
    _gone({int(begun.read_text())})
    hang.unlink()
    assert [message["content"] for message in stage.say(agent, "two", "Here.").messages] == ["one", "two", "Here."]


def test_an_interrupt_while_a_person_is_asked(stage: AgentStage) -> None:
    person = Person()
    agent = stage.agent(approvals=person, sandbox="read-only")
    stage.model.enqueue_function_call("exec_command", ESCALATED)
    turn = start(agent, "make it")
    assert person.is_asked.wait(WAIT_S)
    asked = time.monotonic()
    agent.interrupt()
    result = ended(turn)
    assert time.monotonic() - asked < SOON_S
    assert (result.interrupted, result.partial) == (True, True)
    thread = result.thread_id
    assert stage.say(agent, "again", "Fine.").thread_id == thread
    person.over.set()
    assert not (stage.workspace / "made").exists()


def test_an_interrupt_in_the_middle_of_a_command(stage: AgentStage) -> None:
    agent = stage.agent(store=stage.store, session_id="chat")
    turn = _in_a_command(stage, agent)
    agent.interrupt()
    asked = time.monotonic()
    result = ended(turn)
    assert time.monotonic() - asked < SOON_S
    assert (result.interrupted, result.partial, result.thread_id is not None) == (True, True, True)
    assert _roles(result.messages) == ["user", "assistant", "tool"]
    again = stage.say(agent, "again", "Fine.")
    assert again.thread_id == result.thread_id
    agent.close()
    store = ConversationStore(stage.store)
    assert [record.message for record in store.messages("chat")] == again.messages
    store.close()


def test_the_late_end_of_an_interrupted_turn_does_not_end_the_next(stage: AgentStage) -> None:
    gate, second = threading.Event(), threading.Event()
    agent = stage.agent()
    stage.model.enqueue_assistant_message("too late", gate=gate, gate_after=1)
    turn = start(agent, "one")
    stage.model.wait_for_requests(1)
    agent.interrupt()
    stage.model.enqueue_assistant_message("second", gate=second)
    after = start(agent, "two")  # it waits for the end of the first, and not longer
    result = ended(turn)
    assert (result.interrupted, result.final_response) == (True, "")
    stage.model.wait_for_requests(2)
    gate.set()
    second.set()
    assert (ended(after).final_response, ended(after).error) == ("second", None)


# --- servers that die or are stopped ---


def test_killed_in_the_middle_of_a_command(stage: AgentStage) -> None:
    agent = stage.agent(store=stage.store, session_id="chat")
    stage.say(agent, "My cat is Ada.", "Hello Ada.")
    turn = _in_a_command(stage, agent)
    family = _family(agent)
    os.kill(server_of(agent), signal.SIGKILL)
    asked = time.monotonic()
    result = ended(turn)
    assert time.monotonic() - asked < SOON_S
    assert result.fault is not None
    assert (result.fault.kind, result.fault.exit_code, agent.session) == ("dead", -9, None)
    assert result.error is not None
    assert "SIGKILL" in result.error
    assert "look before" in result.error
    assert "roken pipe" not in result.error
    assert _roles(result.messages) == ["user", "assistant", "user", "assistant", "tool"]
    _gone(family)
    again = stage.say(agent, "And now?", "I am back.")
    assert "My cat is Ada." in _sent(stage)
    assert again.thread_id != result.thread_id
    assert any("sent what was said" in notice for notice in again.notices)


def test_killed_between_two_turns(stage: AgentStage) -> None:
    agent = stage.agent()
    stage.say(agent, "My cat is Ada.", "Hello Ada.")
    os.kill(server_of(agent), signal.SIGKILL)
    stage.model.enqueue_assistant_message("Yes.")
    result = agent.run_conversation("Still there?")
    if result.error is not None:  # it may be told, or gone about: the message was not sent
        assert result.fault is not None
        assert (result.fault.kind, result.fault.exit_code) == ("dead", -9)
        result = agent.run_conversation("Still there?")
    assert (result.final_response, result.error) == ("Yes.", None)
    assert "My cat is Ada." in _sent(stage)


LAUNCHER = """\
import subprocess, sys
child = subprocess.Popen(sys.argv[1:])
open({pid_file!r}, "w").write(str(child.pid))
sys.exit(child.wait())
"""


def test_a_launcher_that_dies_takes_its_server_along(stage: AgentStage) -> None:
    pid_file = stage.folder / "native.pid"
    launched = stage.launched_by(LAUNCHER.format(pid_file=str(pid_file)))
    agent = stage.agent(runtime=launched, api_key=None, base_url=None)
    turn = _in_a_command(stage, agent)
    native = int(pid_file.read_text())
    family = {native, *descendants(native)}
    os.kill(server_of(agent), signal.SIGKILL)
    result = ended(turn)
    assert result.fault is not None
    assert (result.fault.kind, agent.session) == ("dead", None)
    _gone(family)
    stage.say(agent, "again", "Fine.")


def test_close_leaves_no_process(stage: AgentStage) -> None:
    agent = stage.agent()
    turn = _in_a_command(stage, agent)
    family = _family(agent)
    assert len(family) > 1
    agent.close()
    agent.close()
    _gone(family)
    result = ended(turn)
    assert (result.completed, result.interrupted) == (False, True)


def test_a_server_that_is_stopped_after_a_tool_is_retired(stage: AgentStage) -> None:
    limits = Timeouts(quiet=0.5, probe=2.0, interrupt=0.5)
    agent = stage.agent(timeouts=limits)
    gate = threading.Event()
    stage.model.enqueue_function_call("exec_command", {"cmd": "echo hi"})
    stage.model.enqueue_assistant_message("never", gate=gate)
    turn = start(agent, "go")
    stage.model.wait_for_requests(2)
    assert stage.after_a_command.wait(WAIT_S)  # as long as one is open, silence means nothing
    family = _family(agent)
    stop(server_of(agent))
    result = ended(turn)
    gate.set()
    assert result.fault is not None
    assert (result.fault.kind, result.completed, agent.session) == ("stuck", False, None)
    assert result.error is not None
    assert "Some work may have been done" in result.error
    _gone(family)
    stage.say(agent, "again", "Fine.")


def test_a_model_that_thinks_longer_than_quiet_is_waited_for(stage: AgentStage) -> None:
    told: list[str] = []
    gate = threading.Event()

    def hear(event: Any) -> None:
        if isinstance(event, Notice) and "quiet" in event.message:
            told.append(event.message)
            gate.set()

    agent = stage.agent(timeouts=Timeouts(quiet=0.3), on_event=hear)
    stage.model.enqueue_function_call("exec_command", {"cmd": "echo hi"})
    stage.model.enqueue_assistant_message("At last.", gate=gate)
    result = agent.run_conversation("think")
    assert (result.final_response, result.error) == ("At last.", None)
    assert told == [notice for notice in result.notices if "quiet" in notice]
    assert len(told) == 1
    assert agent.session is not None


# --- another program goes on ---


def _in_another_program(stage: AgentStage, said: str) -> list[str]:
    folder = Path(__file__).parents[2]
    env = {**os.environ, **stage.env, "PYTHONPATH": str(folder)}
    arguments = [str(stage.folder), str(stage.way), stage.address, said]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], env=env, capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    return done.stdout.split()


def test_another_program_goes_on_with_the_thread(stage: AgentStage) -> None:
    stage.model.enqueue_assistant_message("Noted.")
    _, thread = _in_another_program(stage, "My cat is Ada.")
    agent = stage.agent(store=stage.store, session_id="chat")
    result = stage.say(agent, "Who is my cat?", "Ada.")
    assert result.thread_id == thread
    assert result.notices == []
    asked = stage.model.requests()[-1]
    assert [text for text in asked.input_texts("user") if "cat" in text] == ["My cat is Ada.", "Who is my cat?"]
    assert "already happened" not in _sent(stage)
    assert [message["content"] for message in result.messages] == [
        "My cat is Ada.",
        "Noted.",
        "Who is my cat?",
        "Ada.",
    ]
    assert agent.user_turn_count == 2


def test_a_thread_that_is_gone_is_begun_anew_with_what_was_said(stage: AgentStage) -> None:
    first = stage.agent(store=stage.store, session_id="chat")
    thread = stage.say(first, "My cat is Ada.", "Noted.").thread_id
    first.close()
    settings = (stage.home / "config.toml").read_text()
    shutil.rmtree(stage.home)
    stage.home.mkdir()
    (stage.home / "config.toml").write_text(settings)
    agent = stage.agent(store=stage.store, session_id="chat")
    result = stage.say(agent, "Who is my cat?", "Ada.")
    assert result.thread_id not in (None, thread)
    assert any("could not be resumed" in notice for notice in result.notices)
    assert "My cat is Ada." in _sent(stage)
    assert "already happened" in _sent(stage)
    assert len(result.messages) == 4


# --- what a provider refuses ---

RESET = 4_102_444_800  # 1 January 2100
FAILURES: dict[str, tuple[int, dict[str, Any], str, tuple[str, ...]]] = {
    "a wrong key": (
        401,
        {"message": f"Incorrect key {KEY}", "code": "invalid_api_key"},
        "auth",
        ("Pass another api_key",),
    ),
    "a used-up plan": (
        429,
        {"type": "usage_limit_reached", "message": "The limit", "resets_at": RESET},
        "usage_limit",
        ("2100",),
    ),
    "a used-up quota": (
        429,
        {"message": "You exceeded your quota", "code": "insufficient_quota"},
        "usage_limit",
        ("billing",),
    ),
    "a model that is not there": (
        404,
        {"message": "The model `gpt-x` does not exist", "code": "model_not_found"},
        "model_not_found",
        ("`gpt-x` does not exist", "`treadle models`"),
    ),
    "a model that is refused": (
        400,
        {"message": "The model `gpt-x` does not exist", "code": "model_not_found"},
        "model_not_found",
        ("`gpt-x` does not exist", "`treadle models`"),
    ),
}


@pytest.mark.parametrize("what", FAILURES)
def test_what_a_person_reads_when_the_provider_refuses(stage: AgentStage, what: str) -> None:
    status, error, kind, words = FAILURES[what]
    agent = stage.agent()
    stage.model.enqueue_error(status, {"error": error})
    result = agent.run_conversation("hi")
    assert result.fault is not None
    assert result.error is not None
    assert (result.fault.kind, result.completed) == (kind, False)
    assert all(word in result.error for word in words), result.error
    assert KEY not in result.error
    assert "{" not in result.error  # an answer for programs
    assert len(stage.model.requests()) == 1
    stage.say(agent, "again", "Fine.")


TOO_MUCH: dict[str, tuple[int, dict[str, Any], str]] = {
    "429": (429, {"error": {"message": "Slow down", "code": "rate_limit_exceeded"}}, "rate_limited"),
    "500": (500, {"error": {"message": "broken"}}, "overloaded"),
    "503": (503, {"error": {"message": "busy", "code": "server_is_overloaded"}}, "overloaded"),
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_what_may_pass_is_tried_again_and_then_told(stage: AgentStage, what: str) -> None:
    status, body, kind = TOO_MUCH[what]
    told: list[str] = []
    agent = stage.agent(on_event=lambda event: told.append(event.message) if isinstance(event, Notice) else None)
    stage.model.enqueue_error(status, body)
    assert stage.say(agent, "one", "Fine.").messages[0] == {"role": "user", "content": "one"}
    assert any("tried again" in message for message in told)
    for _ in range(3):
        stage.model.enqueue_error(status, body)
    result = agent.run_conversation("two")
    assert result.fault is not None
    assert (result.fault.kind, result.fault.retryable) == (kind, True)
    assert "ry again" in (result.error or "")
    assert stage.model.pending == 0
    assert agent.session is not None


def _response_failed(stage: AgentStage, code: str, message: str) -> None:
    failed = {"id": "r1", "object": "response", "status": "failed", "error": {"code": code, "message": message}}
    stage.model.enqueue_sse([{"type": "response.failed", "response": failed}])


def test_a_full_context_is_summed_up_and_the_message_can_be_sent_again(stage: AgentStage) -> None:
    agent = stage.agent()
    stage.say(agent, "My cat is Ada.", "Noted.")
    _response_failed(stage, "context_length_exceeded", "Your input exceeds the context window")
    stage.model.enqueue_assistant_message("The user has a cat, Ada.")  # the summary
    result = agent.run_conversation("Who is my cat?")
    assert result.fault is not None
    assert (result.fault.kind, result.completed) == ("context_window", False)
    assert "send the message again" in (result.error or "")
    thread = result.thread_id
    again = stage.say(agent, "Who is my cat?", "Ada.")
    assert again.thread_id == thread
    assert "The user has a cat, Ada." in _sent(stage)


# --- the host's own tools, memory, skills and reviews ---


def test_host_tools_run_in_this_process(stage: AgentStage) -> None:
    here: list[int] = []

    def weigh(animal: str) -> str:
        """How much an animal weighs.

        Args:
            animal: Which one.
        """
        here.append(os.getpid())
        return f"{animal}: 4 kg"

    agent = stage.agent(
        tools=[weigh], memory=stage.folder / "memory", skills=stage.folder / "skills", store=stage.store, session_id="c"
    )
    agent.iterations_since_skill = 5
    assert agent.tool_names == {"memory", "skills_list", "skill_view", "skill_manage", "session_search", "weigh"}
    stage.model.enqueue_function_call("weigh", {"animal": "quokka"}, call_id="c1")
    stage.model.enqueue_function_call("session_search", {"query": "quokka"}, call_id="c2")
    stage.model.enqueue_function_call(
        "memory", {"target": "user", "action": "add", "content": "Quokkas."}, call_id="c3"
    )
    result = stage.say(agent, "How heavy is a quokka?", "4 kg.")
    outputs = stage.model.requests()[-1].tool_outputs
    assert here == [os.getpid()]
    assert outputs["c1"] == "quokka: 4 kg"
    assert "How heavy is a [quokka]" in outputs["c2"]
    assert "Quokkas." in (stage.folder / "memory" / "USER.md").read_text()
    assert _roles(result.messages) == ["user", *["assistant", "tool"] * 3, "assistant"]
    assert (agent.iterations_since_skill, agent.turns_since_memory) == (8, 0)
    stage.model.enqueue_function_call("skill_manage", {"action": "create", "name": "quoting", "content": SKILL})
    stage.say(agent, "Keep it.", "Kept.")
    assert (stage.folder / "skills" / "quoting" / "SKILL.md").read_text() == SKILL
    assert agent.iterations_since_skill == 0


def test_what_is_remembered_is_in_the_prompt_of_the_next_session(stage: AgentStage) -> None:
    places = {"memory": stage.folder / "memory", "skills": stage.folder / "skills"}
    first = stage.agent(**places)
    content = {"target": "user", "action": "add", "content": "Likes quokkas."}
    stage.model.enqueue_function_call("memory", content)
    stage.model.enqueue_function_call("skill_manage", {"action": "create", "name": "quoting", "content": SKILL})
    stage.say(first, "Keep that.", "Kept.")
    assert "Likes quokkas." not in stage.model.requests()[0].body.decode()
    first.close()
    stage.say(stage.agent(**places), "What do I like?", "Quokkas.")
    asked = stage.model.requests()[-1]
    told = "\n".join([*asked.input_texts("developer"), str(asked.json.get("instructions"))])
    assert "Likes quokkas." in told
    assert "How to quote." in told


def test_a_review_learns_a_skill_and_never_asks_for_chat_completions(stage: AgentStage) -> None:
    agent = stage.agent(skills=stage.folder / "skills", skill_nudge_interval=2, store=stage.store, session_id="c")
    assert agent.review_runtime() == "responses"
    for _ in range(2):
        stage.model.enqueue_function_call("exec_command", {"cmd": "echo hi"})
    stage.model.enqueue_assistant_message("Done.")
    # What follows is the review's.
    stage.model.enqueue_function_call("skill_manage", {"action": "create", "name": "quoting", "content": SKILL})
    stage.model.enqueue_assistant_message("Nothing more.")
    result = agent.run_conversation("Quote it.")
    assert (result.final_response, result.error) == ("Done.", None)
    assert agent.wait_for_review(WAIT_S)
    assert (stage.folder / "skills" / "quoting" / "SKILL.md").read_text() == SKILL
    assert (agent.iterations_since_skill, agent.messages) == (0, result.messages)
    requests = stage.model.requests()
    assert {request.path for request in requests} == {"/v1/responses"}
    assert set(requests[-1].tool_names) == {"skills_list", "skill_view", "skill_manage"}
    assert requests[-1].headers["authorization"] == f"Bearer {KEY}"
    again = stage.say(agent, "Thanks.", "Bye.")
    assert "Learned: created skill quoting" in again.notices
    agent.close()
    store = ConversationStore(stage.store)
    assert [record.message for record in store.messages("c")] == again.messages
    store.close()
