"""The end of a server with several clients: it waits for what runs, takes nothing new, and can be hurried."""

from __future__ import annotations

import contextlib
import http.client
import signal
import threading

import pytest
from websockets.exceptions import InvalidStatus

from kit.app_client import AppClient, joined
from kit.app_program import listening_server
from kit.processes import DEADLINE_S
from treadle.testing import AppServerHarness
from treadle.transport import Address

WAITING = "waiting for running turns"


def begun(client: AppClient, harness: AppServerHarness) -> tuple[str, str, threading.Event]:
    """A turn whose answer is held until the event is set."""
    gate = threading.Event()
    harness.model.enqueue_assistant_message("The end.", deltas=["The ", "end."], gate=gate, gate_after=3)
    thread = client.start_thread()
    turn = client.begin(thread)
    client.wait_for("item/agentMessage/delta")
    return thread, turn, gate


def health(url: str, path: str) -> int:
    address = Address.parse(url)
    with contextlib.closing(http.client.HTTPConnection(address.host, address.port, timeout=DEADLINE_S)) as web:
        web.request("GET", path)
        return web.getresponse().status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_waits_for_turns(harness: AppServerHarness, number: signal.Signals) -> None:
    with listening_server(harness) as program, joined(program.url) as client:
        thread, turn, gate = begun(client, harness)
        other = client.start_thread()
        program.send_signal(number)
        program.wait_for_log(WAITING)
        for method, params in (
            ("turn/start", {"threadId": other, "input": [{"type": "text", "text": "more"}]}),
            ("thread/start", {}),
            ("thread/fork", {"threadId": thread}),
            ("thread/compact/start", {"threadId": other}),
            ("thread/shellCommand", {"threadId": other, "command": "true"}),
        ):
            error = client.failure(method, params)
            assert error["code"] == -32600
            assert "shutting down" in error["message"]
        assert client.call("thread/read", {"threadId": thread})["thread"]["status"]["type"] == "active"
        gate.set()
        assert client.turn_end(turn)["status"] == "completed"
        client.read_to_end()
        assert program.wait() == 0
        assert "Traceback" not in program.stderr


def test_new_connections_are_not_taken(harness: AppServerHarness) -> None:
    with listening_server(harness) as program, joined(program.url) as client:
        _, turn, gate = begun(client, harness)
        assert [health(program.url, path) for path in ("/readyz", "/healthz")] == [200, 200]
        program.send_signal()
        program.wait_for_log(WAITING)
        with pytest.raises(InvalidStatus) as refusal, joined(program.url):
            pass
        assert refusal.value.response.status_code == 503
        assert b"shutting down" in (refusal.value.response.body or b"")
        assert [health(program.url, path) for path in ("/readyz", "/healthz")] == [503, 503]
        gate.set()
        assert client.turn_end(turn)["status"] == "completed"
        assert program.wait() == 0


def test_the_second_signal_does_not_wait(harness: AppServerHarness) -> None:
    with listening_server(harness) as program, joined(program.url) as client:
        thread, turn, _ = begun(client, harness)
        program.send_signal()
        program.wait_for_log(WAITING)
        program.send_signal()
        assert program.wait() in (0, 1)
    with listening_server(harness, log="second") as program, joined(program.url) as client:
        (kept,) = client.turns(thread)
        assert (kept["id"], kept["status"]) == (turn, "interrupted")


def test_an_idle_server_ends_at_once(harness: AppServerHarness) -> None:
    with listening_server(harness) as program, joined(program.url) as client:
        client.start_thread()
        assert program.stop() == 0
        client.read_to_end()
        assert WAITING not in program.stderr


def asks(harness: AppServerHarness) -> None:
    harness.model.enqueue_function_call("exec_command", {"cmd": "touch asked", "login": False})
    harness.model.enqueue_assistant_message("Done.")


def test_a_turn_that_waits_for_an_answer_nobody_will_give(harness: AppServerHarness) -> None:
    """The client has left before the signal."""
    asks(harness)
    with listening_server(harness) as program:
        with joined(program.url) as client:
            thread = client.start_thread(approvalPolicy="untrusted")
            turn = client.begin(thread)
            client.wait_for("item/commandExecution/requestApproval")
        assert program.stop() == 0
    with listening_server(harness, log="second") as program, joined(program.url) as client:
        (kept,) = client.turns(thread)
        assert (kept["id"], kept["status"]) == (turn, "interrupted")
        assert not (harness.workspace / "asked").exists()


def test_a_client_that_leaves_while_the_server_waits_for_its_answer(harness: AppServerHarness) -> None:
    asks(harness)
    with listening_server(harness) as program:
        with joined(program.url) as client:
            thread = client.start_thread(approvalPolicy="untrusted")
            client.begin(thread)
            client.wait_for("item/commandExecution/requestApproval")
            program.send_signal()
            program.wait_for_log(WAITING)
        assert program.wait() == 0


def test_an_answer_can_still_be_given(harness: AppServerHarness) -> None:
    asks(harness)
    with listening_server(harness) as program, joined(program.url) as client:
        thread = client.start_thread(approvalPolicy="untrusted", cwd=str(harness.workspace))
        turn = client.begin(thread)
        asked = client.wait_for("item/commandExecution/requestApproval")
        program.send_signal()
        program.wait_for_log(WAITING)
        client.answer(asked, {"decision": "accept"})
        assert client.turn_end(turn)["status"] == "completed"
        assert program.wait() == 0
        assert (harness.workspace / "asked").exists()


def test_a_goal_does_not_keep_the_server_alive(harness: AppServerHarness) -> None:
    """It would start turns for ever; the one that runs is waited for, the next one is not."""
    gate = threading.Event()
    harness.model.enqueue_assistant_message("One step.", gate=gate)
    for _ in range(10):
        harness.model.enqueue_assistant_message("Another step.")
    with listening_server(harness) as program, joined(program.url) as client:
        thread = client.start_thread()
        client.call("thread/goal/set", {"threadId": thread, "objective": "go on", "status": "active"})
        started = client.wait_for("turn/started")["params"]["turn"]["id"]
        program.send_signal()
        program.wait_for_log(WAITING)
        gate.set()
        assert client.turn_end(started)["status"] == "completed"
        assert program.wait() == 0
