"""`Approver`: puts the server's questions to the person at the terminal, one after the other.

It owns the questions that are open. The first answer counts, whoever gives it: a question that was answered elsewhere
is withdrawn. Whatever is not a clear yes is a no.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from treadle.agent.client_requests import ClientRequest
from treadle.cli.turn.approval_question import Choice, Question, approval_question, no_answer
from treadle.cli.turn.keyboard import Keyboard
from treadle.cli.turn.live_turn import LiveTurn
from treadle.cli.turn.turn_blocks import note

# More than a turn asks at once. What goes beyond is declined.
MAX_OPEN: Final = 64
# The end of input, as a line has it and as a key.
_NO_MORE: Final = ("", "\x04")


class Approver:
    """Asks while `run` runs.

    Args:
        turn: Where the questions are shown.
        keyboard: Where they are answered.
    """

    def __init__(self, turn: LiveTurn, keyboard: Keyboard) -> None:
        self._turn = turn
        self._keyboard = keyboard
        self._open: dict[int, ClientRequest] = {}
        self._news = asyncio.Event()

    def ask(self, request: ClientRequest) -> bool:
        """Take a question; False when there are too many."""
        if len(self._open) >= MAX_OPEN:
            return False
        self._open[request.id] = request
        self._news.set()
        return True

    def resolved(self, request_id: Any) -> None:
        """It is answered, by us or by somebody else, or needs no answer any more."""
        first = next(iter(self._open), None)  # the one that is being asked
        if self._open.pop(request_id, None) is not None and request_id == first:
            self._keyboard.withdraw()

    def close(self) -> None:
        """The keyboard as it was. May be called again, and by a handler of signals."""
        self._keyboard.restore()

    async def run(self, answer: Callable[[int, Any], None], tell: Callable[[str], None]) -> None:
        """Until it is cancelled. `answer` takes the id of a request and the answer; `tell` words for the agent."""
        while True:
            while self._open:
                await self._ask(next(iter(self._open.values())), answer, tell)
            self._news.clear()
            await self._news.wait()

    async def _ask(
        self, request: ClientRequest, answer: Callable[[int, Any], None], tell: Callable[[str], None]
    ) -> None:
        story = self._turn.story
        changes = story.changes(getattr(request.params, "item_id", ""))
        question = approval_question(request.method, request.params, changes)
        if question is None:
            self._close(request, no_answer(request.method), answer)
            return
        with self._turn.aside() as console:
            choice, words = await self._choose(question, request, console)
            console.print()
        if request.id not in self._open:
            return
        if choice is None or not choice.allows:
            story.decided(question.item_id, "you said no" if choice is not None else "nobody answered")
        if words:
            tell(words)
        self._close(request, question.no if choice is None else choice.answer, answer)

    def _close(self, request: ClientRequest, given: Any, answer: Callable[[int, Any], None]) -> None:
        del self._open[request.id]
        answer(request.id, given)

    async def _choose(self, question: Question, request: ClientRequest, console: Console) -> tuple[Choice | None, str]:
        """The choice, and what the person says with it; None if there is no answer."""
        for block in (*self._turn.story.said(question.item_id), *question.blocks()):
            console.print(block)
        if not self._keyboard.is_ours():
            console.print(note("declined: the program runs in the background, where nobody can be asked", "yellow"))
            return None, ""
        choice = await self._key(question, request, console)
        if choice is None:
            gone = request.id not in self._open
            console.print(note("no answer is needed any more" if gone else "no answer: that is a no", "yellow"))
            return None, ""
        return choice, await self._instead(request, console) if choice.tells else ""

    async def _key(self, question: Question, request: ClientRequest, console: Console) -> Choice | None:
        with self._keyboard.keys():
            console.print(Text("  > ", "bold cyan"), end="")
            while request.id in self._open and (typed := await self._keyboard.read()) not in _NO_MORE:
                choice = question.choose(typed)
                if choice is not None:
                    console.print(Text(choice.label.partition(",")[0]))
                    return choice
        console.print()
        return None

    async def _instead(self, request: ClientRequest, console: Console) -> str:
        console.print(Text("  what instead? (Enter: nothing) ", "bold cyan"), end="")
        words = (await self._keyboard.read()).strip()
        if request.id not in self._open:
            console.print(note("no answer is needed any more", "yellow"))
        return words
