"""The codex provider of the AI SDK, on our app-server and on the real one."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from interop.clients.client_model import FIRST, SECOND, TITLE
from interop.clients.client_stage import MODEL, WAIT_S, ClientStage
from interop.clients.driven_child import DrivenChild, Json, Look
from interop.clients.prompts import escalated, patch
from interop.interop_table import scenario_of
from interop.peers import installed
from kit.processes import child_of

pytestmark = pytest.mark.interop
scenario = scenario_of("ai-sdk-provider-codex-cli")

DRIVER: Final = Path(__file__).with_name("ai_sdk_driver.mjs")
SCHEMA: Final = {
    "type": "object",
    "properties": {"title": {"type": "string"}},
    "required": ["title"],
    "additionalProperties": False,
}


class AiSdk(DrivenChild):
    """RecordingView what to do by `ai_sdk_driver.mjs`."""

    def stream(self, prompt: str, look: Look | None = None, **more: Any) -> Json:
        self.forget()
        result: Json = self.do("stream", look, model=MODEL, prompt=prompt, **more)
        return result

    def on(self, kind: str, aside: str) -> Look:
        """Tell it this when a part of this type comes."""

        def look(part: Json) -> None:
            if part["type"] == kind:
                self.tell(aside)

        return look


@pytest.fixture(scope="module")
def sdk(stage: ClientStage) -> Iterator[AiSdk]:
    command = ["node", str(DRIVER), str(installed("ai-sdk-codex")), str(stage.program), str(stage.workspace)]
    child = AiSdk(command, stage)
    yield child
    child.close()


@scenario("start-up")
def test_ai_sdk_starts(sdk: AiSdk) -> None:
    assert MODEL in sdk.do("models")


@scenario("message")
def test_ai_sdk_message(sdk: AiSdk) -> None:
    assert sdk.do("generate", model=MODEL, prompt="hello ai").endswith("hello ai")


@scenario("message by `codex exec`")
def test_ai_sdk_exec(sdk: AiSdk) -> None:
    assert sdk.do("exec", model=MODEL, prompt="hello exec").endswith("hello exec")


@scenario("typed answer")
def test_ai_sdk_schema(sdk: AiSdk) -> None:
    assert json.loads(sdk.do("generate", model=MODEL, prompt="a title", schema=SCHEMA)) == {"title": TITLE}


@scenario("streaming")
def test_ai_sdk_streaming(sdk: AiSdk, stage: ClientStage) -> None:
    def look(part: Json) -> None:
        if part["type"] == "text-delta":
            stage.model.open_gate("ai")

    result = sdk.stream("STREAM:ai", look)
    assert [part["delta"] for part in sdk.events if part["type"] == "text-delta"] == [FIRST, SECOND]
    assert result["finish"] == {"unified": "stop", "raw": "completed"}


@scenario("command")
def test_ai_sdk_command(sdk: AiSdk) -> None:
    result = sdk.stream("RUN:echo mark$((40+2)); exit 3")
    assert [call["toolName"] for call in result["calls"]] == ["exec"]
    ended = result["results"][-1]["result"]
    assert (ended["status"], ended["exitCode"], ended["aggregatedOutput"]) == ("failed", 3, "mark42\n")
    assert "mark42" in result["text"]


@scenario("patch")
def test_ai_sdk_patch(sdk: AiSdk, stage: ClientStage) -> None:
    result = sdk.stream(patch("ai.txt"))
    assert (stage.workspace / "ai.txt").read_text() == "one\n"
    [call] = result["calls"]
    assert call["toolName"] == "patch"
    assert result["results"][-1]["result"]["status"] == "completed"


@scenario("approval: accept")
def test_ai_sdk_accept(sdk: AiSdk) -> None:
    result = sdk.stream(escalated("echo yes$((40+2))"), decision="accept")
    assert len(sdk.asked) == 1
    assert "yes42" in result["text"]


@scenario("approval: for the session")
def test_ai_sdk_accept_for_session(sdk: AiSdk) -> None:
    often = escalated("echo often$((40+2))")
    first = sdk.stream(often, decision="acceptForSession", threadMode="persistent")
    assert len(sdk.asked) == 1
    assert "often42" in sdk.stream(often, decision="decline", threadId=first["threadId"])["text"]
    assert sdk.asked == []


@scenario("approval: decline")
def test_ai_sdk_decline(sdk: AiSdk, stage: ClientStage) -> None:
    result = sdk.stream(escalated("touch ai-declined"), decision="decline")
    assert len(sdk.asked) == 1
    assert result["results"][-1]["result"]["status"] == "declined"
    assert result["finish"]["raw"] == "completed"
    assert not (stage.workspace / "ai-declined").exists()


@scenario("approval: cancel")
def test_ai_sdk_cancel(sdk: AiSdk, stage: ClientStage) -> None:
    result = sdk.stream(escalated("touch ai-cancelled"), decision="cancel")
    assert len(sdk.asked) == 1
    assert result["finish"]["raw"] == "interrupted"
    assert not (stage.workspace / "ai-cancelled").exists()


@scenario("interrupt in text")
def test_ai_sdk_interrupt_text(sdk: AiSdk) -> None:
    result = sdk.stream("STREAM:never", sdk.on("text-delta", "interrupt"))
    assert (result["text"], result["finish"]["raw"]) == (FIRST, "interrupted")
    assert sdk.stream("STREAM:never", sdk.on("text-delta", "abort"))["thrown"].startswith("AbortError")
    assert sdk.stream("still there")["text"].endswith("still there")


@scenario("interrupt in a command")
def test_ai_sdk_interrupt_command(sdk: AiSdk) -> None:
    result = sdk.stream("RUN:echo begun; sleep 600", sdk.on("tool-call", "interrupt"))
    assert result["finish"]["raw"] == "interrupted"
    assert sdk.stream("still there")["text"].endswith("still there")


@scenario("steer")
def test_ai_sdk_steer(sdk: AiSdk, stage: ClientStage) -> None:
    """It starts a turn in a thread that has one, which is the same."""

    def look(part: Json) -> None:
        if part["type"] == "injected":
            stage.model.open_gate("inject")

    sdk.tell("stream", model=MODEL, prompt="GATE:inject first")
    stage.model.wait_for_prompt("GATE:inject first")
    sdk.tell("inject", prompt="and this")
    assert sdk.result(look)["text"].endswith("pong: and this")


@scenario("resume")
def test_ai_sdk_resume(sdk: AiSdk, stage: ClientStage) -> None:
    first = sdk.stream("remember me", threadMode="persistent")
    again = sdk.stream("and this", threadId=first["threadId"])
    assert again["threadId"] == first["threadId"]
    texts = stage.model.requests()[-1].input_texts("user")
    assert [text for text in texts if "remember me" in text]


@scenario("model switch")
def test_ai_sdk_model(sdk: AiSdk, stage: ClientStage) -> None:
    other = next(name for name in sdk.do("models") if name != MODEL)
    first = sdk.stream("by the usual model", threadMode="persistent")
    sdk.do("stream", model=other, prompt="by another model", threadId=first["threadId"])
    assert stage.model.requests()[-1].json["model"] == other


@scenario("server restart in mid-session")
def test_ai_sdk_restart(sdk: AiSdk, stage: ClientStage) -> None:
    """Between turns: one that is cut off hangs in this client, whatever the server."""
    first = sdk.stream("before the restart", threadMode="persistent")
    server = child_of(sdk.pid, "app-server")
    os.kill(server, signal.SIGKILL)
    gone(server)
    assert sdk.stream("after the restart", threadId=first["threadId"])["text"].endswith("after the restart")
    texts = stage.model.requests()[-1].input_texts("user")
    assert [text for text in texts if "before the restart" in text]


def gone(pid: int) -> None:
    """Until its parent knows that it has ended."""
    deadline = time.monotonic() + WAIT_S
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.01)
