"""From keyword arguments to params: approval modes, sandboxes, inputs, and everything that is left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from treadle.client import (
    ApprovalMode,
    AppServerClient,
    AsyncCodex,
    AsyncThread,
    Codex,
    ExternalMessage,
    ImageInput,
    InitializeResponse,
    LocalImageInput,
    MentionInput,
    Sandbox,
    SkillInput,
    TextInput,
    Thread,
    api,
)
from treadle.errors import ArgumentValueError
from treadle.protocol.app import ReasoningEffort, SortDirection

pytestmark = pytest.mark.anyio

NEVER = {"approvalPolicy": "never"}
REVIEWED = {"approvalPolicy": "on-request", "approvalsReviewer": "auto_review"}
ASKED = {"approvalPolicy": "on-request", "approvalsReviewer": "user"}


class Recorder:
    """Both faces, on clients that only write down what they are asked to send."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **handlers: Any) -> None:
        self.sent: list[dict[str, Any]] = []
        recorder = self

        class Client(AppServerClient):
            def start(self) -> None:
                pass

            def initialize(self) -> InitializeResponse:
                return InitializeResponse(userAgent="a/b")

        monkeypatch.setattr(api, "AppServerClient", Client)
        self.blocking, self.awaitable = Codex(**handlers), AsyncCodex(**handlers)
        self.awaitable._initialized = True
        for name in ("thread_start", "thread_resume", "thread_fork", "thread_list", "turn_start", "start_review"):

            def plain(*arguments: Any, **named: Any) -> Any:
                recorder.sent.append(
                    (named.get("params") or arguments[-1]).model_dump(by_alias=True, exclude_none=True, mode="json")
                )
                return SimpleNamespace(thread=SimpleNamespace(id="t"), turn=SimpleNamespace(id="u"))

            async def awaited(*arguments: Any, plain: Any = plain, **named: Any) -> Any:
                return plain(*arguments, **named)

            setattr(self.blocking._client, name, plain)
            setattr(self.awaitable._client, name, awaited)

    async def both(self, name: str, *arguments: Any, **named: Any) -> dict[str, Any]:
        """What both faces send, which must be the same."""
        if name in ("turn", "review"):
            getattr(Thread(self.blocking._client, "t"), name)(*arguments, **named)
            await getattr(AsyncThread(self.awaitable, "t"), name)(*arguments, **named)
        else:
            getattr(self.blocking, name)(*arguments, **named)
            await getattr(self.awaitable, name)(*arguments, **named)
        first, second = self.sent[-2:]
        assert first == second
        return first


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch)


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({}, REVIEWED),
        ({"approval_mode": ApprovalMode.auto_review}, REVIEWED),
        ({"approval_mode": ApprovalMode.deny_all}, NEVER),
        ({"approval_mode": ApprovalMode.deny_all, "sandbox": Sandbox.read_only}, {**NEVER, "sandbox": "read-only"}),
        ({"sandbox": Sandbox.workspace_write}, {**REVIEWED, "sandbox": "workspace-write"}),
        ({"sandbox": Sandbox.full_access}, {**REVIEWED, "sandbox": "danger-full-access"}),
        (
            {"cwd": "/", "model": "m", "ephemeral": True, "base_instructions": "b", "config": {"a": 1}},
            {**REVIEWED, "cwd": "/", "model": "m", "ephemeral": True, "baseInstructions": "b", "config": {"a": 1}},
        ),
    ],
)
async def test_starting_a_thread(recorder: Recorder, named: dict[str, Any], expected: dict[str, Any]) -> None:
    assert await recorder.both("thread_start", **named) == expected


@pytest.mark.parametrize("name", ["thread_resume", "thread_fork"])
@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({}, {}),
        ({"approval_mode": ApprovalMode.auto_review}, REVIEWED),
        (
            {"approval_mode": ApprovalMode.deny_all, "sandbox": Sandbox.full_access},
            {**NEVER, "sandbox": "danger-full-access"},
        ),
        ({"include_turns": False, "model": "m"}, {"excludeTurns": True, "model": "m"}),
    ],
)
async def test_going_on_with_a_thread(
    recorder: Recorder, name: str, named: dict[str, Any], expected: dict[str, Any]
) -> None:
    """What is left out is inherited."""
    assert await recorder.both(name, "t", **named) == {"threadId": "t", **expected}


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({}, {}),
        ({"approval_mode": ApprovalMode.auto_review}, REVIEWED),
        ({"approval_mode": ApprovalMode.deny_all}, NEVER),
        ({"sandbox": Sandbox.full_access}, {"sandboxPolicy": {"type": "dangerFullAccess"}}),
        ({"effort": ReasoningEffort.high, "model": "m"}, {"effort": "high", "model": "m"}),
        ({"output_schema": {"type": "object"}}, {"outputSchema": {"type": "object"}}),
        ({"service_tier": "fast"}, {"serviceTier": "fast"}),
        ({"turn_service_tier": "fast", "source": "timer"}, {"serviceTierForTurn": "fast", "turnTrigger": "timer"}),
    ],
)
async def test_starting_a_turn(recorder: Recorder, named: dict[str, Any], expected: dict[str, Any]) -> None:
    sent = await recorder.both("turn", "go", **named)
    assert sent == {"threadId": "t", "input": [{"type": "text", "text": "go"}], **expected}


@pytest.mark.parametrize(
    ("sandbox", "kind"), [(Sandbox.read_only, "readOnly"), (Sandbox.workspace_write, "workspaceWrite")]
)
async def test_the_sandbox_of_a_turn(recorder: Recorder, sandbox: Sandbox, kind: str) -> None:
    sent = await recorder.both("turn", "go", sandbox=sandbox)
    assert sent["sandboxPolicy"]["type"] == kind


async def test_a_handler_is_who_reviews(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch, approval_handler=lambda request: True)
    assert await recorder.both("thread_start") == ASKED
    assert (await recorder.both("thread_resume", "t", approval_mode=ApprovalMode.auto_review)) == {
        "threadId": "t",
        **ASKED,
    }
    assert await recorder.both("thread_start", approval_mode=ApprovalMode.deny_all) == NEVER
    assert "approvalPolicy" not in await recorder.both("turn", "go")


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"approval_mode": "deny_all"}, r"ApprovalMode \(deny_all, auto_review\), .* pass ApprovalMode\.deny_all"),
        ({"sandbox": "read-only"}, r"Sandbox \(read_only, .* pass Sandbox\.read_only"),
    ],
)
async def test_words_are_no_members(recorder: Recorder, named: dict[str, Any], message: str) -> None:
    for attempt in ("thread_start", "turn"):
        with pytest.raises(ValueError, match=message):
            await recorder.both(attempt, *["go"][: attempt == "turn"], **named)


@pytest.mark.parametrize(
    ("given", "items"),
    [
        ("go", [{"type": "text", "text": "go"}]),
        (TextInput("go"), [{"type": "text", "text": "go"}]),
        (
            [ImageInput("data:,"), LocalImageInput(__file__), SkillInput("s", "/s"), MentionInput("m", "/m")],
            [
                {"type": "image", "url": "data:,"},
                {"type": "localImage", "path": __file__},
                {"type": "skill", "name": "s", "path": "/s"},
                {"type": "mention", "name": "m", "path": "/m"},
            ],
        ),
        ([TextInput(""), ImageInput("data:,")], [{"type": "text", "text": ""}, {"type": "image", "url": "data:,"}]),
    ],
)
async def test_inputs(recorder: Recorder, given: Any, items: list[Any]) -> None:
    assert (await recorder.both("turn", given))["input"] == items


async def test_what_another_program_says(recorder: Recorder) -> None:
    sent = await recorder.both("turn", ExternalMessage("mail", "hello", namespace="n"))
    assert sent["input"] == []
    assert {name: sent["toolOutput"][name] for name in ("name", "output", "namespace")} == {
        "name": "mail",
        "output": "hello",
        "namespace": "n",
    }
    with pytest.raises(ValueError, match="must not be empty"):
        await recorder.both("turn", ExternalMessage(" ", "hello"))


async def test_nonsense_is_no_input(recorder: Recorder) -> None:
    with pytest.raises(TypeError, match="int is no input"):
        await recorder.both("turn", [7])


async def test_listing(recorder: Recorder) -> None:
    assert await recorder.both("thread_list") == {}
    sent = await recorder.both(
        "thread_list", archived=False, cwd=["/a", "/b"], limit=3, sort_direction=SortDirection.asc, search_term="x"
    )
    assert sent == {"archived": False, "cwd": ["/a", "/b"], "limit": 3, "sortDirection": "asc", "searchTerm": "x"}


async def test_tools_are_described_to_the_server(recorder: Recorder) -> None:
    def add(first: int, second: int) -> int:
        """Add two numbers."""
        return first + second

    (tool,) = (await recorder.both("thread_start", tools=[add]))["dynamicTools"]
    assert (tool["name"], tool["description"]) == ("add", "Add two numbers.")
    assert set(tool["inputSchema"]["properties"]) == {"first", "second"}
    for codex in (recorder.blocking, recorder.awaitable):
        assert list(codex._client.handlers.tools["t"]) == ["add"]


async def test_the_type_of_an_answer_is_its_schema(recorder: Recorder) -> None:
    assert (await recorder.both("turn", "go", output_type=list[int]))["outputSchema"]["type"] == "object"


@pytest.mark.parametrize(
    ("named", "target"),
    [
        ({}, {"type": "uncommittedChanges"}),
        ({"instructions": "look"}, {"type": "custom", "instructions": "look"}),
        ({"branch": "main"}, {"type": "baseBranch", "branch": "main"}),
        ({"commit": "abc"}, {"type": "commit", "sha": "abc"}),
    ],
)
async def test_starting_a_review(recorder: Recorder, named: dict[str, Any], target: dict[str, Any]) -> None:
    assert await recorder.both("review", **named) == {"threadId": "t", "target": target}


async def test_a_review_is_of_one_thing(recorder: Recorder) -> None:
    with pytest.raises(ArgumentValueError, match="pass one of branch and commit, not all"):
        await recorder.both("review", branch="main", commit="abc")
    assert recorder.sent == []
