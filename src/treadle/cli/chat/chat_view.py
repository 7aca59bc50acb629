"""`ChatView`: a session on a screen. It hands what is typed to the session, and tells what happens there."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from treadle.cli.chat.asking import Asking
from treadle.cli.chat.chat_session import Answer, ChatSession
from treadle.cli.chat.mentions import Message, message_of
from treadle.cli.chat.recap import said
from treadle.cli.chat.screen import ChatScreen
from treadle.cli.chat.slash_actions import PolicyOf, SlashActions
from treadle.cli.chat.slash_commands import Entered, UnknownCommand, parse
from treadle.cli.chat.status_line import status_line
from treadle.cli.model_problem import turn_remedy
from treadle.cli.run.run_text import FAILED, WARNING
from treadle.cli.turn.story import TurnStory
from treadle.cli.turn.turn_blocks import note, signed
from treadle.cli.visible import visible
from treadle.llm import ProviderConfig
from treadle.protocol.app.turn_errors import TurnError

_KEYS = "Esc to interrupt, Enter adds to it"


class ChatView:
    """Made before the screen and the session, which need it: `join` tells it of them."""

    def __init__(self, policy_of: PolicyOf, providers: Mapping[str, ProviderConfig]) -> None:
        self._policy_of = policy_of
        self._providers = providers
        self._story: TurnStory | None = None
        self.pictures: tuple[str, ...] = ()
        """For the next message."""
        self.failure: str | None = None

    def join(self, session: ChatSession, screen: ChatScreen) -> None:
        self._session = session
        self._screen = screen
        self._asking = Asking(screen)
        self._actions = SlashActions(session, screen, self._policy_of)

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
        match parse(text):
            case None:
                self.say(text)
            case UnknownCommand() as unknown:
                self.problem(str(unknown))
            case Entered() as entered:
                self._screen.print(said(text.strip(), "dim"))
                if entered.command.name == "quit":
                    self._screen.leave()
                else:
                    self._session.want(lambda: self._actions.run(entered))

    def say(self, text: str) -> None:
        """What the user says to the agent."""
        message = message_of(text, self._session.facts.cwd, self.pictures)
        self.pictures = ()
        self._screen.print(said(text.strip()), *_attached(message), "")
        self._session.want(lambda: self._session.send(message))

    def interrupt(self) -> None:
        if self._story is not None and not self._session.interrupting:
            self._story.note = "interrupting…"
        self._session.interrupt()

    # --- what happens: the session calls these ---

    def turn_started(self) -> None:
        facts = self._session.facts
        self._story = TurnStory(time.monotonic(), confinement=facts.confinement, network=facts.network, key=_KEYS)

    def show(self, method: str, payload: Any) -> None:
        if self._story is None:
            return
        blocks = self._story.show(method, payload, time.monotonic())
        if method == "turn/completed":
            used = note(self._story.used(payload.turn.duration_ms))
            blocks = [*blocks, *self._what_to_do(payload.turn.error), used, ""]
            self._story = None
        self._screen.print(*blocks)

    def _what_to_do(self, error: TurnError | None) -> list[RenderableType]:
        """After a turn that failed because of its provider."""
        do = None if error is None else turn_remedy(error, self._providers.get(self._session.facts.provider))
        return [] if do is None else [note(f"try: {do}", "yellow")]

    def note(self, text: str) -> None:
        self._screen.print(note(text))

    def problem(self, text: str) -> None:
        self._screen.print(signed(WARNING, Text(visible(text), "yellow")), "")

    def lost(self, why: str) -> None:
        """There is no server any more."""
        if self.failure is not None:
            return
        self.failure = why
        self._screen.print(signed(FAILED, Text(visible(f"the server is gone: {why}"), "red")))
        self._screen.leave(1)

    async def ask(self, method: str, params: dict[str, Any]) -> Answer:
        return await self._asking.ask(method, params, self._story)


def _attached(message: Message) -> list[RenderableType]:
    return [note(f"with the picture {path}") for path in message.pictures]
