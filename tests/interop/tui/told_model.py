"""`ToldModel`: a mock model that does what the test has told it to do at certain words of the user.

Owns which words have been told, and what is left to do for each. One model serves many conversations at once, so the
words of a scenario must be its own.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from treadle.testing import MockModel, RecordedRequest, Reply, ToolCall, item_events, sse_reply, stream

Answer: TypeAlias = str | Reply | ToolCall
Step: TypeAlias = Answer | Callable[[RecordedRequest], Answer]

# The start of what codex asks for the title of a conversation, with the user's words behind it.
TITLE_PROMPT: Final = "Generate a concise, single-line task title"
TITLE: Final = "Do what was told"
# How messages begin that both servers send in the name of the user.
ADDED: Final = ("<skill>", "<subagent_notification>")
# What a reviewer of approvals says.
VERDICT: Final = {"risk_level": "low", "user_authorization": "high", "outcome": "allow", "rationale": "It is harmless."}


class ToldModel(MockModel):
    """It answers what it was told (`when`), in turn. It also gives titles, and allows what it is to review.

    A call of `space.name` is one of a tool in a namespace.
    """

    def __init__(self) -> None:
        self._told: dict[str, deque[Step]] = {}
        self._lock = threading.Lock()  # guards `_told`
        self._calls = 0
        super().__init__(on_empty=self._play)

    def when(self, words: str, *steps: Step) -> None:
        """What to do, one step for each request, while the user's last words contain these.

        A step may be a function, for what only the request can tell.
        """
        with self._lock:
            self._told[words] = deque(steps)

    def asked(self, words: str) -> list[RecordedRequest]:
        """The requests of turns that these words have started; the one for a title is none of them."""
        return [request for request in self.requests() if words in _last_words(request) and not _is_title(request)]

    @property
    def verdicts(self) -> list[RecordedRequest]:
        """The requests of a reviewer of approvals."""
        return [request for request in self.requests() if _is_verdict(request)]

    def titles(self, words: str) -> list[RecordedRequest]:
        """The requests for a title of what began with these words."""
        return [request for request in self.requests() if words in _last_words(request) and _is_title(request)]

    def gated(self, text: str, gate: threading.Event, *, shown: str) -> Reply:
        """A message that stops after the beginning `shown` until the gate opens."""
        assert text.startswith(shown), f"{text!r} does not begin with {shown!r}"
        created_added_delta = 3
        return self.reply_message(text, deltas=[shown, text[len(shown) :]], gate=gate, gate_after=created_added_delta)

    def _play(self, request: RecordedRequest) -> Reply | str:
        if _is_title(request):
            return json.dumps({"title": TITLE})
        if _is_verdict(request):
            return json.dumps(VERDICT)
        words = _last_words(request)
        with self._lock:
            told = [steps for key, steps in self._told.items() if key in words]
            assert len(told) == 1, f"{len(told)} of {list(self._told)} are told for {words!r}"
            assert told[0], f"nothing is left to do for {words!r}"
            step = told[0].popleft()
            self._calls += 1
        answer = step(request) if callable(step) else step
        return self._call(answer) if isinstance(answer, ToolCall) else answer

    def _call(self, call: ToolCall) -> Reply:
        item = call.item(f"call_{self._calls}")
        namespace, _, name = call.name.rpartition(".")
        if namespace:
            item |= {"namespace": namespace, "name": name}
        return sse_reply(stream(f"resp_call_{self._calls}", list(item_events(item, 0)), [item], None))


def _last_words(request: RecordedRequest) -> str:
    said = [text for text in request.input_texts("user") if not text.startswith(ADDED)]
    return said[-1] if said else ""


def _is_title(request: RecordedRequest) -> bool:
    return _last_words(request).startswith(TITLE_PROMPT)


def _is_verdict(request: RecordedRequest) -> bool:
    schema = request.output_schema or {}
    return set(VERDICT) == set(schema.get("properties", ()))
