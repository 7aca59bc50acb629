"""What the server wants to know, asked on the screen: approvals, and questions of the agent.

It fails closed: what nobody answers, and what is not understood, is a no.
`cli.turn.approval_question` says what there is to choose.
"""

from __future__ import annotations

from typing import Any

import msgspec
from rich.console import RenderableType
from rich.text import Text

from treadle.cli.chat.chat_session import Answer
from treadle.cli.chat.key_question import Option
from treadle.cli.chat.recap import said
from treadle.cli.chat.screen import ChatScreen
from treadle.cli.run.run_text import WARNING
from treadle.cli.turn.approval_question import Question, approval_question, no_answer
from treadle.cli.turn.story import TurnStory
from treadle.cli.turn.turn_blocks import signed
from treadle.cli.visible import visible, visible_line
from treadle.protocol.app.base import convert
from treadle.protocol.app.questions import (
    ToolRequestUserInputAnswer,
    ToolRequestUserInputParams,
    ToolRequestUserInputQuestion,
    ToolRequestUserInputResponse,
)
from treadle.protocol.app.registry import SERVER_REQUESTS

_OTHER = Option("o", "something else")


class Asking:
    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen

    async def ask(self, method: str, params: dict[str, Any], story: TurnStory | None) -> Answer:
        """Raises `RpcError` for what cannot be asked here, which the server takes as a no."""
        record = SERVER_REQUESTS.get(method)
        if record is None:
            raise no_answer(method)
        try:
            given = convert(params, record.params)
        except msgspec.ValidationError:
            raise no_answer(method) from None
        if isinstance(given, ToolRequestUserInputParams):
            return Answer(await self._questions(given))
        item_id = getattr(given, "item_id", "")
        question = approval_question(method, given, None if story is None else story.changes(item_id))
        if question is None:
            raise no_answer(method)
        return await self._approval(question, story)

    async def _approval(self, question: Question, story: TurnStory | None) -> Answer:
        tried = [] if story is None else story.said(question.item_id)
        about = ["", *tried, *question.blocks()[: -len(question.choices)]]  # the choices are drawn by the screen
        options = [Option(choice.key, choice.label) for choice in question.choices]
        taken = await self._screen.choose("Your answer", options, about=about, first_marked=False)
        choice = None if taken is None else question.choose(taken.key)
        if choice is None:
            # Esc and Ctrl-C at a question mean: stop.
            choice = next((choice for choice in question.choices if choice.stops), None)
        if choice is None:
            return Answer(question.no)
        self._screen.print(Text(f"  {choice.label.partition(',')[0]}", "bold"), "")
        if story is not None and not choice.allows:
            story.decided(question.item_id, "you said no")
        instead = await self._screen.ask_text("instead:") if choice.tells else None
        if instead is not None:
            self._screen.print(said(instead), "")
        return Answer(choice.answer, instead)

    async def _questions(self, params: ToolRequestUserInputParams) -> ToolRequestUserInputResponse:
        answers: dict[str, ToolRequestUserInputAnswer] = {}
        for question in params.questions:
            given = await self._one(question)
            if given is not None:
                answers[question.id] = ToolRequestUserInputAnswer(answers=(given,))
        return ToolRequestUserInputResponse(answers=answers)

    async def _one(self, question: ToolRequestUserInputQuestion) -> str | None:
        about: list[RenderableType] = ["", signed(WARNING, Text(visible(question.question), "bold yellow"))]
        offered = (question.options or ())[:9]
        if offered:
            options = [
                Option(str(number), visible_line(f"{option.label}: {option.description}".rstrip(": ")))
                for number, option in enumerate(offered, 1)
            ]
            taken = await self._screen.choose("Your answer", [*options, _OTHER], about=about)
            if taken is None:
                return None
            if taken is not _OTHER:
                return offered[int(taken.key) - 1].label
            about = []
        self._screen.print(*about)
        return await self._screen.ask_text("answer:")
