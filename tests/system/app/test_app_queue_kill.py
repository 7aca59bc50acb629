"""`kill -9` at every step of a message that waits in a queue: it is neither lost nor sent twice."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import pytest

from kit.app_program import stdio_server
from kit.wire_client import Json
from system.app import dying_server
from treadle.testing import AppServerHarness

WORDS = "the words that waited"


def said(turns: list[Json]) -> list[Json]:
    items = [item for turn in turns for item in turn["items"] if item["type"] == "userMessage"]
    return [item for item in items if item["content"][0]["text"] == WORDS]


def killed_with_a_queue(harness: AppServerHarness) -> str:
    """A thread whose server was killed in a turn, right after it had taken a message into the queue."""
    gate = threading.Event()
    harness.model.enqueue_assistant_message("Never heard.", gate=gate)
    with stdio_server(harness) as program:
        client = program.client
        client.initialize(experimentalApi=True)
        thread = client.start_thread()
        client.begin(thread, "first")
        harness.model.wait_for_requests(1)
        given = {"threadId": thread, "input": [{"type": "text", "text": WORDS}], "clientUserMessageId": "mine"}
        client.call("thread/queue/add", given)
        program.kill()
    gate.set()
    return thread


def checked(harness: AppServerHarness, thread: str, *, waits: bool, asked: int) -> None:
    """In a new server: it is sent if it still waits, and the model sees it once, whatever came before. `asked` is how
    many requests ended with it, over all lives."""
    with stdio_server(harness) as program:
        client = program.client
        client.initialize(experimentalApi=True)
        waiting = client.call("thread/queue/list", {"threadId": thread})["data"]
        assert [each["clientUserMessageId"] for each in waiting] == (["mine"] if waits else [])
        harness.model.enqueue_assistant_message("Now I know.")
        client.call("thread/resume", {"threadId": thread})
        if waits:
            turn = client.wait_for("turn/started")["params"]["turn"]["id"]
            assert client.turn_end(turn)["status"] == "completed"
            harness.model.enqueue_assistant_message("And on.")
        assert client.run(thread, "and then?")["status"] == "completed"
        assert client.call("thread/queue/list", {"threadId": thread})["data"] == []
        (item,) = said(client.turns(thread))
        assert item["clientId"] == "mine"
    last = harness.model.requests()[-1]
    assert last.input_texts("user").count(WORDS) == 1
    sent = [request for request in harness.model.requests() if request.last_user_text == WORDS]
    assert len(sent) == asked


@pytest.mark.parametrize("point", dying_server.POINTS)
def test_a_message_is_sent_once_whenever_the_server_dies(harness: AppServerHarness, point: str) -> None:
    thread = killed_with_a_queue(harness)
    command = [sys.executable, str(Path(dying_server.__file__)), point, "app-server", "--listen", "stdio://"]
    with stdio_server(harness, command=command) as program:
        program.client.initialize(experimentalApi=True)
        program.client.request("thread/resume", {"threadId": thread})
        assert program.wait() == -signal.SIGKILL
    waits = point != "message kept"  # else it is a message of the thread, which the next turn brings to the model
    checked(harness, thread, waits=waits, asked=int(waits))


def test_a_message_that_the_model_has_is_not_sent_again(harness: AppServerHarness) -> None:
    thread = killed_with_a_queue(harness)
    gate = threading.Event()
    harness.model.enqueue_assistant_message("Never heard either.", gate=gate)
    with stdio_server(harness) as program:
        program.client.initialize(experimentalApi=True)
        program.client.call("thread/resume", {"threadId": thread})
        harness.model.wait_for_requests(2)
        program.kill()
    gate.set()
    checked(harness, thread, waits=False, asked=1)


def test_a_message_that_nobody_began_to_send_is_sent(harness: AppServerHarness) -> None:
    checked(harness, killed_with_a_queue(harness), waits=True, asked=1)
