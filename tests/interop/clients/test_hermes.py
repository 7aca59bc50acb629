"""The codex session of hermes-agent, on our app-server and on the real one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from interop.clients.client_model import FIRST, SECOND
from interop.clients.client_stage import ClientStage
from interop.clients.driven_child import DrivenChild, Json, Look
from interop.clients.prompts import escalated, patch
from interop.interop_table import scenario_of
from interop.peers import installed

pytestmark = pytest.mark.interop
scenario = scenario_of("hermes-agent")


DRIVER: Final = Path(__file__).with_name("hermes_driver.py")


class Hermes(DrivenChild):
    """RecordingView what to do by `hermes_driver`."""

    def __init__(self, library: Path, stage: ClientStage) -> None:
        home = str(stage.home / ".codex")
        command = [sys.executable, str(DRIVER), str(library), str(stage.program), home, str(stage.workspace)]
        super().__init__(command, stage, HERMES_HOME=str(stage.home / ".hermes"))

    def open(self, choice: str = "deny") -> str:
        """A session with a thread of its own; the user makes this choice whenever she is asked."""
        self.forget()
        thread_id: str = self.do("open", choice=choice)
        return thread_id

    def turn(self, text: str, look: Look | None = None) -> Json:
        result: Json = self.do("turn", look, text=text)
        return result

    def completed(self, kind: str) -> list[Json]:
        """The items of this type that the server has completed."""
        ended = [event["params"]["item"] for event in self.events if event["method"] == "item/completed"]
        return [item for item in ended if item["type"] == kind]


@pytest.fixture(scope="module")
def hermes(stage: ClientStage) -> Iterator[Hermes]:
    if sys.version_info >= (3, 14):
        pytest.skip("hermes-agent 0.19 is not for Python 3.14")
    child = Hermes(installed("hermes").parent, stage)
    yield child
    child.close()


def is_delta(event: Json) -> bool:
    return bool(event["method"] == "item/agentMessage/delta")


def starts(kind: str, event: Json) -> bool:
    return bool(event["method"] == "item/started" and event["params"]["item"]["type"] == kind)


def the_thread_goes_on(hermes: Hermes, stage: ClientStage, words: str) -> None:
    """Hermes takes the end of the interrupted turn for that of the next, so it cannot be asked what was said."""
    assert hermes.turn(words)["error"] is None
    stage.model.wait_for_prompt(words)


@scenario("start-up")
def test_hermes_starts(hermes: Hermes) -> None:
    """It wants a codex of a certain version at least."""
    accepted, version = hermes.do("check")
    assert accepted, version
    assert hermes.open()


@scenario("message")
def test_hermes_message(hermes: Hermes) -> None:
    hermes.open()
    result = hermes.turn("hello hermes")
    assert (result["final_text"], result["error"]) == ("pong: hello hermes", None)
    assert [(said["role"], said["content"]) for said in result["projected_messages"]] == [
        ("user", "hello hermes"),
        ("assistant", "pong: hello hermes"),
    ]
    assert result["token_usage_last"]["outputTokens"] == 7
    assert hermes.turn("and again")["final_text"] == "pong: and again"


@scenario("streaming")
def test_hermes_streaming(hermes: Hermes, stage: ClientStage) -> None:
    hermes.open()
    deltas: list[str] = []

    def look(event: Json) -> None:
        if is_delta(event):
            deltas.append(event["params"]["delta"])
            stage.model.open_gate("hermes")

    assert hermes.turn("STREAM:hermes", look)["final_text"] == FIRST + SECOND
    assert deltas == [FIRST, SECOND]


@scenario("command")
def test_hermes_command(hermes: Hermes) -> None:
    hermes.open()
    result = hermes.turn("RUN:echo mark$((40+2)); exit 3")
    assert result["tool_iterations"] == 1
    _, called, answered, said = result["projected_messages"]
    assert called["tool_calls"][0]["function"]["name"] == "exec_command"
    assert (answered["role"], answered["content"]) == ("tool", "[exit 3]\nmark42\n")
    assert said["content"] == result["final_text"]
    assert "mark42" in result["final_text"]


@scenario("patch")
def test_hermes_patch(hermes: Hermes, stage: ClientStage) -> None:
    hermes.open()
    result = hermes.turn(patch("hermes.txt"))
    assert (stage.workspace / "hermes.txt").read_text() == "one\n"
    assert result["projected_messages"][1]["tool_calls"][0]["function"]["name"] == "apply_patch"
    assert hermes.asked == []


@scenario("approval: accept")
def test_hermes_accept(hermes: Hermes) -> None:
    hermes.open("once")
    for _ in range(2):
        assert "yes42" in hermes.turn(escalated("echo yes$((40+2))"))["final_text"]
    assert len(hermes.asked) == 2
    assert "echo yes$((40+2))" in hermes.asked[0]


@scenario("approval: for the session")
def test_hermes_accept_for_session(hermes: Hermes) -> None:
    hermes.open("session")
    for _ in range(2):
        assert "often42" in hermes.turn(escalated("echo often$((40+2))"))["final_text"]
    assert len(hermes.asked) == 1


@scenario("approval: decline")
def test_hermes_decline(hermes: Hermes, stage: ClientStage) -> None:
    hermes.open("deny")
    result = hermes.turn(escalated("touch declined.txt"))
    assert result["error"] is None
    assert len(hermes.asked) == 1
    assert not (stage.workspace / "declined.txt").exists()
    [item] = hermes.completed("commandExecution")
    assert item["status"] == "declined"
    assert hermes.turn("still there")["final_text"] == "pong: still there"


@scenario("interrupt in text")
def test_hermes_interrupt_text(hermes: Hermes, stage: ClientStage) -> None:
    hermes.open()
    result = hermes.turn("STREAM:never", lambda event: hermes.tell("interrupt") if is_delta(event) else None)
    assert result["interrupted"] is True
    the_thread_goes_on(hermes, stage, "after the text")


@scenario("interrupt in a command")
def test_hermes_interrupt_command(hermes: Hermes, stage: ClientStage) -> None:
    hermes.open()

    def stop(event: Json) -> None:
        if starts("commandExecution", event):
            hermes.tell("interrupt")

    result = hermes.turn("RUN:echo begun; sleep 600", stop)
    assert result["interrupted"] is True
    the_thread_goes_on(hermes, stage, "after the command")


@scenario("compact")
def test_hermes_compact(hermes: Hermes) -> None:
    hermes.open()
    hermes.turn("much to say")
    result = hermes.do("compact")
    assert (result["compacted"], result["error"]) == (True, None)
    assert hermes.turn("after that")["final_text"] == "pong: after that"


@scenario("a request that the model refuses")
def test_hermes_refused(hermes: Hermes) -> None:
    hermes.open()
    result = hermes.turn("HTTP:400")
    assert "mock error 400" in result["error"]
    assert result["should_retire"] is False
    assert hermes.turn("still there")["final_text"] == "pong: still there"


@scenario("a login that has ended")
def test_hermes_unauthorized(hermes: Hermes) -> None:
    """It reads the words of the failure, and tells the user to log in."""
    hermes.open()
    result = hermes.turn("HTTP:401")
    assert "codex login" in result["error"]
    assert result["should_retire"] is True
