"""Our client talks to a mock of the model APIs that others wrote: `@copilotkit/aimock`."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.wire_plays import DIALECTS, Answer, Call, heard, used
from contract.wire_stage import outcome
from interop.peers import installed
from treadle.llm import FunctionCallItem, ItemDone, ModelRequest, ProviderModel, TextDelta, TokenUsage, read_provider

pytestmark = [pytest.mark.interop, pytest.mark.anyio]
PIECE = 7
HELLO = Answer("Hello from somebody else, wörld!")
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "input_tokens": 10, "output_tokens": 5}
LOOKING = Answer("I look.", calls=tuple(Call(f"call_{n}", "look", f'{{"at":{n}}}') for n in (1, 2)))
FIXTURES = [
    {"match": {"userMessage": "look", "hasToolResult": True}, "response": {"content": "It was red."}},
    {"match": {"userMessage": "hello"}, "response": {"content": HELLO.text, "usage": USAGE}},
    {"match": {"userMessage": "think"}, "response": {"content": "So it is.", "reasoning": "Let me think."}},
    {
        "match": {"userMessage": "look"},
        "response": {
            "content": LOOKING.text,
            "toolCalls": [{"id": c.call_id, "name": c.name, "arguments": c.arguments} for c in LOOKING.calls],
        },
    },
    {
        "match": {"userMessage": "too much"},
        "response": {"error": {"message": "slow down", "type": "rate_limit_error", "code": "limit"}, "status": 429},
    },
    {"match": {"userMessage": "break"}, "response": {"content": "this is never whole"}, "truncateAfterChunks": 3},
]
LOOK = {"type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]}
TOOLS = [{"type": "function", "name": "look", "description": "Look.", "strict": False, "parameters": LOOK}]


@pytest.fixture(scope="module")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its base URL."""
    program = installed("aimock") / "node_modules" / ".bin" / "llmock"
    folder: Path = tmp_path_factory.mktemp("aimock")
    (folder / "fixtures.json").write_text(json.dumps({"fixtures": FIXTURES}))
    command = [str(program), "--port", "0", "--fixtures", "fixtures.json", "--chunk-size", str(PIECE), "--strict"]
    env = {"HOME": str(folder), "PATH": os.environ["PATH"]}
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        try:
            assert child.stdout is not None
            said = b""
            while (found := re.search(rb"listening on (http://127\.0\.0\.1:\d+)", said)) is None:
                line = child.stdout.readline()
                assert line, f"aimock did not start: {said!r}"
                said += line
            yield f"{found[1].decode()}/v1"
        finally:
            child.kill()


@pytest.fixture(params=[dialect.wire_api for dialect in DIALECTS])
async def model(aimock: str, request: pytest.FixtureRequest) -> AsyncIterator[ProviderModel]:
    table = {"base_url": aimock, "wire_api": request.param, "request_max_retries": 0}
    model = ProviderModel(read_provider("aimock", table))
    yield model
    await model.close()


def asked(prompt: str, *history: Any) -> ModelRequest:
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": prompt}]}
    return ModelRequest(model="m", instructions="be brief", input=[said, *history], tools=TOOLS)


async def test_text_in_deltas(model: ProviderModel) -> None:
    found = await outcome(model, asked("hello"))
    assert found.error is None
    assert heard(found.events) == HELLO
    deltas = [event.delta for event in found.events if isinstance(event, TextDelta)]
    assert deltas == [HELLO.text[at : at + PIECE] for at in range(0, len(HELLO.text), PIECE)]
    assert used(found.events) == TokenUsage(input_tokens=10, output_tokens=5, total_tokens=15)


async def test_a_thought(model: ProviderModel) -> None:
    found = await outcome(model, asked("think"))
    assert found.error is None
    assert heard(found.events) == Answer("So it is.", "Let me think.")


async def test_calls_and_what_they_gave(model: ProviderModel) -> None:
    first = await outcome(model, asked("look"))
    assert first.error is None
    assert heard(first.events) == LOOKING
    items = [event.item for event in first.events if isinstance(event, ItemDone)]
    results = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "red"}
        for item in items
        if isinstance(item, FunctionCallItem)
    ]
    second = await outcome(model, asked("look", *(item.raw for item in items), *results))
    assert second.error is None
    assert heard(second.events) == Answer("It was red.")


async def test_a_refusal(model: ProviderModel) -> None:
    found = await outcome(model, asked("too much"))
    assert found.error is not None
    assert found.error.kind == "rate_limited"
    assert found.error.retryable
    assert found.error.retry_after_s == 1.0
    assert "slow down" in found.error.message


async def test_a_stream_that_breaks_off(model: ProviderModel) -> None:
    found = await outcome(model, asked("break"))
    assert found.error is not None
    assert found.error.retryable
    assert not [event for event in found.events if isinstance(event, ItemDone)]
