"""The keys of `treadle chat`. What is not here is as in readline: prompt_toolkit has it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

if TYPE_CHECKING:
    from treadle.cli.chat.screen import ChatScreen

# Two Ctrl-C within this time mean it.
TWICE_S: Final = 2.0


def chat_keys(screen: ChatScreen) -> KeyBindings:
    keys = KeyBindings()
    _add_typing(keys, screen)
    _add_ending(keys, screen)
    _add_question(keys, screen)
    return keys


def _add_typing(keys: KeyBindings, screen: ChatScreen) -> None:
    buffer = screen.buffer
    completing = Condition(lambda: buffer.complete_state is not None)
    chosen = Condition(
        lambda: buffer.complete_state is not None and buffer.complete_state.current_completion is not None
    )

    @keys.add("enter")
    def enter(event: KeyPressEvent) -> None:
        """Sends. A backslash before the cursor at the end of a line begins a new one instead."""
        if buffer.document.text_before_cursor.endswith("\\") and not screen.asks_for_text:
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            screen.submit()

    @keys.add("enter", filter=chosen)
    def take(event: KeyPressEvent) -> None:
        """What is marked in the menu is in the text already."""
        buffer.complete_state = None

    @keys.add("tab", filter=completing)
    def complete(event: KeyPressEvent) -> None:
        """The only one is taken at once."""
        state = buffer.complete_state
        if state is not None and len(state.completions) == 1:
            buffer.apply_completion(state.completions[0])
        else:
            buffer.complete_next()

    @keys.add("tab", filter=~completing)
    def complete_now(event: KeyPressEvent) -> None:
        buffer.start_completion()

    for combination in (("escape", "enter"), ("c-j",)):

        @keys.add(*combination)
        def newline(event: KeyPressEvent) -> None:
            buffer.newline(copy_margin=False)

    @keys.add("c-z")
    def suspend(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()


def _add_ending(keys: KeyBindings, screen: ChatScreen) -> None:
    buffer = screen.buffer
    pressed = [-TWICE_S]

    @keys.add("escape")
    def escape(event: KeyPressEvent) -> None:
        if buffer.complete_state is not None:
            buffer.cancel_completion()
        elif screen.asks_for_text:
            screen.give_text(None)
        elif screen.working:
            screen.interrupt()

    @keys.add("c-c")
    @keys.add(Keys.SIGINT)
    def stop(event: KeyPressEvent) -> None:
        if screen.asks_for_text:
            screen.give_text(None)
        elif screen.working and not screen.interrupting:
            screen.interrupt()
        elif buffer.text:
            buffer.reset()
        elif time.monotonic() - pressed[0] < TWICE_S:
            screen.leave()
        else:
            pressed[0] = time.monotonic()
            screen.show_hint("Ctrl-C again leaves, and so does Ctrl-D", TWICE_S)

    @keys.add("c-d", filter=Condition(lambda: not buffer.text and not screen.asks_for_text))
    def end(event: KeyPressEvent) -> None:
        screen.leave()


def _add_question(keys: KeyBindings, screen: ChatScreen) -> None:
    counts = Condition(lambda: screen.asks_for_key)
    waits = Condition(lambda: screen.question is not None and not screen.asks_for_key)

    def on(*names: str) -> Callable[[Callable[[KeyPressEvent], None]], None]:
        def add(function: Callable[[KeyPressEvent], None]) -> None:
            for name in names:
                keys.add(name, filter=counts, eager=True)(function)

        return add

    @on(Keys.Any)
    def answer(event: KeyPressEvent) -> None:
        question = screen.question
        found = None if question is None else question.choice_of(event.data)
        if found is not None:
            screen.answer(found)

    @on("enter")
    def take(event: KeyPressEvent) -> None:
        if screen.question is not None:
            screen.answer(screen.question.choices[screen.question.selected])

    @on("escape", "c-c")
    def refuse(event: KeyPressEvent) -> None:
        screen.answer(None)

    for name, by in (("up", -1), ("down", 1), ("tab", 1), ("s-tab", -1)):

        @on(name)
        def move(event: KeyPressEvent, by: int = by) -> None:
            if screen.question is not None:
                screen.question.move(by)
