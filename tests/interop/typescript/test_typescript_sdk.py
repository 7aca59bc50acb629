"""The official TypeScript SDK drives `treadle exec` and the real `codex exec`: it sees the same."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from interop.interop_table import scenario_of
from interop.peers import installed
from interop.typescript.sdk_run import SdkRun
from treadle.testing import MockModel, RecordedRequest, Usage, item_events, message_item, stream

pytestmark = pytest.mark.interop
scenario = scenario_of("TypeScript SDK")

USAGE: Final = Usage(input_tokens=11, cached_input_tokens=3, output_tokens=7)
KEY: Final = "sk-of-this-run"
END_SECONDS: Final = 30.0
Script: TypeAlias = Callable[[MockModel], None]


class Sides:
    """One scenario on both programs; `requests` is what the model was asked by ours and by the real one."""

    def __init__(self, folder: Path, codex: Path, sdk: Path) -> None:
        self._folder = folder
        self._sdk = sdk
        self._programs = {"treadle": Path(sys.executable).with_name("treadle"), "codex": codex}
        self.requests: dict[str, list[RecordedRequest]] = {}

    def __call__(self, scenario: str, script: Script, provider: dict[str, Any] | None = None, **settings: Any) -> Any:
        """What the SDK saw, which must be the same on both sides."""
        seen = {}
        for side, program in self._programs.items():
            with MockModel() as model:
                script(model)
                run = SdkRun(self._sdk, program, self._folder / side, model)
                try:
                    seen[side] = run.play(scenario, provider or {}, **settings)
                    if side == "treadle":
                        all_gone(run)
                finally:
                    run.sweep()  # the real one leaves children of commands behind
                self.requests[side] = model.requests()
        assert seen["treadle"] == seen["codex"]
        return seen["treadle"]

    def asked(self, look: Callable[[RecordedRequest], Any]) -> list[Any]:
        """Something of each request, which must be the same on both sides."""
        ours, real = ([look(request) for request in self.requests[side]] for side in ("treadle", "codex"))
        assert ours == real
        return ours


def all_gone(run: SdkRun) -> None:
    """The SDK does not wait for a program that it aborts, which then needs a moment."""
    deadline = time.monotonic() + END_SECONDS
    while left := run.processes():
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.01)


@pytest.fixture(scope="session")
def typescript_sdk() -> Path:
    return installed("codex-ts-sdk")


@pytest.fixture
def both(tmp_path: Path, codex_bin: Path, typescript_sdk: Path) -> Sides:
    return Sides(tmp_path, codex_bin, typescript_sdk)


def says(*texts: str) -> Script:
    def script(model: MockModel) -> None:
        for text in texts:
            model.enqueue_assistant_message(text, usage=USAGE)

    return script


def items(model: MockModel, *listed: dict[str, Any]) -> None:
    body = [event for number, item in enumerate(listed) for event in item_events(item, number)]
    model.enqueue_sse(stream("resp_1", body, listed, USAGE))


def types(events: list[Any]) -> list[str]:
    return [event.get("type", "thrown") for event in events]


def user_texts(request: RecordedRequest) -> list[str]:
    return [text for text in request.input_texts("user") if not text.startswith("<")]


@scenario("message")
def test_text(both: Sides) -> None:
    seen = both("text", says("pong"))
    assert seen["finalResponse"] == "pong"
    assert seen["items"] == [{"id": "item_0", "type": "agent_message", "text": "pong"}]
    assert (seen["usage"]["input_tokens"], seen["usage"]["cached_input_tokens"]) == (11, 3)
    assert seen["thread"] == "$ID0"


@scenario("streaming")
def test_stream(both: Sides) -> None:
    assert types(both("stream", says("pong"))) == ["thread.started", "turn.started", "item.completed", "turn.completed"]


@scenario("command")
def test_command(both: Sides) -> None:
    def script(model: MockModel) -> None:
        model.enqueue_function_call("exec_command", {"cmd": "echo mark$((40+2)); exit 3"}, usage=USAGE)
        model.enqueue_assistant_message("done", usage=USAGE)

    seen = both("command", script)
    ended = seen[3]["item"]
    assert (ended["aggregated_output"], ended["exit_code"], ended["status"]) == ("mark42\n", 3, "failed")
    assert seen[-1]["usage"]["input_tokens"] == 22


@scenario("patch")
def test_patch(both: Sides) -> None:
    def script(model: MockModel) -> None:
        patch = "*** Begin Patch\n*** Add File: new.txt\n+one\n*** End Patch\n"
        model.enqueue_custom_call("apply_patch", patch, usage=USAGE)
        model.enqueue_assistant_message("done", usage=USAGE)

    seen = both("patch", script)
    assert seen["items"][0]["changes"] == [{"path": "$ROOT/workspace/new.txt", "kind": "add"}]


@scenario("typed answer")
def test_schema(both: Sides) -> None:
    assert both("schema", says('{"title": "x"}'))["finalResponse"] == '{"title": "x"}'
    [wanted] = both.asked(lambda request: request.json["text"]["format"])
    assert wanted["schema"]["required"] == ["title"]


@scenario("image")
def test_image(both: Sides) -> None:
    assert both("image", says("a dot"))["finalResponse"] == "a dot"
    [kinds] = both.asked(lambda request: [part["type"] for part in request.input[-1]["content"]])
    assert kinds == ["input_text", "input_image", "input_text", "input_text"]
    assert both.asked(lambda request: request.last_user_text) == ["look\n\nclosely"]


@scenario("resume")
def test_resume(both: Sides) -> None:
    seen = both("resume", says("1", "2", "3"))
    assert [turn["usage"]["output_tokens"] for turn in seen[:2]] == [7, 14]
    assert seen[2][0] == {"type": "thread.started", "thread_id": "$ID0"}
    assert seen[2][-1]["usage"]["output_tokens"] == 21
    assert both.asked(user_texts)[-1] == ["one", "two", "three"]


def test_an_unknown_thread(both: Sides) -> None:
    assert both("unknown", says()) == {
        "thrown": "Error: Codex Exec exited with code 1",
        "thread": "$ID0",
    }
    assert both.requests == {"treadle": [], "codex": []}


@scenario("interrupt in text")
def test_abort(both: Sides) -> None:
    gate = threading.Event()
    try:
        seen = both("abort", lambda model: model.enqueue_assistant_message("late", gate=gate), abortAt="turn.started")
    finally:
        gate.set()
    assert types(seen) == ["thread.started", "turn.started", "thrown"]


@scenario("interrupt in a command")
def test_abort_of_a_command(both: Sides) -> None:
    """What it had started is gone, see `all_gone`."""

    def script(model: MockModel) -> None:
        model.enqueue_function_call("exec_command", {"cmd": "sleep 1000 & sleep 1000"})

    seen = both("abortCommand", script, abortAt="item.started")
    assert types(seen) == ["thread.started", "turn.started", "item.started", "thrown"]


@scenario("a request that the model refuses")
def test_failure(both: Sides) -> None:
    def script(model: MockModel) -> None:
        for _ in range(2):
            model.enqueue_error(400, "mock error")

    events, thrown = both("failure", script)
    assert types(events) == ["thread.started", "turn.started", "error", "turn.failed", "thrown"]
    assert events[2]["message"] == events[3]["error"]["message"] == "mock error"
    assert thrown["thrown"] == "Error: mock error"


def test_retry(both: Sides) -> None:
    def script(model: MockModel) -> None:
        model.enqueue_drop()
        model.enqueue_assistant_message("pong", usage=USAGE)

    seen = both("retry", script, {"stream_max_retries": 2})
    assert seen[2] == {"type": "error", "message": "Reconnecting... 1/2"}
    assert seen[3]["item"]["text"] == "pong"


def test_web(both: Sides) -> None:
    actions: list[dict[str, Any]] = [
        {"type": "search", "query": "weather", "queries": ["weather", "wind"]},
        {"type": "open_page", "url": "http://x"},
        {"type": "find_in_page", "url": "http://x", "pattern": "p"},
    ]

    def script(model: MockModel) -> None:
        calls = [
            {"type": "web_search_call", "id": f"ws_{number}", "status": "completed", "action": action}
            for number, action in enumerate(actions)
        ]
        items(model, *calls, message_item("m", "sunny", None))

    seen = both("web", script)
    assert [event["item"]["action"] for event in seen[2:8:2]] == actions
    assert seen[-2]["item"]["text"] == "sunny"


def test_a_thought(both: Sides) -> None:
    def script(model: MockModel) -> None:
        summary = [{"type": "summary_text", "text": "**one**"}, {"type": "summary_text", "text": "two"}]
        thought = {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": None}
        items(model, thought, message_item("m", "done", "final_answer"))

    assert [item["type"] for item in both("thought", script)["items"]] == ["reasoning", "agent_message"]


@scenario("all options of a thread")
def test_all_options(both: Sides) -> None:
    assert both("options", says("pong"))["finalResponse"] == "pong"
    assert both.asked(lambda request: (request.json["model"], request.json["reasoning"]["effort"])) == [
        ("gpt-5.5", "high")
    ]


def test_the_key_of_a_run(both: Sides) -> None:
    assert both("key", says("pong"), {"requires_openai_auth": True}, apiKey=KEY)["finalResponse"] == "pong"
    assert both.asked(lambda request: request.header("authorization")) == [f"Bearer {KEY}"]
