"""`SoakModel`: answers every turn as its message says, strikes when its moment has come, and checks what it is asked.

A message of the user is `[turn 17 slow]`, its answer `[answer 17]`. What a request says of the turns before is compared
with what was said, so that a runtime that forgets, or tells something twice, is found out.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from bench.host_soak.plan import Moment
from treadle.testing import MockModel, RecordedRequest, Reply, ToolCall
from treadle.testing.replies import error_reply, item_events, sse_reply, stream

SLOW_PIECES: Final = 12
SLOW_S: Final = 0.03
HOURS_S: Final = 7200
LOOK_BACK: Final = 4
"""How many turns before must be in a request. A new thread gets the end of the conversation only."""
_SAID: Final = re.compile(r"\[turn (\d+) ([\w-]+)\]")
_STEERED: Final = re.compile(r"\[steer (\d+)\]")


def said(number: int, kind: str) -> str:
    return f"[turn {number} {kind}]"


def answer(number: int) -> str:
    return f"[answer {number}]"


def steering(number: int) -> str:
    return f"[steer {number}]"


class SoakModel(MockModel):
    """`strike` is called with what the moment is, on a thread of the model, before it answers."""

    def __init__(self, strike: Callable[[Moment], None], *, has_commands: bool) -> None:
        self.asked: Counter[int] = Counter()
        self.expected: list[str] = []
        """What the last turns said, user and agent: each must be in the next request once."""
        self.problems: list[str] = []
        self.over = threading.Event()
        """The turn has ended: nobody waits for its answer any more."""
        self.reviews = 0
        self.steered = False
        """Whether this turn was steered: then it is asked for once more."""
        self._strike = strike
        self._has_commands = has_commands
        self._facts = 0
        super().__init__(on_empty=self._decide)

    def _answer(self, request: RecordedRequest) -> Reply:
        return self._reply(request, 0)  # and not kept: a soak has thousands

    # --- what to do ---

    def _decide(self, request: RecordedRequest) -> Reply | str:
        words = request.last_user_text or ""
        found = _SAID.search(words)
        if found is None and _STEERED.search(words) is None:
            return self._review(request)
        if found is None:
            found = [each for text in request.input_texts("user") for each in _SAID.finditer(text)][-1]
        number, kind = int(found[1]), found[2]
        after_tool = str(request.input[-1].get("type")).endswith("_output")
        if not self.asked[number]:
            self._look(request, number, kind)
        self.asked[number] += 1
        self._strike("tool ended" if after_tool else "asked")
        return self._reply_to(number, kind, after_tool=after_tool)

    def _look(self, request: RecordedRequest, number: int, kind: str) -> None:
        text = "\n".join(
            [*(text for role in ("user", "assistant", "developer", "system") for text in request.input_texts(role))]
        )
        text += str(request.json.get("instructions", ""))
        for words in [*self.expected[-2 * LOOK_BACK :], said(number, kind)]:
            if (times := text.count(words)) != 1:
                self.problems.append(f"turn {number} ({kind}): the model got {words} {times} times")

    def _review(self, request: RecordedRequest) -> Reply | str:
        if str(request.input[-1].get("type")).endswith("_output"):
            return "Nothing to save."
        self.reviews += 1
        change = {"target": "user", "action": "add", "content": "The user soaks things."}
        return self._call("memory", change, f"review_{self.reviews}")

    def _reply_to(self, number: int, kind: str, *, after_tool: bool) -> Reply | str:
        once = self.asked[number] == 1
        words = answer(number)
        if kind.endswith("-once") and not once:
            return words
        match base := kind.partition("-")[0]:
            case "command" | "tool" | "memory" if not after_tool:
                return self._use(base, number)
            case _ if kind.endswith("after-tool") and not after_tool:
                return self._use("command" if self._has_commands else "tool", number)
            case "kill" | "stop" | "interrupt" if kind != "kill-between" and kind != "stop-for-a-moment":
                deltas = [words[:4], words[4:]]
                return self.reply_message(words, deltas=deltas, gate=self.over, gate_after=3)
            case "steer" if once and self.steered:
                return self._slowly(words[:7])  # and the rest when what was said meanwhile is heard
            case "slow" | "steer":
                return self._slowly(words)
            case "401":
                return _error(401, "invalid_api_key", "Incorrect API key provided.")
            case "429":
                wait = HOURS_S if kind == "429-for-hours" else 1
                with_header = wait > 1 or number % 2
                headers = {"retry-after": str(wait)} if with_header else None
                return _error(429, "rate_limit_exceeded", "Too many requests.", headers)
            case "500":
                return _error(500, "server_error", "The server had an error.")
            case "cut":
                return self.reply_message(words, deltas=[words[:4], words[4:]], cut_after=number % 4)
            case "hang":
                return Reply(dropped=True)
        return words

    def _use(self, what: str, number: int) -> Reply:
        match what:
            case "command":
                return self._call(
                    "exec_command", {"cmd": f"echo '[output {number}]'", "login": False}, f"call_{number}"
                )
            case "memory":
                self._facts += 1
                add = {"action": "add", "content": f"Fact {number} of the soak."}
                remove = {"action": "remove", "old_text": "of the soak."}
                operations = [add] if self._facts == 1 else [remove, add]
                return self._call("memory", {"target": "memory", "operations": operations}, f"call_{number}")
        return self._call("soak_tool", {"number": number}, f"call_{number}")

    def _call(self, name: str, arguments: dict[str, Any], call_id: str) -> Reply:
        item = ToolCall(name, arguments).item(call_id)
        return sse_reply(stream(f"resp_{call_id}", list(item_events(item, 0)), [item], None))

    def _slowly(self, words: str) -> Reply:
        size = max(1, len(words) // SLOW_PIECES)
        pieces = [words[at : at + size] for at in range(0, len(words), size)]
        return self.reply_message(words, deltas=pieces, delta_delay_s=SLOW_S)


def _error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Reply:
    return error_reply(status, {"error": {"type": code, "code": code, "message": message}}, headers)
