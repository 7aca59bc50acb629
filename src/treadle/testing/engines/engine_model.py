"""`EngineModel`: a model for agent programs, which does what the prompt says.

Owns the gates and the count of failures. `engine_plan` reads the prompt, `planned_reply` the request, and writes what
the plan says; the APIs are those of every mock model, in `treadle.testing.wires`.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections import Counter, deque
from dataclasses import replace
from typing import ClassVar, Final

from treadle.testing.engines import planned_reply
from treadle.testing.engines.engine_plan import Plan, plan_for
from treadle.testing.model_server import MAX_RECORDED, WAIT_S, ModelServer, in_the_api_of
from treadle.testing.recorded import RecordedRequest
from treadle.testing.replies import Reply, error_reply
from treadle.testing.wires import ROUTES, route_of

_COUNT_TOKENS: Final = "/messages/count_tokens"


class EngineModel(ModelServer):
    """An HTTP server on 127.0.0.1 that speaks the Responses, Messages and Chat Completions APIs, so that codex, claude,
    opencode, pi and our own agent all work with it. What it answers is what the last prompt tells it to:

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
        """Let every answer go that waits at this gate, or will.

        Args:
            name: As in the prompt, after `GATE:`.
        """
        self._gate(name).set()

    def prompts(self) -> list[str]:
        """What the user said last, in each request that does not bring the result of a tool."""
        with self._changed:
            return list(self._prompts)

    def wait_for_prompt(self, words: str, timeout: float = WAIT_S) -> None:
        """Block until a request arrives whose prompt has these words; `TimeoutError` tells what arrived instead.

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

    def _reply(self, request: RecordedRequest, number: int) -> Reply:
        try:
            return self._planned(request)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            return error_reply(400, {"error": {"message": f"the mock model cannot read this request: {error!r}"}})

    def _planned(self, request: RecordedRequest) -> Reply:
        if route_of(request.path) == _COUNT_TOKENS:
            return error_reply(200, {"input_tokens": 10})
        asked = planned_reply.read(request)
        if not asked.by_tool:
            self._prompted(asked.text)
        plan = plan_for(asked)
        status = 500 if plan.flaky and self._fails(*plan.flaky) else plan.status
        if status is not None:
            reply = in_the_api_of(request, planned_reply.error(status))
        else:
            reply = _ended(in_the_api_of(request, planned_reply.write(plan, request, uuid.uuid4().hex)), plan)
        return replace(reply, delay_s=plan.delay_s, gate=self._gate(plan.gate) if plan.gate else None)

    def _prompted(self, text: str) -> None:
        with self._changed:
            self._prompts.append(text)
            self._changed.notify_all()

    def _fails(self, times: int, name: str) -> bool:
        with self._changed:
            self._failed[name] += 1
            return self._failed[name] <= times


def _ended(reply: Reply, plan: Plan) -> Reply:
    if not reply.streamed:
        return replace(reply, dropped=plan.ending != "whole")
    match plan.ending:
        case "early":
            return replace(reply, frames=reply.frames[:1])
        case "cut":
            return replace(reply, cut_after=1)
        case _:
            return reply
