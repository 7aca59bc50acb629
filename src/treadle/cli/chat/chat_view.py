"""`ChatView`: a session on a screen. It hands what is typed to the session, renders what happens there, and asks what
the server wants to know.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from treadle.agent.model_failures import failure_of
from treadle.cli.chat.chat_input import Entered, UnknownCommand, message_of, parse_command
from treadle.cli.chat.chat_session import ChatSession, UserAnswer
from treadle.cli.chat.chat_thread import status_line
from treadle.cli.chat.screen import ChatScreen, Option
from treadle.cli.chat.slash_actions import SlashActions, user_block
from treadle.cli.threads.thread_library import ThreadLibrary, redaction_for
from treadle.cli.turn.approval_question import Question, approval_question, no_answer, params_of_request
from treadle.cli.turn.rich_blocks import drawn, note, signed
from treadle.cli.turn.turn_renderer import TurnRenderer
from treadle.config import Config
from treadle.pages.safe_text import printable, printable_line
from treadle.pages.view_blocks import FAILED, WARNING, server_block, with_reasoning
from treadle.protocol.app.approvals import (
    ToolRequestUserInputAnswer,
    ToolRequestUserInputParams,
    ToolRequestUserInputQuestion,
    ToolRequestUserInputResponse,
)
from treadle.protocol.app.items import PlanThreadItem

_KEYS = "Esc to interrupt, Enter adds to it"
_OTHER = Option("o", "something else")


class ChatView:
    """A session on a screen. Made before the two, which need it: `join` connects them."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._story: TurnRenderer | None = None
        self._proposed = False  # whether the running turn has proposed a plan
        self.pictures: tuple[str, ...] = ()
        """Pictures for the next message."""
        self.failure: str | None = None

    def join(self, session: ChatSession, screen: ChatScreen) -> None:
        self._session = session
        self._screen = screen
        library = ThreadLibrary(session.client, redaction_for(self._config, os.environ))
        self.actions: SlashActions = SlashActions(session, screen, library, self._config.sandbox_policy)
        self._questions = ServerQuestions(screen)

    # --- what is typed: the screen calls these ---

    @property
    def working(self) -> bool:
        return self._session.working

    @property
    def interrupting(self) -> bool:
        return self._session.interrupting

    def status(self, width: int) -> str:
        return status_line(self._session.facts, width)

    def live(self, now: float, width: int, height: int) -> Sequence[Text]:
        return [] if self._story is None else self._story.live(now, width, height)

    def submitted(self, text: str) -> None:
        if self.actions.offers_plan:
            self._screen.answer(None)
        match parse_command(text):
            case None:
                self.say(text)
            case UnknownCommand() as unknown:
                self.problem(str(unknown))
            case Entered() as entered:
                self._screen.print(user_block(text.strip(), "dim"))
                if entered.command.name == "quit":
                    self._screen.leave()
                else:
                    self._session.want(lambda: self.actions.run(entered))

    def say(self, text: str) -> None:
        """Send a message of the user to the agent."""
        session = self._session
        there = None if session.facts.elsewhere is None else session.found_files
        message = message_of(text, session.facts.cwd, self.pictures, found=there)
        self.pictures = ()
        pictures = [note(f"with the picture {path}") for path in message.pictures]
        self._screen.print(user_block(text.strip()), *pictures, "")
        self._session.want(lambda: self._session.send(message))

    def interrupt(self) -> None:
        if self._story is not None and not self._session.interrupting:
            self._story.note = "interrupting…"
        self._session.interrupt()

    # --- what happens: the session calls these ---

    def turn_started(self) -> None:
        facts = self._session.facts
        self._proposed = False
        self._story = TurnRenderer(time.monotonic(), confinement=facts.confinement, network=facts.network, key=_KEYS)

    def show(self, method: str, payload: Any) -> None:
        shown = with_reasoning(self._config, method, payload)
        if self._story is None and method == "mcpServer/startupStatus/updated":
            # A server that was started to be asked for its prompts.
            block = server_block(payload)
            self._screen.print(*([] if block is None else drawn(block)))
        if self._story is None or shown is None:
            return
        blocks = self._story.show(method, shown, time.monotonic())
        if method == "item/completed" and isinstance(payload.item, PlanThreadItem):
            self._proposed = True
        if method == "turn/completed":
            used = note(self._story.used(payload.turn.duration_ms))
            # What to do after a turn that failed because of its provider.
            provider = self._config.providers.get(self._session.facts.provider)
            failure = None if payload.turn.error is None else failure_of(payload.turn.error, provider)
            advice = [] if failure is None else [note(f"try: {failure.advice}", "")]
            blocks = [*blocks, *advice, used, ""]
            self._story = None
            self._screen.attention.wanted("agent-turn-complete", f"the turn has ended: {payload.turn.status}")
            if self._proposed and payload.turn.status == "completed" and self._session.facts.plans:
                self._session.want(self.actions.offer_plan)
        self._screen.print(*blocks)

    def note(self, text: str) -> None:
        self._screen.print(note(text))

    def problem(self, text: str) -> None:
        self._screen.print(signed(WARNING, Text(printable(text))), "")

    def lost(self, why: str) -> None:
        """The connection to the server is lost: leave."""
        if self.failure is not None:
            return
        self.failure = why
        self._screen.print(signed(FAILED, Text(printable(f"the server is gone: {why}"), "red")))
        self._screen.leave(1)

    async def ask(self, method: str, params: dict[str, Any]) -> UserAnswer:
        return await self._questions.ask(method, params, self._story)


class ServerQuestions:
    """Questions of the server, asked on the screen: approvals, and questions of the agent. It fails closed: what nobody
    answers, and what is not understood, is a no."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen

    async def ask(self, method: str, params: dict[str, Any], story: TurnRenderer | None) -> UserAnswer:
        """Ask the user. Raises `RpcError` for what cannot be asked here, which the server takes as a no."""
        given = params_of_request(method, params)
        self._screen.attention.wanted("approval-requested", "a question waits for your answer")
        if isinstance(given, ToolRequestUserInputParams):
            answers: dict[str, ToolRequestUserInputAnswer] = {}
            for asked in given.questions:
                answer = await self._question(asked)
                if answer is not None:
                    answers[asked.id] = ToolRequestUserInputAnswer(answers=(answer,))
            return UserAnswer(ToolRequestUserInputResponse(answers=answers))
        item_id = getattr(given, "item_id", "")
        question = approval_question(method, given, None if story is None else story.changes(item_id))
        if question is None:
            raise no_answer(method)
        return await self._approval(question, story)

    async def _approval(self, question: Question, story: TurnRenderer | None) -> UserAnswer:
        tried = [] if story is None else story.said(question.item_id)
        about = ["", *tried, *question.blocks()[: -len(question.choices)]]  # the choices are drawn by the screen
        options = [Option(choice.key, choice.label) for choice in question.choices]
        taken = await self._screen.choose("Your answer", options, about=about, first_marked=False)
        choice = None if taken is None else question.choose(taken.key)
        if choice is None:
            # Esc and Ctrl-C at a question mean: stop.
            choice = next((choice for choice in question.choices if choice.stops), None)
        if choice is None:
            return UserAnswer(question.no)
        self._screen.print(Text(f"  {choice.label.partition(',')[0]}", "bold"), "")
        if story is not None and not choice.allows:
            story.decided(question.item_id, "you said no")
        instead = await self._screen.ask_text("instead:") if choice.tells else None
        if instead is not None:
            self._screen.print(user_block(instead), "")
        return UserAnswer(choice.answer, instead)

    async def _question(self, question: ToolRequestUserInputQuestion) -> str | None:
        about: list[RenderableType] = ["", signed(WARNING, Text(printable(question.question), "bold"))]
        offered = (question.options or ())[:9]
        if offered:
            options = [
                Option(str(number), printable_line(f"{option.label}: {option.description}".rstrip(": ")))
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
