"""`EngineModel`: a model for agent programs, which does what the prompt says.

Three parts: `plan_for` reads a prompt into a `ReplyPlan`, without any wire; `read_request` and `write_reply` get the
prompt out of a request and write what the plan says, in the form of the Responses API, which `treadle.testing.wires`
translates for the API that was asked; `EngineModel` serves, and owns the gates and the count of failures.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import uuid
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, TypeAlias

from treadle.testing import replies
from treadle.testing.mock_server import MAX_RECORDED, WAIT_S, ModelServer, RecordedRequest, in_the_api_of
from treadle.testing.replies import Event, Reply, ToolCall, Usage, error_reply
from treadle.testing.wires import ROUTES, WireName, route_of, wire_name
from treadle.testing.wires.script import dicts

_COUNT_TOKENS: Final = "/messages/count_tokens"

# --- plans -----------------------------------------------------------------------------------------------------------

Ending: TypeAlias = Literal["whole", "early", "cut"]

MAX_SAID: Final = 200  # of a tool's output: enough to recognise it, little enough to read

# What programs add to a prompt by themselves; their words are not the user's.
_ADDED: Final = re.compile(r"<(system-reminder|environment_context|user_instructions)>.*?</\1>", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request, whichever API it came over.

    Args:
        text: The last item of the conversation: what the user said, or what a tool gave.
        by_tool: Whether a tool gave it.
        users: How many messages the user has sent in all.
        tools: The names of the tools that the model is offered.
    """

    text: str
    by_tool: bool = False
    users: int = 0
    tools: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call of a tool, with its arguments as JSON."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyPlan:
    """What the model does.

    Args:
        text: What it says at the end; before a call, nothing.
        call: The tool that it calls.
        search: What it looks up on the web by itself, before its text.
        think: Whether it thinks aloud before.
        commentary: Whether a message comes before the answer.
        status: The HTTP status that it fails with.
        flaky: How many times it fails first, and the name under which that is counted.
        ending: Whether the stream is whole, ends early as if it were whole, or breaks off.
        delay_s: Seconds before it answers.
        gate: The gate that it waits at before it answers.
    """

    text: str = ""
    call: PlannedCall | None = None
    search: str | None = None
    think: bool = False
    commentary: bool = False
    status: int | None = None
    flaky: tuple[int, str] | None = None
    ending: Ending = "whole"
    delay_s: float = 0.0
    gate: str | None = None


def plan_for(asked: Asked) -> ReplyPlan:
    """What the last item of a conversation makes the model do."""
    if asked.by_tool:
        return ReplyPlan(text=f"tool said: {asked.text.strip()[:MAX_SAID]}")
    prompt = _ADDED.sub("", asked.text)
    call = _call(prompt, asked.tools)
    lines = [line.strip() for line in prompt.splitlines() if line.strip()]
    text = f"users={asked.users}" if "USERS?" in prompt else f"pong: {lines[-1] if lines else ''}"
    flaky = re.search(r"FLAKY:(\d+):(\w+)", prompt)
    status = _word(prompt, r"HTTP:(\d{3})")
    return ReplyPlan(
        text="" if call else text,
        call=call,
        search=_word(prompt, r"SEARCH:(.+)"),
        think="THINK" in prompt,
        commentary="TWOMSG" in prompt,
        status=int(status) if status else None,
        flaky=(int(flaky[1]), flaky[2]) if flaky else None,
        ending="early" if "DROP" in prompt else "cut" if "CUT" in prompt else "whole",
        delay_s=float(_word(prompt, r"SLEEP:(\d+(?:\.\d+)?)") or 0),
        gate=_word(prompt, r"GATE:(\w+)"),
    )


def _word(prompt: str, pattern: str) -> str | None:
    found = re.search(pattern, prompt)
    return found[1].strip() if found else None


def _call(prompt: str, tools: Collection[str]) -> PlannedCall | None:
    """The call that a prompt asks for. None also where no tool fits: programs ask for a title of the conversation with
    the same words and no tools."""
    if not tools:
        return None
    if named := re.search(r"CALL:(\S+) (.+)", prompt):
        return PlannedCall(named[1], named[2].strip())
    command = _word(prompt, r"RUN:(.+)")
    if not command:
        return None
    described = {"command": command, "description": "mock command"}
    known = {
        "exec_command": {"cmd": command},
        "shell_command": {"command": command},
        "shell": {"command": ["bash", "-lc", command]},
        "Bash": described,
        "bash": described,
    }
    for name, arguments in known.items():
        if name in tools:
            return PlannedCall(name, json.dumps(arguments))
    return None


def flat(content: object) -> str:
    """The text of a string, of a block, or of blocks in blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return flat(content.get("text") or content.get("content") or content.get("output"))
    if isinstance(content, list):
        return "\n".join(flat(block) for block in content)
    return ""


# --- requests and replies --------------------------------------------------------------------------------------------

_USAGE: Final = Usage(input_tokens=11, cached_input_tokens=3, output_tokens=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Habits:
    """The few habits in which the models of the APIs differ, because agent programs show them.

    Args:
        thought: What THINK thinks.
        sealed: The thought as only the provider can read it.
        usage: The token counts of every reply.
        call_prefix: How the ids of calls begin.
        before_a_call: What is said before a call; None for nothing.
        responses_only: Whether it has custom tools, namespaces, searches, and messages that are commentary.
    """

    thought: str = "mock thought"
    sealed: str | None = "c2ln"
    usage: Usage = _USAGE
    call_prefix: str = "call"
    before_a_call: str | None = "Running it."
    responses_only: bool = False


_HABITS: Final[Mapping[WireName, _Habits]] = {
    "responses": _Habits(
        thought="**Thinking about it**\n\nmock thought", sealed=None, before_a_call=None, responses_only=True
    ),
    "chat": _Habits(),
    # What comes from the cache is not part of the input in this API: 11 are left.
    "anthropic": _Habits(usage=Usage(input_tokens=14, cached_input_tokens=3, output_tokens=7), call_prefix="toolu"),
}


def read_request(request: RecordedRequest) -> Asked:
    """What a request asks; `ValueError` when it makes no sense."""
    for name in ("input", "messages", "tools"):
        value = request.json.get(name) or []
        if not isinstance(value, str) and dicts(value) != value:
            raise ValueError(f"`{name}` is no list of objects")
    spoken = [item for item in request.input if item.get("role") not in ("system", "developer")]
    last = spoken[-1] if spoken else {}
    by_tool = str(last.get("type", "")).endswith("_output")
    return Asked(
        text=flat(last.get("output") if by_tool else last.get("content")),
        by_tool=by_tool,
        users=sum(item.get("role") == "user" for item in spoken),
        tools=frozenset(request.tool_names),
    )


def write_reply(plan: ReplyPlan, request: RecordedRequest, name: str) -> Reply:
    """The reply to a request; `name` is part of all its ids."""
    wire = wire_name(request.path)
    if wire == "anthropic" and plan.call is not None:
        json.loads(plan.call.arguments)  # a model of this API can only call with an object
    habits = _HABITS[wire]
    items = list(_items(plan, request, name, habits))
    body: list[Event] = []
    for index, item in enumerate(items):
        if item["type"] == "message":
            body += replies.message_events(item, [flat(item["content"])], index)
        else:
            body += replies.item_events(item, index)
    return replies.sse_reply(replies.stream(f"resp_{name}", body, items, habits.usage))


def _items(plan: ReplyPlan, request: RecordedRequest, name: str, habits: _Habits) -> Iterator[dict[str, Any]]:
    commentary = plan.commentary and habits.responses_only
    if plan.think:
        yield replies.reasoning_item(f"rs_{name}", habits.thought, habits.sealed)
    if commentary:
        yield replies.message_item(f"msg_{name}_0", "Working on it.", "commentary")
    if plan.search is not None and habits.responses_only:
        action = {"type": "search", "query": plan.search}
        yield {"type": "web_search_call", "id": f"ws_{name}", "status": "completed", "action": action}
    if plan.call is None:
        yield replies.message_item(f"msg_{name}", plan.text, "final_answer" if commentary else None)
        return
    if habits.before_a_call is not None:
        yield replies.message_item(f"msg_{name}", habits.before_a_call, None)
    call_id = f"{habits.call_prefix}_{name}"
    call, offered = plan.call, [tool for tool in request.json.get("tools") or () if tool.get("name") == plan.call.name]
    namespace, dot, tool = call.name.partition(".")
    if habits.responses_only and offered and offered[0].get("type") == "custom":
        yield ToolCall(call.name, json.loads(call.arguments), custom=True).item(call_id)
    elif habits.responses_only and dot:
        yield {**ToolCall(tool, call.arguments).item(call_id), "namespace": namespace}
    else:
        yield ToolCall(call.name, call.arguments).item(call_id)


# --- the server ------------------------------------------------------------------------------------------------------


class EngineModel(ModelServer):
    """An HTTP server on 127.0.0.1 that speaks the Responses, Messages and Chat Completions APIs, so that codex, claude,
    opencode, pi and our own agent all work with it. What it answers is what the last prompt asks for:

        RUN:echo hi             a call of the shell tool; the rest of the line is the command
        CALL:name {"a": 1}      a call of any tool, with these arguments (for a tool of free text: a JSON string)
        CALL:space.name {}      the same for a tool in a namespace (Responses only)
        SEARCH:words            a web search by the model itself, then the text (Responses only)
        THINK                   a thought first
        TWOMSG                  a message before the answer (Responses only)
        HTTP:401                this HTTP status
        FLAKY:2:name            HTTP 500 for the first two requests with this name
        DROP                    a stream that ends after its first event, without an error
        CUT                     a connection that breaks after the first event (both: no answer that is no stream)
        SLEEP:1.5               seconds before the answer
        GATE:name               the answer waits until the test calls `open_gate("name")`
        USERS?                  the text `users=N`: how many messages of the user the conversation has
        anything else           the text `pong: …` with the last line

    The result of a tool is answered with the text `tool said: …`. It serves from construction until `close()`.

        with EngineModel() as model:
            stage = EngineHome(tmp_path, model)
            subprocess.run(["claude", "-p"], input=b"RUN:echo hi", cwd=stage.project, env=stage.env("claude"))

    Args:
        port: Where it answers; 0 takes a free one.
    """

    _ROUTES: ClassVar[tuple[str, ...]] = (*ROUTES, _COUNT_TOKENS)

    def __init__(self, *, port: int = 0) -> None:
        self._prompts: deque[str] = deque(maxlen=MAX_RECORDED)
        self._failed: Counter[str] = Counter()
        self._gates: dict[str, threading.Event] = {}
        super().__init__(port=port)

    @property
    def root_url(self) -> str:
        """`base_url` without the `/v1`, for programs that add it themselves, such as claude."""
        return self.base_url.removesuffix("/v1")

    def open_gate(self, name: str) -> None:
        """Open a gate for every answer that waits there, or will.

        Args:
            name: As in the prompt, after `GATE:`.
        """
        self._gate(name).set()

    def prompts(self) -> list[str]:
        """What the user said last, in each request that does not bring the result of a tool."""
        with self._changed:
            return list(self._prompts)

    def wait_for_prompt(self, words: str, timeout: float = WAIT_S) -> None:
        """Block until a request arrives whose prompt has these words; `TimeoutError` says what arrived instead.

        In an async test that runs the client on the same loop, use `await model.prompted(words)`.

        Args:
            words: A part of the prompt, such as `GATE:a`.
            timeout: Seconds to wait for it.
        """
        with self._changed:
            seen = self._changed.wait_for(lambda: any(words in prompt for prompt in self._prompts), timeout)
        if not seen:
            raise TimeoutError(f"no prompt with {words!r} came in {timeout:g} s, but {self.prompts()}")

    async def prompted(self, words: str, timeout: float = WAIT_S) -> None:
        """`wait_for_prompt` without blocking the event loop.

        Args:
            words: A part of the prompt, such as `GATE:a`.
            timeout: Seconds to wait for it.
        """
        await asyncio.to_thread(self.wait_for_prompt, words, timeout)

    def _gate(self, name: str) -> threading.Event:
        with self._changed:
            return self._gates.setdefault(name, threading.Event())

    def _prompted(self, text: str) -> None:
        with self._changed:
            self._prompts.append(text)
            self._changed.notify_all()

    def _reply(self, request: RecordedRequest, number: int) -> Reply:
        try:
            if route_of(request.path) == _COUNT_TOKENS:
                return error_reply(200, {"input_tokens": 10})
            return self._planned(request)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            return error_reply(400, {"error": {"message": f"the mock model cannot read this request: {error!r}"}})

    def _planned(self, request: RecordedRequest) -> Reply:
        asked = read_request(request)
        plan = plan_for(asked)
        if not asked.by_tool:
            self._prompted(asked.text)
        status = plan.status
        if plan.flaky is not None:
            times, name = plan.flaky
            with self._changed:
                self._failed[name] += 1
                status = 500 if self._failed[name] <= times else status
        gate = self._gate(plan.gate) if plan.gate else None
        if status is not None:
            detail = {"message": f"mock error {status}", "type": "mock_error", "code": str(status)}
            reply = in_the_api_of(request, error_reply(status, {"error": detail}))
            return replace(reply, delay_s=plan.delay_s, gate=gate)
        reply = in_the_api_of(request, write_reply(plan, request, uuid.uuid4().hex))
        if not reply.streamed:
            reply = replace(reply, dropped=plan.ending != "whole")
        elif plan.ending == "early":
            reply = replace(reply, frames=reply.frames[:1])
        elif plan.ending == "cut":
            reply = replace(reply, cut_after=1)
        return replace(reply, delay_s=plan.delay_s, gate=gate)
