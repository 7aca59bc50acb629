"""`/metrics` of both servers, as Prometheus asks for it."""

from __future__ import annotations

import asyncio
from http.client import HTTPConnection
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kit.app_client import joined
from kit.app_program import listening_server
from kit.exec_program import running
from kit.processes import DEADLINE_S
from treadle import Codex, CodexConfig, Environment, Sandbox
from treadle.execution import ExecParams
from treadle.testing import AppServerHarness, Usage
from treadle.transport import Address

Samples = dict[tuple[str, str], float]


def ask(url: str, token: str | None) -> tuple[int, str]:
    address = Address.parse(url)
    web = HTTPConnection(address.host, address.port, timeout=DEADLINE_S)
    try:
        web.request("GET", "/metrics", headers={} if token is None else {"Authorization": f"Bearer {token}"})
        response = web.getresponse()
        assert response.headers["Content-Type"].startswith("text/plain")
        return response.status, response.read().decode()
    finally:
        web.close()


def metrics(url: str) -> Samples:
    """Samples by name and the values of their labels."""
    status, text = ask(url, Address.parse(url).path[1:])
    assert status == 200
    return {
        (sample.name, " ".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_app_server_counts_turns_tokens_commits_and_who_is_refused(tmp_path: Path) -> None:
    with AppServerHarness(tmp_path) as harness, listening_server(harness) as server:
        assert ask(server.url, None)[0] == 401
        assert ask(server.url, "wrong")[0] == 401
        harness.model.enqueue_function_call("exec_command", {"cmd": "echo a secret thing"})
        harness.model.enqueue_assistant_message("another secret thing")
        with Codex(CodexConfig(url=server.url)) as codex:
            before = metrics(server.url)
            thread = codex.thread_start(sandbox=Sandbox.full_access)
            thread.run("the most secret thing")
            after = metrics(server.url)
        status, text = ask(server.url, Address.parse(server.url).path[1:])
    assert not [name for name, _ in before if name.startswith(("treadle_turn_", "treadle_model_"))]
    assert (before["treadle_connections", ""], before["treadle_clients", ""]) == (1, 1)
    assert after["treadle_turn_seconds_count", "completed"] == 1
    assert after["treadle_turns_running", ""] == after["treadle_turns_waiting", ""] == 0
    assert after["treadle_threads_loaded", ""] == 1
    assert after["treadle_threads_queued", ""] == 0
    assert after["treadle_commit_seconds_count", ""] >= 2
    assert after["treadle_processes_total", "succeeded"] == 1
    assert after["treadle_process_output_bytes_total", ""] == len("a secret thing\n")
    assert after["treadle_requests_total", "turn/start answered"] == 1
    assert after["treadle_refused_connections_total", "401"] == 2
    assert after["treadle_sent_bytes_total", ""] > before["treadle_sent_bytes_total", ""] > 0
    assert after["treadle_received_bytes_total", ""] > before["treadle_received_bytes_total", ""] > 0
    tokens = [(labels, value) for (name, labels), value in after.items() if name == "treadle_model_tokens_total"]
    assert sum(value for labels, value in tokens if labels.endswith(" input")) > 0
    assert (status, "secret thing" in text) == (200, False)


def test_the_app_server_says_what_waits_and_counts_what_answers_have_cost(tmp_path: Path) -> None:
    prices = '[models."mock-model"]\nprice_input = 10\nprice_output = 20\n'
    settings = {"approval_policy": "on-request", "sandbox_mode": "read-only"}
    escalated = {"cmd": "true", "sandbox_permissions": "require_escalated", "justification": "why"}
    with AppServerHarness(tmp_path, settings=settings, extra_toml=prices) as harness:
        harness.model.enqueue_function_call("exec_command", escalated)
        for _ in range(2):
            harness.model.enqueue_assistant_message("done", usage=Usage(input_tokens=100_000, output_tokens=10_000))
        with listening_server(harness) as server, joined(server.url, experimentalApi=True) as client:
            thread = client.start_thread()
            client.begin(thread)
            asked = client.wait_for("item/commandExecution/requestApproval")
            text = [{"type": "text", "text": "and then"}]
            client.call("thread/queue/add", {"threadId": thread, "clientUserMessageId": "m", "input": text})
            during = metrics(server.url)
            client.answer(asked, {"decision": "decline"})
            client.until(lambda: len(client.of("turn/completed")) == 2)
            after = metrics(server.url)
    assert during["treadle_turns_running", ""] == during["treadle_turns_waiting", ""] == 1
    assert (during["treadle_threads_queued", ""], after["treadle_threads_queued", ""]) == (1, 0)
    assert (after["treadle_turns_running", ""], after["treadle_turns_waiting", ""]) == (0, 0)
    assert after["treadle_approvals_total", "decline"] == 1
    assert after["treadle_model_tokens_total", "mock_provider mock-model output"] >= 20_000
    assert after["treadle_model_cost_dollars_total", "mock_provider mock-model"] == pytest.approx(2.4, rel=0.1)


@pytest.mark.anyio
async def test_the_exec_server_counts_sessions_and_commands(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with await Environment.connect(server.url) as environment:
            await environment.run(["true"])
            await environment.run(["false"])
            await environment.run(["echo", "12345"])
            sleeping = await environment.start(ExecParams(process_id="p", argv=["sleep", "1000"], cwd=tmp_path))
            during = await asyncio.to_thread(metrics, server.url)
            await sleeping.terminate()
        bare = await asyncio.to_thread(ask, server.url, None)
    assert bare[0] == 401
    assert (during["treadle_sessions", ""], during["treadle_connections", ""]) == (1, 1)
    assert (during["treadle_processes_total", "succeeded"], during["treadle_processes_total", "failed"]) == (2, 1)
    assert during["treadle_process_output_bytes_total", ""] == 6
    assert during["treadle_processes_running", ""] == 1
    assert not [name for name, _ in during if name.startswith("treadle_turn")]
