"""`EngineModel` as the clients of the three APIs see it: calls, results, failures, gates, and ends of streams."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from treadle.testing import EngineModel

DEADLINE_S = 30
PATHS = {"responses": "/v1/responses", "messages": "/v1/messages?beta=true", "chat": "/v1/chat/completions"}
SHELL: dict[str, dict[str, Any]] = {
    "responses": {"type": "function", "name": "exec_command"},
    "messages": {"name": "Bash", "input_schema": {}},
    "chat": {"type": "function", "function": {"name": "bash"}},
}


@pytest.fixture
def model() -> Iterator[EngineModel]:
    with EngineModel() as model:
        yield model


@pytest.fixture(params=PATHS)
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def body(api: str, prompt: str, **members: object) -> dict[str, Any]:
    items = "input" if api == "responses" else "messages"
    return {
        "model": "m",
        "stream": True,
        "tools": [SHELL[api]],
        items: [
            {"role": "system", "content": "be good"},
            {"role": "user", "content": [{"type": "text", "text": "earlier"}]},
            {"role": "user", "content": prompt},
        ],
        **members,
    }


def post(model: EngineModel, path: str, content: object) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", model.port, timeout=DEADLINE_S)
    try:
        connection.request("POST", path, json.dumps(content))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def ask(model: EngineModel, api: str, prompt: str) -> list[dict[str, Any]]:
    """The events of a streamed answer."""
    status, content = post(model, PATHS[api], body(api, prompt))
    assert status == 200, content
    data = [line.removeprefix(b"data: ") for line in content.split(b"\n") if line.startswith(b"data: ")]
    return [json.loads(line) for line in data if line != b"[DONE]"]


def said(api: str, events: list[dict[str, Any]]) -> str:
    """The text of the streamed deltas."""
    match api:
        case "responses":
            return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
        case "messages":
            return "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")
        case _:
            return "".join(choice["delta"].get("content", "") for event in events for choice in event["choices"])


def called(api: str, events: list[dict[str, Any]]) -> tuple[str, object]:
    """The tool that was called, and its arguments."""
    match api:
        case "responses":
            (item,) = events[-1]["response"]["output"]
            return item["name"], json.loads(item["arguments"])
        case "messages":
            (name,) = [event["content_block"]["name"] for event in events if "name" in event.get("content_block", {})]
            (text,) = [event["delta"]["partial_json"] for event in events if "partial_json" in event.get("delta", {})]
            return name, json.loads(text)
        case _:
            deltas = [choice["delta"] for event in events for choice in event["choices"]]
            (function,) = [delta["tool_calls"][0]["function"] for delta in deltas if "tool_calls" in delta]
            return function["name"], json.loads(function["arguments"])


def ended(api: str, events: list[dict[str, Any]]) -> bool:
    """Whether the stream has the end that its API wants."""
    last = events[-1]
    return last.get("type") in ("response.completed", "message_stop") or last.get("usage") is not None


def test_a_text(model: EngineModel, api: str) -> None:
    events = ask(model, api, "hello")
    assert said(api, events) == "pong: hello"
    assert ended(api, events)
    assert model.prompts() == ["hello"]
    assert model.single_request().json["model"] == "m"


def test_the_prompts_of_the_user_are_counted(model: EngineModel, api: str) -> None:
    assert said(api, ask(model, api, "USERS?")) == "users=2"


def test_neither_the_system_nor_a_tool_counts_as_the_user(model: EngineModel, api: str) -> None:
    content = body(api, "RUN:ls")
    items = content["input" if api == "responses" else "messages"]
    result = {
        "responses": {"type": "function_call_output", "call_id": "c", "output": "done"},
        "messages": {"role": "user", "content": [{"type": "tool_result", "content": "done"}]},
    }
    items.append(result.get(api, {"role": "tool", "content": "done"}))
    items.append({"role": "user", "content": "USERS?"})
    items.append({"role": "system", "content": "remember to be good"})
    _, answer = post(model, PATHS[api], content)
    assert b"users=3" in answer


def test_a_command(model: EngineModel, api: str) -> None:
    described = {"command": "ls", "description": "mock command"}
    expected = {"responses": ("exec_command", {"cmd": "ls"}), "messages": ("Bash", described)}
    events = ask(model, api, "RUN:ls")
    assert called(api, events) == expected.get(api, ("bash", described))
    assert ended(api, events)


@pytest.mark.parametrize(
    ("api", "result"),
    [
        ("responses", {"type": "function_call_output", "call_id": "c", "output": "it worked"}),
        ("responses", {"type": "custom_tool_call_output", "call_id": "c", "output": [{"text": "it worked"}]}),
        ("messages", {"role": "user", "content": [{"type": "tool_result", "content": [{"text": "it worked"}]}]}),
        ("chat", {"role": "tool", "content": "it worked"}),
    ],
    indirect=["api"],
)
def test_the_result_of_a_tool(model: EngineModel, api: str, result: object) -> None:
    content = body(api, "RUN:ls")
    content["input" if api == "responses" else "messages"].append(result)
    _, answer = post(model, PATHS[api], content)
    assert b"tool said: it worked" in answer
    assert model.prompts() == []


def test_a_tool_of_free_text_is_given_its_text(model: EngineModel) -> None:
    tools = [{"type": "custom", "name": "apply_patch"}]
    _, answer = post(model, "/v1/responses", body("responses", 'CALL:apply_patch "a\\nb"', tools=tools))
    done = json.loads(answer.split(b"data: ")[-1])["response"]["output"][0]
    assert (done["type"], done["input"]) == ("custom_tool_call", "a\nb")


def test_a_tool_in_a_namespace(model: EngineModel) -> None:
    (item,) = ask(model, "responses", 'CALL:mcp__toy.echo {"a": 1}')[-1]["response"]["output"]
    assert (item["namespace"], item["name"], item["arguments"]) == ("mcp__toy", "echo", '{"a": 1}')


def test_a_search_of_the_model_itself(model: EngineModel) -> None:
    items = ask(model, "responses", "SEARCH:weather")[-1]["response"]["output"]
    assert [item["type"] for item in items] == ["web_search_call", "message"]
    assert items[0]["action"] == {"type": "search", "query": "weather"}


def test_a_thought_comes_first(model: EngineModel, api: str) -> None:
    _, answer = post(model, PATHS[api], body(api, "THINK hello"))
    assert 0 < answer.index(b"mock thought") < answer.index(b"pong: ")


def test_commentary_and_the_final_answer(model: EngineModel) -> None:
    items = ask(model, "responses", "TWOMSG")[-1]["response"]["output"]
    assert [item["phase"] for item in items] == ["commentary", "final_answer"]


def test_a_status(model: EngineModel, api: str) -> None:
    status, answer = post(model, PATHS[api], body(api, "HTTP:401"))
    assert status == 401
    assert json.loads(answer)["error"]["message"] == "mock error 401"


def test_failures_are_counted_by_name(model: EngineModel, api: str) -> None:
    prompts = ["FLAKY:2:a", "FLAKY:2:a", "FLAKY:1:b", "FLAKY:2:a"]
    assert [post(model, PATHS[api], body(api, prompt))[0] for prompt in prompts] == [500, 500, 500, 200]


def test_a_stream_that_ends_early_is_whole_http(model: EngineModel, api: str) -> None:
    events = ask(model, api, "DROP")
    assert len(events) == 1
    assert not ended(api, events)


def test_a_stream_that_is_cut_is_not(model: EngineModel, api: str) -> None:
    with pytest.raises(http.client.IncompleteRead):
        ask(model, api, "CUT")


@pytest.mark.parametrize("api", ["messages", "chat"], indirect=True)
def test_an_answer_in_one_piece(model: EngineModel, api: str) -> None:
    _, answer = post(model, PATHS[api], body(api, "hello", stream=False))
    whole = json.loads(answer)
    content = whole["content"][0]["text"] if api == "messages" else whole["choices"][0]["message"]["content"]
    assert content == "pong: hello"
    _, answer = post(model, PATHS[api], body(api, "RUN:ls", stream=False))
    whole = json.loads(answer)
    assert (whole.get("stop_reason") or whole["choices"][0]["finish_reason"]) in ("tool_use", "tool_calls")


@pytest.mark.parametrize("api", ["messages", "chat"], indirect=True)
@pytest.mark.parametrize("prompt", ["DROP", "CUT"])
def test_an_answer_in_one_piece_cannot_be_cut_and_does_not_come(model: EngineModel, api: str, prompt: str) -> None:
    with pytest.raises(http.client.RemoteDisconnected):
        post(model, PATHS[api], body(api, prompt, stream=False))


def test_an_answer_waits_at_its_gate(model: EngineModel, api: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        held = pool.submit(ask, model, api, "GATE:a hello")
        model.wait_for_prompt("GATE:a")
        assert said(api, ask(model, api, "another")) == "pong: another"
        assert not held.done()
        model.open_gate("a")
        assert said(api, held.result(DEADLINE_S)) == "pong: GATE:a hello"
        assert said(api, ask(model, api, "GATE:a again")) == "pong: GATE:a again"


def test_waiting_for_a_prompt_leaves_the_loop_alone(model: EngineModel) -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(model.prompted("you there", timeout=DEADLINE_S))
            group.create_task(asyncio.to_thread(ask, model, "chat", "are you there"))

    asyncio.run(main())
    with pytest.raises(TimeoutError, match="are you there"):
        model.wait_for_prompt("nothing", timeout=0.01)


def test_a_closed_model_lets_nobody_wait(api: str) -> None:
    with ThreadPoolExecutor(1) as pool, EngineModel() as model:
        held = pool.submit(ask, model, api, "GATE:never")
        model.wait_for_prompt("GATE:never")
        model.close()
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            held.result(DEADLINE_S)


@pytest.mark.parametrize("content", [[], {"messages": 4}, {"messages": ["x"]}, {"messages": [{}], "tools": [1]}])
def test_a_request_that_makes_no_sense_is_refused(model: EngineModel, content: object) -> None:
    status, answer = post(model, "/v1/chat/completions", content)
    assert status == 400
    assert b"cannot read this request" in answer


def test_arguments_that_are_no_json_are_refused(model: EngineModel) -> None:
    status, answer = post(model, PATHS["messages"], body("messages", "CALL:Bash {oops"))
    assert (status, b"JSONDecodeError" in answer) == (400, True)


def test_tokens_are_counted(model: EngineModel) -> None:
    assert post(model, "/v1/messages/count_tokens", {}) == (200, b'{"input_tokens": 10}')


def test_another_path_is_told_the_right_ones(model: EngineModel) -> None:
    status, answer = post(model, "/v1/embeddings", {})
    assert status == 404
    assert b"{base_url}/chat/completions" in answer
